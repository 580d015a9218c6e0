// SPDX-License-Identifier: Apache-2.0
//
// Pipes: order, atomicity, capacity, the ends closing.
#include "harness.h"
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

static int ends[2];

static void make(int flags) { CHECK(pipe2(ends, flags) == 0); }

CASE(bytes_come_out_in_order) {
    char text[16];
    make(0);
    CHECK_EQ(write(ends[1], "abc", 3), 3);
    CHECK_EQ(write(ends[1], "def", 3), 3);
    CHECK_EQ(read(ends[0], text, 4), 4); // a read takes what there is, across writes
    CHECK(memcmp(text, "abcd", 4) == 0);
    CHECK_EQ(read(ends[0], text, sizeof text), 2);
    CHECK(memcmp(text, "ef", 2) == 0);
}

CASE(each_end_has_one_direction) {
    char byte;
    make(O_CLOEXEC);
    FAILS(write(ends[0], "x", 1), EBADF);
    FAILS(read(ends[1], &byte, 1), EBADF);
    CHECK_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(ends[0], F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK_EQ(fcntl(ends[1], F_GETFL) & O_ACCMODE, O_WRONLY);
    FAILS(pipe2(ends, 0x4), EINVAL);
    FAILS(pipe2(NULL, 0), EFAULT);
}

CASE(empty_pipe_nonblocking_is_eagain) {
    char byte;
    make(O_NONBLOCK);
    FAILS(read(ends[0], &byte, 1), EAGAIN);
    CHECK_EQ(read(ends[0], &byte, 0), 0);
}

CASE(end_of_file_when_writers_are_gone) {
    char text[8];
    make(0);
    int copy = dup(ends[1]);
    CHECK_EQ(write(ends[1], "rest", 4), 4);
    CHECK(close(ends[1]) == 0);
    CHECK_EQ(read(ends[0], text, sizeof text), 4);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(ends[0], text, 1), EAGAIN); // the copy still writes
    CHECK(close(copy) == 0);
    CHECK_EQ(read(ends[0], text, 1), 0);
    CHECK_EQ(read(ends[0], text, 1), 0);
}

static volatile sig_atomic_t sigpipes;
static void counts(int signal) {
    (void)signal;
    sigpipes++;
}

CASE(writing_without_readers_is_sigpipe_and_epipe) {
    struct sigaction action = {.sa_handler = counts};
    CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
    make(0);
    sigpipes = 0;
    CHECK(close(ends[0]) == 0);
    FAILS(write(ends[1], "x", 1), EPIPE);
    CHECK_EQ(sigpipes, 1);
    signal(SIGPIPE, SIG_IGN);
    FAILS(write(ends[1], "x", 1), EPIPE);
    CHECK_EQ(sigpipes, 1);
}

CASE(capacity_is_64_kib_and_full_is_eagain) {
    static char block[PAGE];
    make(O_NONBLOCK);
    size_t total = 0;
    ssize_t n;
    while ((n = write(ends[1], block, sizeof block)) > 0)
        total += (size_t)n;
    CHECK(n == -1 && errno == EAGAIN);
    CHECK_EQ(total, 65536);
    CHECK_EQ(fcntl(ends[0], F_GETPIPE_SZ), 65536);
    CHECK_EQ(read(ends[0], block, sizeof block), PAGE);
    CHECK_EQ(write(ends[1], block, sizeof block), PAGE);
}

CASE(small_writes_are_whole_or_not_at_all) {
    static char block[65536];
    make(O_NONBLOCK);
    CHECK_EQ(write(ends[1], block, 65536 - PAGE), 65536 - PAGE);
    CHECK_EQ(write(ends[1], block, 100), 100);
    FAILS(write(ends[1], block, PIPE_BUF), EAGAIN); // PIPE_BUF is atomic: no part of it is written
    int waiting;
    CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 65536 - (int)PAGE + 100);
}

CASE(big_nonblocking_write_is_partial) {
    static char block[100000];
    make(O_NONBLOCK);
    CHECK_EQ(write(ends[1], block, sizeof block), 65536);
    FAILS(write(ends[1], block, 1), EAGAIN);
}

CASE(fionread_counts_bytes) {
    int waiting = -1;
    char text[3];
    make(0);
    CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 0);
    CHECK_EQ(write(ends[1], "12345", 5), 5);
    CHECK_EQ(read(ends[0], text, 2), 2);
    CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0);
    CHECK_EQ(waiting, 3);
}

CASE(capacity_can_be_changed) {
    static char block[PAGE];
    make(O_NONBLOCK);
    CHECK_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
    CHECK_EQ(write(ends[1], block, PAGE), PAGE);
    FAILS(write(ends[1], block, 1), EAGAIN);
    CHECK_EQ(fcntl(ends[1], F_SETPIPE_SZ, 100000), 131072); // rounded up to a power of two pages
    CHECK_EQ(write(ends[1], block, 1), 1);
    CHECK_EQ(write(ends[1], block, PAGE), PAGE);
    FAILS(fcntl(ends[1], F_SETPIPE_SZ, 4096), EBUSY); // does not hold what is in it
    CHECK_EQ(fcntl(ends[0], F_GETPIPE_SZ), 131072);
}

