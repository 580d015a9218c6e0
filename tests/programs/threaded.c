// SPDX-License-Identifier: Apache-2.0
//
// Threads under heavy contention, with a result known in advance: mutex, condition variable, read-write lock, barrier,
// thread-local storage, atomics. Prints one line per part; the last line is "threaded: ok". Exit status 1 if one is wrong.
//   threaded [THREADS [ROUNDS]]
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int thread_count = 8, rounds = 2000;
static bool all_right = true;

static void part(const char *name, long long got, long long wanted) {
    printf("%-22s %lld %s\n", name, got, got == wanted ? "as expected" : "WRONG");
    if (got != wanted) {
        printf("%-22s %lld was expected\n", "", wanted);
        all_right = false;
    }
}

static void run(void *(*body)(void *)) {
    pthread_t threads[256];
    for (long i = 0; i < thread_count; i++) {
        int error = pthread_create(&threads[i], NULL, body, (void *)i);
        if (error) {
            fprintf(stderr, "threaded: pthread_create: error %d\n", error);
            exit(1);
        }
    }
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long long plain_counter;

static void *adds_under_mutex(void *id) {
    (void)id;
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&mutex);
        plain_counter += i;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static _Atomic long long atomic_counter;

static void *adds_atomically(void *id) {
    for (int i = 0; i < rounds; i++)
        atomic_fetch_add(&atomic_counter, (long)id + 1);
    return NULL;
}

// A bounded queue: even threads put numbers in, odd threads take them out.
enum { ROOM = 8 };
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static int ring[ROOM], ring_in, ring_used, producers_left;
static long long taken_sum;

static void *uses_the_queue(void *id) {
    if ((long)id % 2 == 0) {
        for (int i = 1; i <= rounds; i++) {
            pthread_mutex_lock(&mutex);
            while (ring_used == ROOM)
                pthread_cond_wait(&not_full, &mutex);
            ring[(ring_in + ring_used++) % ROOM] = i;
            pthread_cond_signal(&not_empty);
            pthread_mutex_unlock(&mutex);
        }
        pthread_mutex_lock(&mutex);
        producers_left--;
        pthread_cond_broadcast(&not_empty);
        pthread_mutex_unlock(&mutex);
        return NULL;
    }
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (ring_used == 0 && producers_left > 0)
            pthread_cond_wait(&not_empty, &mutex);
        if (ring_used == 0) {
            pthread_mutex_unlock(&mutex);
            return NULL;
        }
        taken_sum += ring[ring_in];
        ring_in = (ring_in + 1) % ROOM;
        ring_used--;
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&mutex);
    }
}

// All threads relax one array in phases; a barrier that lets one pass early changes the sum.
enum { CELLS = 256 };
static long long cells[2][CELLS];
static pthread_barrier_t barrier;

static void *relaxes(void *id) {
    for (int phase = 0; phase < 100; phase++) {
        long long *from = cells[phase % 2], *to = cells[(phase + 1) % 2];
        for (int i = (int)(long)id; i < CELLS; i += thread_count)
            to[i] = from[i] + from[(i + 1) % CELLS] % 1000;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static long long relaxed_alone(void) {
    long long sum = 0, now[CELLS], next[CELLS];
    for (int i = 0; i < CELLS; i++)
        now[i] = i;
    for (int phase = 0; phase < 100; phase++) {
        for (int i = 0; i < CELLS; i++)
            next[i] = now[i] + now[(i + 1) % CELLS] % 1000;
        for (int i = 0; i < CELLS; i++)
            now[i] = next[i];
    }
    for (int i = 0; i < CELLS; i++)
        sum += now[i];
    return sum;
}

static _Thread_local long long own_sum;
static _Thread_local int own_array[64];
static _Atomic long long all_own_sums;

static void *uses_thread_local(void *id) {
    for (int i = 0; i < rounds; i++) {
        own_array[i % 64] += (int)(long)id;
        own_sum += own_array[i % 64] - own_array[(i + 63) % 64] + 1;
        if (i % 512 == 0)
            sched_yield();
    }
    atomic_fetch_add(&all_own_sums, own_sum);
    return NULL;
}

static long long own_sums_alone(void) {
    long long sum = 0;
    for (int id = 0; id < thread_count; id++) {
        int array[64] = {0};
        for (int i = 0; i < rounds; i++) {
            array[i % 64] += id;
            sum += array[i % 64] - array[(i + 63) % 64] + 1;
        }
    }
    return sum;
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long long left_half, right_half;
static atomic_int torn_reads;

static void *reads_and_writes(void *id) {
    for (int i = 0; i < rounds; i++) {
        if ((i + (long)id) % 10 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            left_half++;
            right_half++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            if (left_half != right_half)
                atomic_fetch_add(&torn_reads, 1);
        }
        pthread_rwlock_unlock(&rwlock);
    }
    return NULL;
}

static atomic_long threads_run;

static void *counts_itself(void *id) {
    atomic_fetch_add(&threads_run, 1);
    return id;
}

int main(int argc, char **argv) {
    if (argc > 1)
        thread_count = atoi(argv[1]);
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (thread_count < 2 || thread_count > 256 || rounds < 1 || rounds > 10000000) {
        fprintf(stderr, "usage: threaded [THREADS 2-256 [ROUNDS]]\n");
        return 2;
    }
    long long n = thread_count, r = rounds, producers = (n + 1) / 2;

    run(adds_under_mutex);
    part("mutex", plain_counter, n * (r * (r - 1) / 2));
    run(adds_atomically);
    part("atomics", atomic_counter, r * (n * (n + 1) / 2));
    producers_left = (int)producers;
    run(uses_the_queue);
    part("condition variables", taken_sum, producers * (r * (r + 1) / 2));
    for (int i = 0; i < CELLS; i++)
        cells[0][i] = i;
    pthread_barrier_init(&barrier, NULL, (unsigned)thread_count);
    run(relaxes);
    long long sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += cells[0][i];
    part("barrier", sum, relaxed_alone());
    run(uses_thread_local);
    part("thread-local storage", all_own_sums, own_sums_alone());
    run(reads_and_writes);
    part("read-write lock", torn_reads, 0);
    for (int i = 0; i < 20; i++)
        run(counts_itself);
    part("threads made", threads_run, 20 * n);
    puts(all_right ? "threaded: ok" : "threaded: FAILED");
    return all_right ? 0 : 1;
}
