// SPDX-License-Identifier: Apache-2.0
//
// poll, select and eventfd.
#include "harness.h"
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

static int ends[2];

static void *writes_later(void *fd) {
    sleep_ms(40);
    CHECK_EQ(write((int)(intptr_t)fd, "12345678", 8), 8);
    return NULL;
}

CASE(poll_times_out) {
    CHECK(pipe(ends) == 0);
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN, .revents = 77};
    int64_t start = now_ns();
    CHECK_EQ(poll(&wanted, 1, 30), 0);
    CHECK(now_ns() - start >= 30 * MS);
    CHECK_EQ(wanted.revents, 0);
    CHECK_EQ(poll(NULL, 0, 10), 0);
    CHECK_EQ(poll(&wanted, 1, 0), 0);
}

CASE(poll_wakes_on_readiness) {
    CHECK(pipe(ends) == 0);
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    pthread_t other = spawn(writes_later, (void *)(intptr_t)ends[1]);
    CHECK_EQ(poll(&wanted, 1, -1), 1);
    CHECK_EQ(wanted.revents, POLLIN);
    join(other);
}

CASE(poll_reports_bad_descriptors_and_skips_negative_ones) {
    struct pollfd wanted[3] = {{.fd = 99, .events = POLLIN}, {.fd = -1, .events = POLLIN, .revents = 5}, {.fd = -7}};
    CHECK_EQ(poll(wanted, 3, 1000), 1);
    CHECK_EQ(wanted[0].revents, POLLNVAL);
    CHECK_EQ(wanted[1].revents, 0);
}

CASE(poll_counts_descriptors_not_events) {
    struct pollfd wanted[4];
    for (int i = 0; i < 4; i++)
        wanted[i] = (struct pollfd){.fd = open("/dev/zero", O_RDWR), .events = (short)(i < 3 ? POLLIN | POLLOUT : 0)};
    CHECK_EQ(poll(wanted, 4, 0), 3);
}

CASE(files_and_directories_are_always_ready) {
    write_file("f", "");
    struct pollfd wanted = {.fd = open("f", O_RDONLY), .events = POLLIN | POLLOUT};
    CHECK_EQ(poll(&wanted, 1, 0), 1);
    CHECK_EQ(wanted.revents, POLLIN | POLLOUT);
}

CASE(poll_errors) {
    struct pollfd wanted = {.fd = 0};
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    FAILS(poll(&wanted, limit.rlim_cur + 1, 0), EINVAL);
    FAILS(poll((struct pollfd *)unmapped_page(), 1, 0), EFAULT);
    struct timespec bad = {.tv_nsec = SECOND}, negative = {.tv_sec = -1};
    FAILS(ppoll(&wanted, 1, &bad, NULL), EINVAL);
    FAILS(ppoll(&wanted, 1, &negative, NULL), EINVAL);
}

static volatile sig_atomic_t signals;
static void counts(int signal) {
    (void)signal;
    signals++;
}

CASE(ppoll_swaps_the_mask) {
    struct sigaction action = {.sa_handler = counts};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signals = 0;
    raise(SIGUSR1);
    struct timespec timeout = to_timespec(5 * SECOND);
    FAILS(ppoll(NULL, 0, &timeout, &none), EINTR);
    CHECK_EQ(signals, 1);
    raise(SIGUSR1);
    timeout = to_timespec(10 * MS);
    CHECK_EQ(ppoll(NULL, 0, &timeout, &blocked), 0);
    CHECK_EQ(signals, 1);
}

CASE(select_sets_and_counts) {
    CHECK(pipe(ends) == 0);
    fd_set reading, writing;
    FD_ZERO(&reading);
    FD_ZERO(&writing);
    FD_SET(ends[0], &reading);
    FD_SET(ends[1], &writing);
    struct timeval none = {0};
    CHECK_EQ(select(ends[1] + 1, &reading, &writing, NULL, &none), 1);
    CHECK(!FD_ISSET(ends[0], &reading) && FD_ISSET(ends[1], &writing));
    CHECK_EQ(write(ends[1], "x", 1), 1);
    FD_SET(ends[0], &reading);
    CHECK_EQ(select(ends[1] + 1, &reading, &writing, NULL, &none), 2);
    CHECK(FD_ISSET(ends[0], &reading) && FD_ISSET(ends[1], &writing));
}

