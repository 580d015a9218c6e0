// SPDX-License-Identifier: Apache-2.0
//
// Signals as messages: queueing with values, waiting for them without handlers, signalfd, and which thread gets them.
#include "harness.h"
#include <sys/signalfd.h>

static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second)
        sigaddset(&set, second);
    return set;
}

static sigset_t block(int first, int second) {
    sigset_t set = set_of(first, second);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    return set;
}

static void queue(int signal, int value) {
    CHECK(sigqueue(getpid(), signal, (union sigval){.sival_int = value}) == 0);
}

static volatile int received[64], received_signal[64];
static volatile sig_atomic_t receives;
static volatile siginfo_t last_info;

static void receives_value(int signal, siginfo_t *info, void *context) {
    (void)context;
    last_info = *info;
    received_signal[receives % 64] = signal;
    received[receives++ % 64] = info->si_value.sival_int;
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = receives_value, .sa_flags = SA_SIGINFO | flags};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(signal, &action, NULL) == 0);
    receives = 0;
}

CASE(sigqueue_carries_a_value) {
    handle(SIGUSR1, 0);
    queue(SIGUSR1, 4711);
    CHECK_EQ(receives, 1);
    CHECK_EQ(received[0], 4711);
    CHECK_EQ(last_info.si_code, SI_QUEUE);
    CHECK_EQ(last_info.si_pid, getpid());
    CHECK_EQ(last_info.si_uid, getuid());
}

CASE(real_time_signals_queue_in_order) {
    int rt = SIGRTMIN + 1;
    handle(rt, 0);
    sigset_t set = block(rt, 0);
    for (int i = 0; i < 20; i++)
        queue(rt, i * 3);
    CHECK_EQ(receives, 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK_EQ(receives, 20);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(received[i], i * 3);
}

CASE(standard_signals_keep_the_first_value_only) {
    handle(SIGUSR1, 0);
    sigset_t set = block(SIGUSR1, 0);
    for (int i = 1; i <= 5; i++)
        queue(SIGUSR1, i);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK_EQ(receives, 1);
    CHECK_EQ(received[0], 1);
}

CASE(lower_real_time_signals_are_taken_first) {
    int low = SIGRTMIN + 2, high = SIGRTMIN + 5;
    sigset_t set = block(low, high);
    queue(high, 10);
    queue(low, 20);
    queue(high, 11);
    queue(low, 21);
    const int wanted_signal[] = {low, low, high, high}, wanted[] = {20, 21, 10, 11};
    for (int i = 0; i < 4; i++) {
        siginfo_t info;
        CHECK_EQ(sigwaitinfo(&set, &info), wanted_signal[i]);
        CHECK_EQ(info.si_value.sival_int, wanted[i]);
        CHECK_EQ(info.si_code, SI_QUEUE);
    }
}

CASE(handlers_of_several_pending_signals_all_run) {
    int rt = SIGRTMIN + 1;
    handle(SIGUSR1, 0);
    handle(SIGUSR2, 0);
    handle(rt, 0);
    sigset_t set = block(SIGUSR1, SIGUSR2);
    sigaddset(&set, rt);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    queue(rt, 3);
    queue(SIGUSR2, 2);
    queue(SIGUSR1, 1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK_EQ(receives, 3);
    CHECK_EQ(received[0] + received[1] + received[2], 6);
}

CASE(sigqueue_errors) {
    union sigval value = {0};
    FAILS(sigqueue(999999, SIGUSR1, value), ESRCH);
    FAILS(sigqueue(getpid(), 65, value), EINVAL);
    CHECK(sigqueue(getpid(), 0, value) == 0);
}

CASE(forged_kernel_codes_to_others_are_refused) {
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_KERNEL};
    FAILS(syscall(SYS_rt_sigqueueinfo, 1 << 22, SIGUSR1, &info), EPERM);
}

CASE(rt_tgsigqueueinfo_reaches_a_thread) {
    handle(SIGUSR1, 0);
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    info.si_pid = getpid();
    info.si_value.sival_int = 99;
    CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), tid(), SIGUSR1, &info) == 0);
    CHECK_EQ(receives, 1);
    CHECK_EQ(received[0], 99);
}

