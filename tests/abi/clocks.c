// SPDX-License-Identifier: Apache-2.0
//
// Reading clocks, by system call and by vDSO, and sleeping on them.
#include "harness.h"
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/times.h>

static const clockid_t all_clocks[] = {
    CLOCK_REALTIME,        CLOCK_MONOTONIC,        CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
    CLOCK_MONOTONIC_RAW,   CLOCK_REALTIME_COARSE,  CLOCK_MONOTONIC_COARSE,   CLOCK_BOOTTIME,
    CLOCK_TAI,
};

static int64_t by_syscall(clockid_t clock) {
    struct timespec t = {-1, -1};
    CHECK(syscall(SYS_clock_gettime, clock, &t) == 0);
    CHECK(t.tv_nsec >= 0 && t.tv_nsec < SECOND);
    return to_ns(t);
}

CASE(every_clock_can_be_read_and_has_a_resolution) {
    for (size_t i = 0; i < COUNT(all_clocks); i++) {
        struct timespec t = {-1, -1}, resolution = {-1, -1};
        CHECK(clock_gettime(all_clocks[i], &t) == 0);
        CHECK(t.tv_sec >= 0 && t.tv_nsec >= 0 && t.tv_nsec < SECOND);
        CHECK(clock_getres(all_clocks[i], &resolution) == 0);
        CHECK(resolution.tv_sec == 0 && resolution.tv_nsec > 0 && resolution.tv_nsec <= 10 * MS);
    }
    CHECK(clock_getres(CLOCK_MONOTONIC, NULL) == 0);
    struct timespec resolution;
    CHECK(clock_getres(CLOCK_MONOTONIC, &resolution) == 0);
    OBSERVE("monotonic resolution %ld ns", resolution.tv_nsec);
}

CASE(unknown_clocks_are_einval) {
    struct timespec t = {0};
    FAILS(clock_gettime(77, &t), EINVAL);
    FAILS(clock_getres(77, &t), EINVAL);
    FAILS(syscall(SYS_clock_gettime, 10, &t), EINVAL);
    FAILS(syscall(SYS_clock_settime, 77, &t), EINVAL);
    FAILS(clock_settime(CLOCK_MONOTONIC, &t), EINVAL);
}

CASE(vdso_and_system_call_agree) {
    const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME};
    for (size_t i = 0; i < COUNT(clocks); i++) {
        for (int round = 0; round < 200; round++) {
            int64_t before = by_syscall(clocks[i]), vdso = clock_ns(clocks[i]), after = by_syscall(clocks[i]);
            CHECK(before <= vdso);
            CHECK(vdso <= after);
        }
    }
}

CASE(vdso_is_announced) { CHECK(getauxval(AT_SYSINFO_EHDR) != 0); }

CASE(monotonic_never_goes_back) {
    int64_t last = now_ns();
    for (int i = 0; i < 20000; i++) {
        int64_t now = now_ns();
        CHECK(now >= last);
        last = now;
    }
}

static _Atomic int64_t latest_ns;

static void *checks_monotony(void *unused) {
    (void)unused;
    for (int i = 0; i < 5000; i++) {
        int64_t seen = atomic_load(&latest_ns), now = now_ns();
        CHECK(now >= seen); // also when the latest reading was made on another CPU
        while (seen < now && !atomic_compare_exchange_weak(&latest_ns, &seen, now))
            ;
    }
    return NULL;
}

CASE(monotonic_is_one_clock_for_all_threads) {
    atomic_store(&latest_ns, 0);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(checks_monotony, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}

CASE(coarse_clocks_stay_close_to_the_fine_ones) {
    for (int i = 0; i < 100; i++) {
        int64_t fine = clock_ns(CLOCK_MONOTONIC), coarse = clock_ns(CLOCK_MONOTONIC_COARSE);
        CHECK(coarse <= clock_ns(CLOCK_MONOTONIC));
        CHECK(coarse > fine - SECOND);
        CHECK(clock_ns(CLOCK_REALTIME_COARSE) > clock_ns(CLOCK_REALTIME) - SECOND);
    }
}

CASE(wall_clock_is_of_this_century) {
    struct timeval tv;
    CHECK(gettimeofday(&tv, NULL) == 0);
    time_t t = time(NULL), stored = 0;
    CHECK_EQ(syscall(SYS_time, &stored), stored);
    CHECK(tv.tv_sec > 1700000000 && tv.tv_sec < 4102444800);
    CHECK(t - tv.tv_sec <= 5 && t >= tv.tv_sec - 1);
    CHECK(stored - t <= 5 && stored >= t);
    CHECK(tv.tv_usec >= 0 && tv.tv_usec < 1000000);
    struct timeval by_call;
    CHECK(syscall(SYS_gettimeofday, &by_call, NULL) == 0);
    CHECK(by_call.tv_sec - tv.tv_sec <= 5);
}

CASE(cpu_clocks_count_work_and_not_sleep) {
    int64_t thread = clock_ns(CLOCK_THREAD_CPUTIME_ID), process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sleep_ms(60);
    CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) - thread < 50 * MS);
    int64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 20 * MS, wall = now_ns();
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
    CHECK(now_ns() - wall >= 19 * MS);
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= 20 * MS);
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_sec * 1000000 +
              usage.ru_stime.tv_usec > 0);
}

