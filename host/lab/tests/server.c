// SPDX-License-Identifier: Apache-2.0

// What the tests of platforms start: answers HTTP on the port of its first argument, says who and where it is. With the
// argument `batch` it prints a metric, and ends with the code of the second argument.

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void end(int signal)
{
    (void)signal;
    _exit(3);
}

int main(int argc, char **argv)
{
    char folder[256] = "";
    if (argc == 3 && !strcmp(argv[1], "batch")) {
        const char *variable = getenv("LAB_TEST");
        printf("{\"metric\":\"answer_ns\",\"value\":42}\n");
        printf("env %s cwd %s uid %d\n", variable ? variable : "-", getcwd(folder, sizeof folder), getuid());
        fprintf(stderr, "on stderr\n");
        return atoi(argv[2]);
    }
    int volume = argc > 2 ? open(argv[2], O_WRONLY | O_CREAT, 0600) : -1;
    if (argc > 2 && (volume < 0 || write(volume, "kept", 4) != 4 || fsync(volume) < 0)) {
        perror(argv[2]);
        return 1;
    }
    signal(SIGTERM, end);
    signal(SIGPIPE, SIG_IGN);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 8080) };
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 128) < 0) {
        perror("listen");
        return 1;
    }
    puts("listening");
    fflush(stdout);
    for (;;) {
        char request[4096];
        const char *answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        int peer = accept(listener, NULL, NULL);
        if (peer < 0)
            continue;
        while (read(peer, request, sizeof request) > 0)
            if (write(peer, answer, strlen(answer)) < 0)
                break;
        close(peer);
    }
}
