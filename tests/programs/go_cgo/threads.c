// SPDX-License-Identifier: Apache-2.0

#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "_cgo_export.h"

enum { MOST_THREADS = 16, SMALL_STACK = 128 * 1024 };

struct visit {
    int index;
    int calls;
};

static void *visits(void *argument)
{
    const struct visit *visit = argument;
    for (int call = 0; call < visit->calls; call++)
        goVisit(visit->index);
    return NULL;
}

int visit_from_threads(int threads, int calls)
{
    pthread_t ids[MOST_THREADS];
    struct visit work[MOST_THREADS];
    if (threads > MOST_THREADS)
        return EINVAL;
    int started = 0, error = 0;
    for (; started < threads && error == 0; started += error == 0) {
        work[started] = (struct visit){started, calls};
        error = pthread_create(&ids[started], NULL, visits, &work[started]);
    }
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    return error;
}

struct signals {
    int own;
    int other;
    int error;
};

static void *sends(void *argument)
{
    struct signals *signals = argument;
    signals->error = pthread_kill(pthread_self(), signals->own);
    if (signals->error == 0 && kill(getpid(), signals->other) != 0)
        signals->error = errno;
    return NULL;
}

int signal_from_thread(int own, int other)
{
    struct signals signals = {own, other, 0};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_t id;
    int error = pthread_attr_setstacksize(&attributes, SMALL_STACK);
    if (error == 0)
        error = pthread_create(&id, &attributes, sends, &signals);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        return error;
    pthread_join(id, NULL);
    return signals.error;
}

int64_t walk(int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += goSquare(i);
    return sum;
}

uint64_t mix(uint64_t seed, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
    }
    return seed;
}