static void *writes_much(void *size) {
    static char block[8192];
    size_t left = (size_t)(uintptr_t)size;
    for (size_t at = 0; at < sizeof block; at++)
        block[at] = (char)(at % 251);
    while (left > 0) {
        ssize_t n = write(ends[1], block, left < sizeof block ? left : sizeof block);
        CHECK(n > 0);
        left -= (size_t)n;
    }
    CHECK(close(ends[1]) == 0);
    return NULL;
}

CASE(blocking_transfer_of_much_data) {
    static char buffer[5000];
    make(0);
    size_t wanted = 1 << 20, total = 0;
    pthread_t writer = spawn(writes_much, (void *)wanted);
    ssize_t n;
    while ((n = read(ends[0], buffer, sizeof buffer)) > 0) {
        for (ssize_t i = 0; i < n; i += 61)
            CHECK_EQ((unsigned char)buffer[i], (total + (size_t)i) % 8192 % 251);
        total += (size_t)n;
    }
    CHECK_EQ(n, 0);
    CHECK_EQ(total, wanted);
    join(writer);
}

static void *writes_lines(void *letter) {
    char line[128];
    memset(line, (int)(intptr_t)letter, sizeof line);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(write(ends[1], line, sizeof line), sizeof line);
    return NULL;
}

CASE(small_writes_of_threads_do_not_mix) {
    make(0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++)
        threads[i] = spawn(writes_lines, (void *)('a' + i));
    char line[128];
    for (int i = 0; i < 600; i++) {
        size_t got = 0;
        while (got < sizeof line) {
            ssize_t n = read(ends[0], line + got, sizeof line - got);
            CHECK(n > 0);
            got += (size_t)n;
        }
        for (size_t j = 1; j < sizeof line; j++)
            CHECK_EQ(line[j], line[0]);
    }
    for (int i = 0; i < 3; i++)
        join(threads[i]);
}

static void *closes_later(void *fd) {
    sleep_ms(40);
    CHECK(close((int)(intptr_t)fd) == 0);
    return NULL;
}

CASE(closing_the_writer_wakes_a_reader) {
    char byte;
    make(0);
    pthread_t other = spawn(closes_later, (void *)(intptr_t)ends[1]);
    CHECK_EQ(read(ends[0], &byte, 1), 0);
    join(other);
}

CASE(closing_the_reader_wakes_a_writer) {
    static char block[65536];
    signal(SIGPIPE, SIG_IGN);
    make(0);
    CHECK_EQ(write(ends[1], block, sizeof block), sizeof block);
    pthread_t other = spawn(closes_later, (void *)(intptr_t)ends[0]);
    FAILS(write(ends[1], block, 1), EPIPE);
    join(other);
}

CASE(poll_follows_the_states) {
    struct pollfd both[2];
    static char block[65536];
    char byte;
    make(O_NONBLOCK);
    both[0] = (struct pollfd){.fd = ends[0], .events = POLLIN | POLLOUT};
    both[1] = (struct pollfd){.fd = ends[1], .events = POLLIN | POLLOUT};
    CHECK_EQ(poll(both, 2, 0), 1);
    CHECK(both[0].revents == 0 && both[1].revents == POLLOUT);
    CHECK_EQ(write(ends[1], block, sizeof block), sizeof block);
    CHECK_EQ(poll(both, 2, 0), 1);
    CHECK(both[0].revents == POLLIN && both[1].revents == 0);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK(close(ends[1]) == 0);
    CHECK_EQ(poll(both, 1, 0), 1);
    CHECK_EQ(both[0].revents, POLLIN | POLLHUP);
    while (read(ends[0], block, sizeof block) > 0)
        ;
    CHECK_EQ(poll(both, 1, 0), 1);
    CHECK_EQ(both[0].revents, POLLHUP);
    make(O_NONBLOCK);
    CHECK(close(ends[0]) == 0);
    both[1].fd = ends[1];
    CHECK_EQ(poll(both + 1, 1, 0), 1);
    CHECK_EQ(both[1].revents, POLLOUT | POLLERR);
}

CASE(splice_and_tee_if_supported) {
    char text[8];
    make(0);
    int other[2];
    CHECK(pipe(other) == 0);
    CHECK_EQ(write(ends[1], "splice", 6), 6);
    ssize_t n = splice(ends[0], NULL, other[1], NULL, 4, 0);
    if (n == -1) {
        CHECK(errno == ENOSYS || errno == EINVAL); // programs fall back to read and write
        return;
    }
    CHECK_EQ(n, 4);
    CHECK_EQ(read(other[0], text, sizeof text), 4);
    CHECK(memcmp(text, "spli", 4) == 0);
}
