// SPDX-License-Identifier: Apache-2.0
//
// Prints everything that must be different in each boot.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

static void show(const char *name, const unsigned char *bytes, size_t size) {
    printf("%s ", name);
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    putchar('\n');
}

int main(void) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return 1;
    show("getrandom", bytes, sizeof bytes);
    const char *devices[] = {"/dev/random", "/dev/urandom"};
    for (int i = 0; i < 2; i++) {
        int fd = open(devices[i], O_RDONLY);
        if (read(fd, bytes, sizeof bytes) != sizeof bytes)
            return 1;
        show(devices[i], bytes, sizeof bytes);
        close(fd);
    }
    show("AT_RANDOM", (const unsigned char *)getauxval(AT_RANDOM), 16); // NOLINT: the kernel passes an address
    uintptr_t stack = (uintptr_t)bytes;
    show("stack", (const unsigned char *)&stack, sizeof stack);
    return 0;
}
