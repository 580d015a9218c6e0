// SPDX-License-Identifier: Apache-2.0
//
// AF_UNIX: pairs, names in the file system and abstract ones, descriptors and credentials as cargo.
#include "net.h"
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/un.h>

static struct sockaddr_un name(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

static int pair[2];
static void make_pair(int kind) { CHECK(socketpair(AF_UNIX, kind, 0, pair) == 0); }

CASE(stream_pair_is_a_pipe_in_both_directions) {
    char text[16];
    make_pair(SOCK_STREAM | SOCK_CLOEXEC);
    CHECK_EQ(fcntl(pair[1], F_GETFD), FD_CLOEXEC);
    CHECK_EQ(write(pair[0], "abc", 3), 3);
    CHECK_EQ(write(pair[0], "def", 3), 3);
    CHECK_EQ(read(pair[1], text, sizeof text), 6);
    CHECK_EQ(write(pair[1], "back", 4), 4);
    CHECK_EQ(read(pair[0], text, sizeof text), 4);
    CHECK(close(pair[0]) == 0);
    CHECK_EQ(read(pair[1], text, 1), 0);
    FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
}

CASE(datagram_pair_keeps_borders) {
    char text[4];
    make_pair(SOCK_DGRAM);
    CHECK_EQ(write(pair[0], "first message", 13), 13);
    CHECK_EQ(write(pair[0], "2nd", 3), 3);
    CHECK_EQ(recv(pair[1], text, sizeof text, MSG_TRUNC), 13);
    CHECK_EQ(recv(pair[1], text, sizeof text, 0), 3);
    FAILS(recv(pair[1], text, sizeof text, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(write(pair[0], "", 0), 0);
    CHECK_EQ(recv(pair[1], text, sizeof text, 0), 0);
    CHECK(close(pair[1]) == 0);
    FAILS(send(pair[0], "x", 1, MSG_NOSIGNAL), ECONNREFUSED);
}

CASE(seqpacket_pair_if_supported) {
    char text[4];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == -1) {
        CHECK(errno == ESOCKTNOSUPPORT || errno == EOPNOTSUPP || errno == EPROTONOSUPPORT);
        return;
    }
    CHECK_EQ(write(pair[0], "longer", 6), 6);
    CHECK_EQ(write(pair[0], "b", 1), 1);
    CHECK_EQ(read(pair[1], text, sizeof text), 4);
    CHECK_EQ(read(pair[1], text, sizeof text), 1);
    CHECK(close(pair[0]) == 0);
    CHECK_EQ(read(pair[1], text, sizeof text), 0);
}

CASE(socketpair_errors) {
    FAILS(socketpair(AF_INET, SOCK_STREAM, 0, pair), EOPNOTSUPP);
    FAILS(socketpair(AF_UNIX, 77, 0, pair), EINVAL);
    FAILS(socketpair(AF_UNIX, SOCK_STREAM, 5, pair), EPROTONOSUPPORT);
    FAILS(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)unmapped_page()), EFAULT);
}

static int listen_at(const char *path) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = name(path);
    CHECK(bind(fd, ADDRESS(address)) == 0);
    CHECK(listen(fd, 4) == 0);
    return fd;
}

CASE(named_stream_connects) {
    int listening = listen_at("socket"), client = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = name("socket"), got;
    struct stat status;
    CHECK(stat("socket", &status) == 0);
    CHECK(S_ISSOCK(status.st_mode));
    CHECK(connect(client, ADDRESS(address)) == 0);
    socklen_t size = sizeof got;
    int server = accept(listening, (struct sockaddr *)&got, &size);
    CHECK(server >= 0);
    CHECK_EQ(size, 2); // the client has no name
    CHECK_EQ(got.sun_family, AF_UNIX);
    size = sizeof got;
    CHECK(getpeername(client, (struct sockaddr *)&got, &size) == 0);
    CHECK(!strcmp(got.sun_path, "socket"));
    CHECK_EQ(size, offsetof(struct sockaddr_un, sun_path) + 7);
    char text[8];
    CHECK_EQ(write(client, "hello", 5), 5);
    CHECK_EQ(read(server, text, sizeof text), 5);
}

CASE(named_socket_errors) {
    int listening = listen_at("socket"), fd = socket(AF_UNIX, SOCK_STREAM, 0), dgram = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un taken = name("socket"), missing = name("missing"), file = name("file"), deep = name("no/such");
    write_file("file", "");
    FAILS(bind(fd, ADDRESS(taken)), EADDRINUSE);
    FAILS(bind(fd, ADDRESS(file)), EADDRINUSE);
    FAILS(bind(fd, ADDRESS(deep)), ENOENT);
    FAILS(connect(fd, ADDRESS(missing)), ENOENT);
    FAILS(connect(fd, ADDRESS(file)), ECONNREFUSED);
    FAILS(connect(dgram, ADDRESS(taken)), EPROTOTYPE);
    FAILS(open("socket", O_RDWR), ENXIO);
    CHECK(close(listening) == 0);
    FAILS(connect(fd, ADDRESS(taken)), ECONNREFUSED); // the name stays behind
    CHECK(unlink("socket") == 0);
    FAILS(connect(fd, ADDRESS(taken)), ENOENT);
}

