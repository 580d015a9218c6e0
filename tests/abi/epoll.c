// SPDX-License-Identifier: Apache-2.0
//
// epoll: level and edge, oneshot, nesting, and what happens to descriptors that go away.
#include "net.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static int epoll, ends[2];

static void make(void) {
    epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0);
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
}

static void control(int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(epoll_ctl(epoll, operation, fd, &event) == 0);
}

// Waits and checks that exactly this one event comes.
static void expect(int timeout_ms, uint32_t events, uint64_t data) {
    struct epoll_event got[8];
    CHECK_EQ(epoll_wait(epoll, got, 8, timeout_ms), 1);
    CHECK_EQ(got[0].events, events);
    CHECK_EQ(got[0].data.u64, data);
}

static void expect_nothing(void) {
    struct epoll_event got[8];
    CHECK_EQ(epoll_wait(epoll, got, 8, 0), 0);
}

static void put(const char *text) { CHECK_EQ(write(ends[1], text, strlen(text)), strlen(text)); }

static void take(size_t count) {
    char bytes[64];
    CHECK_EQ(read(ends[0], bytes, count), count);
}

CASE(create_forms) {
    CHECK(epoll_create(1) >= 0);
    FAILS(epoll_create(0), EINVAL);
    FAILS(epoll_create1(0x1), EINVAL);
    int fd = epoll_create1(EPOLL_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

CASE(level_triggered_repeats) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 0x1234567890abcdef);
    expect_nothing();
    put("ab");
    expect(1000, EPOLLIN, 0x1234567890abcdef);
    expect(1000, EPOLLIN, 0x1234567890abcdef);
    take(1);
    expect(1000, EPOLLIN, 0x1234567890abcdef);
    take(1);
    expect_nothing();
}

CASE(edge_triggered_reports_new_data_only) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET, 1);
    put("a");
    expect(1000, EPOLLIN, 1);
    expect_nothing();
    put("b"); // more arrives although the first byte is still there
    expect(1000, EPOLLIN, 1);
    expect_nothing();
    take(2);
    expect_nothing();
    put("c");
    expect(1000, EPOLLIN, 1);
}

CASE(edge_triggered_add_of_a_ready_descriptor_reports_it) {
    make();
    put("a");
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET, 1);
    expect(1000, EPOLLIN, 1);
    expect_nothing();
    control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 2); // modifying asks again
    expect(1000, EPOLLIN, 2);
    expect_nothing();
}

CASE(edge_triggered_writer_is_told_when_there_is_room_again) {
    static char block[65536];
    make();
    control(EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLET, 3);
    expect(1000, EPOLLOUT, 3);
    expect_nothing();
    CHECK_EQ(write(ends[1], block, sizeof block), sizeof block);
    expect_nothing();
    CHECK_EQ(read(ends[0], block, sizeof block), sizeof block);
    expect(1000, EPOLLOUT, 3);
}

CASE(oneshot_is_disarmed_until_modified) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLONESHOT, 1);
    put("a");
    expect(1000, EPOLLIN, 1);
    put("b");
    expect_nothing();
    control(EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 2);
    expect(1000, EPOLLIN, 2);
    expect_nothing();
    CHECK(close(ends[1]) == 0);
    expect_nothing(); // not even HUP
}

CASE(hang_up_and_error_come_unasked) {
    make();
    control(EPOLL_CTL_ADD, ends[0], 0, 1);
    CHECK(close(ends[1]) == 0);
    expect(1000, EPOLLHUP, 1);
    make();
    control(EPOLL_CTL_ADD, ends[1], 0, 2);
    CHECK(close(ends[0]) == 0);
    expect(1000, EPOLLERR, 2);
}

CASE(modify_changes_interest_and_data) {
    make();
    control(EPOLL_CTL_ADD, ends[1], EPOLLIN, 1);
    expect_nothing();
    control(EPOLL_CTL_MOD, ends[1], EPOLLOUT, 2);
    expect(1000, EPOLLOUT, 2);
    control(EPOLL_CTL_MOD, ends[1], 0, 3);
    expect_nothing();
}

CASE(delete_ends_reports) {
    make();
    put("a");
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    expect_nothing();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 2);
    expect(1000, EPOLLIN, 2);
}

CASE(control_errors) {
    make();
    struct epoll_event event = {.events = EPOLLIN};
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), ENOENT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], &event), ENOENT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, 99, &event), EBADF);
    FAILS(epoll_ctl(99, EPOLL_CTL_ADD, ends[0], &event), EBADF);
    FAILS(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event), EINVAL);
    FAILS(epoll_ctl(epoll, 77, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], NULL), EFAULT);
    write_file("f", "");
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, open("f", O_RDONLY), &event), EPERM); // files are always ready
}

