// SPDX-License-Identifier: Apache-2.0
//
// splice(2), tee(2), vmsplice(2), sync_file_range(2).
#include "harness.h"

#include <sys/socket.h>
#include <sys/uio.h>

static int in, out; // the ends of a pipe

static void make_pipe(void) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    in = fds[1], out = fds[0];
}

static int file_with(const char *text) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void reads(int fd, const char *wanted) {
    char text[256] = "";
    CHECK_EQ(read(fd, text, sizeof text - 1), strlen(wanted));
    CHECK(!strcmp(text, wanted));
}

CASE(splice_from_file_to_pipe_moves_the_position) {
    make_pipe();
    int fd = file_with("0123456789");
    CHECK_EQ(splice(fd, NULL, in, NULL, 4, 0), 4);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 4);
    CHECK_EQ(splice(fd, NULL, in, NULL, 100, 0), 6);
    CHECK_EQ(splice(fd, NULL, in, NULL, 100, 0), 0);
    reads(out, "0123456789");
}

CASE(splice_from_file_at_an_offset) {
    make_pipe();
    int fd = file_with("0123456789");
    off_t at = 7;
    CHECK_EQ(splice(fd, &at, in, NULL, 100, 0), 3);
    CHECK_EQ(at, 10);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    reads(out, "789");
    at = -1;
    FAILS(splice(fd, &at, in, NULL, 1, 0), EINVAL);
}

CASE(splice_from_pipe_to_file) {
    make_pipe();
    int fd = file_with("..........");
    CHECK_EQ(write(in, "abcdef", 6), 6);
    CHECK_EQ(splice(out, NULL, fd, NULL, 2, 0), 2);
    off_t at = 8;
    CHECK_EQ(splice(out, NULL, fd, &at, 3, 0), 3);
    CHECK_EQ(at, 11);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 2);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    reads(fd, "ab......cde");
    reads(out, "f");
}

CASE(splice_between_pipes) {
    make_pipe();
    int first_in = in, first_out = out;
    make_pipe();
    CHECK_EQ(write(first_in, "hello world", 11), 11);
    CHECK_EQ(splice(first_out, NULL, in, NULL, 5, 0), 5);
    reads(out, "hello");
    reads(first_out, " world");
    FAILS(splice(out, NULL, in, NULL, 5, SPLICE_F_NONBLOCK), EINVAL);
}

CASE(splice_ends_with_the_writers) {
    make_pipe();
    int fd = file_with("");
    CHECK_EQ(write(in, "last", 4), 4);
    close(in);
    CHECK_EQ(splice(out, NULL, fd, NULL, 100, 0), 4);
    CHECK_EQ(splice(out, NULL, fd, NULL, 100, 0), 0);
}

