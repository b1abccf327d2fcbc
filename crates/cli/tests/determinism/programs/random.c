#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static void show(const char *name, const unsigned char *bytes, int count) {
    printf("%s ", name);
    for (int i = 0; i < count; i++) printf("%02x", bytes[i]);
    printf("\n");
}

int main(void) {
    unsigned char bytes[64];
    for (int i = 0; i < 3; i++) {
        getrandom(bytes, 33, 0);
        show("getrandom", bytes, 33);
        getentropy(bytes, 16);
        show("getentropy", bytes, 16);
#if __GLIBC_PREREQ(2, 36)
        arc4random_buf(bytes, 16);
        show("arc4random", bytes, 16);
#endif
    }
    for (int i = 0; i < 2; i++) {
        int fd = open(i ? "/dev/random" : "/dev/urandom", O_RDONLY);
        if (read(fd, bytes, 16) != 16) return 1;
        show("device", bytes, 16);
        close(fd);
    }
    srand(time(0) ^ getpid());
    printf("%d %d\n", rand(), rand());
    char name[] = "/tmp/XXXXXX";
    printf("%d %s\n", mkstemp(name) > 0, name);
    return 0;
}
