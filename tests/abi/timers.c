// SPDX-License-Identifier: Apache-2.0
//
// Things that happen later: interval timers, POSIX timers, timerfd.
#include "harness.h"
#include <sys/timerfd.h>

static atomic_int fired;
static volatile siginfo_t last_info;
static volatile pid_t fired_in;

static void fires(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    last_info = *info;
    fired_in = tid();
    atomic_fetch_add(&fired, 1);
}

static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = fires, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(signal, &action, NULL) == 0);
    atomic_store(&fired, 0);
}

CASE(real_interval_timer_fires_once) {
    handle(SIGALRM);
    struct itimerval once = {.it_value = {.tv_usec = 20000}}, now;
    int64_t start = now_ns();
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
    await(&fired, 1);
    CHECK(now_ns() - start >= 20 * MS);
    sleep_ms(60);
    CHECK_EQ(atomic_load(&fired), 1);
    CHECK(getitimer(ITIMER_REAL, &now) == 0);
    CHECK_EQ(now.it_value.tv_sec + now.it_value.tv_usec, 0);
}

CASE(real_interval_timer_repeats_until_stopped) {
    handle(SIGALRM);
    struct itimerval every = {.it_value = {.tv_usec = 5000}, .it_interval = {.tv_usec = 5000}}, off = {0}, old;
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (atomic_load(&fired) < 4)
        sleep_ms(1);
    CHECK(setitimer(ITIMER_REAL, &off, &old) == 0);
    CHECK_EQ(old.it_interval.tv_usec, 5000);
    int count = atomic_load(&fired);
    sleep_ms(30);
    CHECK_EQ(atomic_load(&fired), count);
}

CASE(alarm_returns_what_was_left) {
    handle(SIGALRM);
    CHECK_EQ(alarm(100), 0);
    unsigned left = alarm(0);
    CHECK(left == 100 || left == 99);
    CHECK_EQ(alarm(0), 0);
}

CASE(cpu_time_timers_count_the_work) {
    handle(SIGVTALRM);
    struct itimerval once = {.it_value = {.tv_usec = 20000}};
    CHECK(setitimer(ITIMER_VIRTUAL, &once, NULL) == 0);
    sleep_ms(50);
    CHECK_EQ(atomic_load(&fired), 0); // sleeping is no work
    while (atomic_load(&fired) == 0)
        ;
    handle(SIGPROF);
    CHECK(setitimer(ITIMER_PROF, &once, NULL) == 0);
    while (atomic_load(&fired) == 0)
        ;
}

CASE(setitimer_errors) {
    struct itimerval bad = {.it_value = {.tv_usec = 1000000}}, good = {0};
    FAILS(setitimer(ITIMER_REAL, &bad, NULL), EINVAL);
    bad.it_value.tv_usec = -1;
    FAILS(setitimer(ITIMER_REAL, &bad, NULL), EINVAL);
    FAILS(setitimer(17, &good, NULL), EINVAL);
    FAILS(getitimer(17, &good), EINVAL);
}

CASE(posix_timer_sends_a_signal_with_its_value) {
    handle(SIGRTMIN + 1);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 77};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec once = {.it_value = to_timespec(15 * MS)}, now;
    int64_t start = now_ns();
    CHECK(timer_settime(timer, 0, &once, NULL) == 0);
    CHECK(timer_gettime(timer, &now) == 0);
    CHECK(to_ns(now.it_value) <= 15 * MS);
    await(&fired, 1);
    CHECK(now_ns() - start >= 15 * MS);
    CHECK_EQ(last_info.si_code, SI_TIMER);
    CHECK_EQ(last_info.si_value.sival_int, 77);
    CHECK_EQ(last_info.si_overrun, 0);
    CHECK(timer_gettime(timer, &now) == 0);
    CHECK_EQ(to_ns(now.it_value), 0);
    CHECK(timer_delete(timer) == 0);
    FAILS(timer_gettime(timer, &now), EINVAL);
}

CASE(posix_timer_absolute_time) {
    handle(SIGUSR1);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    CHECK(timer_create(CLOCK_REALTIME, &event, &timer) == 0);
    struct itimerspec when = {.it_value = to_timespec(clock_ns(CLOCK_REALTIME) + 20 * MS)};
    CHECK(timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0);
    await(&fired, 1);
    CHECK(clock_ns(CLOCK_REALTIME) >= to_ns(when.it_value));
    when.it_value = to_timespec(SECOND); // 1970: at once
    CHECK(timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0);
    await(&fired, 2);
    CHECK(timer_delete(timer) == 0);
}

static void *timer_owner(void *unused) {
    (void)unused;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
    event._sigev_un._tid = tid();
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec every = {.it_value = to_timespec(5 * MS), .it_interval = to_timespec(5 * MS)};
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        int count = atomic_load(&fired);
        while (atomic_load(&fired) == count)
            sleep_ms(1);
        CHECK_EQ(fired_in, tid());
    }
    CHECK(timer_delete(timer) == 0);
    return NULL;
}

CASE(posix_timer_to_one_thread) {
    handle(SIGUSR2);
    join(spawn(timer_owner, NULL));
}

