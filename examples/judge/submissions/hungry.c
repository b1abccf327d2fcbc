/* Keeps every number it has seen. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    unsigned long long n, room = 1024, *f = malloc(room * sizeof *f);
    if (!f || scanf("%llu", &n) != 1) return 1;
    f[0] = 0;
    f[1] = 1;
    for (unsigned long long i = 2; i <= n; i++) {
        if (i == room && !(f = realloc(f, (room *= 2) * sizeof *f))) return 1;
        f[i] = (f[i - 1] + f[i - 2]) % 1000000007;
    }
    printf("%llu\n", f[n]);
}
