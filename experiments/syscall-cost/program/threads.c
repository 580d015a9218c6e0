// SPDX-License-Identifier: Apache-2.0
//
// What two threads do to each other: switches, locks, and a byte over a socket.
#include "cost.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_t started(void *(*run)(void *), void *with) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, run, with) == 0, "pthread_create");
    return thread;
}

static void *nothing(void *unused) { return unused; }

static void create_join(long n) {
    for (long i = 0; i < n; i++)
        pthread_join(started(nothing, NULL), NULL);
}

static void yield_alone(long n) {
    for (long i = 0; i < n; i++)
        sched_yield();
}

// One word, two threads: each waits until the word has its own parity.
static _Atomic uint32_t word;

static void futex_turns(uint32_t parity, long n) {
    enum { WAIT = 128, WAKE = 129 }; // private
    for (long i = 0; i < n; i++) {
        uint32_t now;
        while ((now = atomic_load(&word)) % 2 != parity)
            syscall(SYS_futex, &word, WAIT, now, NULL, NULL, 0);
        atomic_store(&word, now + 1);
        syscall(SYS_futex, &word, WAKE, 1, NULL, NULL, 0);
    }
}

static void *futex_partner(void *n) {
    futex_turns(1, *(long *)n);
    return NULL;
}

static void futex_switch(long n) {
    atomic_store(&word, 0);
    pthread_t partner = started(futex_partner, &n);
    futex_turns(0, n);
    pthread_join(partner, NULL);
}

// The partner gives back each byte until there is none.
struct wire {
    int in, out;
};

static void *echo(void *argument) {
    struct wire *wire = argument;
    char byte;
    while (read(wire->in, &byte, 1) == 1)
        check(write(wire->out, &byte, 1) == 1, "echo");
    return NULL;
}

static void bytes(long n, struct wire here) {
    char byte = 'x';
    for (long i = 0; i < n; i++)
        check(write(here.out, &byte, 1) == 1 && read(here.in, &byte, 1) == 1, "round trip");
}

static void pipe_switch(long n) {
    int there[2], back[2];
    check(pipe(there) == 0 && pipe(back) == 0, "pipe");
    struct wire far = {there[0], back[1]};
    pthread_t partner = started(echo, &far);
    bytes(n, (struct wire){back[0], there[1]});
    close(there[1]);
    pthread_join(partner, NULL);
    close(there[0]), close(back[0]), close(back[1]);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static volatile long counter;
static int turn;

static void lock_alone(long n) {
    for (long i = 0; i < n; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
}

static void *lock_partner(void *n) {
    lock_alone(*(long *)n);
    return NULL;
}

static void lock_contended(long n) {
    pthread_t partner = started(lock_partner, &n);
    lock_alone(n);
    pthread_join(partner, NULL);
}

static void turns(int mine, long n) {
    pthread_mutex_lock(&mutex);
    for (long i = 0; i < n; i++) {
        while (turn != mine)
            pthread_cond_wait(&turned, &mutex);
        turn = !mine;
        pthread_cond_signal(&turned);
    }
    pthread_mutex_unlock(&mutex);
}

static void *turns_partner(void *n) {
    turns(1, *(long *)n);
    return NULL;
}

static void lock_handover(long n) {
    turn = 0;
    pthread_t partner = started(turns_partner, &n);
    turns(0, n);
    pthread_join(partner, NULL);
}

const struct measurement thread_measurements[] = {
    {"yield_ns", yield_alone, 0},
    {"thread_create_join_ns", create_join, 0},
    {"switch_futex_ns", futex_switch, 2},
    {"switch_pipe_ns", pipe_switch, 2},
    {"mutex_alone_ns", lock_alone, 0},
    {"mutex_contended_ns", lock_contended, 2},
    {"mutex_handover_ns", lock_handover, 2},
    {NULL, NULL, 0},
};

// Both ends of a connection over the loopback interface.
static void connected(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    check(listener >= 0 && bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0, "listen");
    check(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(fds[0] >= 0 && connect(fds[0], (struct sockaddr *)&address, length) == 0, "connect");
    fds[1] = accept(listener, NULL, NULL);
    check(fds[1] >= 0, "accept");
    for (int i = 0; i < 2; i++)
        check(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    close(listener);
}

static void over(long n, int fds[2]) {
    struct wire far = {fds[1], fds[1]};
    pthread_t partner = started(echo, &far);
    bytes(n, (struct wire){fds[0], fds[0]});
    shutdown(fds[0], SHUT_WR);
    pthread_join(partner, NULL);
    close(fds[0]), close(fds[1]);
}

static void tcp_round_trip(long n) {
    int fds[2];
    connected(fds);
    over(n, fds);
}

static void unix_round_trip(long n) {
    int fds[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
    over(n, fds);
}

static void tcp_connect(long n) {
    for (long i = 0; i < n; i++) {
        int fds[2];
        connected(fds);
        // A reset: thousands of closed connections would else keep their ports for a minute.
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        check(setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0, "SO_LINGER");
        close(fds[0]), close(fds[1]);
    }
}

const struct measurement socket_measurements[] = {
    {"unix_round_trip_ns", unix_round_trip, 0},
    {"tcp_round_trip_ns", tcp_round_trip, 0},
    {"tcp_connect_ns", tcp_connect, 0},
    {NULL, NULL, 0},
};