CASE(sigtimedwait_times_out) {
    sigset_t set = block(SIGUSR1, 0);
    struct timespec timeout = to_timespec(30 * MS), none = {0}, bad = {.tv_nsec = SECOND};
    int64_t start = now_ns();
    FAILS(sigtimedwait(&set, NULL, &timeout), EAGAIN);
    CHECK(now_ns() - start >= 30 * MS);
    FAILS(sigtimedwait(&set, NULL, &none), EAGAIN);
    FAILS(sigtimedwait(&set, NULL, &bad), EINVAL);
}

static pthread_t target;

static void *signals_soon(void *signal) {
    sleep_ms(40);
    pthread_kill(target, (int)(intptr_t)signal);
    return NULL;
}

CASE(sigwait_takes_a_signal_that_arrives_later) {
    sigset_t set = block(SIGUSR1, 0);
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR1);
    int signal = 0;
    CHECK_EQ(sigwait(&set, &signal), 0);
    CHECK_EQ(signal, SIGUSR1);
    join(other);
}

CASE(sigtimedwait_is_interrupted_by_other_signals) {
    sigset_t set = block(SIGUSR1, 0);
    handle(SIGUSR2, SA_RESTART);
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR2);
    struct timespec timeout = to_timespec(10 * SECOND);
    FAILS(sigtimedwait(&set, NULL, &timeout), EINTR);
    CHECK_EQ(receives, 1);
    join(other);
}

// ---- threads ----

static atomic_int ready, go_on;
static pid_t handled_by;

static void notes_the_thread(int signal) {
    (void)signal;
    handled_by = tid();
    atomic_fetch_add(&go_on, 1);
}

static void *waits_for_a_signal(void *kernel_id) {
    *(pid_t *)kernel_id = tid();
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&go_on) == 0)
        sleep_ms(1);
    return NULL;
}

CASE(pthread_kill_runs_the_handler_in_that_thread) {
    struct sigaction action = {.sa_handler = notes_the_thread};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    atomic_store(&ready, 0);
    atomic_store(&go_on, 0);
    pid_t kernel_id = 0;
    pthread_t thread = spawn(waits_for_a_signal, &kernel_id);
    await(&ready, 1);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    join(thread);
    CHECK_EQ(handled_by, kernel_id);
}

static void *spins_until_signalled(void *unused) {
    (void)unused;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&go_on) == 0)
        ; // no system call: the signal must come by an interrupt. Go preempts its goroutines so.
    return NULL;
}

CASE(tgkill_interrupts_a_busy_thread) {
    struct sigaction action = {.sa_handler = notes_the_thread};
    CHECK(sigaction(SIGURG, &action, NULL) == 0);
    for (int round = 0; round < 5; round++) {
        atomic_store(&ready, 0);
        atomic_store(&go_on, 0);
        pthread_t thread = spawn(spins_until_signalled, NULL);
        await(&ready, 1);
        CHECK(pthread_kill(thread, SIGURG) == 0);
        join(thread);
    }
}

CASE(process_signal_goes_to_a_thread_that_does_not_block_it) {
    struct sigaction action = {.sa_handler = notes_the_thread};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    atomic_store(&ready, 0);
    atomic_store(&go_on, 0);
    pid_t kernel_id = 0;
    pthread_t thread = spawn(waits_for_a_signal, &kernel_id);
    await(&ready, 1);
    block(SIGUSR1, 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    join(thread);
    CHECK_EQ(handled_by, kernel_id);
}

static void *inherits_the_mask(void *unused) {
    (void)unused;
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR2) == 1);
    CHECK(sigismember(&now, SIGUSR1) == 0);
    stack_t stack;
    CHECK(sigaltstack(NULL, &stack) == 0);
    CHECK_EQ(stack.ss_flags, SS_DISABLE); // the alternate stack is not inherited by a thread
    sigset_t pending;
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGUSR2) == 0); // nor are signals pending for the creator
    return NULL;
}

