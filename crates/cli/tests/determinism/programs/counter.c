#include <stdio.h>
#include <x86intrin.h>

int main(void) {
    printf("%llu\n", (unsigned long long)__rdtsc());
    return 0;
}
