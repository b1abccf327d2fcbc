/* LINK STATIC */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

int main(void) {
    for (int i = 0; i < 3; i++) {
        struct timespec t, m;
        clock_gettime(CLOCK_REALTIME, &t);
        clock_gettime(CLOCK_MONOTONIC, &m);
        unsigned long r;
        getrandom(&r, sizeof r, 0);
        printf("%lld.%09ld %lld.%09ld %lx\n", (long long)t.tv_sec, t.tv_nsec, (long long)m.tv_sec, m.tv_nsec, r);
    }
    int local;
    printf("%p %p\n", (void *)&local, malloc(100));
    return 0;
}