CASE(select_times_out_and_updates_the_timeout) {
    CHECK(pipe(ends) == 0);
    fd_set reading;
    FD_ZERO(&reading);
    FD_SET(ends[0], &reading);
    struct timeval timeout = {.tv_usec = 30000};
    int64_t start = now_ns();
    CHECK_EQ(select(ends[0] + 1, &reading, NULL, NULL, &timeout), 0);
    CHECK(now_ns() - start >= 30 * MS);
    CHECK(!FD_ISSET(ends[0], &reading));
    CHECK(timeout.tv_sec == 0 && timeout.tv_usec == 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    FD_SET(ends[0], &reading);
    timeout = (struct timeval){.tv_sec = 100};
    CHECK_EQ(select(ends[0] + 1, &reading, NULL, NULL, &timeout), 1);
    CHECK(timeout.tv_sec <= 100 && timeout.tv_sec > 90);
}

CASE(select_errors) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(20, &set); // not open; far beyond what is open Linux does not even look
    struct timeval none = {0}, bad = {.tv_sec = -1};
    FAILS(select(21, &set, NULL, NULL, &none), EBADF);
    FAILS(select(-1, NULL, NULL, NULL, &none), EINVAL);
    FAILS(select(0, NULL, NULL, NULL, &bad), EINVAL);
}

CASE(select_reports_closed_pipe_as_readable) {
    CHECK(pipe(ends) == 0);
    CHECK(close(ends[1]) == 0);
    fd_set reading, failing;
    FD_ZERO(&reading);
    FD_ZERO(&failing);
    FD_SET(ends[0], &reading);
    FD_SET(ends[0], &failing);
    struct timeval none = {0};
    CHECK_EQ(select(ends[0] + 1, &reading, NULL, &failing, &none), 1);
    CHECK(FD_ISSET(ends[0], &reading) && !FD_ISSET(ends[0], &failing));
}

CASE(pselect_swaps_the_mask) {
    struct sigaction action = {.sa_handler = counts};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signals = 0;
    raise(SIGUSR1);
    struct timespec timeout = to_timespec(5 * SECOND);
    FAILS(pselect(0, NULL, NULL, NULL, &timeout, &none), EINTR);
    CHECK_EQ(signals, 1);
}

// ---- eventfd ----

CASE(eventfd_counts_and_resets) {
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    uint64_t value = 5;
    CHECK_EQ(write(fd, &value, 8), 8);
    CHECK_EQ(read(fd, &value, 8), 8);
    CHECK_EQ(value, 8);
    FAILS(read(fd, &value, 8), EAGAIN);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

CASE(eventfd_semaphore_takes_one) {
    int fd = eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE);
    uint64_t value = 0;
    CHECK_EQ(read(fd, &value, 8), 8);
    CHECK_EQ(value, 1);
    CHECK_EQ(read(fd, &value, 8), 8);
    CHECK_EQ(value, 1);
    FAILS(read(fd, &value, 8), EAGAIN);
}

CASE(eventfd_limits_and_sizes) {
    int fd = eventfd(0, EFD_NONBLOCK);
    uint64_t most = UINT64_MAX - 1, one = 1, all_ones = UINT64_MAX, value, big[2];
    FAILS(write(fd, &all_ones, 8), EINVAL);
    CHECK_EQ(write(fd, &most, 8), 8);
    FAILS(write(fd, &one, 8), EAGAIN);
    struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK_EQ(poll(&wanted, 1, 0), 1);
    CHECK_EQ(wanted.revents, POLLIN);
    CHECK_EQ(read(fd, &value, 8), 8);
    CHECK(value == most);
    FAILS(read(fd, &value, 7), EINVAL);
    FAILS(write(fd, &one, 4), EINVAL);
    CHECK_EQ(write(fd, &one, 8), 8);
    CHECK_EQ(read(fd, big, sizeof big), 8);
    FAILS(eventfd(0, 0x10), EINVAL);
}

CASE(eventfd_blocks_until_written) {
    int fd = eventfd(0, 0);
    pthread_t other = spawn(writes_later, (void *)(intptr_t)fd);
    char bytes[9] = "";
    CHECK_EQ(read(fd, bytes, 8), 8);
    CHECK(!strcmp(bytes, "12345678"));
    join(other);
}

static int flood;

static void *adds_ones(void *unused) {
    (void)unused;
    uint64_t one = 1;
    for (int i = 0; i < 500; i++)
        CHECK_EQ(write(flood, &one, 8), 8);
    return NULL;
}

CASE(eventfd_loses_nothing_under_contention) {
    flood = eventfd(0, 0);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(adds_ones, NULL);
    uint64_t total = 0, value;
    while (total < 1500) {
        CHECK_EQ(read(flood, &value, 8), 8);
        total += value;
    }
    CHECK_EQ(total, 1500);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}
