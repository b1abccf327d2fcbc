#include <dirent.h>
#include <stdio.h>

int main(void) {
    DIR *dir = opendir("/work/data");
    struct dirent *entry;
    for (int i = 0; i < 5 && (entry = readdir(dir)); i++) printf("%s\n", entry->d_name);
    rewinddir(dir);
    while ((entry = readdir(dir))) printf("%s\n", entry->d_name);
    closedir(dir);
    dir = opendir("/usr/bin");
    int count = 0;
    while ((entry = readdir(dir))) if (count++ % 50 == 0) printf("%d %s\n", count, entry->d_name);
    closedir(dir);
    dir = opendir("/proc");
    while ((entry = readdir(dir))) if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') printf("%s\n", entry->d_name);
    closedir(dir);
    return 0;
}
