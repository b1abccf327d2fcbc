/* Does not compile. */
#include <stdio.h>

int main(void) {
    printf("%llu\n", fibonacci(n))
}
