// SPDX-License-Identifier: Apache-2.0
//
// TCP over loopback: the life of a connection, from bind to the last FIN or RST.
#include "net.h"
#include <sys/ioctl.h>

CASE(connect_accept_and_addresses) {
    uint16_t port;
    int listening = listener(4, &port), client = connected(port);
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int server = accept4(listening, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(server >= 0);
    CHECK_EQ(size, sizeof peer);
    CHECK_EQ(peer.sin_family, AF_INET);
    CHECK_EQ(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(ntohs(peer.sin_port), port_of(client));
    CHECK_EQ(fcntl(server, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    CHECK_EQ(fcntl(server, F_GETFD), FD_CLOEXEC);
    size = sizeof peer;
    CHECK(getpeername(client, (struct sockaddr *)&peer, &size) == 0);
    CHECK_EQ(ntohs(peer.sin_port), port);
    CHECK_EQ(port_of(server), port);
    size = sizeof peer;
    FAILS(getpeername(listening, (struct sockaddr *)&peer, &size), ENOTCONN);
}

CASE(accepted_socket_does_not_inherit_nonblocking) {
    uint16_t port;
    int listening = listener(4, &port);
    set_nonblocking(listening);
    FAILS(accept(listening, NULL, NULL), EAGAIN);
    connected(port);
    CHECK_EQ(ready(listening, POLLIN, 1000), POLLIN);
    int server = accept(listening, NULL, NULL);
    CHECK(server >= 0);
    CHECK_EQ(fcntl(server, F_GETFL) & O_NONBLOCK, 0);
    FAILS(accept4(listening, NULL, NULL, 0x4), EINVAL);
}

CASE(short_address_buffer_is_cut_but_length_told) {
    struct pair pair = tcp_pair();
    struct sockaddr_in name;
    memset(&name, 0xaa, sizeof name);
    socklen_t size = 4;
    CHECK(getsockname(pair.client, (struct sockaddr *)&name, &size) == 0);
    CHECK_EQ(size, 16);
    CHECK_EQ(name.sin_family, AF_INET);
    CHECK_EQ(name.sin_addr.s_addr, 0xaaaaaaaa);
    size = (socklen_t)-1;
    FAILS(getsockname(pair.client, (struct sockaddr *)&name, &size), EINVAL);
}

CASE(connection_refused) {
    uint16_t port;
    CHECK(close(listener(1, &port)) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(connect(fd, ADDRESS(address)), ECONNREFUSED);
}

CASE(nonblocking_connect_succeeds_later) {
    uint16_t port;
    int listening = listener(4, &port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = loopback(port);
    int result = connect(fd, ADDRESS(address));
    CHECK(result == -1 && errno == EINPROGRESS);
    CHECK_EQ(ready(fd, POLLOUT, 5000), POLLOUT);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), 0);
    CHECK(connect(fd, ADDRESS(address)) == 0); // once: the connection is told
    FAILS(connect(fd, ADDRESS(address)), EISCONN);
    CHECK(accept(listening, NULL, NULL) >= 0);
}

CASE(nonblocking_connect_refused) {
    uint16_t port;
    CHECK(close(listener(1, &port)) == 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(connect(fd, ADDRESS(address)), EINPROGRESS);
    CHECK_EQ(ready(fd, POLLOUT, 5000), POLLOUT | POLLERR | POLLHUP);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), 0); // reading the error clears it
}

CASE(state_errors) {
    char byte = 0;
    uint16_t port;
    int fd = socket(AF_INET, SOCK_STREAM, 0), listening = listener(1, &port);
    struct sockaddr_in address = loopback(port);
    FAILS(recv(fd, &byte, 1, 0), ENOTCONN);
    FAILS(send(fd, &byte, 1, MSG_NOSIGNAL), EPIPE);
    FAILS(accept(fd, NULL, NULL), EINVAL);
    FAILS(shutdown(fd, SHUT_RDWR), ENOTCONN);
    FAILS(connect(listening, ADDRESS(address)), EISCONN);
    FAILS(recv(listening, &byte, 1, 0), ENOTCONN);
    CHECK(connect(fd, ADDRESS(address)) == 0);
    FAILS(connect(fd, ADDRESS(address)), EISCONN);
    FAILS(listen(fd, 1), EINVAL);
    FAILS(shutdown(fd, 7), EINVAL);
    FAILS(bind(fd, ADDRESS(address)), EINVAL);
}

CASE(socket_arguments) {
    FAILS(socket(AF_INET, 77, 0), EINVAL);
    FAILS(socket(999, SOCK_STREAM, 0), EAFNOSUPPORT);
    FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
    FAILS(socket(AF_INET, SOCK_STREAM | 0x100000, 0), EINVAL);
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    struct sockaddr_in address = loopback(1);
    FAILS(connect(fd, (struct sockaddr *)&address, 4), EINVAL);
    FAILS(bind(fd, (struct sockaddr *)&address, 4), EINVAL);
    address.sin_family = AF_UNIX;
    FAILS(connect(fd, ADDRESS(address)), EAFNOSUPPORT);
    FAILS(connect(99, ADDRESS(address)), EBADF);
    FAILS(connect(open("/dev/null", O_RDWR), ADDRESS(address)), ENOTSOCK);
    FAILS(listen(open("/dev/null", O_RDWR), 1), ENOTSOCK);
    FAILS(bind(fd, (struct sockaddr *)unmapped_page(), sizeof address), EFAULT);
}

CASE(bind_conflicts_and_foreign_addresses) {
    uint16_t port;
    listener(1, &port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(bind(fd, ADDRESS(address)), EADDRINUSE);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    FAILS(bind(fd, ADDRESS(address)), EADDRINUSE);
    address = loopback(0);
    address.sin_addr.s_addr = htonl(0xc6336401); // 198.51.100.1: documentation, nobody's
    FAILS(bind(fd, ADDRESS(address)), EADDRNOTAVAIL);
    address = loopback(0);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    CHECK(port_of(fd) > 1023);
}

CASE(listen_without_bind_takes_a_port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listen(fd, 1) == 0);
    uint16_t port = port_of(fd);
    CHECK(port != 0);
    CHECK(connected(port) >= 0);
}

CASE(reuseaddr_rebinds_after_close) {
    uint16_t port;
    int listening = listener(4, &port);
    set_option(listening, SOL_SOCKET, SO_REUSEADDR, 1); // both the old and the new socket must agree
    int client = connected(port), server = accept(listening, NULL, NULL);
    CHECK(close(server) == 0); // the server closes first: its side goes through TIME_WAIT
    char byte;
    CHECK_EQ(read(client, &byte, 1), 0);
    CHECK(close(client) == 0);
    CHECK(close(listening) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    CHECK(listen(fd, 4) == 0);
    CHECK(connected(port) >= 0);
}

CASE(reuseport_shares_a_port_and_spreads) {
    int listening[2];
    uint16_t port = 0;
    for (int i = 0; i < 2; i++) {
        listening[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        set_option(listening[i], SOL_SOCKET, SO_REUSEPORT, 1);
        struct sockaddr_in address = loopback(port);
        CHECK(bind(listening[i], ADDRESS(address)) == 0);
        CHECK(listen(listening[i], 128) == 0);
        port = port_of(listening[i]);
    }
    for (int i = 0; i < 40; i++)
        connected(port);
    int accepted[2] = {0};
    for (int i = 0; i < 2; i++)
        while (accept(listening[i], NULL, NULL) >= 0)
            accepted[i]++;
    CHECK_EQ(accepted[0] + accepted[1], 40);
    CHECK(accepted[0] > 0 && accepted[1] > 0);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(bind(other, ADDRESS(address)), EADDRINUSE); // without the option
}

CASE(backlog_holds_connections_until_accepted) {
    uint16_t port;
    int listening = listener(16, &port), clients[16];
    for (int i = 0; i < 16; i++) {
        clients[i] = connected(port);
        char number = (char)i;
        CHECK_EQ(write(clients[i], &number, 1), 1); // data may come before accept
    }
    for (int i = 0; i < 16; i++) {
        int server = accept(listening, NULL, NULL);
        char number = -1;
        CHECK_EQ(read(server, &number, 1), 1);
        CHECK_EQ(number, i); // in the order of arrival
    }
}

CASE(closing_the_listener_resets_who_waits) {
    uint16_t port;
    int listening = listener(4, &port), client = connected(port);
    CHECK(close(listening) == 0);
    char byte;
    FAILS(read(client, &byte, 1), ECONNRESET);
    int again = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(connect(again, ADDRESS(address)), ECONNREFUSED);
}

CASE(accepted_connections_outlive_the_listener) {
    struct pair pair = tcp_pair(); // closes its listener
    char byte = 0;
    CHECK_EQ(write(pair.client, "x", 1), 1);
    CHECK_EQ(read(pair.server, &byte, 1), 1);
    CHECK_EQ(byte, 'x');
}

CASE(half_close_still_receives) {
    struct pair pair = tcp_pair();
    char text[8];
    CHECK_EQ(write(pair.client, "ask", 3), 3);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK_EQ(read(pair.server, text, sizeof text), 3);
    CHECK_EQ(read(pair.server, text, sizeof text), 0);
    CHECK_EQ(write(pair.server, "answer", 6), 6);
    CHECK_EQ(read(pair.client, text, sizeof text), 6);
    FAILS(send(pair.client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(pair.server) == 0);
    CHECK_EQ(read(pair.client, text, 1), 0);
}

CASE(shutdown_of_reading_gives_end_of_file) {
    struct pair pair = tcp_pair();
    char byte;
    CHECK(shutdown(pair.server, SHUT_RD) == 0);
    CHECK_EQ(read(pair.server, &byte, 1), 0);
    CHECK((ready(pair.server, POLLIN | POLLRDHUP, 1000) & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
    CHECK_EQ(write(pair.server, "x", 1), 1); // the other direction works
    CHECK_EQ(read(pair.client, &byte, 1), 1);
}

CASE(poll_states_of_closing) {
    struct pair pair = tcp_pair();
    const short all = POLLIN | POLLOUT | POLLRDHUP;
    CHECK_EQ(ready(pair.server, all, 1000), POLLOUT);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK_EQ(ready(pair.server, all, 1000), POLLIN | POLLOUT | POLLRDHUP);
    CHECK(shutdown(pair.server, SHUT_WR) == 0);
    CHECK_EQ(ready(pair.server, all, 1000), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
}

CASE(linger_zero_resets_the_peer) {
    struct pair pair = tcp_pair();
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(close(pair.client) == 0);
    char byte;
    CHECK((ready(pair.server, POLLIN, 5000) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    FAILS(read(pair.server, &byte, 1), ECONNRESET);
    CHECK_EQ(read(pair.server, &byte, 1), 0); // the error is told once
    FAILS(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
}

CASE(closing_with_unread_data_resets) {
    struct pair pair = tcp_pair();
    CHECK_EQ(write(pair.client, "unread", 6), 6);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK(close(pair.server) == 0);
    char byte;
    FAILS(read(pair.client, &byte, 1), ECONNRESET);
}

CASE(writing_to_a_closed_peer_resets_then_breaks) {
    struct pair pair = tcp_pair();
    CHECK(close(pair.server) == 0);
    char byte;
    CHECK_EQ(read(pair.client, &byte, 1), 0);
    CHECK_EQ(send(pair.client, "x", 1, MSG_NOSIGNAL), 1); // answered with a reset
    CHECK((ready(pair.client, 0, 5000) & POLLHUP) != 0); // not POLLIN: the end of the stream is there already
    int tries = 0;
    while (send(pair.client, "x", 1, MSG_NOSIGNAL) == 1 && tries++ < 1000)
        sleep_ms(1);
    CHECK(errno == EPIPE || errno == ECONNRESET);
}

static volatile sig_atomic_t sigpipes;
static void counts(int signal) {
    (void)signal;
    sigpipes++;
}

CASE(sigpipe_unless_suppressed) {
    struct sigaction action = {.sa_handler = counts};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    struct pair pair = tcp_pair();
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    sigpipes = 0;
    FAILS(send(pair.client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK_EQ(sigpipes, 0);
    FAILS(write(pair.client, "x", 1), EPIPE);
    CHECK_EQ(sigpipes, 1);
}

static void *shuts_down_later(void *fd) {
    sleep_ms(40);
    shutdown((int)(intptr_t)fd, SHUT_RDWR);
    return NULL;
}

CASE(shutdown_wakes_a_blocked_reader_and_accept) {
    struct pair pair = tcp_pair();
    char byte;
    pthread_t other = spawn(shuts_down_later, (void *)(intptr_t)pair.server);
    CHECK_EQ(read(pair.server, &byte, 1), 0);
    join(other);
    uint16_t port;
    int listening = listener(1, &port);
    other = spawn(shuts_down_later, (void *)(intptr_t)listening);
    FAILS(accept(listening, NULL, NULL), EINVAL);
    join(other);
}

CASE(ipv6_loopback) {
    int listening = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = loopback6(0), peer;
    CHECK(bind(listening, ADDRESS(address)) == 0 && listen(listening, 4) == 0);
    address = loopback6(port_of(listening));
    int client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, ADDRESS(address)) == 0);
    socklen_t size = sizeof peer;
    int server = accept(listening, (struct sockaddr *)&peer, &size);
    CHECK(server >= 0);
    CHECK_EQ(size, sizeof peer);
    CHECK(memcmp(&peer.sin6_addr, &in6addr_loopback, 16) == 0);
    CHECK_EQ(ntohs(peer.sin6_port), port_of(client));
    char text[8];
    CHECK_EQ(write(client, "six", 3), 3);
    CHECK_EQ(read(server, text, sizeof text), 3);
}

CASE(ipv6_listener_takes_ipv4_as_mapped) {
    int listening = socket(AF_INET6, SOCK_STREAM, 0);
    set_option(listening, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}, peer;
    CHECK(bind(listening, ADDRESS(any)) == 0 && listen(listening, 4) == 0);
    connected(port_of(listening));
    socklen_t size = sizeof peer;
    CHECK(accept(listening, (struct sockaddr *)&peer, &size) >= 0);
    char text[INET6_ADDRSTRLEN];
    CHECK(inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof text) != NULL);
    CHECK(!strcmp(text, "::ffff:127.0.0.1"));
}

CASE(ipv6_only_leaves_ipv4_free) {
    int six = socket(AF_INET6, SOCK_STREAM, 0), four = socket(AF_INET, SOCK_STREAM, 0);
    set_option(six, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    CHECK_EQ(get_option(six, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    CHECK(bind(six, ADDRESS(any)) == 0 && listen(six, 1) == 0);
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port_of(six))};
    CHECK(bind(four, ADDRESS(any4)) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port_of(six));
    FAILS(connect(client, ADDRESS(address)), ECONNREFUSED);
}

static void *accepts_many(void *listening) {
    for (int i = 0; i < 100; i++) {
        int fd = accept((int)(intptr_t)listening, NULL, NULL);
        CHECK(fd >= 0);
        char byte;
        CHECK_EQ(read(fd, &byte, 1), 1);
        CHECK_EQ(write(fd, &byte, 1), 1);
        CHECK(close(fd) == 0);
    }
    return NULL;
}

CASE(hundred_short_connections) {
    uint16_t port;
    int listening = listener(16, &port);
    pthread_t server = spawn(accepts_many, (void *)(intptr_t)listening);
    for (int i = 0; i < 100; i++) {
        int fd = connected(port);
        char byte = (char)i, back = 0;
        CHECK_EQ(write(fd, &byte, 1), 1);
        CHECK_EQ(read(fd, &back, 1), 1);
        CHECK_EQ(back, byte);
        CHECK_EQ(read(fd, &back, 1), 0);
        CHECK(close(fd) == 0);
    }
    join(server);
}
