// Eats memory: memory WAY MIB. Prints `survived` and returns 0 if nobody stops it within two seconds of having eaten all of it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void die(const char *what) { perror(what); exit(3); }

static char *map(size_t size, int flags, int fd) {
  char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (at == MAP_FAILED) die("mmap");
  return at;
}

static int memfd(void) {
  int fd = memfd_create("eaten", 0);
  if (fd < 0) die("memfd_create");
  return fd;
}

static void fill(int fd, size_t size) {
  static char block[1 << 16];
  memset(block, 7, sizeof block);
  for (size_t done = 0; done < size;) {
    size_t left = size - done;
    ssize_t wrote = write(fd, block, left < sizeof block ? left : sizeof block);
    if (wrote < 0) die("write");
    done += wrote;
  }
}

static void heap(int mib) { for (int i = 0; i < mib; i++) memset(malloc(MIB), 7, MIB); }

// Each child is well below any limit; together they are not.
static void children(int mib) {
  for (int i = 0; i < mib / 8; i++)
    if (fork() == 0) { heap(8); pause(); }
}

static void file(const char *path, int mib) {
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  if (fd < 0) die(path);
  fill(fd, mib * MIB);
}

static void shared(int mib) { for (int i = 0; i < mib; i++) memset(map(MIB, MAP_SHARED | MAP_ANONYMOUS, -1), 7, MIB); }

// The pages stay in the mapping's object, but in nobody's page tables: resident size stays near zero.
static void shared_unmapped(int mib) {
  for (int i = 0; i < mib; i++) {
    char *at = map(MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
    memset(at, 7, MIB);
    if (madvise(at, MIB, MADV_DONTNEED)) die("madvise");
  }
}

// One page stays mapped and keeps the whole object alive.
static void shared_cut(int mib) {
  for (int i = 0; i < mib / 8; i++) {
    char *at = map(8 * MIB, MAP_SHARED | MAP_ANONYMOUS, -1);
    memset(at, 7, 8 * MIB);
    if (munmap(at + 4096, 8 * MIB - 4096)) die("munmap");
  }
}

static void memfd_open(int mib) { fill(memfd(), mib * MIB); }

// No descriptor, no resident page: only a mapping that was never touched.
static void memfd_untouched(int mib) {
  for (int i = 0; i < mib; i++) {
    int fd = memfd();
    fill(fd, MIB);
    map(MIB, MAP_SHARED, fd);
    close(fd);
  }
}

// No descriptor and no mapping: the files wait in a socket.
static void memfd_in_flight(int mib) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) die("socketpair");
  for (int i = 0; i < mib / 8; i++) {
    int fd = memfd();
    fill(fd, 8 * MIB);
    char byte = 0;
    struct iovec data = {&byte, 1};
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (i % 8 == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) die("socketpair");
    if (sendmsg(pair[0], &message, MSG_DONTWAIT) < 0) die("sendmsg");
    close(fd);
  }
}

static void sysv(int mib) {
  for (int i = 0; i < mib; i++) {
    int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
    if (id < 0) die("shmget");
    char *at = shmat(id, NULL, 0);
    if (at == (void *)-1) die("shmat");
    memset(at, 7, MIB);
    shmdt(at);
  }
}

// Reading untouched memory costs no page, but one page of page tables for each 2 MiB.
static void tables(int mib) {
  size_t span = (size_t)mib * 256 * 2 * MIB;
  volatile char *at = mmap(NULL, span, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) die("mmap");
  madvise((void *)at, span, MADV_NOHUGEPAGE);
  for (size_t offset = 0; offset < span; offset += 2 * MIB) (void)at[offset];
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *way = argv[1];
  int mib = atoi(argv[2]);
  if (!strcmp(way, "heap")) heap(mib);
  else if (!strcmp(way, "children")) children(mib);
  else if (!strcmp(way, "shared")) shared(mib);
  else if (!strcmp(way, "shared_unmapped")) shared_unmapped(mib);
  else if (!strcmp(way, "shared_cut")) shared_cut(mib);
  else if (!strcmp(way, "memfd")) memfd_open(mib);
  else if (!strcmp(way, "memfd_untouched")) memfd_untouched(mib);
  else if (!strcmp(way, "memfd_in_flight")) memfd_in_flight(mib);
  else if (!strcmp(way, "sysv")) sysv(mib);
  else if (!strcmp(way, "tables")) tables(mib);
  else if (way[0] == '/') file(way, mib);
  else return 2;
  sleep(2);
  puts("survived");
  return 0;
}
