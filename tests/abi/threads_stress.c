// SPDX-License-Identifier: Apache-2.0
//
// Threads that are moved, woken, signalled and ended all at once: nobody may be lost, run twice, or miss a signal.
#include "harness.h"
#include <linux/futex.h>
#include <sched.h>

static atomic_int stop, caught;

static void counts(int signal) {
    (void)signal;
    atomic_fetch_add(&caught, 1);
}

static void catch_with(int signal, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(signal, &action, NULL) == 0);
    atomic_store(&caught, 0);
    atomic_store(&stop, 0);
}

static void mask_signal(int how, int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    CHECK(pthread_sigmask(how, &set, NULL) == 0);
}

static void *sleeps_until_stopped(void *unused) {
    while (!atomic_load(&stop))
        sleep_ms(5);
    return unused;
}

static void *spins_until_stopped(void *unused) {
    while (!atomic_load(&stop))
        ;
    return unused;
}

static void *queues_two_hundred(void *unused) {
    mask_signal(SIG_BLOCK, SIGRTMIN + 1);
    for (int i = 0; i < 200; i++) {
        union sigval value = {.sival_int = i};
        CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
    }
    return unused;
}

CASE(process_signals_pass_from_a_thread_that_blocks_them) {
    catch_with(SIGRTMIN + 1, counts);
    pthread_t taker = spawn(sleeps_until_stopped, NULL);
    pthread_t sender = spawn(queues_two_hundred, NULL);
    // The main thread is where they go first; it takes some, and in the end none.
    for (int i = 0; i < 300; i++) {
        mask_signal(SIG_BLOCK, SIGRTMIN + 1);
        if (i < 299)
            mask_signal(SIG_UNBLOCK, SIGRTMIN + 1);
    }
    join(sender);
    await(&caught, 200);
    atomic_store(&stop, 1);
    join(taker);
    mask_signal(SIG_UNBLOCK, SIGRTMIN + 1);
    CHECK_EQ(atomic_load(&caught), 200);
}

static void *ends_at_once(void *unused) { return unused; }

CASE(process_signals_pass_from_a_thread_that_ends) {
    catch_with(SIGRTMIN + 1, counts);
    pthread_t sender = spawn(queues_two_hundred, NULL);
    for (int i = 0; i < 50; i++)
        join(spawn(ends_at_once, NULL));
    join(sender);
    await(&caught, 200);
}

// The thread enters no kernel by itself: the signal that came before its first instruction must be there with it.
CASE(signal_meets_a_thread_that_has_not_run) {
    catch_with(SIGUSR1, counts);
    for (int i = 1; i <= 20; i++) {
        atomic_store(&stop, 0);
        pthread_t thread = spawn(spins_until_stopped, NULL);
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        await(&caught, i);
        atomic_store(&stop, 1);
        join(thread);
    }
}

static void *kills_itself_to_death(void *unused) {
    for (int i = 0; i < 300; i++)
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    return unused;
}

static void *toggles_the_mask(void *unused) {
    while (!atomic_load(&stop)) {
        mask_signal(SIG_BLOCK, SIGUSR2);
        mask_signal(SIG_UNBLOCK, SIGUSR2);
    }
    return unused;
}

CASE(no_signal_is_lost_between_mask_changes) {
    catch_with(SIGUSR1, counts);
    kills_itself_to_death(NULL);
    CHECK_EQ(atomic_load(&caught), 300);
    catch_with(SIGUSR2, counts);
    pthread_t thread = spawn(toggles_the_mask, NULL);
    for (int i = 1; i <= 300; i++) {
        CHECK(pthread_kill(thread, SIGUSR2) == 0);
        await(&caught, i);
    }
    atomic_store(&stop, 1);
    join(thread);
}

static int cpus_of(cpu_set_t *allowed, int most, int *list) {
    CHECK(sched_getaffinity(0, sizeof *allowed, allowed) == 0);
    int count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < most; cpu++)
        if (CPU_ISSET(cpu, allowed))
            list[count++] = cpu;
    return count;
}

static void restrict_to(pid_t thread, int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(thread, sizeof one, &one) == 0);
}

