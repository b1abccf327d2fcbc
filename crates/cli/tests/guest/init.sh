#!/system/usr/bin/busybox sh
# Process 1 of the guest. The initramfs itself can never be pivoted away from, so the system in /system becomes the root, as it would after any boot.
bb=/system/usr/bin/busybox
$bb mount --bind /system /system
cd /system || exit 1
$bb mount -t devtmpfs dev /system/dev
exec >/system/dev/ttyS0 2>&1 </system/dev/null
$bb mount --move . /
exec $bb chroot . /usr/bin/busybox sh /cases.sh