CASE(wait_errors) {
    make();
    struct epoll_event got[2];
    FAILS(epoll_wait(epoll, got, 0, 0), EINVAL);
    FAILS(epoll_wait(epoll, got, -1, 0), EINVAL);
    FAILS(epoll_wait(99, got, 1, 0), EBADF);
    FAILS(epoll_wait(ends[0], got, 1, 0), EINVAL);
    put("a");
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    FAILS(epoll_wait(epoll, (struct epoll_event *)unmapped_page(), 1, 0), EFAULT);
    expect(1000, EPOLLIN, 1); // the failed wait did not lose the event
}

CASE(wait_times_out) {
    make();
    struct epoll_event got[1];
    int64_t start = now_ns();
    CHECK_EQ(epoll_wait(epoll, got, 1, 30), 0);
    CHECK(now_ns() - start >= 30 * MS);
    struct timespec timeout = to_timespec(20 * MS);
    start = now_ns();
    long result = syscall(SYS_epoll_pwait2, epoll, got, 1, &timeout, NULL, 8);
    CHECK(result == 0 || (result == -1 && errno == ENOSYS));
    CHECK(result == -1 || now_ns() - start >= 20 * MS);
}

static void *writes_soon(void *unused) {
    (void)unused;
    sleep_ms(40);
    put("x");
    return NULL;
}

CASE(wait_is_woken_by_another_thread) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 9);
    pthread_t other = spawn(writes_soon, NULL);
    expect(-1, EPOLLIN, 9);
    join(other);
}

static void *adds_a_ready_descriptor(void *unused) {
    (void)unused;
    sleep_ms(40);
    put("x");
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 10);
    return NULL;
}

CASE(waiter_notices_a_descriptor_added_meanwhile) {
    make();
    pthread_t other = spawn(adds_a_ready_descriptor, NULL);
    expect(-1, EPOLLIN, 10);
    join(other);
}

CASE(closed_descriptor_leaves_the_set) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    put("a");
    CHECK(close(ends[0]) == 0);
    expect_nothing();
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == -1 && errno == EBADF);
}

CASE(duplicate_keeps_the_registration_alive) {
    make();
    int copy = dup(ends[0]);
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    CHECK(close(ends[0]) == 0);
    put("a");
    expect(1000, EPOLLIN, 1); // the open file lives on: epoll(7), question 6
    CHECK(close(copy) == 0);
    expect_nothing();
}

CASE(duplicate_is_a_registration_of_its_own) {
    make();
    int copy = dup(ends[0]);
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    control(EPOLL_CTL_ADD, copy, EPOLLIN, 2);
    put("a");
    struct epoll_event got[4];
    CHECK_EQ(epoll_wait(epoll, got, 4, 1000), 2);
    CHECK_EQ(got[0].data.u64 + got[1].data.u64, 3);
}

CASE(number_reused_by_another_file) {
    make();
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    int old = ends[0];
    CHECK(close(ends[0]) == 0);
    int event = eventfd(1, 0);
    CHECK_EQ(event, old);
    expect_nothing();
    control(EPOLL_CTL_ADD, event, EPOLLIN, 2); // no EEXIST: it is another file
    expect(1000, EPOLLIN, 2);
}

CASE(few_slots_rotate_over_the_ready) {
    epoll = epoll_create1(0);
    for (uint64_t i = 0; i < 8; i++)
        control(EPOLL_CTL_ADD, eventfd(1, 0), EPOLLIN, i);
    int seen[8] = {0};
    for (int round = 0; round < 8; round++) {
        struct epoll_event got[2];
        CHECK_EQ(epoll_wait(epoll, got, 2, 1000), 2);
        seen[got[0].data.u64]++;
        seen[got[1].data.u64]++;
    }
    for (int i = 0; i < 8; i++)
        CHECK_EQ(seen[i], 2); // nobody starves
}

CASE(nested_epoll_reports_inner_readiness) {
    make();
    int inner = epoll, outer = epoll_create1(0);
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN, 1);
    epoll = outer;
    control(EPOLL_CTL_ADD, inner, EPOLLIN, 2);
    expect_nothing();
    put("a");
    expect(1000, EPOLLIN, 2);
    struct pollfd wanted = {.fd = inner, .events = POLLIN};
    CHECK_EQ(poll(&wanted, 1, 0), 1);
    epoll = inner;
    expect(1000, EPOLLIN, 1);
    take(1);
    epoll = outer;
    expect_nothing();
}

