// SPDX-License-Identifier: Apache-2.0
//
// Reads standard input, a pipe, to its end as poll(2) says, and looks at what poll and the output say of it then.
//   input [BYTES]       exit 0 if there were so many
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "input: wrong: %s (%s)\n", what, strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv) {
    long wanted = argc > 1 ? strtol(argv[1], NULL, 0) : 0, total = 0;
    unsigned sum = 0;
    for (;;) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        must(poll(&in, 1, 60000) == 1, "poll reports input or its end");
        must(in.revents & (POLLIN | POLLHUP), "the event is input or its end");
        unsigned char buffer[1000];
        ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
        must(count >= 0, "read succeeds");
        if (count == 0)
            break;
        for (ssize_t i = 0; i < count; i++)
            sum = sum * 31 + buffer[i];
        total += count;
    }
    char byte;
    must(read(STDIN_FILENO, &byte, 1) == 0, "the end stays the end");
    struct pollfd all[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = STDOUT_FILENO, .events = POLLOUT}};
    must(poll(all, 2, 0) == 2, "both are ready");
    must(all[0].revents & POLLHUP, "the end is a hang-up");
    must(all[1].revents == POLLOUT, "the output has not hung up");
    must(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) == 0, "it can be made non-blocking");
    must(read(STDIN_FILENO, &byte, 1) == 0, "the end is no EAGAIN");
    must(total == wanted, "the number of bytes");
    printf("input: %ld bytes, sum %08x\n", total, sum);
    return 0;
}
