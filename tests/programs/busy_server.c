// SPDX-License-Identifier: Apache-2.0
//
// An HTTP server with a thread for each connection, while other threads compute without ever entering the kernel: what
// arrives must be noticed although no CPU is idle.
//   busy_server PORT SPINNERS
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *spins(void *counter) {
    while (++*(volatile unsigned long *)counter)
        ;
    return NULL; // after some centuries
}

static void *serves(void *connection) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
    int fd = (int)(intptr_t)connection;
    char request[4096];
    size_t size = 0;
    ssize_t got;
    // Requests have no body; each ends with an empty line.
    while ((got = read(fd, request + size, sizeof request - 1 - size)) > 0) {
        size += (size_t)got;
        request[size] = 0;
        if (!strstr(request, "\r\n\r\n"))
            continue;
        if (write(fd, answer, sizeof answer - 1) != sizeof answer - 1)
            break;
        size = 0;
    }
    close(fd);
    return NULL;
}

static pthread_t start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        abort();
    return thread;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: busy_server PORT SPINNERS\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) == -1 || listen(listener, 128) == -1) {
        perror("busy_server");
        return 1;
    }
    static unsigned long counters[64];
    for (int i = 0; i < atoi(argv[2]) && i < 64; i++)
        start(spins, &counters[i]);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd >= 0)
            pthread_detach(start(serves, (void *)(intptr_t)fd));
    }
}
