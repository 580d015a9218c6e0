// SPDX-License-Identifier: Apache-2.0
//
// Bytes through TCP: flags of send and recv, coalescing, timeouts, vectors, large amounts.
#include "net.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>

CASE(peek_leaves_the_bytes) {
    struct pair pair = tcp_pair();
    char text[8] = "";
    CHECK_EQ(write(pair.client, "abcdef", 6), 6);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK_EQ(recv(pair.server, text, 3, MSG_PEEK), 3);
    CHECK_EQ(recv(pair.server, text, sizeof text, MSG_PEEK), 6);
    CHECK_EQ(recv(pair.server, text, sizeof text, 0), 6);
    CHECK(memcmp(text, "abcdef", 6) == 0);
}

CASE(dontwait_is_eagain_on_a_blocking_socket) {
    struct pair pair = tcp_pair();
    char byte;
    FAILS(recv(pair.server, &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK_EQ(fcntl(pair.server, F_GETFL) & O_NONBLOCK, 0);
}

static void *sends_in_pieces(void *fd) {
    for (int i = 0; i < 4; i++) {
        sleep_ms(10);
        CHECK_EQ(write((int)(intptr_t)fd, "1234", 4), 4);
    }
    return NULL;
}

CASE(waitall_collects_everything) {
    struct pair pair = tcp_pair();
    char text[16];
    pthread_t other = spawn(sends_in_pieces, (void *)(intptr_t)pair.client);
    CHECK_EQ(recv(pair.server, text, sizeof text, MSG_WAITALL), 16);
    CHECK(memcmp(text, "1234123412341234", 16) == 0);
    join(other);
    CHECK_EQ(write(pair.client, "rest", 4), 4);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    CHECK_EQ(recv(pair.server, text, sizeof text, MSG_WAITALL), 4); // the end comes first
}

CASE(trunc_discards_without_copying) {
    struct pair pair = tcp_pair();
    char text[8] = "untouch";
    CHECK_EQ(write(pair.client, "abcdef", 6), 6);
    CHECK_EQ(recv(pair.server, NULL, 4, MSG_TRUNC | MSG_WAITALL), 4);
    CHECK_EQ(recv(pair.server, text, sizeof text, 0), 2);
    CHECK(memcmp(text, "ef", 2) == 0);
}

CASE(receive_timeout) {
    struct pair pair = tcp_pair();
    char byte;
    set_timeout(pair.server, SO_RCVTIMEO, 50);
    struct timeval got;
    socklen_t size = sizeof got;
    CHECK(getsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &got, &size) == 0);
    CHECK(got.tv_sec == 0 && got.tv_usec >= 50000 && got.tv_usec < 60000);
    int64_t start = now_ns();
    FAILS(recv(pair.server, &byte, 1, 0), EAGAIN);
    CHECK(now_ns() - start >= 50 * MS);
    FAILS(read(pair.server, &byte, 1), EAGAIN);
    struct timeval bad = {.tv_usec = 1000000};
    FAILS(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &bad, sizeof bad), EDOM);
    FAILS(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &bad, 4), EINVAL);
}

CASE(accept_honours_the_receive_timeout) {
    uint16_t port;
    int listening = listener(1, &port);
    set_timeout(listening, SO_RCVTIMEO, 30);
    FAILS(accept(listening, NULL, NULL), EAGAIN);
}

CASE(send_timeout_when_the_peer_does_not_read) {
    static char block[65536];
    struct pair pair = tcp_pair();
    set_timeout(pair.client, SO_SNDTIMEO, 50);
    ssize_t n;
    long total = 0;
    while ((n = send(pair.client, block, sizeof block, 0)) > 0) {
        total += n;
        CHECK(total < 64 << 20); // buffers end somewhere
    }
    CHECK(n == -1 && errno == EAGAIN);
}

CASE(full_buffer_is_eagain_and_writable_again_after_reading) {
    static char block[65536];
    struct pair pair = tcp_pair();
    set_nonblocking(pair.client);
    set_nonblocking(pair.server);
    long sent = 0, received = 0;
    ssize_t n;
    for (int idle = 0; idle < 5;) { // until nothing moves any more
        n = send(pair.client, block, sizeof block, 0);
        if (n > 0) {
            sent += n;
            idle = 0;
        } else {
            CHECK(errno == EAGAIN);
            idle++;
            sleep_ms(5);
        }
        CHECK(sent < 64 << 20);
    }
    CHECK_EQ(ready(pair.client, POLLOUT, 0), 0);
    while (received < sent) {
        n = recv(pair.server, block, sizeof block, 0);
        if (n == -1) {
            CHECK(errno == EAGAIN);
            CHECK_EQ(ready(pair.server, POLLIN, 5000), POLLIN);
            continue;
        }
        received += n;
    }
    CHECK_EQ(received, sent);
    CHECK_EQ(ready(pair.client, POLLOUT, 5000), POLLOUT);
}

