// SPDX-License-Identifier: Apache-2.0
//
// UDP over loopback: datagrams stay whole, errors come back, addresses are told.
#include "net.h"
#include <sys/ioctl.h>

static ssize_t send_to(int fd, const void *data, size_t size, uint16_t port) {
    struct sockaddr_in address = loopback(port);
    return sendto(fd, data, size, 0, ADDRESS(address));
}

CASE(datagrams_keep_their_borders) {
    uint16_t port, from_port;
    int receiver = udp_socket(&port), sender = udp_socket(&from_port);
    char text[16];
    CHECK_EQ(send_to(sender, "first", 5, port), 5);
    CHECK_EQ(send_to(sender, "second!", 7, port), 7);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    CHECK_EQ(recvfrom(receiver, text, sizeof text, 0, (struct sockaddr *)&from, &size), 5);
    CHECK_EQ(ntohs(from.sin_port), from_port);
    CHECK_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(size, sizeof from);
    CHECK_EQ(recv(receiver, text, sizeof text, 0), 7);
    FAILS(recv(receiver, text, sizeof text, MSG_DONTWAIT), EAGAIN);
}

CASE(cut_datagram_is_flagged) {
    uint16_t port;
    int receiver = udp_socket(&port);
    char text[4];
    struct iovec vector = {text, sizeof text};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    CHECK_EQ(send_to(receiver, "0123456789", 10, port), 10);
    CHECK_EQ(send_to(receiver, "0123456789", 10, port), 10);
    CHECK_EQ(send_to(receiver, "0123", 4, port), 4);
    CHECK_EQ(recvmsg(receiver, &message, 0), 4);
    CHECK_EQ(message.msg_flags, MSG_TRUNC);
    CHECK_EQ(recv(receiver, text, sizeof text, MSG_TRUNC), 10); // the true length
    CHECK_EQ(recvmsg(receiver, &message, 0), 4);                // the rest of each is gone
    CHECK_EQ(message.msg_flags, 0);
}

CASE(zero_length_datagram) {
    uint16_t port;
    int receiver = udp_socket(&port);
    char byte;
    CHECK_EQ(send_to(receiver, "", 0, port), 0);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK_EQ(recv(receiver, &byte, 1, 0), 0);
    FAILS(recv(receiver, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

CASE(connected_socket_filters_and_sends) {
    uint16_t port, other_port, own_port;
    int peer = udp_socket(&port), stranger = udp_socket(&other_port), fd = udp_socket(&own_port);
    struct sockaddr_in address = loopback(port), name;
    char text[16];
    CHECK(connect(fd, ADDRESS(address)) == 0);
    socklen_t size = sizeof name;
    CHECK(getpeername(fd, (struct sockaddr *)&name, &size) == 0);
    CHECK_EQ(ntohs(name.sin_port), port);
    CHECK_EQ(send_to(stranger, "noise", 5, own_port), 5);
    CHECK_EQ(send_to(peer, "signal", 6, own_port), 6);
    CHECK_EQ(recv(fd, text, sizeof text, 0), 6);
    CHECK_EQ(write(fd, "back", 4), 4);
    CHECK_EQ(read(peer, text, sizeof text), 4);
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    CHECK(connect(fd, &nobody, sizeof nobody) == 0); // dissolves it
    FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
    FAILS(getpeername(fd, (struct sockaddr *)&name, &size), ENOTCONN);
}

CASE(nobody_listens_is_told_to_a_connected_socket) {
    uint16_t port, own_port;
    CHECK(close(udp_socket(&port)) == 0);
    int fd = udp_socket(&own_port);
    struct sockaddr_in address = loopback(port);
    char byte;
    CHECK(connect(fd, ADDRESS(address)) == 0);
    CHECK_EQ(send(fd, "x", 1, 0), 1);
    CHECK((ready(fd, POLLIN, 5000) & POLLERR) != 0);
    FAILS(recv(fd, &byte, 1, 0), ECONNREFUSED);
    FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(send(fd, "x", 1, 0), 1);
    CHECK((ready(fd, POLLIN, 5000) & POLLERR) != 0);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
}

CASE(nobody_listens_is_not_told_to_an_unconnected_socket) {
    uint16_t port, own_port;
    CHECK(close(udp_socket(&port)) == 0);
    int fd = udp_socket(&own_port);
    char byte;
    CHECK_EQ(send_to(fd, "x", 1, port), 1);
    CHECK_EQ(ready(fd, POLLIN, 30), 0);
    FAILS(recv(fd, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

CASE(sending_errors) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    static char big[70000];
    struct sockaddr_in address = loopback(9);
    FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
    FAILS(sendto(fd, big, sizeof big, 0, ADDRESS(address)), EMSGSIZE);
    FAILS(sendto(fd, big, 65508, 0, ADDRESS(address)), EMSGSIZE);
    address.sin_port = 0;
    FAILS(sendto(fd, "x", 1, 0, ADDRESS(address)), EINVAL);
    address = loopback(9);
    FAILS(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, 3), EINVAL);
    address.sin_family = AF_INET6;
    FAILS(sendto(fd, "x", 1, 0, ADDRESS(address)), EAFNOSUPPORT);
    FAILS(sendto(fd, unmapped_page(), 10, 0, ADDRESS(address)), EAFNOSUPPORT); // the address is looked at first
    address.sin_family = AF_INET;
    FAILS(sendto(fd, unmapped_page(), 10, 0, ADDRESS(address)), EFAULT);
}

CASE(broadcast_needs_permission) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7fffffff)}; // of lo
    FAILS(sendto(fd, "x", 1, 0, ADDRESS(address)), EACCES);
    FAILS(connect(fd, ADDRESS(address)), EACCES);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_BROADCAST), 0);
}

