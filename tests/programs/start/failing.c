// SPDX-License-Identifier: Apache-2.0
//
// Fails in a shared library, in the way its argument names; or looks for a file for half a minute.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

void library_writes_to(volatile int *at);
int library_recurses(int depth);
void library_aborts(void);

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    printf("%s %s\n", argv[0], how);
    fflush(stdout);
    if (argc > 2)
        prctl(PR_SET_NAME, argv[2]);
    if (!strcmp(how, "write"))
        library_writes_to((int *)(uintptr_t)0xdead0010);
    if (!strcmp(how, "recurse"))
        return library_recurses(0);
    if (!strcmp(how, "abort"))
        library_aborts();
    if (!strcmp(how, "look"))
        for (int i = 0; i < 3000; i++) {
            if (open("/etc/no-such.conf", O_RDONLY | O_CLOEXEC) >= 0)
                return 1;
            usleep(10000);
        }
    return atoi(how);
}
