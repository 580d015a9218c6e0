// SPDX-License-Identifier: Apache-2.0
//
// Computes with SSE and AVX in several threads while signals rain on them: an interval timer, and a thread that
// sends tgkill to all of them. The handler overwrites every vector register it can reach. The results must be
// those of an undisturbed computation, bit for bit. The last line is "signal_heavy: ok".
//   signal_heavy [VOLLEYS]
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, VALUES = 512 };

struct result {
    double sse, avx;
    unsigned long integer;
};

static atomic_long handled, alarms;
static atomic_int ready, stop;
static _Atomic pid_t worker_tids[WORKERS];
static struct result wanted;
static atomic_long rounds_done, rounds_wrong;

static void clobbers(int signal) {
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm1, %%xmm1; pcmpeqd %%xmm2, %%xmm2; pcmpeqd %%xmm3, %%xmm3\n\t"
                     "pcmpeqd %%xmm4, %%xmm4; pcmpeqd %%xmm5, %%xmm5; pcmpeqd %%xmm6, %%xmm6; pcmpeqd %%xmm7, %%xmm7\n\t"
                     "pcmpeqd %%xmm8, %%xmm8; pcmpeqd %%xmm9, %%xmm9; pcmpeqd %%xmm10, %%xmm10; pcmpeqd %%xmm11, %%xmm11\n\t"
                     "pcmpeqd %%xmm12, %%xmm12; pcmpeqd %%xmm13, %%xmm13; pcmpeqd %%xmm14, %%xmm14; pcmpeqd %%xmm15, %%xmm15" ::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory");
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall" ::: "memory");
    atomic_fetch_add(signal == SIGALRM ? &alarms : &handled, 1);
}

static double with_sse(void) {
    __m128d sum = _mm_setzero_pd(), term = _mm_set_pd(1.0, 0.5), step = _mm_set_pd(1.0000001, 0.9999999);
    for (int i = 0; i < VALUES * 16; i++) {
        sum = _mm_add_pd(sum, _mm_div_pd(term, _mm_add_pd(_mm_mul_pd(term, term), step)));
        term = _mm_mul_pd(term, step);
    }
    double lanes[2];
    _mm_storeu_pd(lanes, sum);
    return lanes[0] * 3 + lanes[1];
}

__attribute__((target("avx"))) static double with_avx(void) {
    __m256d sum = _mm256_setzero_pd(), term = _mm256_set_pd(1.0, 0.5, 0.25, 2.0), step = _mm256_set1_pd(1.0000003);
    for (int i = 0; i < VALUES * 16; i++) {
        sum = _mm256_add_pd(sum, _mm256_div_pd(term, _mm256_add_pd(_mm256_mul_pd(term, term), step)));
        term = _mm256_mul_pd(term, step);
    }
    double lanes[4];
    _mm256_storeu_pd(lanes, sum);
    return lanes[0] * 7 + lanes[1] * 5 + lanes[2] * 3 + lanes[3];
}

static unsigned long with_integers(void) {
    unsigned long x = 88172645463325252UL, sum = 0;
    for (int i = 0; i < VALUES * 32; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        sum += x;
    }
    return sum;
}

static struct result compute(void) {
    struct result result;
    memset(&result, 0, sizeof result);
    result.sse = with_sse();
    result.avx = __builtin_cpu_supports("avx") ? with_avx() : 0;
    result.integer = with_integers();
    return result;
}

static void *works(void *index) {
    atomic_store(&worker_tids[(long)index], (pid_t)syscall(SYS_gettid));
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        struct result result = compute();
        if (memcmp(&result, &wanted, sizeof result) != 0)
            atomic_fetch_add(&rounds_wrong, 1);
        atomic_fetch_add(&rounds_done, 1);
    }
    return NULL;
}

static void nap(long ns) {
    struct timespec left = {.tv_nsec = ns};
    while (nanosleep(&left, &left) == -1)
        ;
}

int main(int argc, char **argv) {
    long volleys = argc > 1 ? atol(argv[1]) : 200;
    if (volleys < 1) {
        fprintf(stderr, "usage: signal_heavy [VOLLEYS]\n");
        return 2;
    }
    wanted = compute();
    struct sigaction action = {.sa_handler = clobbers, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    pthread_t threads[WORKERS];
    for (long i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, works, (void *)i)) {
            fprintf(stderr, "signal_heavy: cannot make a thread\n");
            return 1;
        }
    while (atomic_load(&ready) < WORKERS)
        nap(1000000);
    struct itimerval every = {{0, 2000}, {0, 2000}}, off = {0};
    setitimer(ITIMER_REAL, &every, NULL);

    // A standard signal that is pending already is not queued again, so each volley, one signal for every worker, is
    // awaited before the next.
    for (long volley = 1; volley <= volleys; volley++) {
        for (int i = 0; i < WORKERS; i++)
            if (syscall(SYS_tgkill, getpid(), atomic_load(&worker_tids[i]), SIGUSR1) != 0) {
                perror("signal_heavy: tgkill");
                return 1;
            }
        while (atomic_load(&handled) < volley * WORKERS)
            nap(50000);
    }
    while (atomic_load(&alarms) < 10 || atomic_load(&rounds_done) < 2 * WORKERS)
        nap(1000000);
    setitimer(ITIMER_REAL, &off, NULL);
    atomic_store(&stop, 1);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);

    bool right = atomic_load(&handled) == volleys * WORKERS && atomic_load(&rounds_wrong) == 0;
    printf("signals handled        %ld of %ld\n", atomic_load(&handled), volleys * WORKERS);
    printf("wrong results          %ld\n", atomic_load(&rounds_wrong));
    puts(right ? "signal_heavy: ok" : "signal_heavy: FAILED");
    return right ? 0 : 1;
}
