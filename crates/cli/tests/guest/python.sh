# Puts the host's Python, what it is linked with and its library into the root of a guest: DIR.
set -eu
python=$(readlink -f /usr/bin/python3)
library=$(/usr/bin/python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
ln -s usr/lib "$1/lib"
ln -s usr/lib64 "$1/lib64"
cp "$python" "$1/usr/bin/python3"
linked=$(ldd "$python" "$library"/lib-dynload/_ctypes.*.so | grep -o ' /[^ ]*\|^[[:space:]]*/[^ ]*[^:]' | sed 's/ (.*//' | tr -d '[:blank:]' | sort -u)
for file in $linked; do
    to=$1/usr/${file#/usr}
    mkdir -p "$(dirname "$to")"
    cp -L "$file" "$to"
done
tar -C / -c --exclude='config-*' --exclude=test --exclude=pydoc_data --exclude=lib2to3 --exclude=idlelib --exclude=dist-packages ".$library" | tar -C "$1" -x