CASE(abstract_names_are_no_files) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0coracle-abi"};
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + 12;
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listening, (struct sockaddr *)&address, size) == 0);
    CHECK(listen(listening, 1) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, size) == 0);
    struct sockaddr_un got;
    socklen_t got_size = sizeof got;
    CHECK(getpeername(client, (struct sockaddr *)&got, &got_size) == 0);
    CHECK_EQ(got_size, size);
    CHECK(memcmp(got.sun_path, address.sun_path, 12) == 0);
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    FAILS(bind(other, (struct sockaddr *)&address, size), EADDRINUSE);
    CHECK(close(listening) == 0);
    CHECK(bind(other, (struct sockaddr *)&address, size) == 0); // gone with its socket
}

CASE(autobind_gives_an_abstract_name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX}, got;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) == 0);
    socklen_t size = sizeof got;
    CHECK(getsockname(fd, (struct sockaddr *)&got, &size) == 0);
    CHECK_EQ(size, 8); // family, NUL and five hexadecimal digits: unix(7)
    CHECK_EQ(got.sun_path[0], 0);
}

CASE(datagrams_carry_the_sender_name) {
    int server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un server_name = name("server"), client_name = name("client"), from;
    CHECK(bind(server, ADDRESS(server_name)) == 0 && bind(client, ADDRESS(client_name)) == 0);
    CHECK_EQ(sendto(client, "ask", 3, 0, ADDRESS(server_name)), 3);
    char text[8];
    socklen_t size = sizeof from;
    CHECK_EQ(recvfrom(server, text, sizeof text, 0, (struct sockaddr *)&from, &size), 3);
    CHECK(!strcmp(from.sun_path, "client"));
    CHECK_EQ(sendto(server, "reply", 5, 0, (struct sockaddr *)&from, size), 5);
    CHECK_EQ(recv(client, text, sizeof text, 0), 5);
    int unnamed = socket(AF_UNIX, SOCK_DGRAM, 0);
    FAILS(send(unnamed, "x", 1, 0), ENOTCONN);
    CHECK(connect(unnamed, ADDRESS(server_name)) == 0);
    CHECK_EQ(send(unnamed, "x", 1, 0), 1);
    size = sizeof from;
    CHECK_EQ(recvfrom(server, text, sizeof text, 0, (struct sockaddr *)&from, &size), 1);
    CHECK_EQ(size, 0);
}

static void send_descriptors(int over, const int *fds, size_t count, const char *text) {
    char control[CMSG_SPACE(sizeof(int) * 4)] = {0};
    struct iovec vector = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    CHECK_EQ(sendmsg(over, &message, 0), strlen(text));
}

// Receives into room for `room` descriptors; returns how many came.
static size_t receive_descriptors(int over, int *fds, size_t room, int flags, int *message_flags) {
    char control[CMSG_SPACE(sizeof(int) * 4)], text[64];
    struct iovec vector = {text, sizeof text};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control};
    message.msg_controllen = room ? CMSG_LEN(sizeof(int) * room) : 0;
    CHECK(recvmsg(over, &message, flags) > 0);
    *message_flags = message.msg_flags;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header)
        return 0;
    CHECK(header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS);
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), sizeof(int) * count);
    return count;
}