static void *burns(void *unused) {
    (void)unused;
    int64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 20 * MS;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
    return NULL;
}

CASE(thread_clock_is_per_thread_and_process_clock_the_sum) {
    int64_t mine = clock_ns(CLOCK_THREAD_CPUTIME_ID), process = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_t one = spawn(burns, NULL), two = spawn(burns, NULL);
    clockid_t clock;
    CHECK(pthread_getcpuclockid(one, &clock) == 0);
    join(one);
    join(two);
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= 40 * MS);
    CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) - mine < 20 * MS);
}

CASE(nanosleep_sleeps_at_least_as_long) {
    for (int ms = 1; ms <= 16; ms *= 4) {
        struct timespec t = to_timespec(ms * MS);
        int64_t start = now_ns();
        CHECK(nanosleep(&t, NULL) == 0);
        CHECK(now_ns() - start >= ms * MS);
    }
    struct timespec zero = {0};
    CHECK(nanosleep(&zero, NULL) == 0);
}

CASE(nanosleep_refuses_nonsense) {
    struct timespec t = {.tv_nsec = SECOND};
    FAILS(nanosleep(&t, NULL), EINVAL);
    t = (struct timespec){.tv_sec = -1};
    FAILS(nanosleep(&t, NULL), EINVAL);
    t = (struct timespec){.tv_nsec = -1};
    FAILS(nanosleep(&t, NULL), EINVAL);
}

static void interrupts(int signal) { (void)signal; }
static pthread_t sleeper;

static void *signals_the_sleeper(void *unused) {
    (void)unused;
    sleep_ms(50);
    pthread_kill(sleeper, SIGUSR1);
    return NULL;
}

CASE(nanosleep_tells_what_remains_after_a_signal) {
    struct sigaction action = {.sa_handler = interrupts, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sleeper = pthread_self();
    pthread_t other = spawn(signals_the_sleeper, NULL);
    struct timespec t = to_timespec(100 * SECOND), left = {0};
    int64_t start = now_ns();
    FAILS(nanosleep(&t, &left), EINTR);
    int64_t slept = now_ns() - start;
    CHECK(to_ns(left) < 100 * SECOND);
    CHECK(to_ns(left) + slept >= 100 * SECOND);
    CHECK(to_ns(left) + slept < 105 * SECOND);
    join(other);
}

CASE(clock_nanosleep_absolute) {
    const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    for (size_t i = 0; i < COUNT(clocks); i++) {
        struct timespec until = to_timespec(clock_ns(clocks[i]) + 20 * MS);
        CHECK_EQ(clock_nanosleep(clocks[i], TIMER_ABSTIME, &until, NULL), 0);
        CHECK(clock_ns(clocks[i]) >= to_ns(until));
        until = to_timespec(SECOND);
        until.tv_sec = 0;
        CHECK_EQ(clock_nanosleep(clocks[i], TIMER_ABSTIME, &until, NULL), 0); // long past
    }
}

CASE(clock_nanosleep_absolute_leaves_the_remainder_alone) {
    struct sigaction action = {.sa_handler = interrupts};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sleeper = pthread_self();
    pthread_t other = spawn(signals_the_sleeper, NULL);
    struct timespec until = to_timespec(now_ns() + 100 * SECOND), left = {.tv_sec = 5, .tv_nsec = 6};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, &left), EINTR);
    CHECK(left.tv_sec == 5 && left.tv_nsec == 6);
    join(other);
}

CASE(clock_nanosleep_errors) {
    struct timespec t = {.tv_nsec = SECOND};
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL), EINVAL);
    t.tv_nsec = 0;
    CHECK_EQ(clock_nanosleep(77, 0, &t, NULL), EINVAL);
    CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL), EINVAL);
}

CASE(times_counts_in_clock_ticks) {
    struct tms spent;
    clock_t start = times(&spent);
    CHECK(start != (clock_t)-1);
    CHECK(spent.tms_utime >= 0 && spent.tms_stime >= 0);
    CHECK_EQ(spent.tms_cutime, 0);
    sleep_ms(50);
    clock_t end = times(NULL);
    CHECK(end - start >= 4 && end - start < 1000);
    OBSERVE("ticks per second %ld", sysconf(_SC_CLK_TCK));
}

static int64_t common_start_ns;
static int wake_order[3];
static atomic_int woken;

static void *sleeps_until(void *delay_ms) {
    struct timespec until = to_timespec(common_start_ns + (intptr_t)delay_ms * MS);
    CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
    wake_order[atomic_fetch_add(&woken, 1)] = (int)(intptr_t)delay_ms;
    return NULL;
}

CASE(sleepers_wake_in_order_of_their_times) {
    common_start_ns = now_ns();
    atomic_store(&woken, 0);
    const intptr_t delays_ms[] = {300, 100, 200};
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(sleeps_until, (void *)delays_ms[i]);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    OBSERVE("%d %d %d", wake_order[0], wake_order[1], wake_order[2]);
    CHECK(wake_order[0] == 100 && wake_order[1] == 200 && wake_order[2] == 300);
}
