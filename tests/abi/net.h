// SPDX-License-Identifier: Apache-2.0
//
// Loopback sockets for the network families.
#ifndef ABI_NET_H
#define ABI_NET_H

#include "harness.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

MAYBE_UNUSED static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

MAYBE_UNUSED static struct sockaddr_in6 loopback6(uint16_t port) {
    return (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
}

#define ADDRESS(variable) ((struct sockaddr *)&(variable)), sizeof(variable)

// The port a socket is bound to.
MAYBE_UNUSED static uint16_t port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

// A TCP listener on a free port of 127.0.0.1.
MAYBE_UNUSED static int listener(int backlog, uint16_t *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct sockaddr_in address = loopback(0);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    CHECK(listen(fd, backlog) == 0);
    *port = port_of(fd);
    return fd;
}

MAYBE_UNUSED static int connected(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct sockaddr_in address = loopback(port);
    CHECK(connect(fd, ADDRESS(address)) == 0);
    return fd;
}

struct pair {
    int client, server;
};

// Two connected TCP sockets.
MAYBE_UNUSED static struct pair tcp_pair(void) {
    uint16_t port;
    int listening = listener(8, &port);
    struct pair pair = {.client = connected(port)};
    pair.server = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    CHECK(pair.server >= 0);
    CHECK(close(listening) == 0);
    return pair;
}

MAYBE_UNUSED static int udp_socket(uint16_t *port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct sockaddr_in address = loopback(0);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    *port = port_of(fd);
    return fd;
}

// Waits until the descriptor shows at least one of `events`; returns all it shows.
MAYBE_UNUSED static int ready(int fd, short events, int timeout_ms) {
    struct pollfd wanted = {.fd = fd, .events = events};
    CHECK(poll(&wanted, 1, timeout_ms) >= 0);
    return wanted.revents;
}

MAYBE_UNUSED static void set_option(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

MAYBE_UNUSED static int get_option(int fd, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &size) == 0);
    CHECK_EQ(size, sizeof value);
    return value;
}

MAYBE_UNUSED static void set_timeout(int fd, int name, int ms) {
    struct timeval timeout = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    CHECK(setsockopt(fd, SOL_SOCKET, name, &timeout, sizeof timeout) == 0);
}

MAYBE_UNUSED static void set_nonblocking(int fd) { CHECK(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0); }

// Reads exactly `size` bytes.
MAYBE_UNUSED static void read_exactly(int fd, void *buffer, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)buffer + done, size - done);
        CHECK(n > 0);
        done += (size_t)n;
    }
}

#endif
