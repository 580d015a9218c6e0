// SPDX-License-Identifier: Apache-2.0
//
// Threads: clone by itself and through pthreads, thread-local storage, and what the C library builds from futexes.
#include "harness.h"
#include <linux/sched.h>
#include <sched.h>
#include <semaphore.h>

#define THREAD_FLAGS                                                                                                  \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

// ---- raw clone: the child uses no C library, its thread pointer is not its own ----

struct raw {
    _Atomic uint32_t ran, exited;
    pid_t child_tid, parent_tid;
};

static void wait_word(_Atomic uint32_t *word, uint32_t while_value) {
    while (atomic_load(word) == while_value)
        syscall(SYS_futex, word, 0 /* FUTEX_WAIT, shared: as the kernel's own wake */, while_value, NULL, NULL, 0);
}

static int raw_child(void *argument) {
    struct raw *raw = argument;
    raw->ran = 1;
    return 0;
}

CASE(raw_clone_sets_and_clears_the_tid_words) {
    static struct raw raw;
    char *stack = pages(4);
    raw.exited = 1;
    int child = clone(raw_child, stack + 4 * PAGE, THREAD_FLAGS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, &raw,
                      &raw.parent_tid, NULL, &raw.exited);
    CHECK(child > 0);
    CHECK_EQ(raw.parent_tid, child);
    wait_word(&raw.exited, 1); // cleared to 0 and woken when the thread has ended
    CHECK_EQ(raw.exited, 0);
    CHECK_EQ(raw.ran, 1);
}

static int raw_child_checks_its_tid(void *argument) {
    struct raw *raw = argument;
    raw->ran = (uint32_t)syscall(SYS_gettid) == (uint32_t)raw->child_tid ? 1 : 2;
    return 0;
}

CASE(raw_clone_stores_the_tid_before_the_child_runs) {
    static struct raw raw;
    char *stack = pages(4);
    raw.exited = 1;
    int child = clone(raw_child_checks_its_tid, stack + 4 * PAGE,
                      THREAD_FLAGS | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID, &raw, NULL, NULL, &raw.child_tid);
    CHECK(child > 0);
    while (*(volatile pid_t *)&raw.child_tid != 0 || raw.ran == 0)
        sched_yield();
    CHECK_EQ(raw.ran, 1);
}

static int raw_child_moves_its_clear_address(void *argument) {
    struct raw *raw = argument;
    raw->ran = (uint32_t)(syscall(SYS_set_tid_address, &raw->exited) == syscall(SYS_gettid));
    return 0;
}

CASE(set_tid_address_returns_the_tid_and_is_used_at_exit) {
    static struct raw raw;
    char *stack = pages(4);
    raw.exited = 5;
    CHECK(clone(raw_child_moves_its_clear_address, stack + 4 * PAGE, THREAD_FLAGS, &raw) > 0);
    wait_word(&raw.exited, 5);
    CHECK_EQ(raw.exited, 0);
    CHECK_EQ(raw.ran, 1);
}

static uint64_t tls_block[8] = {0x1122334455667788};

static int raw_child_reads_its_tls(void *argument) {
    struct raw *raw = argument;
    uint64_t first;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(first));
    raw->ran = first == tls_block[0] ? 1 : 2;
    return 0;
}

CASE(raw_clone_settls_sets_fs) {
    static struct raw raw;
    char *stack = pages(4);
    raw.exited = 1;
    CHECK(clone(raw_child_reads_its_tls, stack + 4 * PAGE, THREAD_FLAGS | CLONE_SETTLS | CLONE_CHILD_CLEARTID, &raw,
                NULL, tls_block, &raw.exited) > 0);
    wait_word(&raw.exited, 1);
    CHECK_EQ(raw.ran, 1);
}

CASE(clone3_makes_a_thread) {
    static struct raw raw;
    char *stack = pages(4);
    raw.exited = 1;
    struct clone_args arguments = {
        .flags = THREAD_FLAGS | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID,
        .child_tid = (uintptr_t)&raw.exited,
        .parent_tid = (uintptr_t)&raw.parent_tid,
        .stack = (uintptr_t)stack,
        .stack_size = 4 * PAGE,
    };
    register struct raw *kept __asm__("r12") = &raw;
    long child;
    __asm__ volatile("syscall\n\t"
                     "test %%eax, %%eax\n\t"
                     "jnz 1f\n\t"
                     "movl $1, (%%r12)\n\t" // the child: raw.ran = 1; exit(0)
                     "mov $60, %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n\t"
                     "1:"
                     : "=a"(child)
                     : "0"((long)SYS_clone3), "D"(&arguments), "S"(sizeof arguments), "r"(kept)
                     : "rcx", "r11", "memory");
    if (child == -ENOSYS) // allowed: C libraries fall back to clone
        return;
    CHECK(child > 0);
    CHECK_EQ(raw.parent_tid, child);
    wait_word(&raw.exited, 1);
    CHECK_EQ(raw.ran, 1);
}