CASE(posix_timer_overruns_are_counted) {
    handle(SIGUSR1);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec every = {.it_value = to_timespec(2 * MS), .it_interval = to_timespec(2 * MS)}, off = {0};
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
    sleep_ms(50);
    siginfo_t info;
    CHECK_EQ(sigwaitinfo(&set, &info), SIGUSR1);
    CHECK(info.si_overrun >= 10);
    CHECK(timer_settime(timer, 0, &off, NULL) == 0);
    CHECK(timer_delete(timer) == 0);
}

CASE(posix_timer_without_notification_can_be_read) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec once = {.it_value = to_timespec(100 * SECOND)}, now, old;
    CHECK(timer_settime(timer, 0, &once, NULL) == 0);
    CHECK(timer_gettime(timer, &now) == 0);
    CHECK(to_ns(now.it_value) > 50 * SECOND && to_ns(now.it_value) <= 100 * SECOND);
    struct itimerspec off = {0};
    CHECK(timer_settime(timer, 0, &off, &old) == 0);
    CHECK(to_ns(old.it_value) > 50 * SECOND);
    CHECK(timer_delete(timer) == 0);
}

CASE(posix_timer_errors) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 99};
    FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
    event = (struct sigevent){.sigev_notify = 42};
    FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
    event = (struct sigevent){.sigev_notify = SIGEV_NONE};
    FAILS(timer_create(1234, &event, &timer), EINVAL);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec bad = {.it_value = {.tv_nsec = SECOND}};
    FAILS(timer_settime(timer, 0, &bad, NULL), EINVAL);
    FAILS(syscall(SYS_timer_settime, 999, 0, &bad, NULL), EINVAL);
    FAILS(syscall(SYS_timer_delete, 999), EINVAL);
    FAILS(syscall(SYS_timer_getoverrun, 999), EINVAL);
    CHECK(timer_delete(timer) == 0);
}

CASE(timerfd_fires_and_counts) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(fd >= 0);
    uint64_t count = 0;
    FAILS(read(fd, &count, sizeof count), EAGAIN); // not armed
    struct itimerspec every = {.it_value = to_timespec(5 * MS), .it_interval = to_timespec(5 * MS)};
    CHECK(timerfd_settime(fd, 0, &every, NULL) == 0);
    sleep_ms(40);
    CHECK_EQ(read(fd, &count, sizeof count), 8);
    CHECK(count >= 7);
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&wanted, 1, 1000), 1);
    CHECK_EQ(wanted.revents, POLLIN);
    CHECK_EQ(read(fd, &count, sizeof count), 8);
    CHECK(count >= 1);
}

CASE(timerfd_blocking_read_waits) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec once = {.it_value = to_timespec(30 * MS)};
    int64_t start = now_ns();
    CHECK(timerfd_settime(fd, 0, &once, NULL) == 0);
    uint64_t count = 0;
    CHECK_EQ(read(fd, &count, sizeof count), 8);
    CHECK_EQ(count, 1);
    CHECK(now_ns() - start >= 30 * MS);
}

CASE(timerfd_absolute_and_gettime) {
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    struct itimerspec when = {.it_value = to_timespec(clock_ns(CLOCK_REALTIME) - SECOND)}, now, old;
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) == 0);
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&wanted, 1, 5000), 1); // in the past: at once
    uint64_t count = 0;
    CHECK_EQ(read(fd, &count, sizeof count), 8);
    CHECK_EQ(count, 1);
    struct itimerspec later = {.it_value = to_timespec(100 * SECOND), .it_interval = to_timespec(3 * SECOND)}, off = {0};
    CHECK(timerfd_settime(fd, 0, &later, NULL) == 0);
    CHECK(timerfd_gettime(fd, &now) == 0);
    CHECK(to_ns(now.it_value) > 50 * SECOND && to_ns(now.it_value) <= 100 * SECOND);
    CHECK_EQ(to_ns(now.it_interval), 3 * SECOND);
    CHECK(timerfd_settime(fd, 0, &off, &old) == 0);
    CHECK_EQ(to_ns(old.it_interval), 3 * SECOND);
    CHECK(timerfd_gettime(fd, &now) == 0);
    CHECK_EQ(to_ns(now.it_value), 0);
}

CASE(timerfd_rearming_forgets_expirations) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = {.it_value = to_timespec(1)}, later = {.it_value = to_timespec(100 * SECOND)};
    CHECK(timerfd_settime(fd, 0, &soon, NULL) == 0);
    sleep_ms(5);
    CHECK(timerfd_settime(fd, 0, &later, NULL) == 0);
    uint64_t count;
    FAILS(read(fd, &count, sizeof count), EAGAIN);
}

CASE(timerfd_errors) {
    struct itimerspec bad = {.it_value = {.tv_nsec = SECOND}}, good = {0};
    FAILS(timerfd_create(1234, 0), EINVAL);
    FAILS(timerfd_create(CLOCK_MONOTONIC, 0x10), EINVAL);
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    FAILS(timerfd_settime(fd, 0, &bad, NULL), EINVAL);
    FAILS(timerfd_settime(fd, 0x40, &good, NULL), EINVAL);
    FAILS(timerfd_settime(99, 0, &good, NULL), EBADF);
    FAILS(timerfd_settime(STDOUT_FILENO, 0, &good, NULL), EINVAL);
    FAILS(timerfd_gettime(STDOUT_FILENO, &good), EINVAL);
    char small[4];
    FAILS(read(fd, small, sizeof small), EINVAL);
    FAILS(write(fd, &good, 8), EINVAL);
}