CASE(bind_conflicts_and_reuse) {
    uint16_t port;
    udp_socket(&port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = loopback(port);
    FAILS(bind(fd, ADDRESS(address)), EADDRINUSE);
    address.sin_addr.s_addr = htonl(0xc6336401);
    FAILS(bind(fd, ADDRESS(address)), EADDRNOTAVAIL);
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    set_option(one, SOL_SOCKET, SO_REUSEPORT, 1);
    set_option(two, SOL_SOCKET, SO_REUSEPORT, 1);
    address = loopback(0);
    CHECK(bind(one, ADDRESS(address)) == 0);
    address = loopback(port_of(one));
    CHECK(bind(two, ADDRESS(address)) == 0);
    FAILS(bind(two, ADDRESS(address)), EINVAL); // bound already
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(tcp, ADDRESS(address)) == 0); // TCP and UDP ports are apart
}

CASE(first_send_binds_to_a_free_port) {
    uint16_t port;
    int receiver = udp_socket(&port), fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(port_of(fd), 0);
    CHECK_EQ(send_to(fd, "x", 1, port), 1);
    CHECK(port_of(fd) != 0);
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    char byte;
    CHECK_EQ(recvfrom(receiver, &byte, 1, 0, (struct sockaddr *)&from, &size), 1);
    CHECK_EQ(ntohs(from.sin_port), port_of(fd));
    CHECK(listen(fd, 1) == -1 && errno == EOPNOTSUPP);
    CHECK(accept(fd, NULL, NULL) == -1 && errno == EOPNOTSUPP);
}

CASE(large_datagram) {
    uint16_t port;
    int receiver = udp_socket(&port);
    static char out[60000], in[60001];
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 11 % 241);
    CHECK_EQ(send_to(receiver, out, sizeof out, port), sizeof out);
    CHECK_EQ(recv(receiver, in, sizeof in, 0), sizeof out);
    CHECK(memcmp(in, out, sizeof out) == 0);
}

CASE(fionread_tells_the_next_datagram) {
    uint16_t port;
    int receiver = udp_socket(&port), waiting = -1;
    CHECK_EQ(send_to(receiver, "12345", 5, port), 5);
    CHECK_EQ(send_to(receiver, "1234567", 7, port), 7);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK(ioctl(receiver, FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 5);
}

CASE(peek_a_datagram) {
    uint16_t port;
    int receiver = udp_socket(&port);
    char text[8];
    CHECK_EQ(send_to(receiver, "peek", 4, port), 4);
    CHECK_EQ(recv(receiver, text, sizeof text, MSG_PEEK), 4);
    CHECK_EQ(recv(receiver, NULL, 0, MSG_PEEK | MSG_TRUNC), 4);
    CHECK_EQ(recv(receiver, text, sizeof text, 0), 4);
}

CASE(many_messages_in_one_call) {
    uint16_t port;
    int receiver = udp_socket(&port);
    struct mmsghdr out[4], in[6];
    struct iovec out_vectors[4], in_vectors[6];
    char buffers[6][16];
    struct sockaddr_in to = loopback(port);
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    for (size_t i = 0; i < 4; i++) {
        out_vectors[i] = (struct iovec){"messages" + i, 8 - i};
        out[i].msg_hdr = (struct msghdr){
            .msg_iov = &out_vectors[i], .msg_iovlen = 1, .msg_name = &to, .msg_namelen = sizeof to};
    }
    for (size_t i = 0; i < 6; i++) {
        in_vectors[i] = (struct iovec){buffers[i], sizeof buffers[i]};
        in[i].msg_hdr = (struct msghdr){.msg_iov = &in_vectors[i], .msg_iovlen = 1};
    }
    CHECK_EQ(sendmmsg(receiver, out, 4, 0), 4);
    CHECK_EQ(out[3].msg_len, 5);
    CHECK_EQ(recvmmsg(receiver, in, 2, 0, NULL), 2);
    CHECK_EQ(recvmmsg(receiver, in + 2, 4, MSG_DONTWAIT, NULL), 2);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ(in[i].msg_len, 8 - i);
        CHECK(memcmp(buffers[i], "messages" + i, 8 - i) == 0);
    }
    FAILS(recvmmsg(receiver, in, 2, MSG_DONTWAIT, NULL), EAGAIN);
}

