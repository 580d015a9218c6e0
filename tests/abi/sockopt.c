// SPDX-License-Identifier: Apache-2.0
//
// Socket options: what programs set and read.
#include "net.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/un.h>

CASE(kind_of_a_socket) {
    uint16_t port;
    int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET6, SOCK_DGRAM, 0), listening = listener(1, &port);
    CHECK_EQ(get_option(tcp, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
    CHECK_EQ(get_option(udp, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
    CHECK_EQ(get_option(tcp, SOL_SOCKET, SO_DOMAIN), AF_INET);
    CHECK_EQ(get_option(udp, SOL_SOCKET, SO_DOMAIN), AF_INET6);
    CHECK_EQ(get_option(tcp, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
    CHECK_EQ(get_option(udp, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
    CHECK_EQ(get_option(tcp, SOL_SOCKET, SO_ACCEPTCONN), 0);
    CHECK_EQ(get_option(listening, SOL_SOCKET, SO_ACCEPTCONN), 1);
    CHECK_EQ(get_option(tcp, SOL_SOCKET, SO_ERROR), 0);
}

CASE(switches_are_off_and_can_be_turned) {
    const struct {
        int level, name, initial;
    } switches[] = {
        {SOL_SOCKET, SO_REUSEADDR, 0}, {SOL_SOCKET, SO_REUSEPORT, 0},  {SOL_SOCKET, SO_KEEPALIVE, 0},
        {SOL_SOCKET, SO_BROADCAST, 0}, {SOL_SOCKET, SO_OOBINLINE, 0},  {IPPROTO_TCP, TCP_NODELAY, 0},
        {IPPROTO_TCP, TCP_CORK, 0},    {SOL_SOCKET, SO_DONTROUTE, 0},
    };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (size_t i = 0; i < COUNT(switches); i++) {
        CHECK_EQ(get_option(fd, switches[i].level, switches[i].name), switches[i].initial);
        set_option(fd, switches[i].level, switches[i].name, 17); // anything but 0 is on
        CHECK_EQ(get_option(fd, switches[i].level, switches[i].name), 1);
        set_option(fd, switches[i].level, switches[i].name, 0);
        CHECK_EQ(get_option(fd, switches[i].level, switches[i].name), 0);
    }
}

CASE(buffer_sizes_are_doubled_and_bounded) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(get_option(fd, SOL_SOCKET, SO_SNDBUF) >= 4096);
    CHECK(get_option(fd, SOL_SOCKET, SO_RCVBUF) >= 4096);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, 20000);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_RCVBUF), 40000); // socket(7): doubled for bookkeeping
    set_option(fd, SOL_SOCKET, SO_SNDBUF, 20000);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_SNDBUF), 40000);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, 1);
    CHECK(get_option(fd, SOL_SOCKET, SO_RCVBUF) >= 1024);
    set_option(fd, SOL_SOCKET, SO_SNDBUF, 1 << 30);
    CHECK(get_option(fd, SOL_SOCKET, SO_SNDBUF) < 1 << 30);
}

CASE(keepalive_values) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 7200);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 75);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPCNT), 9);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 16);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 15);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 16);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    int zero = 0, much = 100000;
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &zero, sizeof zero), EINVAL);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &much, sizeof much), EINVAL);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    CHECK_EQ(get_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
}

CASE(linger_round_trip) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct linger linger = {.l_onoff = 1, .l_linger = 7}, got;
    socklen_t size = sizeof got;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &size) == 0);
    CHECK(got.l_onoff == 1 && got.l_linger == 7 && size == sizeof got);
}

CASE(tcp_information) {
    struct pair pair = tcp_pair();
    uint16_t port;
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    CHECK(getsockopt(pair.client, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    CHECK_EQ(info.tcpi_state, TCP_ESTABLISHED);
    CHECK(size > 0 && size <= sizeof info);
    size = sizeof info;
    CHECK(getsockopt(listener(1, &port), IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
    CHECK_EQ(info.tcpi_state, TCP_LISTEN);
    CHECK(get_option(pair.client, IPPROTO_TCP, TCP_MAXSEG) >= 500);
}

CASE(cut_option_buffers) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    unsigned char bytes[4] = {0xee, 0xee, 0xee, 0xee};
    socklen_t size = 2;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, bytes, &size) == 0);
    CHECK(size == 2 && bytes[0] == SOCK_STREAM && bytes[1] == 0 && bytes[2] == 0xee);
    size = (socklen_t)-1;
    FAILS(getsockopt(fd, SOL_SOCKET, SO_TYPE, bytes, &size), EINVAL);
    char wide[16];
    size = sizeof wide;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, wide, &size) == 0);
    CHECK_EQ(size, 4);
}

