// SPDX-License-Identifier: Apache-2.0
//
// What the small things cost, in nanoseconds each: the median of several runs. A tool for people, not a test.
//   syscost [SCALE]       SCALE multiplies the number of repetitions (default 1)
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 7 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(1);
    }
}

static void getpid_call(long n) {
    for (long i = 0; i < n; i++)
        syscall(SYS_getpid);
}

static void clock_vdso(long n) {
    struct timespec t;
    for (long i = 0; i < n; i++)
        clock_gettime(CLOCK_MONOTONIC, &t);
}

static void clock_call(long n) {
    struct timespec t;
    for (long i = 0; i < n; i++)
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
}

static _Atomic uint32_t word;

static void futex_wake_nobody(long n) {
    for (long i = 0; i < n; i++)
        syscall(SYS_futex, &word, 1 | 128 /* FUTEX_WAKE | PRIVATE */, 1, NULL, NULL, 0);
}

// One word, two threads: each waits for its own parity.
static long futex_rounds;

static void futex_turns(uint32_t parity, long n) {
    for (long i = 0; i < n; i++) {
        uint32_t now;
        while ((now = atomic_load(&word)) % 2 != parity)
            syscall(SYS_futex, &word, 0 | 128 /* FUTEX_WAIT | PRIVATE */, now, NULL, NULL, 0);
        atomic_store(&word, now + 1);
        syscall(SYS_futex, &word, 1 | 128, 1, NULL, NULL, 0);
    }
}

static void *futex_partner(void *unused) {
    futex_turns(1, futex_rounds);
    return unused;
}

static void futex_ping_pong(long n) {
    pthread_t partner;
    futex_rounds = n;
    atomic_store(&word, 0);
    check(pthread_create(&partner, NULL, futex_partner, NULL) == 0, "pthread_create");
    futex_turns(0, n);
    pthread_join(partner, NULL);
}

static int there[2], back[2];

static void *pipe_partner(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && byte != 'q')
        check(write(back[1], &byte, 1) == 1, "write");
    return unused;
}

static void pipe_ping_pong(long n) {
    pthread_t partner;
    char byte = 'x';
    check(pipe(there) == 0 && pipe(back) == 0, "pipe");
    check(pthread_create(&partner, NULL, pipe_partner, NULL) == 0, "pthread_create");
    for (long i = 0; i < n; i++)
        check(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "pipe ping-pong");
    byte = 'q';
    check(write(there[1], &byte, 1) == 1, "write");
    pthread_join(partner, NULL);
    close(there[0]), close(there[1]), close(back[0]), close(back[1]);
}

static void page_faults(long n) {
    char *at = mmap(NULL, (size_t)n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    madvise(at, (size_t)n * 4096, MADV_NOHUGEPAGE);
    for (long i = 0; i < n; i++)
        at[i * 4096] = 1;
    munmap(at, (size_t)n * 4096);
}

static void map_and_unmap(long n) {
    for (long i = 0; i < n; i++)
        munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}

static void *nothing(void *unused) { return unused; }

static void threads(long n) {
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, nothing, NULL) == 0, "pthread_create");
        pthread_join(thread, NULL);
    }
}

static void yields(long n) {
    for (long i = 0; i < n; i++)
        sched_yield();
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*work)(long), long n) {
    double ns[RUNS];
    for (int run = 0; run < RUNS; run++) {
        int64_t start = now_ns();
        work(n);
        ns[run] = (double)(now_ns() - start) / (double)n;
    }
    qsort(ns, RUNS, sizeof ns[0], order);
    printf("%-34s %10.1f ns   (best %.1f, worst %.1f)\n", name, ns[RUNS / 2], ns[0], ns[RUNS - 1]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    long scale = argc > 1 ? atol(argv[1]) : 1;
    if (scale < 1 || scale > 1000) {
        fprintf(stderr, "usage: syscost [SCALE 1-1000]\n");
        return 2;
    }
    measure("getpid, system call", getpid_call, 20000 * scale);
    measure("clock_gettime, vDSO", clock_vdso, 20000 * scale);
    measure("clock_gettime, system call", clock_call, 20000 * scale);
    measure("sched_yield, alone", yields, 10000 * scale);
    measure("futex wake, nobody waits", futex_wake_nobody, 20000 * scale);
    measure("futex ping-pong, round trip", futex_ping_pong, 2000 * scale);
    measure("pipe ping-pong, round trip", pipe_ping_pong, 2000 * scale);
    measure("page fault, anonymous 4 KiB", page_faults, 1000 * scale);
    measure("mmap and munmap, 4 KiB", map_and_unmap, 2000 * scale);
    measure("thread: create and join", threads, 200 * scale);
    return 0;
}
