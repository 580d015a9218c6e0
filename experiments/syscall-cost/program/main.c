// SPDX-License-Identifier: Apache-2.0
//
// What the small things cost that every service does a million times, as lines of JSON:
//   {"metric":"getpid_ns","value":151.2}
// Each is the median of several batches, long enough for the clock. It knows nothing of the kernel it runs on: static,
// the same file on Linux and as a unikernel.
//   cost [METRIC...]        all, or some
#include "cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCHES = 9,
    // Tries of each length, to find how many times make a batch.
    TRIES = 3,
    // How long a batch shall take at least.
    BATCH_NS = 10000000,
    // What is done at most in a batch, whatever the clock says.
    MOST = 1 << 24,
};

const char *own_path;

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(1);
    }
}

static int64_t timed(void (*work)(long), long n) {
    int64_t start = now_ns();
    work(n);
    return now_ns() - start;
}

// The shortest of some tries: on a busy host one may have had to wait for its turn.
static int64_t least(void (*work)(long), long n) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t took = timed(work, n);
        least = took < least ? took : least;
    }
    return least;
}

// How many times make a batch. What is tried on the way warms up caches, allocators and, under emulation, the translator.
static long enough(void (*work)(long)) {
    long n = 1;
    for (;;) {
        int64_t took = least(work, n);
        if (took >= BATCH_NS || n >= MOST)
            return n;
        // Straight to the goal once the time says something, else by eights.
        double factor = took > BATCH_NS / 20 ? 1.1 * BATCH_NS / (double)took : 8;
        n = (long)((double)n * factor) + 1;
    }
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct measurement *it) {
    long n = enough(it->work);
    double ns[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++)
        ns[batch] = (double)timed(it->work, n) / (double)n / (it->parts ? it->parts : 1);
    qsort(ns, BATCHES, sizeof ns[0], order);
    printf("{\"metric\":\"%s\",\"value\":%.1f}\n", it->name, ns[BATCHES / 2]);
    fflush(stdout);
}

static int wanted(const char *name, int count, char **names) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return count == 0;
}

int main(int argc, char **argv) {
    own_path = argv[0];
    const struct measurement *tables[] = {call_measurements, memory_measurements, thread_measurements, socket_measurements};
    int found = 0;
    for (size_t table = 0; table < sizeof tables / sizeof tables[0]; table++)
        for (const struct measurement *it = tables[table]; it->name; it++)
            if (wanted(it->name, argc - 1, argv + 1)) {
                measure(it);
                found++;
            }
    if (found < argc - 1) {
        fprintf(stderr, "cost: %d of %d metrics are unknown\n", argc - 1 - found, argc - 1);
        return 2;
    }
    return 0;
}
