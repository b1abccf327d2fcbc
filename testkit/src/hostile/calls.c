// Makes one system call after the other that no sandboxed program should be granted, and prints `name errno` for each: 0 means that it was granted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

static void say(const char *name, long result) {
  printf("%s %d\n", name, result < 0 ? errno : 0);
  fflush(stdout);
}

#define TRY(name, ...) say(#name, syscall(SYS_##name, __VA_ARGS__))

int main(void) {
  static char buffer[4096];
  struct io_uring_params ring = {0};
  struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event};
  union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  TRY(mount, "none", "/tmp", "tmpfs", 0, NULL);
  TRY(umount2, "/proc", 2 /* DETACH */);
  TRY(pivot_root, ".", ".");
  TRY(chroot, "/tmp");
  TRY(open_tree, AT_FDCWD, "/", 1);
  TRY(move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/home", 0);
  TRY(fsopen, "tmpfs", 0);
  TRY(mount_setattr, AT_FDCWD, "/", 0, buffer, 32);
  TRY(unshare, CLONE_NEWUSER);
  TRY(setns, 0, 0);
  TRY(ptrace, 16 /* ATTACH */, 1, 0, 0);
  TRY(process_vm_readv, 1, buffer, 0, buffer, 0, 0);
  TRY(process_vm_writev, 1, buffer, 0, buffer, 0, 0);
  TRY(pidfd_getfd, 0, 0, 0);
  TRY(kcmp, 1, 1, 0, 0, 0);
  TRY(keyctl, 0, -3, 1);
  TRY(add_key, "user", "k", "v", 1, -3);
  TRY(request_key, "user", "k", NULL, -3);
  TRY(bpf, BPF_MAP_CREATE, &map, sizeof map);
  TRY(io_uring_setup, 4, &ring);
  TRY(perf_event_open, &event, 0, -1, -1, 0);
  TRY(userfaultfd, 1);
  TRY(kexec_load, 0, 0, NULL, 0);
  TRY(init_module, buffer, 0, "");
  TRY(finit_module, 0, "", 0);
  TRY(delete_module, "none", 0);
  TRY(open_by_handle_at, AT_FDCWD, buffer, 0);
  TRY(settimeofday, buffer, NULL);
  TRY(clock_settime, 0, buffer);
  TRY(sethostname, "x", 1);
  TRY(setdomainname, "x", 1);
  TRY(reboot, 0xfee1dead, 672274793, 0, NULL);
  TRY(swapon, "/tmp/x", 0);
  TRY(acct, NULL);
  TRY(quotactl, 0, NULL, 0, NULL);
  TRY(syslog, 3, buffer, sizeof buffer);
  TRY(fanotify_init, 0, 0);
  TRY(iopl, 3);
  TRY(ioperm, 0, 1, 1);
  TRY(mknodat, AT_FDCWD, "/tmp/disk", S_IFBLK | 0600, 0x0800);
  TRY(lookup_dcookie, 0, buffer, 0);
  TRY(vhangup, 0);
  TRY(migrate_pages, 0, 0, NULL, NULL);
  TRY(move_pages, 1, 0, NULL, NULL, NULL, 0);
  TRY(socket, 40 /* VSOCK */, SOCK_STREAM, 0);
  TRY(socket, 38 /* ALG */, SOCK_SEQPACKET, 0);
  TRY(socket, 17 /* PACKET */, SOCK_RAW, 0);
  TRY(socket, 16 /* NETLINK */, SOCK_RAW, 12 /* NETFILTER */);
  TRY(socket, 2, SOCK_RAW, 1);
  TRY(ioctl, 0, TIOCSTI, "x");
  TRY(ioctl, 0, 0x541c /* TIOCLINUX */, "x");
  say("clone", syscall(SYS_clone, CLONE_NEWUSER | 17, 0, 0, 0, 0));
  say("clone3", syscall(SYS_clone3, buffer, 64));
  return 0;
}
