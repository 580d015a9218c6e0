// SPDX-License-Identifier: Apache-2.0
//
// Sockets below the transport protocols: raw IP (raw(7)) and whole frames (packet(7)), over loopback.
//
// They need a right (CAP_NET_RAW) that an ordinary user does not have: who runs these on Linux without it sees the cases
// pass without having done anything. In the guest they always run.
#include "net.h"
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <net/ethernet.h>
#include <sys/ioctl.h>

// A socket, or the end of the case for those without the right.
#define RAW(variable, ...)                                                                                            \
    int variable = socket(__VA_ARGS__);                                                                               \
    if (variable < 0 && errno == EPERM)                                                                               \
        return;                                                                                                       \
    CHECK(variable >= 0)

static struct sockaddr_in localhost(void) { return loopback(0); }

static struct sockaddr_ll on_lo(uint16_t protocol) {
    return (struct sockaddr_ll){
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = (int)if_nametoindex("lo")};
}

// Protocol 253 is for experiments (RFC 3692): nobody else uses it.
enum { EXPERIMENT = 253 };

CASE(raw_packets_arrive_with_their_header) {
    RAW(receiver, AF_INET, SOCK_RAW, EXPERIMENT);
    RAW(sender, AF_INET, SOCK_RAW, EXPERIMENT);
    struct sockaddr_in to = localhost(), from;
    socklen_t size = sizeof from;
    unsigned char packet[128];
    CHECK_EQ(sendto(sender, "payload", 7, 0, ADDRESS(to)), 7);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK_EQ(recvfrom(receiver, packet, sizeof packet, 0, (struct sockaddr *)&from, &size), 27);
    struct iphdr *header = (struct iphdr *)packet;
    CHECK_EQ(header->version, 4);
    CHECK_EQ(header->ihl, 5);
    CHECK_EQ(ntohs(header->tot_len), 27);
    CHECK_EQ(header->ttl, 64);
    CHECK_EQ(header->protocol, EXPERIMENT);
    CHECK_EQ(header->saddr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    CHECK_EQ(from.sin_port, 0);
    CHECK(memcmp(packet + 20, "payload", 7) == 0);
}

CASE(raw_sees_its_protocol_only) {
    RAW(receiver, AF_INET, SOCK_RAW, EXPERIMENT + 1);
    RAW(sender, AF_INET, SOCK_RAW, EXPERIMENT);
    struct sockaddr_in to = localhost();
    char byte;
    CHECK_EQ(sendto(sender, "x", 1, 0, ADDRESS(to)), 1);
    FAILS(recv(receiver, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

CASE(raw_gets_copies_of_udp) {
    RAW(watcher, AF_INET, SOCK_RAW, IPPROTO_UDP);
    uint16_t port, own;
    int receiver = udp_socket(&port), sender = udp_socket(&own);
    struct sockaddr_in to = loopback(port);
    unsigned char packet[128];
    CHECK_EQ(sendto(sender, "hello", 5, 0, ADDRESS(to)), 5);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK_EQ(recv(receiver, packet, sizeof packet, 0), 5); // the copy takes nothing away
    for (;;) {
        CHECK_EQ(ready(watcher, POLLIN, 1000), POLLIN);
        ssize_t size = recv(watcher, packet, sizeof packet, 0);
        struct udphdr *udp = (struct udphdr *)(packet + 20);
        if (ntohs(udp->dest) != port)
            continue; // somebody else's
        CHECK_EQ(size, 20 + 8 + 5);
        CHECK_EQ(ntohs(udp->source), own);
        break;
    }
}

CASE(raw_with_own_header) {
    RAW(sender, AF_INET, SOCK_RAW, IPPROTO_RAW);
    RAW(receiver, AF_INET, SOCK_RAW, EXPERIMENT);
    CHECK_EQ(get_option(sender, IPPROTO_IP, IP_HDRINCL), 1);
    CHECK_EQ(get_option(receiver, IPPROTO_IP, IP_HDRINCL), 0);
    struct sockaddr_in to = localhost();
    unsigned char packet[64] = {0}, got[64];
    struct iphdr *header = (struct iphdr *)packet;
    *header = (struct iphdr){.version = 4, .ihl = 5, .ttl = 9, .protocol = EXPERIMENT, .tos = 0x10,
                             .daddr = htonl(INADDR_LOOPBACK)};
    memcpy(packet + 20, "own", 3);
    CHECK_EQ(sendto(sender, packet, 23, 0, ADDRESS(to)), 23);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK_EQ(recv(receiver, got, sizeof got, 0), 23);
    header = (struct iphdr *)got;
    CHECK_EQ(header->ttl, 9);
    CHECK_EQ(header->tos, 0x10);
    CHECK_EQ(ntohs(header->tot_len), 23);          // filled in
    CHECK_EQ(header->saddr, htonl(INADDR_LOOPBACK)); // filled in
    CHECK(header->id != 0 && header->check != 0);
    packet[0] = 0x41; // a header of four bytes
    FAILS(sendto(sender, packet, 23, 0, ADDRESS(to)), EINVAL);
}

CASE(raw_options) {
    RAW(fd, AF_INET, SOCK_RAW, EXPERIMENT);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_TYPE), SOCK_RAW);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_PROTOCOL), EXPERIMENT);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
    set_option(fd, IPPROTO_IP, IP_TTL, 7);
    CHECK_EQ(get_option(fd, IPPROTO_IP, IP_TTL), 7);
    set_option(fd, IPPROTO_IP, IP_HDRINCL, 1);
    CHECK_EQ(get_option(fd, IPPROTO_IP, IP_HDRINCL), 1);
    struct sockaddr_in to = localhost();
    FAILS(send(fd, "x", 1, 0), EDESTADDRREQ);
    CHECK(connect(fd, ADDRESS(to)) == 0);
    FAILS(listen(fd, 1), EOPNOTSUPP);
    FAILS(socket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
}

CASE(raw_ping) {
    RAW(fd, AF_INET, SOCK_RAW, IPPROTO_ICMP);
    struct sockaddr_in to = localhost();
    struct icmphdr echo = {.type = ICMP_ECHO, .un.echo = {.id = htons(0x4321), .sequence = htons(1)}};
    uint32_t sum = 0;
    for (size_t n = 0; n < sizeof echo / 2; n++)
        sum += ((uint16_t *)&echo)[n];
    echo.checksum = (uint16_t)~((sum >> 16) + (sum & 0xffff));
    CHECK_EQ(sendto(fd, &echo, sizeof echo, 0, ADDRESS(to)), sizeof echo);
    unsigned char packet[128];
    for (;;) {
        CHECK_EQ(ready(fd, POLLIN, 1000), POLLIN);
        CHECK(recv(fd, packet, sizeof packet, 0) >= 28);
        struct icmphdr *got = (struct icmphdr *)(packet + 20);
        if (got->type == ICMP_ECHOREPLY && got->un.echo.id == htons(0x4321))
            break; // a raw socket sees the question as well
    }
}

CASE(packet_socket_sees_frames) {
    RAW(fd, AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll lo = on_lo(ETH_P_ALL), from;
    CHECK(bind(fd, ADDRESS(lo)) == 0);
    uint16_t port, own;
    int receiver = udp_socket(&port), sender = udp_socket(&own);
    (void)receiver;
    struct sockaddr_in to = loopback(port);
    CHECK_EQ(sendto(sender, "frame", 5, 0, ADDRESS(to)), 5);
    unsigned char frame[256];
    bool seen[5] = {0};
    while (!seen[PACKET_OUTGOING] || !seen[PACKET_HOST]) {
        socklen_t size = sizeof from;
        CHECK_EQ(ready(fd, POLLIN, 1000), POLLIN);
        ssize_t length = recvfrom(fd, frame, sizeof frame, 0, (struct sockaddr *)&from, &size);
        struct udphdr *udp = (struct udphdr *)(frame + 14 + 20);
        if (length != 14 + 20 + 8 + 5 || ntohs(udp->dest) != port)
            continue;
        CHECK_EQ(size, sizeof from);
        CHECK_EQ(from.sll_family, AF_PACKET);
        CHECK_EQ(ntohs(from.sll_protocol), ETH_P_IP);
        CHECK_EQ(from.sll_ifindex, lo.sll_ifindex);
        CHECK_EQ(from.sll_hatype, 772);
        CHECK_EQ(from.sll_halen, 6);
        CHECK(memcmp(frame + 42, "frame", 5) == 0);
        CHECK(from.sll_pkttype < 5);
        seen[from.sll_pkttype] = true;
    }
}

CASE(packet_datagrams_have_no_header) {
    RAW(fd, AF_PACKET, SOCK_DGRAM, 0);
    struct sockaddr_ll lo = on_lo(ETH_P_IP), from;
    FAILS(recv(fd, &lo, 0, MSG_DONTWAIT), EAGAIN); // protocol 0 receives nothing
    CHECK(bind(fd, ADDRESS(lo)) == 0);
    uint16_t port, own;
    int receiver = udp_socket(&port), sender = udp_socket(&own);
    (void)receiver;
    struct sockaddr_in to = loopback(port);
    CHECK_EQ(sendto(sender, "datagram", 8, 0, ADDRESS(to)), 8);
    unsigned char packet[256];
    for (;;) {
        socklen_t size = sizeof from;
        CHECK_EQ(ready(fd, POLLIN, 1000), POLLIN);
        ssize_t length = recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &size);
        struct udphdr *udp = (struct udphdr *)(packet + 20);
        if (length != 20 + 8 + 8 || ntohs(udp->dest) != port)
            continue;
        CHECK_EQ(packet[0], 0x45);
        CHECK_EQ(from.sll_pkttype, PACKET_HOST); // what is sent is for ETH_P_ALL only
        break;
    }
}

// An Ethernet type for experiments (IEEE 802).
enum { LOCAL_EXPERIMENT = 0x88b5 };

CASE(packet_socket_sends_frames) {
    RAW(sender, AF_PACKET, SOCK_DGRAM, 0);
    RAW(receiver, AF_PACKET, SOCK_RAW, htons(LOCAL_EXPERIMENT));
    unsigned char got[64], frame[20] = {0};
    struct sockaddr_ll to = on_lo(LOCAL_EXPERIMENT), from;
    socklen_t size = sizeof from;
    to.sll_halen = 6;
    CHECK_EQ(sendto(sender, "link", 4, 0, ADDRESS(to)), 4);
    CHECK_EQ(ready(receiver, POLLIN, 1000), POLLIN);
    CHECK_EQ(recvfrom(receiver, got, sizeof got, 0, (struct sockaddr *)&from, &size), 14 + 4);
    CHECK_EQ(ntohs(from.sll_protocol), LOCAL_EXPERIMENT);
    CHECK_EQ(from.sll_pkttype, PACKET_HOST);
    CHECK(got[12] == 0x88 && got[13] == 0xb5 && memcmp(got + 14, "link", 4) == 0);
    frame[12] = 0x88, frame[13] = 0xb5, frame[14] = 'r';
    CHECK_EQ(sendto(receiver, frame, sizeof frame, 0, ADDRESS(to)), sizeof frame);
    CHECK_EQ(recv(receiver, got, sizeof got, 0), sizeof frame);
    CHECK_EQ(got[14], 'r');
}

CASE(packet_errors) {
    RAW(fd, AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct sockaddr_ll address = on_lo(ETH_P_ALL), name;
    socklen_t size = sizeof name;
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_TYPE), SOCK_RAW);
    CHECK_EQ(get_option(fd, SOL_SOCKET, SO_DOMAIN), AF_PACKET);
    FAILS(send(fd, "0123456789012345", 16, 0), ENXIO); // no interface
    address.sll_ifindex = 12345;
    FAILS(bind(fd, ADDRESS(address)), ENODEV);
    address = on_lo(ETH_P_ARP);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&name, &size) == 0);
    CHECK_EQ(name.sll_ifindex, address.sll_ifindex);
    CHECK_EQ(ntohs(name.sll_protocol), ETH_P_ARP);
    FAILS(connect(fd, ADDRESS(address)), EOPNOTSUPP);
    FAILS(listen(fd, 1), EOPNOTSUPP);
    FAILS(getpeername(fd, (struct sockaddr *)&name, &size), EOPNOTSUPP);
    FAILS(send(fd, "short", 5, 0), EINVAL);
    FAILS(socket(AF_PACKET, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    struct tpacket_stats {
        unsigned packets, drops;
    } stats;
    size = sizeof stats;
    CHECK(getsockopt(fd, SOL_PACKET, 6 /* PACKET_STATISTICS */, &stats, &size) == 0);
    CHECK_EQ(size, sizeof stats);
}
