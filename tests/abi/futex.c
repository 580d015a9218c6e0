// SPDX-License-Identifier: Apache-2.0
//
// futex(2) by itself: who is woken, how many, when a wait does not start, and when it ends.
#include "harness.h"
#include <linux/futex.h>
#include <limits.h>

#define PRIVATE FUTEX_PRIVATE_FLAG

static long futex(void *word, int operation, uint32_t value, const void *timeout, void *other, uint32_t value3) {
    return syscall(SYS_futex, word, operation, value, timeout, other, value3);
}

static long wake(void *word, int count) { return futex(word, FUTEX_WAKE | PRIVATE, (uint32_t)count, NULL, NULL, 0); }

enum { WAITERS = 4 };
static _Atomic uint32_t word, second_word;
static atomic_int entered, woken;

static void *waits_on_word(void *bitset) {
    atomic_fetch_add(&entered, 1);
    long result = bitset ? futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, NULL, NULL, (uint32_t)(uintptr_t)bitset)
                         : futex(&word, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0);
    CHECK(result == 0);
    atomic_fetch_add(&woken, 1);
    return NULL;
}

static void start_waiters(pthread_t *threads, int count, const uintptr_t *bitsets) {
    atomic_store(&word, 0);
    atomic_store(&second_word, 0);
    atomic_store(&entered, 0);
    atomic_store(&woken, 0);
    for (int i = 0; i < count; i++)
        threads[i] = spawn(waits_on_word, bitsets ? (void *)bitsets[i] : NULL);
    await(&entered, count);
    sleep_ms(60); // from "about to wait" to waiting there is no event to wait for
}

CASE(wake_without_waiters_is_zero) {
    atomic_store(&word, 0);
    CHECK_EQ(wake(&word, 1), 0);
    CHECK_EQ(wake(&word, INT_MAX), 0);
}

CASE(wait_on_a_changed_word_is_eagain) {
    atomic_store(&word, 1);
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0), EAGAIN);
    FAILS(futex(&word, FUTEX_WAIT, 2, NULL, NULL, 0), EAGAIN);
}

CASE(wake_wakes_as_many_as_asked) {
    pthread_t threads[WAITERS];
    start_waiters(threads, WAITERS, NULL);
    CHECK_EQ(wake(&word, 1), 1);
    await(&woken, 1);
    sleep_ms(20);
    CHECK_EQ(atomic_load(&woken), 1);
    CHECK_EQ(wake(&word, 2), 2);
    await(&woken, 3);
    CHECK_EQ(wake(&word, 100), 1);
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
    CHECK_EQ(wake(&word, 100), 0);
}

CASE(wake_of_count_zero_wakes_one) {
    pthread_t threads[2];
    start_waiters(threads, 2, NULL);
    CHECK_EQ(wake(&word, 0), 1); // as Linux does: the count is checked after the first
    CHECK_EQ(wake(&word, INT_MAX), 1);
    join(threads[0]);
    join(threads[1]);
}

CASE(relative_timeout_expires) {
    atomic_store(&word, 0);
    struct timespec timeout = to_timespec(30 * MS);
    int64_t start = now_ns();
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &timeout, NULL, 0), ETIMEDOUT);
    CHECK(now_ns() - start >= 30 * MS);
    timeout = to_timespec(0);
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &timeout, NULL, 0), ETIMEDOUT);
}

CASE(absolute_timeout_on_both_clocks) {
    atomic_store(&word, 0);
    struct timespec until = to_timespec(now_ns() + 30 * MS);
    FAILS(futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK(now_ns() >= to_ns(until));
    until = to_timespec(clock_ns(CLOCK_REALTIME) + 30 * MS);
    FAILS(futex(&word, FUTEX_WAIT_BITSET | PRIVATE | FUTEX_CLOCK_REALTIME, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY),
          ETIMEDOUT);
    CHECK(clock_ns(CLOCK_REALTIME) >= to_ns(until));
    until = to_timespec(1); // long ago
    FAILS(futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
}

CASE(malformed_timeouts_are_einval) {
    atomic_store(&word, 0);
    struct timespec bad = {.tv_sec = 0, .tv_nsec = SECOND};
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &bad, NULL, 0), EINVAL);
    bad = (struct timespec){.tv_sec = -1, .tv_nsec = 0};
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &bad, NULL, 0), EINVAL);
    bad = (struct timespec){.tv_sec = 0, .tv_nsec = -1};
    FAILS(futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, &bad, NULL, 1), EINVAL);
}

CASE(bitset_selects_waiters) {
    const uintptr_t bitsets[WAITERS] = {1, 2, 4, 6};
    pthread_t threads[WAITERS];
    start_waiters(threads, WAITERS, bitsets);
    CHECK_EQ(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, INT_MAX, NULL, NULL, 8), 0);
    CHECK_EQ(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, INT_MAX, NULL, NULL, 2), 2);
    await(&woken, 2);
    join(threads[1]);
    join(threads[3]);
    CHECK_EQ(wake(&word, INT_MAX), 2); // plain wake matches every bitset
    join(threads[0]);
    join(threads[2]);
}

