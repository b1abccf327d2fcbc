#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int main(void) {
    struct sysinfo info;
    sysinfo(&info);
    printf("%ld %lu %lu %lu %lu %d\n", info.uptime, info.loads[0], info.totalram, info.freeram, info.totalswap, info.procs);
    printf("%ld %ld %d %d %d\n", sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF), get_nprocs(), get_nprocs_conf(), sched_getcpu());
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("%d %d\n", CPU_COUNT(&set), CPU_ISSET(0, &set));
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit;
        if (which == RLIMIT_NPROC) continue;
        getrlimit(which, &limit);
        printf("%d %llu %llu\n", which, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%ld.%06ld %ld %ld\n", used.ru_utime.tv_sec, used.ru_utime.tv_usec, used.ru_maxrss, used.ru_minflt);
    char name[256];
    gethostname(name, sizeof name);
    printf("%s %o %d\n", name, umask(0), getuid());
    return 0;
}