CASE(fionread_and_siocoutq) {
    struct pair pair = tcp_pair();
    int waiting = -1, unsent = -1;
    CHECK_EQ(write(pair.client, "12345", 5), 5);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK(ioctl(pair.server, FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 5);
    for (int i = 0; i < 1000; i++) {
        CHECK(ioctl(pair.client, TIOCOUTQ, &unsent) == 0);
        if (unsent == 0)
            break;
        sleep_ms(1);
    }
    CHECK_EQ(unsent, 0);
}

// Receives what comes within 40 ms.
static ssize_t receive_soon(int fd, char *text, size_t size) {
    return ready(fd, POLLIN, 40) & POLLIN ? recv(fd, text, size, MSG_DONTWAIT) : 0;
}

CASE(cork_holds_partial_segments_until_uncorked) {
    struct pair pair = tcp_pair();
    char text[64];
    set_option(pair.client, IPPROTO_TCP, TCP_CORK, 1);
    CHECK_EQ(write(pair.client, "head ", 5), 5);
    CHECK_EQ(write(pair.client, "and body", 8), 8);
    CHECK_EQ(receive_soon(pair.server, text, sizeof text), 0);
    set_option(pair.client, IPPROTO_TCP, TCP_CORK, 0);
    CHECK_EQ(ready(pair.server, POLLIN, 5000), POLLIN);
    CHECK_EQ(recv(pair.server, text, sizeof text, 0), 13);
    CHECK(memcmp(text, "head and body", 13) == 0);
}

CASE(msg_more_joins_with_the_next_send) {
    struct pair pair = tcp_pair();
    char text[64];
    CHECK_EQ(send(pair.client, "one ", 4, MSG_MORE), 4);
    CHECK_EQ(receive_soon(pair.server, text, sizeof text), 0);
    CHECK_EQ(send(pair.client, "two", 3, 0), 3);
    CHECK_EQ(ready(pair.server, POLLIN, 5000), POLLIN);
    CHECK_EQ(recv(pair.server, text, sizeof text, 0), 7);
}

CASE(msg_more_is_sent_at_last_even_alone) {
    struct pair pair = tcp_pair();
    char text[8];
    CHECK_EQ(send(pair.client, "alone", 5, MSG_MORE), 5);
    CHECK_EQ(ready(pair.server, POLLIN, 5000), POLLIN); // after 200 ms at most
    CHECK_EQ(recv(pair.server, text, sizeof text, 0), 5);
}

CASE(nodelay_sends_small_writes_at_once) {
    struct pair pair = tcp_pair();
    char text[8];
    set_option(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
    int64_t start = now_ns();
    for (int i = 0; i < 20; i++) { // write-write-read: with Nagle and delayed acknowledgements 40 ms each
        CHECK_EQ(write(pair.client, "a", 1), 1);
        CHECK_EQ(write(pair.client, "b", 1), 1);
        read_exactly(pair.server, text, 2);
        CHECK_EQ(write(pair.server, "c", 1), 1);
        read_exactly(pair.client, text, 1);
    }
    CHECK(now_ns() - start < 20 * 40 * MS);
}

CASE(vectors_in_and_out) {
    struct pair pair = tcp_pair();
    char a[3], b[1], c[10];
    struct iovec out[4] = {{"he", 2}, {"", 0}, {"llo ", 4}, {"world", 5}}, in[3] = {{a, 3}, {b, 1}, {c, 10}};
    CHECK_EQ(writev(pair.client, out, 4), 11);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK_EQ(readv(pair.server, in, 3), 11);
    CHECK(memcmp(a, "hel", 3) == 0 && b[0] == 'l' && memcmp(c, "o world", 7) == 0);
}

CASE(sendmsg_and_recvmsg) {
    struct pair pair = tcp_pair();
    char a[4], b[8];
    struct iovec out[2] = {{"mess", 4}, {"age", 3}}, in[2] = {{a, 4}, {b, 8}};
    struct msghdr send = {.msg_iov = out, .msg_iovlen = 2}, receive = {.msg_iov = in, .msg_iovlen = 2};
    receive.msg_flags = 0x7777;
    CHECK_EQ(sendmsg(pair.client, &send, 0), 7);
    CHECK_EQ(recvmsg(pair.server, &receive, 0), 7);
    CHECK_EQ(receive.msg_flags, 0);
    CHECK(memcmp(a, "mess", 4) == 0 && memcmp(b, "age", 3) == 0);
    send.msg_iovlen = 1025;
    FAILS(sendmsg(pair.client, &send, 0), EMSGSIZE);
}

CASE(zero_length_operations) {
    struct pair pair = tcp_pair();
    char byte;
    CHECK_EQ(write(pair.client, "", 0), 0);
    CHECK_EQ(send(pair.client, "", 0, 0), 0);
    FAILS(recv(pair.server, &byte, 1, MSG_DONTWAIT), EAGAIN); // nothing was sent
    CHECK_EQ(write(pair.client, "x", 1), 1);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    CHECK_EQ(recv(pair.server, &byte, 0, 0), 0);
    CHECK_EQ(recv(pair.server, &byte, 1, 0), 1);
}

CASE(sendfile_to_a_socket) {
    struct pair pair = tcp_pair();
    static char block[50000], back[50000];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(i * 7 % 253);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, block, sizeof block), sizeof block);
    off_t offset = 0;
    size_t sent = 0;
    while (sent < sizeof block) {
        ssize_t n = sendfile(pair.client, fd, &offset, sizeof block - sent);
        CHECK(n > 0);
        sent += (size_t)n;
    }
    CHECK_EQ(offset, sizeof block);
    read_exactly(pair.server, back, sizeof back);
    CHECK(memcmp(block, back, sizeof block) == 0);
}