CASE(bitset_zero_is_einval) {
    atomic_store(&word, 0);
    FAILS(futex(&word, FUTEX_WAIT_BITSET | PRIVATE, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAKE_BITSET | PRIVATE, 1, NULL, NULL, 0), EINVAL);
}

CASE(requeue_moves_waiters) {
    pthread_t threads[WAITERS];
    start_waiters(threads, WAITERS, NULL);
    // wake 1, move 2; Linux returns the sum, although futex(2) speaks of the woken ones only
    CHECK_EQ(futex(&word, FUTEX_REQUEUE | PRIVATE, 1, (void *)2, &second_word, 0), 3);
    await(&woken, 1);
    CHECK_EQ(wake(&second_word, INT_MAX), 2);
    await(&woken, 3);
    CHECK_EQ(wake(&word, INT_MAX), 1);
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
}

CASE(cmp_requeue_compares_and_counts_both) {
    pthread_t threads[WAITERS];
    start_waiters(threads, WAITERS, NULL);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)2, &second_word, 77), EAGAIN);
    CHECK_EQ(atomic_load(&woken), 0);
    CHECK_EQ(futex(&word, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)INT_MAX, &second_word, 0), 4);
    await(&woken, 1);
    CHECK_EQ(wake(&word, INT_MAX), 0);
    CHECK_EQ(wake(&second_word, INT_MAX), 3);
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
}

CASE(requeue_with_negative_counts_is_einval) {
    FAILS(futex(&word, FUTEX_REQUEUE | PRIVATE, (uint32_t)-1, (void *)1, &second_word, 0), EINVAL);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE | PRIVATE, 1, (void *)-1L, &second_word, 0), EINVAL);
}

CASE(wake_op_changes_and_wakes_both) {
    pthread_t threads[2];
    start_waiters(threads, 2, NULL);
    atomic_store(&second_word, 5);
    // second_word += 3; wake 1 on word; if the old value was 5, wake 10 on second_word (nobody is there)
    CHECK_EQ(futex(&word, FUTEX_WAKE_OP | PRIVATE, 1, (void *)10, &second_word,
                   FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)), 1);
    CHECK_EQ(atomic_load(&second_word), 8);
    // second_word = 1; the waiter is on `word`, here the second address
    CHECK_EQ(futex(&second_word, FUTEX_WAKE_OP | PRIVATE, 1, (void *)10, &word,
                   FUTEX_OP(FUTEX_OP_OR, 4, FUTEX_OP_CMP_EQ, 0)), 1);
    CHECK_EQ(atomic_load(&word), 4);
    join(threads[0]);
    join(threads[1]);
}

