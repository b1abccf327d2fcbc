// Runs on the host, not in a sandbox: moves a process of many threads between two version 1 control groups as fast as it can, until it is killed.
// Each move takes the lock that every fork takes too, so forks all over the machine are held up half-way.
//   migrate GROUP_A/cgroup.procs GROUP_B/cgroup.procs THREADS
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

static void *idle(void *unused) {
    pause();
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (int n = atoi(argv[3]); n > 0; n--) {
        pthread_t thread;
        if (pthread_create(&thread, &small, idle, NULL))
            break;
    }
    int groups[2] = {open(argv[1], O_WRONLY), open(argv[2], O_WRONLY)};
    if (groups[0] < 0 || groups[1] < 0)
        return 3;
    char pid[24];
    int length = sprintf(pid, "%d", getpid());
    puts("moving");
    fflush(stdout);
    for (unsigned n = 0;; n++) {
        if (write(groups[n & 1], pid, length) < 0)
            return 4;
        usleep(rand() % 400);
    }
}