CASE(packet_information_tells_the_destination) {
    uint16_t port;
    int receiver = udp_socket(&port);
    set_option(receiver, IPPROTO_IP, IP_PKTINFO, 1);
    CHECK_EQ(send_to(receiver, "x", 1, port), 1);
    char byte, control[128];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(receiver, &message, 0), 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO);
    struct in_pktinfo info;
    memcpy(&info, CMSG_DATA(header), sizeof info);
    CHECK_EQ(info.ipi_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(info.ipi_ifindex, 1);
}

// Sends one byte to itself with the control messages in `sent`, and puts what comes back into `got`: each message as
// level, type and first bytes.
static void to_itself(int fd, int family, uint16_t port, const void *sent, size_t sent_size, char *got, size_t got_size) {
    struct sockaddr_in to4 = loopback(port);
    struct sockaddr_in6 to6 = loopback6(port);
    char byte = 'x', control[256];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_name = family == AF_INET ? (void *)&to4 : (void *)&to6,
                             .msg_namelen = family == AF_INET ? sizeof to4 : sizeof to6,
                             .msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = (void *)sent,
                             .msg_controllen = sent_size};
    CHECK_EQ(sendmsg(fd, &message, 0), 1);
    message = (struct msghdr){
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(fd, &message, 0), 1);
    got[0] = 0;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        size_t used = strlen(got);
        snprintf(got + used, got_size - used, "%d/%d/%zu=%d ", one->cmsg_level, one->cmsg_type,
                 one->cmsg_len - CMSG_LEN(0), *CMSG_DATA(one));
    }
}

// A control message with one number, at `at`; where the next one goes.
static char *put_control(char *at, int level, int type, int value) {
    struct cmsghdr header = {.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = level, .cmsg_type = type};
    memset(at, 0, CMSG_SPACE(sizeof value));
    memcpy(at, &header, sizeof header);
    memcpy(at + CMSG_LEN(0), &value, sizeof value);
    return at + CMSG_SPACE(sizeof value);
}

CASE(time_to_live_and_service_are_told_and_set) {
    uint16_t port;
    int fd = udp_socket(&port);
    char got[256], sent[256];
    set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
    set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
    set_option(fd, IPPROTO_IP, IP_TTL, 33);
    to_itself(fd, AF_INET, port, NULL, 0, got, sizeof got);
    OBSERVE("options: %s", got);
    char *end = put_control(put_control(sent, IPPROTO_IP, IP_TTL, 7), IPPROTO_IP, IP_TOS, 0x28);
    to_itself(fd, AF_INET, port, sent, (size_t)(end - sent), got, sizeof got);
    OBSERVE("messages: %s", got);
}

CASE(hop_limit_and_class_are_told_and_set) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    CHECK(bind(fd, ADDRESS(any)) == 0);
    uint16_t port = port_of(fd);
    char got[256], sent[256];
    set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    to_itself(fd, AF_INET6, port, NULL, 0, got, sizeof got);
    OBSERVE("options: %s", got);
    char *end = put_control(put_control(sent, IPPROTO_IPV6, IPV6_HOPLIMIT, 2), IPPROTO_IPV6, IPV6_TCLASS, 0x1f);
    to_itself(fd, AF_INET6, port, sent, (size_t)(end - sent), got, sizeof got);
    OBSERVE("messages: %s", got);
    end = put_control(sent, IPPROTO_IPV6, IPV6_HOPLIMIT, -1);
    to_itself(fd, AF_INET6, port, sent, (size_t)(end - sent), got, sizeof got);
    OBSERVE("no wish: %s", got);
}

