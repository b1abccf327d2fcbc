#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    printf("%d %d %d %d %ld\n", getpid(), getppid(), getpgrp(), getsid(0), syscall(SYS_gettid));
    for (int i = 0; i < 5; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) _exit(getpid() & 0x7f);
        waitpid(child, &status, 0);
        printf("%d %d\n", child, WEXITSTATUS(status));
    }
    return 0;
}
