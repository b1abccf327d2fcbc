/* The parts that a program plays in the tests of guest.rs and container.rs: greedy ones inside, and an ordinary user outside. Static, so it runs anywhere. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void hold_memory(size_t mib) {
    for (size_t held = 0; held < mib; held++) {
        char *block = malloc(1 << 20);
        if (!block) exit(4);
        memset(block, 1, 1 << 20);
    }
    printf("held %zu MiB\n", mib);
}

static void burn(long ms) {
    struct timespec used;
    do {
        for (volatile int i = 0; i < 100000; i++) {}
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (!ms || used.tv_sec * 1000 + used.tv_nsec / 1000000 < ms);
}

static int wait_for_all(void) {
    int status, worst = 0;
    while (wait(&status) > 0 || errno == EINTR) worst |= status;
    return worst != 0;
}

/* Processes other than this one, or only those that still run. */
static int others(int running_only) {
    int count = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        char path[300], state = 0;
        if (!isdigit(entry->d_name[0]) || atoi(entry->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *stat = fopen(path, "r");
        if (!stat) continue;
        if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 0;
        fclose(stat);
        count += !running_only || (state && state != 'Z');
    }
    if (proc) closedir(proc);
    return count;
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";
    long a = argc > 2 ? atol(argv[2]) : 0, b = argc > 3 ? atol(argv[3]) : 0;
    if (!strcmp(part, "memory")) { /* memory MIB */
        hold_memory(a);
        return 0;
    }
    if (!strcmp(part, "memory-held")) { /* memory-held MIB: and keeps it */
        hold_memory(a);
        for (;;) pause();
    }
    if (!strcmp(part, "memory-in-child")) { /* MIB: the one that is greedy is not the one that is waited for */
        if (fork() == 0) { hold_memory(a); return 0; }
        wait(NULL);
        printf("outlived it\n");
        return 0;
    }
    if (!strcmp(part, "forks")) { /* forks N: that many children at once */
        usleep(100000); /* whoever made this process may still be about to end */
        pid_t children[4096];
        long made = 0;
        for (; made < a && made < 4096; made++) {
            if ((children[made] = fork()) < 0) break;
            if (children[made] == 0) for (;;) pause();
        }
        printf("made %ld\n", made);
        for (long i = 0; i < made; i++) kill(children[i], SIGKILL);
        return made < a ? 3 : 0;
    }
    if (!strcmp(part, "bomb")) for (;;) fork();
    if (!strcmp(part, "burn")) { /* burn PROCESSES MS: each its own milliseconds of CPU time, 0 for ever */
        for (long i = 0; i < a; i++) if (fork() == 0) { burn(b); return 0; }
        return wait_for_all();
    }
    if (!strcmp(part, "detach")) { /* leaves a child in a session of its own */
        int ready[2];
        char byte = 0;
        if (pipe(ready)) return 4;
        if (fork() == 0) {
            setsid();
            if (fork()) _exit(0);
            if (write(ready[1], &byte, 1) != 1) _exit(4);
            close(0), close(1), close(2);
            for (;;) pause();
        }
        return read(ready[0], &byte, 1) == 1 ? 0 : 4;
    }
    if (!strcmp(part, "again") && argc > 3) { /* again N CMD...: as a first process that waits for its own children only, and tells what is left */
        for (long i = 0; i < a; i++) {
            int status;
            pid_t child = fork();
            if (child == 0) { execvp(argv[3], argv + 3); _exit(127); }
            if (waitpid(child, &status, 0) != child || status) { printf("status %d\n", status); return 4; }
        }
        for (int turn = 0; turn < 200 && others(1); turn++) usleep(10000);
        printf("left %d\n", others(0));
        return 0;
    }
    if (!strcmp(part, "as") && argc > 3) { /* as ID CMD...: an ordinary user */
        gid_t group = a;
        if (setgroups(1, &group) || setresgid(a, a, a) || setresuid(a, a, a)) { perror("as"); return 4; }
        execvp(argv[3], argv + 3);
        perror(argv[3]);
        return 4;
    }
    fprintf(stderr, "no such part: %s\n", part);
    return 4;
}
