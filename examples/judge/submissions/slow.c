/* One step at a time: right, and never done with 10^18. */
#include <stdio.h>

int main(void) {
    unsigned long long n, a = 0, b = 1;
    if (scanf("%llu", &n) != 1) return 1;
    for (; n > 0; n--) {
        unsigned long long next = (a + b) % 1000000007;
        a = b;
        b = next;
    }
    printf("%llu\n", a);
}