CASE(unaligned_word_is_einval) {
    char *at = (char *)&word;
    FAILS(futex(at + 1, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex(at + 2, FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0), EINVAL);
}

CASE(unmapped_word_is_efault) {
    char *hole = unmapped_page();
    FAILS(futex(hole, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(hole, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(NULL, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex((void *)0xffff800000000000, FUTEX_WAKE | PRIVATE, 1, NULL, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, atomic_load(&word), hole, NULL, 0), EFAULT);
}

CASE(unknown_operation_is_enosys) { FAILS(futex(&word, 100, 0, NULL, NULL, 0), ENOSYS); }

static void interrupts(int signal) { (void)signal; }

static pthread_t waiting_thread;

static void *interrupts_the_waiter(void *unused) {
    (void)unused;
    sleep_ms(50);
    pthread_kill(waiting_thread, SIGUSR1);
    return NULL;
}

CASE(signal_interrupts_a_timed_wait) {
    struct sigaction action = {.sa_handler = interrupts};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    waiting_thread = pthread_self();
    atomic_store(&word, 0);
    pthread_t other = spawn(interrupts_the_waiter, NULL);
    struct timespec timeout = to_timespec(10 * SECOND);
    FAILS(futex(&word, FUTEX_WAIT | PRIVATE, 0, &timeout, NULL, 0), EINTR);
    join(other);
}

CASE(shared_and_private_mappings_of_one_word_meet) {
    int fd = memfd_create("word", 0);
    CHECK(ftruncate(fd, (off_t)PAGE) == 0);
    _Atomic uint32_t *one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    _Atomic uint32_t *two = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(one != MAP_FAILED && two != MAP_FAILED && one != two);
    struct timespec timeout = to_timespec(20 * MS);
    FAILS(futex(one, FUTEX_WAIT, 0, &timeout, NULL, 0), ETIMEDOUT);
    *two = 1;
    FAILS(futex(one, FUTEX_WAIT, 0, &timeout, NULL, 0), EAGAIN);
    CHECK_EQ(futex(two, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
}

static _Atomic uint32_t *alias;

static void *waits_on_the_alias(void *unused) {
    (void)unused;
    atomic_fetch_add(&entered, 1);
    CHECK(futex(alias, FUTEX_WAIT, 0, NULL, NULL, 0) == 0);
    return NULL;
}

CASE(shared_futex_is_keyed_by_memory_not_by_address) {
    int fd = memfd_create("word", 0);
    CHECK(ftruncate(fd, (off_t)PAGE) == 0);
    _Atomic uint32_t *one = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    alias = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    atomic_store(&entered, 0);
    pthread_t thread = spawn(waits_on_the_alias, NULL);
    await(&entered, 1);
    long count = 0;
    for (int tries = 0; tries < 200 && count == 0; tries++) {
        sleep_ms(5);
        count = futex(one, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    CHECK_EQ(count, 1);
    join(thread);
}

// ---- a mutex of three states, as in "Futexes are tricky": 0 free, 1 taken, 2 taken with waiters ----

static _Atomic uint32_t lock_word;
static long guarded;

static void *locks_and_counts(void *rounds) {
    for (long i = 0; i < (long)(intptr_t)rounds; i++) {
        uint32_t free_state = 0;
        if (!atomic_compare_exchange_strong(&lock_word, &free_state, 1))
            while (atomic_exchange(&lock_word, 2) != 0)
                futex(&lock_word, FUTEX_WAIT | PRIVATE, 2, NULL, NULL, 0);
        long before = guarded;
        if (i % 64 == 0)
            sched_yield();
        guarded = before + 1;
        if (atomic_exchange(&lock_word, 0) == 2)
            wake(&lock_word, 1);
    }
    return NULL;
}

CASE(a_lock_made_of_futexes_excludes) {
    enum { ROUNDS = 2000 };
    pthread_t threads[4];
    guarded = 0;
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(locks_and_counts, (void *)ROUNDS);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(guarded, 4 * ROUNDS);
}

// ---- the lists and words a dying thread leaves to the kernel ----

static pthread_mutex_t robust;

static void *dies_with_the_lock(void *unused) {
    (void)unused;
    CHECK(pthread_mutex_lock(&robust) == 0);
    return NULL;
}

CASE(robust_mutex_reports_the_dead_owner) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutex_init(&robust, &attributes) == 0);
    join(spawn(dies_with_the_lock, NULL));
    CHECK_EQ(pthread_mutex_lock(&robust), EOWNERDEAD);
    CHECK_EQ(pthread_mutex_consistent(&robust), 0);
    CHECK_EQ(pthread_mutex_unlock(&robust), 0);
    CHECK_EQ(pthread_mutex_lock(&robust), 0);
    CHECK_EQ(pthread_mutex_unlock(&robust), 0);
}

static void *dies_later_with_the_lock(void *unused) {
    (void)unused;
    CHECK(pthread_mutex_lock(&robust) == 0);
    atomic_store(&entered, 1);
    sleep_ms(60);
    return NULL;
}

CASE(robust_mutex_wakes_a_waiter_when_the_owner_dies) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&robust, &attributes) == 0);
    atomic_store(&entered, 0);
    pthread_t owner = spawn(dies_later_with_the_lock, NULL);
    await(&entered, 1);
    CHECK_EQ(pthread_mutex_lock(&robust), EOWNERDEAD); // sleeps until the owner is gone
    CHECK_EQ(pthread_mutex_unlock(&robust), 0);
    join(owner);
    CHECK_EQ(pthread_mutex_lock(&robust), ENOTRECOVERABLE);
}

CASE(robust_list_registration) {
    void *head = NULL;
    size_t size = 0;
    CHECK(syscall(SYS_get_robust_list, 0, &head, &size) == 0);
    CHECK(head != NULL);
    CHECK_EQ(size, 24);
    FAILS(syscall(SYS_set_robust_list, head, 8), EINVAL);
    FAILS(syscall(SYS_get_robust_list, 0, unmapped_page(), &size), EFAULT);
}

CASE(priority_inheritance_lock_if_supported) {
    _Atomic uint32_t pi = 0;
    errno = 0;
    if (futex(&pi, FUTEX_LOCK_PI | PRIVATE, 0, NULL, NULL, 0) == -1) {
        CHECK(errno == ENOSYS);
        return;
    }
    CHECK_EQ(atomic_load(&pi) & FUTEX_TID_MASK, tid());
    FAILS(futex(&pi, FUTEX_TRYLOCK_PI | PRIVATE, 0, NULL, NULL, 0), EDEADLK);
    CHECK_EQ(futex(&pi, FUTEX_UNLOCK_PI | PRIVATE, 0, NULL, NULL, 0), 0);
    CHECK_EQ(atomic_load(&pi), 0);
}