CASE(descriptors_can_be_sent) {
    make_pair(SOCK_STREAM);
    write_file("f", "contents");
    int sent[2] = {open("f", O_RDONLY), open("/dev/null", O_RDWR)}, got[4], flags;
    char text[16];
    CHECK_EQ(read(sent[0], text, 3), 3);
    send_descriptors(pair[0], sent, 2, "two");
    CHECK(close(sent[0]) == 0);
    CHECK_EQ(receive_descriptors(pair[1], got, 4, MSG_CMSG_CLOEXEC, &flags), 2);
    CHECK(got[0] >= 0 && got[1] >= 0 && got[0] != sent[1] && got[1] != sent[1]);
    CHECK_EQ(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    CHECK_EQ(read(got[0], text, sizeof text), 5); // the same open file, with its position
    CHECK(memcmp(text, "tents", 5) == 0);
}

CASE(too_little_room_for_descriptors_is_flagged) {
    make_pair(SOCK_STREAM);
    int sent[2] = {open("/dev/null", O_RDWR), open("/dev/zero", O_RDWR)}, got[4], flags = 0;
    send_descriptors(pair[0], sent, 2, "x");
    CHECK_EQ(receive_descriptors(pair[1], got, 1, 0, &flags), 1);
    CHECK_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
    send_descriptors(pair[0], sent, 1, "x");
    CHECK_EQ(receive_descriptors(pair[1], got, 0, 0, &flags), 0);
    CHECK_EQ(flags & MSG_CTRUNC, MSG_CTRUNC);
}

CASE(descriptors_separate_stream_data) {
    make_pair(SOCK_STREAM);
    char text[32];
    int fd = open("/dev/null", O_RDWR), got[4], flags;
    CHECK_EQ(write(pair[0], "before", 6), 6);
    send_descriptors(pair[0], &fd, 1, "with");
    CHECK_EQ(write(pair[0], "after", 5), 5);
    CHECK_EQ(recv(pair[1], text, sizeof text, MSG_PEEK | MSG_DONTWAIT) >= 6, 1);
    CHECK_EQ(read(pair[1], text, 6), 6);
    CHECK_EQ(receive_descriptors(pair[1], got, 4, 0, &flags), 1);
}

CASE(bad_descriptor_cannot_be_sent) {
    make_pair(SOCK_STREAM);
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {"x", 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    *(int *)CMSG_DATA(header) = 99;
    FAILS(sendmsg(pair[0], &message, 0), EBADF);
    header->cmsg_len = 3;
    FAILS(sendmsg(pair[0], &message, 0), EINVAL);
    char byte;
    FAILS(recv(pair[1], &byte, 1, MSG_DONTWAIT), EAGAIN); // nothing of it was sent
}

CASE(end_inside_a_message_lives_until_received) {
    make_pair(SOCK_STREAM);
    int pipe_ends[2], got[4], flags;
    CHECK(pipe(pipe_ends) == 0);
    send_descriptors(pair[0], &pipe_ends[1], 1, "x");
    CHECK(close(pipe_ends[1]) == 0);
    CHECK(fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK) == 0);
    char byte;
    FAILS(read(pipe_ends[0], &byte, 1), EAGAIN); // a writer is on its way
    CHECK_EQ(receive_descriptors(pair[1], got, 1, 0, &flags), 1);
    CHECK(close(got[0]) == 0);
    CHECK_EQ(read(pipe_ends[0], &byte, 1), 0);
}

CASE(credentials_are_attached_when_asked) {
    make_pair(SOCK_STREAM);
    set_option(pair[1], SOL_SOCKET, SO_PASSCRED, 1);
    CHECK_EQ(write(pair[0], "x", 1), 1);
    char byte, control[128];
    struct iovec vector = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK_EQ(recvmsg(pair[1], &message, 0), 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header != NULL && header->cmsg_type == SCM_CREDENTIALS);
    struct ucred credentials;
    memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
    CHECK_EQ(credentials.pid, getpid());
    CHECK_EQ(credentials.uid, getuid());
    socklen_t size = sizeof credentials;
    CHECK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0);
    CHECK_EQ(credentials.pid, getpid());
}

CASE(shutdown_halves) {
    make_pair(SOCK_STREAM);
    char text[8];
    CHECK_EQ(write(pair[0], "last", 4), 4);
    CHECK(shutdown(pair[0], SHUT_WR) == 0);
    CHECK_EQ(read(pair[1], text, sizeof text), 4);
    CHECK_EQ(read(pair[1], text, sizeof text), 0);
    CHECK_EQ(write(pair[1], "back", 4), 4);
    CHECK_EQ(read(pair[0], text, sizeof text), 4);
    CHECK_EQ(ready(pair[1], POLLIN | POLLOUT | POLLRDHUP, 0), POLLIN | POLLOUT | POLLRDHUP);
    CHECK(shutdown(pair[1], SHUT_WR) == 0);
    CHECK((ready(pair[0], POLLIN, 0) & POLLHUP) != 0);
}

CASE(full_stream_is_eagain_until_read) {
    static char block[4096];
    make_pair(SOCK_STREAM | SOCK_NONBLOCK);
    long sent = 0, received = 0;
    ssize_t n;
    while ((n = write(pair[0], block, sizeof block)) > 0)
        sent += n;
    CHECK(n == -1 && errno == EAGAIN);
    CHECK(sent >= 65536 && sent < 16 << 20);
    CHECK_EQ(ready(pair[0], POLLOUT, 0), 0);
    while ((n = read(pair[1], block, sizeof block)) > 0)
        received += n;
    CHECK_EQ(received, sent);
    CHECK_EQ(ready(pair[0], POLLOUT, 1000), POLLOUT);
    int waiting = -1;
    CHECK_EQ(write(pair[0], "abc", 3), 3);
    CHECK(ioctl(pair[1], FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 3);
}

static void *writes_much(void *fd) {
    char block[1000];
    for (int i = 0; i < 300; i++) {
        memset(block, i % 127, sizeof block);
        for (size_t at = 0; at < sizeof block;) {
            ssize_t n = write((int)(intptr_t)fd, block + at, sizeof block - at);
            CHECK(n > 0);
            at += (size_t)n;
        }
    }
    return NULL;
}

CASE(blocking_stream_between_threads) {
    make_pair(SOCK_STREAM);
    pthread_t writer = spawn(writes_much, (void *)(intptr_t)pair[0]);
    char block[1000];
    for (int i = 0; i < 300; i++) {
        read_exactly(pair[1], block, sizeof block);
        CHECK(block[0] == i % 127 && block[999] == i % 127);
    }
    join(writer);
}