CASE(clone_refuses_impossible_flags) {
    FAILS(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0), EINVAL);               // needs CLONE_SIGHAND
    FAILS(syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0), EINVAL);              // needs CLONE_VM
    FAILS(syscall(SYS_clone, CLONE_THREAD | CLONE_SIGHAND, 0, 0, 0, 0), EINVAL);
}

// ---- pthreads ----

static void *returns_its_argument(void *argument) { return argument; }

CASE(join_returns_the_value) {
    for (intptr_t i = 0; i < 20; i++)
        CHECK_EQ((intptr_t)join(spawn(returns_its_argument, (void *)i)), i);
}

static void *its_tid(void *unused) {
    (void)unused;
    return (void *)(intptr_t)tid();
}

CASE(tids_differ_and_pid_is_common) {
    pid_t first = (pid_t)(intptr_t)join(spawn(its_tid, NULL));
    CHECK(first > 0 && first != tid());
    CHECK_EQ(tid(), getpid()); // the main thread's
}

static _Thread_local int thread_number = 41;
static _Thread_local char thread_zero[2000];

static void *uses_its_own_copies(void *argument) {
    CHECK_EQ(thread_number, 41);
    CHECK_EQ(thread_zero[1999], 0);
    for (int i = 0; i < 50; i++) {
        thread_number = (int)(intptr_t)argument;
        thread_zero[1999] = (char)(intptr_t)argument;
        sched_yield();
        CHECK_EQ(thread_number, (int)(intptr_t)argument);
        CHECK_EQ(thread_zero[1999], (char)(intptr_t)argument);
    }
    return NULL;
}

CASE(thread_local_storage_is_per_thread) {
    pthread_t threads[8];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(uses_its_own_copies, (void *)(i + 100));
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(thread_number, 41);
}

static pthread_key_t key;
static atomic_int destroyed;

static void counts_destruction(void *value) { atomic_fetch_add(&destroyed, (int)(intptr_t)value); }

static void *sets_specific(void *value) {
    CHECK(pthread_getspecific(key) == NULL);
    CHECK(pthread_setspecific(key, value) == 0);
    return NULL;
}

CASE(thread_specific_data_is_destroyed) {
    CHECK(pthread_key_create(&key, counts_destruction) == 0);
    atomic_store(&destroyed, 0);
    pthread_t one = spawn(sets_specific, (void *)3), two = spawn(sets_specific, (void *)4);
    join(one);
    join(two);
    CHECK_EQ(atomic_load(&destroyed), 7);
    CHECK(pthread_key_delete(key) == 0);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counter;
static int turn;

static void *adds_under_the_mutex(void *rounds) {
    for (intptr_t i = 0; i < (intptr_t)rounds; i++) {
        pthread_mutex_lock(&mutex);
        long before = counter;
        if (i % 100 == 0)
            sched_yield();
        counter = before + 1;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

CASE(mutex_excludes) {
    counter = 0;
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(adds_under_the_mutex, (void *)5000);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(counter, 20000);
}

CASE(mutex_kinds) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t checked, recursive;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    CHECK_EQ(pthread_mutex_unlock(&checked), EPERM);
    CHECK_EQ(pthread_mutex_lock(&checked), 0);
    CHECK_EQ(pthread_mutex_lock(&checked), EDEADLK);
    CHECK_EQ(pthread_mutex_lock(&recursive), 0);
    CHECK_EQ(pthread_mutex_lock(&recursive), 0);
    CHECK_EQ(pthread_mutex_unlock(&recursive), 0);
    CHECK_EQ(pthread_mutex_unlock(&recursive), 0);
    CHECK_EQ(pthread_mutex_unlock(&recursive), EPERM);
}

static void *tries_for_a_while(void *unused) {
    (void)unused;
    struct timespec until = to_timespec(clock_ns(CLOCK_REALTIME) + 40 * MS);
    CHECK_EQ(pthread_mutex_trylock(&mutex), EBUSY);
    CHECK_EQ(pthread_mutex_timedlock(&mutex, &until), ETIMEDOUT);
    CHECK(clock_ns(CLOCK_REALTIME) >= to_ns(until));
    return NULL;
}

CASE(timed_lock_times_out) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
    join(spawn(tries_for_a_while, NULL));
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void *takes_turns(void *which) {
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != (int)(intptr_t)which)
            pthread_cond_wait(&changed, &mutex);
        turn = (turn + 1) % 3;
        counter++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

CASE(condition_variable_orders_three_threads) {
    turn = 0;
    counter = 0;
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(takes_turns, (void *)i);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(counter, 600);
    CHECK_EQ(turn, 0);
}

CASE(condition_variable_times_out_on_both_clocks) {
    pthread_condattr_t attributes;
    pthread_cond_t monotonic;
    pthread_condattr_init(&attributes);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&monotonic, &attributes) == 0);
    pthread_mutex_lock(&mutex);
    struct timespec until = to_timespec(now_ns() + 30 * MS);
    CHECK_EQ(pthread_cond_timedwait(&monotonic, &mutex, &until), ETIMEDOUT);
    CHECK(now_ns() >= to_ns(until));
    until = to_timespec(clock_ns(CLOCK_REALTIME) + 30 * MS);
    CHECK_EQ(pthread_cond_timedwait(&changed, &mutex, &until), ETIMEDOUT);
    CHECK(clock_ns(CLOCK_REALTIME) >= to_ns(until));
    pthread_mutex_unlock(&mutex);
}

