// SPDX-License-Identifier: Apache-2.0
// map_large FILE: sums a file that may be larger than the memory: through a mapping in order, through the mapping at
// random by three threads, while other memory is used, and by read(2). Prints the sums; they are the same everywhere.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096ul
#define OTHER (4ul << 20)

static const unsigned char *map;
static size_t pages;

static uint32_t word(size_t page) {
    return *(const volatile uint32_t *)(map + page * PAGE);
}

static void *at_random(void *seed) {
    uint64_t sum = 0;
    for (size_t i = 0; i < pages; i++) {
        size_t page = (i * 2654435761u + (uintptr_t)seed) % pages;
        sum += (uint64_t)word(page) * (page + 1);
        sum ^= map[page * PAGE + PAGE - 1];
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    struct stat st;
    int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &st) != 0) {
        perror("map_large FILE");
        return 1;
    }
    pages = st.st_size / PAGE;
    map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    uint64_t in_order = 0;
    for (size_t page = 0; page < pages; page++)
        in_order = in_order * 31 + word(page);

    pthread_t threads[3];
    for (uintptr_t n = 0; n < 3; n++)
        if (pthread_create(&threads[n], NULL, at_random, (void *)(n * 1000)) != 0)
            return 1;
    unsigned char *other = malloc(OTHER);
    for (size_t at = 0; at < OTHER; at += PAGE)
        other[at] = at / PAGE;
    uint64_t random = 0;
    for (int n = 0; n < 3; n++) {
        void *sum;
        pthread_join(threads[n], &sum);
        random = random * 31 + (uintptr_t)sum;
    }
    for (size_t at = 0; at < OTHER; at += PAGE)
        if (other[at] != (unsigned char)(at / PAGE)) {
            puts("other memory changed");
            return 1;
        }

    static unsigned char buffer[65536];
    uint64_t read_sum = 0;
    ssize_t got;
    while ((got = read(file, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < got; at += 512)
            read_sum = read_sum * 33 + buffer[at];
    if (got < 0) {
        perror("read");
        return 1;
    }
    printf("map_large: %zu pages %016lx %016lx %016lx\n", pages, in_order, random, read_sum);
    return 0;
}
