// SPDX-License-Identifier: Apache-2.0
//
// Sends on request: for each line "N\n" that a client writes it gets N buffers of 1 000 000 random bytes, the same each time.
// The study's client connected to its receiver and sent by itself; here the receiver connects, so that the sender needs to
// know no address. What is measured is the same: bytes from the guest. One client at a time.
//   source [PORT]
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 1000000, BUFFERS_MAX = 1000000 };

static char buffer[BUFFER];

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(1);
    }
}

// The number of buffers that a client asks for: 0 at the end of the connection, or when it asks for something else.
static long asked(int client) {
    char line[16];
    for (size_t length = 0; length < sizeof line; length++) {
        if (read(client, line + length, 1) != 1)
            return 0;
        if (line[length] == '\n') {
            char *end;
            line[length] = 0;
            errno = 0;
            long number = strtol(line, &end, 10);
            return errno || end == line || *end || number < 1 || number > BUFFERS_MAX ? 0 : number;
        }
    }
    return 0;
}

static int send_buffer(int client) {
    for (size_t sent = 0; sent < BUFFER;) {
        ssize_t now = write(client, buffer + sent, BUFFER - sent);
        if (now <= 0)
            return 0;
        sent += (size_t)now;
    }
    return 1;
}

static void serve(int client) {
    for (long buffers; (buffers = asked(client)) > 0;)
        while (buffers-- > 0)
            if (!send_buffer(client))
                return;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    int port = argc > 1 ? atoi(argv[1]) : 8080, one = 1;
    if (argc > 2 || port < 1 || port > 65535) {
        fprintf(stderr, "usage: source [PORT]\n");
        return 2;
    }
    address.sin_port = htons((uint16_t)port);
    for (size_t filled = 0; filled < BUFFER;) {
        ssize_t now = getrandom(buffer + filled, BUFFER - filled, 0);
        check(now > 0, "getrandom");
        filled += (size_t)now;
    }
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(listener >= 0, "socket");
    check(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 3) == 0, "listen");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        check(client >= 0, "accept");
        serve(client);
        close(client);
    }
}
