#include <stdio.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

int main(void) {
    for (int i = 0; i < 3; i++) {
        for (int clock = 0; clock < 12; clock++) {
            struct timespec t = {0, 0};
            int r = clock_gettime(clock, &t);
            printf("%d %d %lld.%09ld\n", clock, r, (long long)t.tv_sec, t.tv_nsec);
        }
        struct timespec t;
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
        struct timeval v;
        gettimeofday(&v, 0);
        struct tms used;
        long ticks = times(&used);
        printf("%lld.%09ld %lld.%06ld %lld %ld %ld %ld\n", (long long)t.tv_sec, t.tv_nsec, (long long)v.tv_sec, v.tv_usec,
               (long long)time(0), (long)clock(), ticks, (long)used.tms_utime);
    }
    time_t now = time(0);
    printf("%s", ctime(&now));
    return 0;
}
