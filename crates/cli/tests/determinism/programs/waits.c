#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static struct timespec before;

static void begin(void) { clock_gettime(CLOCK_MONOTONIC, &before); }

static void end(const char *what, int result) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long nanos = (now.tv_sec - before.tv_sec) * 1000000000LL + now.tv_nsec - before.tv_nsec;
    printf("%s %d %lld\n", what, result, nanos);
}

int main(void) {
    struct timespec t = {0, 30000000}, at;
    begin(); end("nanosleep", nanosleep(&t, 0));
    begin(); end("clock_nanosleep", clock_nanosleep(CLOCK_REALTIME, 0, &t, 0));
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += 30000000;
    if (at.tv_nsec >= 1000000000) { at.tv_sec++; at.tv_nsec -= 1000000000; }
    begin(); end("until", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0));
    begin(); end("usleep", usleep(30000));
    begin(); end("poll", poll(0, 0, 30));
    begin(); end("ppoll", ppoll(0, 0, &t, 0));
    struct timeval v = {0, 30000};
    begin(); end("select", select(0, 0, 0, 0, &v));
    begin(); end("pselect", pselect(0, 0, 0, 0, &t, 0));
    int ep = epoll_create1(0);
    struct epoll_event event;
    begin(); end("epoll", epoll_wait(ep, &event, 1, 30));
    int pipes[2];
    if (pipe(pipes) || write(pipes[1], "x", 1) != 1) return 1;
    struct pollfd ready = {pipes[0], POLLIN, 0};
    begin(); end("ready at once", poll(&ready, 1, 5000));
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += 2;
    begin(); end("condition", pthread_cond_timedwait(&condition, &mutex, &at) == ETIMEDOUT);
    return 0;
}