CASE(control_messages_are_checked) {
    uint16_t port;
    int fd = udp_socket(&port);
    struct sockaddr_in to = loopback(port);
    struct { int level, type, value; } bad[] = {
        {IPPROTO_IP, IP_TTL, 0}, {IPPROTO_IP, IP_TTL, 256}, {IPPROTO_IP, IP_TTL, -1}, {IPPROTO_IP, IP_TOS, 256},
        {IPPROTO_IP, 199, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char sent[64];
        put_control(sent, bad[i].level, bad[i].type, bad[i].value);
        struct iovec vector = {"x", 1};
        struct msghdr message = {.msg_name = &to,
                                 .msg_namelen = sizeof to,
                                 .msg_iov = &vector,
                                 .msg_iovlen = 1,
                                 .msg_control = sent,
                                 .msg_controllen = CMSG_SPACE(sizeof(int))};
        FAILS(sendmsg(fd, &message, 0), EINVAL);
    }
}

CASE(receive_timeout) {
    uint16_t port;
    int fd = udp_socket(&port);
    char byte;
    set_timeout(fd, SO_RCVTIMEO, 40);
    int64_t start = now_ns();
    FAILS(recv(fd, &byte, 1, 0), EAGAIN);
    CHECK(now_ns() - start >= 40 * MS);
}

CASE(full_receive_buffer_drops) {
    uint16_t port;
    int fd = udp_socket(&port);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, 8192);
    char block[1000];
    for (int i = 0; i < 500; i++)
        CHECK_EQ(send_to(fd, block, sizeof block, port), sizeof block); // never blocks, never fails
    int received = 0;
    while (recv(fd, block, sizeof block, MSG_DONTWAIT) == sizeof block)
        received++;
    CHECK(errno == EAGAIN);
    CHECK(received > 2 && received < 100);
}

CASE(shutdown_and_wakeup) {
    uint16_t port;
    int fd = udp_socket(&port);
    FAILS(shutdown(fd, SHUT_RDWR), ENOTCONN);
    struct sockaddr_in address = loopback(port);
    CHECK(connect(fd, ADDRESS(address)) == 0);
    CHECK(shutdown(fd, SHUT_RD) == 0);
    char byte;
    CHECK_EQ(recv(fd, &byte, 1, 0), 0);
}

CASE(ipv6_datagrams_and_mapped_addresses) {
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any}, from;
    set_option(six, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    CHECK(bind(six, ADDRESS(any)) == 0);
    uint16_t four_port, port = port_of(six);
    int four = udp_socket(&four_port);
    char text[8];
    CHECK_EQ(send_to(four, "four", 4, port), 4);
    socklen_t size = sizeof from;
    CHECK_EQ(recvfrom(six, text, sizeof text, 0, (struct sockaddr *)&from, &size), 4);
    CHECK(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    CHECK_EQ(ntohs(from.sin6_port), four_port);
    CHECK_EQ(sendto(six, "answer", 6, 0, ADDRESS(from)), 6);
    CHECK_EQ(recv(four, text, sizeof text, 0), 6);
    int other = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 to = loopback6(port);
    CHECK_EQ(sendto(other, "six", 3, 0, ADDRESS(to)), 3);
    size = sizeof from;
    CHECK_EQ(recvfrom(six, text, sizeof text, 0, (struct sockaddr *)&from, &size), 3);
    CHECK(memcmp(&from.sin6_addr, &in6addr_loopback, 16) == 0);
}

static void *echoes(void *fd) {
    for (int i = 0; i < 200; i++) {
        char text[64];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom((int)(intptr_t)fd, text, sizeof text, 0, (struct sockaddr *)&from, &size);
        CHECK(n > 0);
        CHECK_EQ(sendto((int)(intptr_t)fd, text, (size_t)n, 0, ADDRESS(from)), n);
    }
    return NULL;
}

CASE(ping_pong_between_threads) {
    uint16_t port, own_port;
    int server = udp_socket(&port), client = udp_socket(&own_port);
    pthread_t thread = spawn(echoes, (void *)(intptr_t)server);
    for (int i = 0; i < 200; i++) {
        int back = -1;
        CHECK_EQ(send_to(client, &i, sizeof i, port), sizeof i);
        CHECK_EQ(recv(client, &back, sizeof back, 0), sizeof back);
        CHECK_EQ(back, i);
    }
    join(thread);
}