CASE(option_errors) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    socklen_t size = sizeof one;
    FAILS(setsockopt(fd, SOL_SOCKET, 9999, &one, sizeof one), ENOPROTOOPT);
    FAILS(getsockopt(fd, SOL_SOCKET, 9999, &one, &size), ENOPROTOOPT);
    FAILS(setsockopt(fd, IPPROTO_TCP, 9999, &one, sizeof one), ENOPROTOOPT);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, 1), EINVAL);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_TYPE, &one, sizeof one), ENOPROTOOPT); // read only
    FAILS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, unmapped_page(), sizeof one), EFAULT);
    FAILS(getsockopt(fd, SOL_SOCKET, SO_TYPE, unmapped_page(), &size), EFAULT);
    FAILS(getsockopt(fd, SOL_SOCKET, SO_TYPE, &one, (socklen_t *)unmapped_page()), EFAULT);
    FAILS(setsockopt(99, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), EBADF);
    FAILS(setsockopt(open("/dev/null", O_RDWR), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), ENOTSOCK);
}

CASE(ip_options) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), six = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK_EQ(get_option(fd, IPPROTO_IP, IP_TTL), 64);
    set_option(fd, IPPROTO_IP, IP_TTL, 33);
    CHECK_EQ(get_option(fd, IPPROTO_IP, IP_TTL), 33);
    int bad = 300;
    FAILS(setsockopt(fd, IPPROTO_IP, IP_TTL, &bad, sizeof bad), EINVAL);
    set_option(fd, IPPROTO_IP, IP_TOS, 0x10);
    CHECK_EQ(get_option(fd, IPPROTO_IP, IP_TOS), 0x10);
    set_option(six, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    CHECK_EQ(get_option(six, IPPROTO_IPV6, IPV6_V6ONLY), 1);
    FAILS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &bad, sizeof bad), ENOPROTOOPT);
}

CASE(options_of_the_listener_are_inherited) {
    uint16_t port;
    int listening = listener(1, &port);
    set_option(listening, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(listening, SOL_SOCKET, SO_KEEPALIVE, 1);
    connected(port);
    int server = accept(listening, NULL, NULL);
    CHECK_EQ(get_option(server, IPPROTO_TCP, TCP_NODELAY), 1);
    CHECK_EQ(get_option(server, SOL_SOCKET, SO_KEEPALIVE), 1);
}

CASE(sockets_as_files) {
    struct pair pair = tcp_pair();
    struct stat status;
    CHECK(fstat(pair.client, &status) == 0);
    CHECK(S_ISSOCK(status.st_mode));
    FAILS(lseek(pair.client, 0, SEEK_CUR), ESPIPE);
    FAILS(ftruncate(pair.client, 0), EINVAL);
    int copy = dup(pair.client);
    CHECK(close(pair.client) == 0);
    CHECK_EQ(write(copy, "x", 1), 1); // the connection lives as long as one descriptor does
    char byte;
    CHECK_EQ(read(pair.server, &byte, 1), 1);
}

CASE(interfaces_can_be_listed) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq requests[16];
    struct ifconf all = {.ifc_len = sizeof requests, .ifc_req = requests};
    CHECK(ioctl(fd, SIOCGIFCONF, &all) == 0);
    int found = 0;
    for (size_t i = 0; i < (size_t)all.ifc_len / sizeof requests[0]; i++)
        found += !strcmp(requests[i].ifr_name, "lo");
    CHECK_EQ(found, 1);
    struct ifreq one = {.ifr_name = "lo"};
    CHECK(ioctl(fd, SIOCGIFFLAGS, &one) == 0);
    CHECK((one.ifr_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING)) == (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
    CHECK(ioctl(fd, SIOCGIFINDEX, &one) == 0);
    CHECK_EQ(one.ifr_ifindex, 1);
    strcpy(one.ifr_name, "missing0");
    FAILS(ioctl(fd, SIOCGIFFLAGS, &one), ENODEV);
}
