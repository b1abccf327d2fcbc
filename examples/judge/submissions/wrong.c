/* Binet's formula in floating point: right for small numbers only. */
#include <math.h>
#include <stdio.h>

int main(void) {
    unsigned long long n;
    if (scanf("%llu", &n) != 1) return 1;
    double root = sqrt(5), value = round(pow((1 + root) / 2, (double)n) / root);
    printf("%.0f\n", fmod(value, 1000000007));
}