static pthread_barrier_t barrier;
static atomic_int phase_sum[10], serial_threads;

static void *passes_phases(void *unused) {
    (void)unused;
    for (int phase = 0; phase < 10; phase++) {
        atomic_fetch_add(&phase_sum[phase], 1);
        int how = pthread_barrier_wait(&barrier);
        if (how == PTHREAD_BARRIER_SERIAL_THREAD)
            atomic_fetch_add(&serial_threads, 1);
        CHECK_EQ(atomic_load(&phase_sum[phase]), 4); // nobody passes before all have come
    }
    return NULL;
}

CASE(barrier_holds_until_all_are_there) {
    CHECK(pthread_barrier_init(&barrier, NULL, 4) == 0);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(passes_phases, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(atomic_load(&serial_threads), 10);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void *reads_and_writes(void *unused) {
    (void)unused;
    for (int i = 0; i < 300; i++) {
        if (i % 4 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            counter++;
            turn++;
            pthread_rwlock_unlock(&rwlock);
        } else {
            pthread_rwlock_rdlock(&rwlock);
            CHECK_EQ(counter, turn);
            pthread_rwlock_unlock(&rwlock);
        }
    }
    return NULL;
}

CASE(rwlock_keeps_readers_consistent) {
    counter = 0, turn = 0;
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(reads_and_writes, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(counter, 300);
}

static sem_t items, slots;
static int queue[4], queue_in, queue_out;

static void *produces(void *unused) {
    (void)unused;
    for (int i = 1; i <= 500; i++) {
        sem_wait(&slots);
        queue[queue_in++ % 4] = i;
        sem_post(&items);
    }
    return NULL;
}

CASE(semaphores_pass_items_in_order) {
    sem_init(&items, 0, 0);
    sem_init(&slots, 0, 4);
    queue_in = queue_out = 0;
    pthread_t producer = spawn(produces, NULL);
    for (int i = 1; i <= 500; i++) {
        sem_wait(&items);
        CHECK_EQ(queue[queue_out++ % 4], i);
        sem_post(&slots);
    }
    join(producer);
    FAILS(sem_trywait(&items), EAGAIN);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int initialised;

static void initialises(void) {
    sleep_ms(10);
    atomic_fetch_add(&initialised, 1);
}

static void *needs_it_once(void *unused) {
    (void)unused;
    pthread_once(&once, initialises);
    CHECK_EQ(atomic_load(&initialised), 1);
    return NULL;
}

CASE(once_runs_once) {
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(needs_it_once, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}

static void *sleeps_for_ever(void *unused) {
    (void)unused;
    while (sleep(1000) == 0)
        ;
    return NULL;
}

CASE(cancelled_thread_ends) {
    pthread_t thread = spawn(sleeps_for_ever, NULL);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(join(thread) == PTHREAD_CANCELED);
}

static atomic_int detached_done;

static void *finishes_detached(void *unused) {
    (void)unused;
    atomic_fetch_add(&detached_done, 1);
    return NULL;
}

CASE(hundred_detached_threads) {
    for (int i = 0; i < 100; i++) {
        pthread_t thread = spawn(finishes_detached, NULL);
        CHECK(pthread_detach(thread) == 0);
    }
    await(&detached_done, 100);
}

static atomic_int spinning;

static void *spins(void *unused) {
    (void)unused;
    while (atomic_load(&spinning))
        ;
    return NULL;
}

// More busy threads than CPUs: without preemption the main thread never runs again.
CASE(busy_threads_are_preempted) {
    atomic_store(&spinning, 1);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(spins, NULL);
    for (int i = 0; i < 10; i++)
        sleep_ms(2);
    atomic_store(&spinning, 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}

static void *computes_in_floating_point(void *seed) {
    double x = (double)(intptr_t)seed, sum = 0;
    for (int i = 1; i < 200000; i++) {
        sum += x / i;
        if (i % 20000 == 0)
            sched_yield();
    }
    double *result = malloc(sizeof *result);
    *result = sum;
    return result;
}

CASE(floating_point_state_belongs_to_the_thread) {
    pthread_t threads[4];
    double *alone = computes_in_floating_point((void *)1);
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(computes_in_floating_point, (void *)(i % 2 + 1));
    double *results[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        results[i] = join(threads[i]);
    CHECK(*results[0] == *alone && *results[2] == *alone);
    CHECK(*results[1] == *results[3] && *results[1] > 1.9 * *alone);
    OBSERVE("sum %.12f", *alone);
}