CASE(a_thread_runs_where_it_restricts_itself_to) {
    cpu_set_t allowed;
    int list[8], count = cpus_of(&allowed, 8, list);
    for (int i = 0; i < 200; i++) {
        restrict_to(0, list[i % count]);
        CHECK_EQ(sched_getcpu(), list[i % count]);
    }
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
}

struct mover {
    _Atomic pid_t tid;
    atomic_long rounds;
    int kind;
};

static atomic_int turn;

static void *is_moved(void *argument) {
    struct mover *me = argument;
    atomic_store(&me->tid, tid());
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&me->rounds, 1);
        switch (me->kind) {
        case 0:
            break;
        case 1:
            sched_yield();
            break;
        case 2: {
            struct timespec moment = {.tv_nsec = 20000};
            nanosleep(&moment, NULL);
            break;
        }
        default:
            atomic_fetch_add(&turn, 1);
            syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
            struct timespec patience = {.tv_nsec = 100000};
            syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, atomic_load(&turn), &patience, NULL, 0);
        }
    }
    return NULL;
}

CASE(threads_are_moved_while_they_do_anything) {
    static struct mover movers[8];
    pthread_t threads[COUNT(movers)];
    cpu_set_t allowed;
    int list[8], count = cpus_of(&allowed, 8, list);
    atomic_store(&stop, 0);
    for (size_t i = 0; i < COUNT(movers); i++) {
        atomic_store(&movers[i].tid, 0);
        atomic_store(&movers[i].rounds, 0);
        movers[i].kind = (int)i % 4;
        threads[i] = spawn(is_moved, &movers[i]);
    }
    for (size_t i = 0; i < COUNT(movers); i++)
        while (atomic_load(&movers[i].tid) == 0)
            sleep_ms(1);
    for (int i = 0; i < 2000; i++)
        restrict_to(atomic_load(&movers[i % (int)COUNT(movers)].tid), list[i / 3 % count]);
    // All of them still run.
    for (size_t i = 0; i < COUNT(movers); i++) {
        long before = atomic_load(&movers[i].rounds);
        while (atomic_load(&movers[i].rounds) < before + 2)
            sleep_ms(1);
    }
    atomic_store(&stop, 1);
    for (size_t i = 0; i < COUNT(movers); i++)
        join(threads[i]);
}

static void *makes_short_threads(void *unused) {
    for (int i = 0; i < 60; i++)
        join(spawn(ends_at_once, NULL));
    return unused;
}

CASE(threads_begin_and_end_on_all_sides) {
    pthread_t makers[4];
    for (size_t i = 0; i < COUNT(makers); i++)
        makers[i] = spawn(makes_short_threads, NULL);
    for (size_t i = 0; i < COUNT(makers); i++)
        join(makers[i]);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int token;

struct station {
    int number, rounds;
};

static void *passes_the_token(void *argument) {
    const struct station *me = argument;
    for (int i = 0; i < me->rounds; i++) {
        pthread_mutex_lock(&lock);
        while (token % 6 != me->number)
            pthread_cond_wait(&changed, &lock);
        token++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

CASE(a_token_goes_round_without_a_lost_wake_up) {
    pthread_t threads[6];
    static struct station stations[6];
    token = 0;
    for (int i = 0; i < 6; i++) {
        stations[i] = (struct station){.number = i, .rounds = 150};
        threads[i] = spawn(passes_the_token, &stations[i]);
    }
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    CHECK_EQ(token, 900);
}

static void *reads_the_clock(void *last) {
    while (!atomic_load(&stop)) {
        // Read before the clock: whoever stored it did so before this reading.
        int64_t before = atomic_load((_Atomic int64_t *)last), now = now_ns();
        CHECK(now >= before);
        atomic_store((_Atomic int64_t *)last, now);
    }
    return NULL;
}

CASE(the_clock_never_goes_back_between_threads) {
    static _Atomic int64_t last;
    atomic_store(&stop, 0);
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(reads_the_clock, (void *)&last);
    sleep_ms(300);
    atomic_store(&stop, 1);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}