// Bytes of a file made by `patterned_file`.
static char pattern(size_t at) {
    return (char)(at * 7 % 253 + at / 4096);
}

static int patterned_file(const char *path, size_t size) {
    static char block[8192];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    for (size_t done = 0; done < size;) {
        size_t part = size - done < sizeof block ? size - done : sizeof block;
        for (size_t i = 0; i < part; i++)
            block[i] = pattern(done + i);
        CHECK_EQ(write(fd, block, part), part);
        done += part;
    }
    return fd;
}

struct expected {
    int fd;
    size_t from, size;
};

static void *reads_pattern(void *argument) {
    struct expected *expected = argument;
    char block[5000];
    size_t done = 0;
    while (done < expected->size) {
        size_t left = expected->size - done;
        ssize_t n = read(expected->fd, block, left < sizeof block ? left : sizeof block);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(block[i] == pattern(expected->from + done + (size_t)i));
        done += (size_t)n;
    }
    return NULL;
}

CASE(sendfile_waits_until_a_large_file_is_sent) {
    enum { SIZE = 3 << 20, FROM = 12345 };
    struct pair pair = tcp_pair();
    int fd = patterned_file("f", SIZE);
    struct expected expected = { pair.server, FROM, SIZE - FROM };
    pthread_t reader = spawn(reads_pattern, &expected);
    off_t offset = FROM;
    CHECK_EQ(sendfile(pair.client, fd, &offset, SIZE), SIZE - FROM);
    CHECK_EQ(offset, SIZE);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE); // where writing left it
    join(reader);
    CHECK_EQ(sendfile(pair.client, fd, &offset, 1), 0);
    offset = SIZE + 5000;
    CHECK_EQ(sendfile(pair.client, fd, &offset, 5000), 0);
}

CASE(sendfile_moves_the_position) {
    struct pair pair = tcp_pair();
    int fd = patterned_file("f", 20000);
    struct expected expected = { pair.server, 1000, 19000 };
    CHECK_EQ(lseek(fd, 1000, SEEK_SET), 1000);
    CHECK_EQ(sendfile(pair.client, fd, NULL, 9001), 9001);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10001);
    CHECK_EQ(sendfile(pair.client, fd, NULL, 100000), 9999);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 20000);
    reads_pattern(&expected);
}