CASE(splice_without_waiting) {
    make_pipe();
    int fd = file_with("x");
    FAILS(splice(out, NULL, fd, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    static char block[65536];
    CHECK_EQ(write(in, block, sizeof block), sizeof block);
    FAILS(splice(fd, NULL, in, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK(fcntl(in, F_SETFL, O_NONBLOCK) == 0);
    FAILS(splice(fd, NULL, in, NULL, 1, 0), EAGAIN);
}

CASE(splice_errors) {
    make_pipe();
    int fd = file_with("x"), other = open("f", O_RDWR), append = open("f", O_WRONLY | O_APPEND);
    off_t at = 0;
    FAILS(splice(fd, NULL, other, NULL, 1, 0), EINVAL);
    FAILS(splice(fd, NULL, in, NULL, 1, 0x100), EINVAL);
    FAILS(splice(-1, NULL, in, NULL, 1, 0), EBADF);
    FAILS(splice(fd, NULL, 99, NULL, 1, 0), EBADF);
    FAILS(splice(in, NULL, fd, NULL, 1, 0), EBADF);
    FAILS(splice(fd, NULL, out, NULL, 1, 0), EBADF);
    FAILS(splice(fd, NULL, in, &at, 1, 0), ESPIPE);
    FAILS(splice(out, &at, fd, NULL, 1, 0), ESPIPE);
    CHECK_EQ(write(in, "y", 1), 1);
    FAILS(splice(out, NULL, append, NULL, 1, 0), EINVAL);
    CHECK_EQ(splice(fd, NULL, in, NULL, 0, 0), 0);
    signal(SIGPIPE, SIG_IGN);
    close(out);
    FAILS(splice(fd, NULL, in, NULL, 1, 0), EPIPE);
}

CASE(splice_to_and_from_sockets) {
    make_pipe();
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK_EQ(write(ends[0], "over a socket", 13), 13);
    CHECK_EQ(splice(ends[1], NULL, in, NULL, 100, SPLICE_F_MOVE), 13);
    CHECK_EQ(splice(out, NULL, ends[1], NULL, 4, SPLICE_F_MORE), 4);
    reads(ends[0], "over");
    reads(out, " a socket");
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(splice(ends[1], NULL, in, NULL, 100, 0), EAGAIN);
    close(ends[0]);
    CHECK_EQ(splice(ends[1], NULL, in, NULL, 100, 0), 0);
}

CASE(splice_loses_nothing_to_a_full_socket) {
    // What the socket does not take stays in the pipe.
    make_pipe();
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    static char sent[60000], got[60000];
    long long moved = 0, arrived = 0;
    unsigned char next_sent = 0, next_got = 0;
    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < sizeof sent; i++)
            sent[i] = (char)next_sent++;
        CHECK_EQ(write(in, sent, sizeof sent), sizeof sent);
        for (size_t left = sizeof sent; left > 0;) {
            ssize_t n = splice(out, NULL, ends[0], NULL, left, SPLICE_F_NONBLOCK);
            if (n > 0) {
                left -= (size_t)n, moved += n;
                continue;
            }
            CHECK(n == -1 && errno == EAGAIN);
            n = read(ends[1], got, sizeof got);
            CHECK(n > 0);
            for (ssize_t i = 0; i < n; i++)
                CHECK_EQ((unsigned char)got[i], next_got++);
            arrived += n;
        }
    }
    for (ssize_t n; (n = read(ends[1], got, sizeof got)) > 0; arrived += n)
        for (ssize_t i = 0; i < n; i++)
            CHECK_EQ((unsigned char)got[i], next_got++);
    CHECK_EQ(arrived, moved);
}

static void *late_writer(void *unused) {
    (void)unused;
    sleep_ms(30);
    CHECK_EQ(write(in, "late", 4), 4);
    return NULL;
}

CASE(splice_waits_for_bytes) {
    make_pipe();
    int fd = file_with("");
    pthread_t thread = spawn(late_writer, NULL);
    CHECK_EQ(splice(out, NULL, fd, NULL, 100, 0), 4);
    join(thread);
}

CASE(tee_leaves_the_bytes) {
    make_pipe();
    int first_in = in, first_out = out;
    make_pipe();
    CHECK_EQ(write(first_in, "twice", 5), 5);
    CHECK_EQ(tee(first_out, in, 100, 0), 5);
    CHECK_EQ(tee(first_out, in, 2, 0), 2);
    reads(out, "twicetw");
    reads(first_out, "twice");
    FAILS(tee(first_out, in, 1, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(tee(out, in, 1, SPLICE_F_NONBLOCK), EINVAL);
    int fd = file_with("x");
    FAILS(tee(fd, in, 1, 0), EINVAL);
    close(first_in);
    CHECK_EQ(tee(first_out, in, 1, 0), 0);
}

CASE(vmsplice_both_ways) {
    make_pipe();
    struct iovec parts[2] = {{"from ", 5}, {"memory", 6}};
    CHECK_EQ(vmsplice(in, parts, 2, 0), 11);
    char text[16] = "";
    struct iovec into = {text, sizeof text - 1};
    CHECK_EQ(vmsplice(out, &into, 1, 0), 11);
    CHECK(!strcmp(text, "from memory"));
    FAILS(vmsplice(out, &into, 1, SPLICE_F_NONBLOCK), EAGAIN);
    int fd = file_with("x");
    FAILS(vmsplice(fd, parts, 2, 0), EBADF);
    FAILS(vmsplice(in, parts, 2, 0x100), EINVAL);
    FAILS(vmsplice(in, (struct iovec *)8, 1, 0), EFAULT);
}

CASE(sync_file_range_checks_its_arguments) {
    int fd = file_with("0123456789");
    CHECK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
    CHECK(sync_file_range(fd, 2, 5,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0);
    FAILS(sync_file_range(fd, -1, 5, 0), EINVAL);
    FAILS(sync_file_range(fd, 0, -1, 0), EINVAL);
    FAILS(sync_file_range(fd, 0, 1, 8), EINVAL);
    FAILS(sync_file_range(-1, 0, 1, 0), EBADF);
    make_pipe();
    FAILS(sync_file_range(out, 0, 1, 0), ESPIPE);
}
