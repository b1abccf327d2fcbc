// Fills disks: disk WAY DIR MIB. Prints `survived` and returns 0 if nobody stops it within two seconds of having written all of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void die(const char *what) { perror(what); exit(3); }

static int make(const char *name) {
  int fd = open(name, O_CREAT | O_WRONLY | O_EXCL, 0600);
  if (fd < 0) die(name);
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

static const char *number(const char *prefix, int i) {
  static char name[64];
  snprintf(name, sizeof name, "%s%d", prefix, i);
  return name;
}

static void one(int mib) { fill(make("one"), mib * MIB); }

static void many(int mib) { for (int i = 0; i < mib; i++) { int fd = make(number("many", i)); fill(fd, MIB); close(fd); } }

// Files without a name: only a descriptor keeps them.
static void unlinked(int mib) {
  for (int i = 0; i < mib; i++) { const char *name = number("gone", i); int fd = make(name); unlink(name); fill(fd, MIB); }
}

// Files without a name or a descriptor: only a mapping keeps them.
static void mapped(int mib) {
  for (int i = 0; i < mib; i++) {
    const char *name = number("mapped", i);
    int fd = open(name, O_CREAT | O_RDWR | O_EXCL, 0600);
    if (fd < 0) die(name);
    unlink(name);
    fill(fd, MIB);
    if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) die("mmap");
    close(fd);
  }
}

// Deeper than a careless walk goes.
static void deep(int mib) {
  for (int i = 0; i < 400; i++) if (mkdir("deep", 0755) || chdir("deep")) die("deep");
  many(mib);
}

// More directories than a careless walk can hold open.
static void wide(int mib) {
  for (int i = 0; i < 2000; i++) if (mkdir(number("wide", i), 0755)) die("wide");
  for (int i = 0; i < mib; i++) {
    char name[64];
    snprintf(name, sizeof name, "wide%d/file", i * 1999 / mib);
    int fd = make(name);
    fill(fd, MIB);
    close(fd);
  }
}

// A directory that not even its owner may look into.
static void locked(int mib) {
  if (mkdir("locked", 0755) || chdir("locked")) die("locked");
  static int fds[4096];
  for (int i = 0; i < mib; i++) fds[i] = make(number("locked", i));
  if (chmod(".", 0)) die("chmod");
  for (int i = 0; i < mib; i++) fill(fds[i], MIB);
}

// A file whose blocks were asked for and never written.
static void reserved(int mib) {
  for (int i = 0; i < mib; i++) { int fd = make(number("reserved", i)); if ((errno = posix_fallocate(fd, 0, MIB))) die("fallocate"); }
}

// Empty files: no bytes, only inodes.
static void inodes(void) { for (int i = 0;; i++) { int fd = open(number("n", i), O_CREAT | O_WRONLY, 0600); if (fd < 0) die("open"); close(fd); } }

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const char *way = argv[1];
  int mib = atoi(argv[3]);
  if (chdir(argv[2])) die(argv[2]);
  if (!strcmp(way, "one")) one(mib);
  else if (!strcmp(way, "many")) many(mib);
  else if (!strcmp(way, "unlinked")) unlinked(mib);
  else if (!strcmp(way, "mapped")) mapped(mib);
  else if (!strcmp(way, "deep")) deep(mib);
  else if (!strcmp(way, "wide")) wide(mib);
  else if (!strcmp(way, "locked")) locked(mib);
  else if (!strcmp(way, "reserved")) reserved(mib);
  else if (!strcmp(way, "inodes")) inodes();
  else return 2;
  sleep(2);
  puts("survived");
  return 0;
}
