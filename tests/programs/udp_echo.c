// SPDX-License-Identifier: Apache-2.0
//
// Sends every datagram back to where it came from.
//   udp_echo PORT [COUNT]       ends after COUNT datagrams, or never
// Receives on IPv4 and IPv6 with one socket.
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int die(const char *what) {
    fprintf(stderr, "udp_echo: %s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 0;
    long left = argc > 2 ? atol(argv[2]) : -1;
    if (port < 1 || port > 65535) {
        fprintf(stderr, "usage: udp_echo PORT [COUNT]\n");
        return 2;
    }
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), off = 0;
    if (fd < 0)
        return die("socket");
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off))
        return die("setsockopt");
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    if (bind(fd, (struct sockaddr *)&address, sizeof address))
        return die("bind");
    printf("udp_echo: port %d\n", port);
    fflush(stdout);
    while (left != 0) {
        static char data[65536];
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(fd, data, sizeof data, 0, (struct sockaddr *)&from, &size);
        if (n < 0) {
            if (errno == EINTR || errno == ECONNREFUSED)
                continue;
            return die("recvfrom");
        }
        if (sendto(fd, data, (size_t)n, 0, (struct sockaddr *)&from, size) != n)
            fprintf(stderr, "udp_echo: sendto: %s\n", strerror(errno)); // as UDP does: lost, not fatal
        if (left > 0)
            left--;
    }
    return 0;
}
