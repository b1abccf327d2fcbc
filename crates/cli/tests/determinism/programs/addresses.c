#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv, char **env) {
    int local;
    void *map = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%p %p %p %p %p %p %p\n", (void *)&local, malloc(10), malloc(1 << 20), (void *)main, (void *)printf, map, sbrk(0));
    printf("%p %p %lx\n", (void *)argv, (void *)env, getauxval(AT_SYSINFO_EHDR));
    const unsigned char *random = (const unsigned char *)getauxval(AT_RANDOM);
    for (int i = 0; i < 16; i++) printf("%02x", random[i]);
    uintptr_t guard;
    __asm__("mov %%fs:0x28, %0" : "=r"(guard));
    printf(" %lx\n", (unsigned long)guard);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2) printf("%lx-%lx\n", from, to);
    }
    return 0;
}