CASE(sendfile_without_waiting_stops_when_full) {
    enum { SIZE = 16 << 20 };
    struct pair pair = tcp_pair();
    int fd = open("f", O_RDWR | O_CREAT, 0600), size = 65536;
    CHECK(ftruncate(fd, SIZE) == 0);
    CHECK(setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    CHECK(fcntl(pair.client, F_SETFL, O_NONBLOCK) == 0);
    off_t offset = 0;
    ssize_t sent;
    while ((sent = sendfile(pair.client, fd, &offset, SIZE)) > 0)
        ;
    CHECK(sent == -1 && errno == EAGAIN);
    CHECK(offset > 0 && offset < SIZE);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    size_t got = 0;
    char block[8192];
    while ((sent = read(pair.server, block, sizeof block)) > 0)
        got += (size_t)sent;
    CHECK_EQ(sent, 0);
    CHECK_EQ(got, offset);
}

// What was sent and not yet read is what the file had, however it changes its length.
CASE(sendfile_survives_the_end_of_its_file) {
    struct pair pair = tcp_pair();
    int fd = patterned_file("f", 40000);
    struct expected expected = { pair.server, 0, 40000 };
    off_t offset = 0;
    CHECK_EQ(sendfile(pair.client, fd, &offset, 40000), 40000);
    CHECK(unlink("f") == 0 && close(fd) == 0);
    reads_pattern(&expected);
}

// A stream of pseudo-random numbers: a byte lost, doubled or out of place is noticed.
struct stream {
    int fd;
    size_t size;
};

static void *sends_stream(void *argument) {
    struct stream *stream = argument;
    unsigned block[4096], value = 0;
    for (size_t sent = 0; sent < stream->size; sent += sizeof block) {
        for (size_t i = 0; i < COUNT(block); i++)
            block[i] = value = value * 1664525 + 1013904223;
        for (size_t at = 0; at < sizeof block;) {
            ssize_t n = write(stream->fd, (char *)block + at, sizeof block - at);
            CHECK(n > 0);
            at += (size_t)n;
        }
    }
    CHECK(shutdown(stream->fd, SHUT_WR) == 0);
    return NULL;
}

static void *receives_stream(void *argument) {
    struct stream *stream = argument;
    unsigned block[1024], value = 0;
    for (size_t received = 0; received < stream->size; received += sizeof block) {
        read_exactly(stream->fd, block, sizeof block);
        for (size_t i = 0; i < COUNT(block); i++) {
            value = value * 1664525 + 1013904223;
            CHECK_EQ(block[i], value);
        }
    }
    char byte;
    CHECK_EQ(read(stream->fd, &byte, 1), 0);
    return NULL;
}

CASE(much_data_in_both_directions_at_once) {
    struct pair pair = tcp_pair();
    struct stream client = {pair.client, 1 << 20}, server = {pair.server, 1 << 20};
    pthread_t threads[4] = {spawn(sends_stream, &client), spawn(receives_stream, &client),
                            spawn(sends_stream, &server), spawn(receives_stream, &server)};
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}

CASE(small_buffers_still_move_everything) {
    uint16_t port;
    int listening = listener(1, &port);
    set_option(listening, SOL_SOCKET, SO_RCVBUF, 16384);
    int client = connected(port);
    set_option(client, SOL_SOCKET, SO_SNDBUF, 16384);
    struct stream sending = {client, 256 << 10}, receiving = {accept(listening, NULL, NULL), 256 << 10};
    pthread_t sender = spawn(sends_stream, &sending);
    receives_stream(&receiving);
    join(sender);
}

static void *echoes(void *fd) {
    char byte;
    while (read((int)(intptr_t)fd, &byte, 1) == 1)
        CHECK_EQ(write((int)(intptr_t)fd, &byte, 1), 1);
    return NULL;
}

CASE(ping_pong_between_threads) {
    struct pair pair = tcp_pair();
    pthread_t server = spawn(echoes, (void *)(intptr_t)pair.server);
    for (int i = 0; i < 300; i++) {
        char byte = (char)i, back = 0;
        CHECK_EQ(write(pair.client, &byte, 1), 1);
        CHECK_EQ(read(pair.client, &back, 1), 1);
        CHECK_EQ(back, byte);
    }
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    join(server);
}

CASE(urgent_flag_is_accepted_or_refused) {
    struct pair pair = tcp_pair();
    char byte = 0;
    ssize_t n = send(pair.client, "u", 1, MSG_OOB);
    if (n == -1) {
        CHECK(errno == EOPNOTSUPP); // a stack may leave urgent data out, but not pretend
        return;
    }
    CHECK((ready(pair.server, POLLPRI, 5000) & POLLPRI) != 0);
    CHECK_EQ(recv(pair.server, &byte, 1, MSG_OOB), 1);
    CHECK_EQ(byte, 'u');
}