CASE(new_thread_inherits_mask_only) {
    block(SIGUSR2, 0);
    pthread_kill(pthread_self(), SIGUSR2);
    join(spawn(inherits_the_mask, NULL));
}

static void *waits_in_sigwait(void *unused) {
    (void)unused;
    sigset_t set = set_of(SIGRTMIN + 3, 0);
    atomic_fetch_add(&ready, 1);
    for (int i = 0; i < 50; i++) {
        siginfo_t info;
        CHECK_EQ(sigwaitinfo(&set, &info), SIGRTMIN + 3);
        CHECK_EQ(info.si_value.sival_int, i);
    }
    return NULL;
}

CASE(one_thread_serves_all_signals_with_sigwait) {
    block(SIGRTMIN + 3, 0); // in every thread: the usual arrangement
    atomic_store(&ready, 0);
    pthread_t server = spawn(waits_in_sigwait, NULL);
    for (int i = 0; i < 50; i++)
        queue(SIGRTMIN + 3, i);
    join(server);
}

// ---- signalfd ----

CASE(signalfd_reads_pending_signals) {
    sigset_t set = block(SIGUSR1, SIGRTMIN + 1);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct signalfd_siginfo info[4];
    FAILS(read(fd, info, sizeof info), EAGAIN);
    queue(SIGRTMIN + 1, 7);
    queue(SIGRTMIN + 1, 8);
    kill(getpid(), SIGUSR1);
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    CHECK_EQ(poll(&wanted, 1, 0), 1);
    CHECK_EQ(read(fd, info, sizeof info), 3 * sizeof info[0]);
    CHECK_EQ(info[0].ssi_signo, SIGUSR1);
    CHECK_EQ(info[0].ssi_code, SI_USER);
    CHECK_EQ(info[0].ssi_pid, getpid());
    CHECK_EQ(info[1].ssi_signo, SIGRTMIN + 1);
    CHECK_EQ(info[1].ssi_int, 7);
    CHECK_EQ(info[2].ssi_int, 8);
    FAILS(read(fd, info, sizeof info), EAGAIN);
    CHECK_EQ(poll(&wanted, 1, 0), 0);
}

CASE(signalfd_errors_and_change_of_set) {
    sigset_t one = block(SIGUSR1, SIGUSR2), narrow = set_of(SIGUSR2, 0);
    struct signalfd_siginfo info;
    int fd = signalfd(-1, &one, SFD_NONBLOCK);
    CHECK(fd >= 0);
    FAILS(read(fd, &info, sizeof info - 1), EINVAL);
    CHECK_EQ(signalfd(fd, &narrow, 0), fd);
    raise(SIGUSR1);
    FAILS(read(fd, &info, sizeof info), EAGAIN);
    raise(SIGUSR2);
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
    CHECK_EQ(info.ssi_signo, SIGUSR2);
    FAILS(signalfd(-1, &one, 0x12345), EINVAL);
    FAILS(signalfd(99, &one, 0), EBADF);
    FAILS(signalfd(STDOUT_FILENO, &one, 0), EINVAL);
}

CASE(blocking_signalfd_wakes_up) {
    sigset_t set = block(SIGUSR1, 0);
    int fd = signalfd(-1, &set, 0);
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR1);
    struct signalfd_siginfo info;
    CHECK_EQ(read(fd, &info, sizeof info), sizeof info);
    CHECK_EQ(info.ssi_code, SI_TKILL);
    join(other);
}

static void *storms(void *unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        while (sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 1}) == -1)
            sched_yield();
    }
    return NULL;
}

static atomic_int total;
static void adds_value(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    atomic_fetch_add(&total, info->si_value.sival_int);
}

CASE(no_queued_signal_is_lost_in_a_storm) {
    struct sigaction action = {.sa_sigaction = adds_value, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGRTMIN + 4, &action, NULL) == 0);
    atomic_store(&total, 0);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(storms, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    await(&total, 300);
}