CASE(circles_are_eloop) {
    int a = epoll_create1(0), b = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(a, EPOLL_CTL_ADD, b, &event) == 0);
    FAILS(epoll_ctl(b, EPOLL_CTL_ADD, a, &event), ELOOP);
}

CASE(exclusive_flags) {
    make();
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT};
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), EINVAL);
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    control(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLEXCLUSIVE, 4);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event), EINVAL);
    put("a");
    expect(1000, EPOLLIN, 4);
}

static atomic_int wakes;
static void *waits_exclusively(void *fd) {
    int own = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    CHECK(epoll_ctl(own, EPOLL_CTL_ADD, (int)(intptr_t)fd, &event) == 0);
    CHECK_EQ(epoll_wait(own, &event, 1, -1), 1);
    atomic_fetch_add(&wakes, 1);
    return NULL;
}

CASE(exclusive_waiters_are_all_reached_in_time) {
    int fd = eventfd(0, 0);
    uint64_t one = 1;
    atomic_store(&wakes, 0);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(waits_exclusively, (void *)(intptr_t)fd);
    for (int i = 0; atomic_load(&wakes) < 3 && i < 1000; i++) { // each write wakes at least one
        CHECK_EQ(write(fd, &one, 8), 8);
        sleep_ms(5);
    }
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}

static volatile sig_atomic_t signals;
static void counts(int signal) {
    (void)signal;
    signals++;
}

CASE(epoll_pwait_swaps_the_mask) {
    make();
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, none, now;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signals = 0;
    raise(SIGUSR1);
    struct epoll_event got[1];
    CHECK_EQ(epoll_wait(epoll, got, 1, 10), 0);
    CHECK_EQ(signals, 0);
    FAILS(epoll_pwait(epoll, got, 1, 5000, &none), EINTR);
    CHECK_EQ(signals, 1);
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1) == 1);
}

CASE(timerfd_and_eventfd_together) {
    epoll = epoll_create1(0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), event = eventfd(0, EFD_NONBLOCK);
    struct itimerspec soon = {.it_value = to_timespec(20 * MS)};
    CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
    control(EPOLL_CTL_ADD, timer, EPOLLIN, 1);
    control(EPOLL_CTL_ADD, event, EPOLLIN | EPOLLET, 2);
    expect(5000, EPOLLIN, 1);
    uint64_t value = 1;
    CHECK_EQ(read(timer, &value, 8), 8);
    CHECK_EQ(write(event, &value, 8), 8);
    expect(5000, EPOLLIN, 2);
    CHECK_EQ(write(event, &value, 8), 8); // each write is an edge
    expect(5000, EPOLLIN, 2);
    expect_nothing();
}

CASE(socket_events_over_its_life) {
    struct pair pair = tcp_pair();
    epoll = epoll_create1(0);
    control(EPOLL_CTL_ADD, pair.server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
    expect(1000, EPOLLOUT, 1);
    CHECK_EQ(write(pair.client, "x", 1), 1);
    expect(1000, EPOLLIN | EPOLLOUT, 1);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    expect(1000, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 1);
    CHECK(shutdown(pair.server, SHUT_WR) == 0);
    expect(1000, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP, 1);
}

CASE(rdhup_only_when_asked) {
    struct pair pair = tcp_pair();
    epoll = epoll_create1(0);
    control(EPOLL_CTL_ADD, pair.server, EPOLLIN, 1);
    CHECK(shutdown(pair.client, SHUT_WR) == 0);
    expect(1000, EPOLLIN, 1);
    control(EPOLL_CTL_MOD, pair.server, EPOLLRDHUP, 2);
    expect(1000, EPOLLRDHUP, 2);
}

CASE(hundreds_of_descriptors) {
    enum { N = 300 };
    static int events[N];
    epoll = epoll_create1(0);
    for (uint64_t i = 0; i < N; i++) {
        events[i] = eventfd(0, EFD_NONBLOCK);
        CHECK(events[i] >= 0);
        control(EPOLL_CTL_ADD, events[i], EPOLLIN, i);
    }
    uint64_t value = 1;
    for (int i = 0; i < N; i += 3)
        CHECK_EQ(write(events[i], &value, 8), 8);
    static struct epoll_event got[N];
    CHECK_EQ(epoll_wait(epoll, got, N, 1000), N / 3);
    for (int i = 0; i < N / 3; i++) {
        CHECK_EQ(got[i].data.u64 % 3, 0);
        CHECK_EQ(read(events[got[i].data.u64], &value, 8), 8);
    }
    expect_nothing();
}
