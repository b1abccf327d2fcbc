#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>

static void *work(void *out) {
    for (int i = 0; i < 8; i++) getrandom((unsigned long *)out + i, sizeof(unsigned long), 0);
    return 0;
}

int main(void) {
    static unsigned long got[4][8];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, got[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++) printf("%lx%c", got[i][j], j == 7 ? '\n' : ' ');
    return 0;
}
