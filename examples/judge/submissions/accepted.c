/* Doubling: F(2k) and F(2k+1) from F(k) and F(k+1). */
#include <stdio.h>

static const unsigned long long M = 1000000007;

static void fib(unsigned long long n, unsigned long long *a, unsigned long long *b) {
    if (n == 0) {
        *a = 0;
        *b = 1;
        return;
    }
    unsigned long long x, y;
    fib(n / 2, &x, &y);
    unsigned long long even = x * ((2 * y + M - x) % M) % M, odd = (x * x + y * y) % M;
    *a = n % 2 ? odd : even;
    *b = n % 2 ? (even + odd) % M : odd;
}

int main(void) {
    unsigned long long n, a, b;
    if (scanf("%llu", &n) != 1) return 1;
    fib(n, &a, &b);
    printf("%llu\n", a);
}
