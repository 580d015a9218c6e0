// SPDX-License-Identifier: Apache-2.0
//
// What musl, as another C library than glibc, asks of a kernel: its own loader, its way to stop all threads (setuid), to
// cancel one, and to run a timer; threads that talk over sockets. Prints the same lines everywhere; the last one is
// "musl: ok". Exit status 1 if something is wrong.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 8, ROUNDS = 100 };

static bool all_right = true;

static void part(const char *name, long got, long wanted) {
    printf("%-28s %ld %s\n", name, got, got == wanted ? "as expected" : "WRONG");
    if (got != wanted) {
        printf("%-28s %ld was expected, errno %d\n", "", wanted, errno);
        all_right = false;
    }
}

static int port;

static void *serve_one(void *socket) {
    int at = (int)(long)socket;
    char buffer[256];
    for (ssize_t n; (n = recv(at, buffer, sizeof buffer, 0)) > 0;)
        if (send(at, buffer, (size_t)n, MSG_NOSIGNAL) != n)
            break;
    close(at);
    return NULL;
}

static void *serve(void *socket) {
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        int one = accept4((int)(long)socket, NULL, NULL, SOCK_CLOEXEC);
        pthread_create(&threads[i], NULL, serve_one, (void *)(long)one);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    return NULL;
}

static void *ask(void *id) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char service[16], sent[64], got[64];
    long right = 0;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo("127.0.0.1", service, &hints, &found))
        return NULL;
    int at = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    if (connect(at, found->ai_addr, found->ai_addrlen) == 0)
        for (int i = 0; i < ROUNDS; i++) {
            int length = snprintf(sent, sizeof sent, "client %ld, round %d", (long)id, i);
            if (send(at, sent, (size_t)length, 0) == length && recv(at, got, (size_t)length, MSG_WAITALL) == length)
                right += memcmp(sent, got, (size_t)length) == 0;
        }
    close(at);
    freeaddrinfo(found);
    return (void *)right;
}

static void network(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof to;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bind(listener, (void *)&to, length);
    listen(listener, CLIENTS);
    getsockname(listener, (void *)&to, &length);
    port = ntohs(to.sin_port);
    pthread_t server, clients[CLIENTS];
    pthread_create(&server, NULL, serve, (void *)(long)listener);
    for (long i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i], NULL, ask, (void *)i);
    long answers = 0;
    for (int i = 0; i < CLIENTS; i++) {
        void *right;
        pthread_join(clients[i], &right);
        answers += (long)right;
    }
    pthread_join(server, NULL);
    close(listener);
    part("answers over TCP", answers, CLIENTS * ROUNDS);

    struct addrinfo *found = NULL;
    part("localhost has an address", getaddrinfo("localhost", NULL, NULL, &found) == 0 && found, 1);
    freeaddrinfo(found);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long turn;

static void *takes_turns(void *id) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % 4 != (long)id)
            pthread_cond_wait(&changed, &mutex);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static _Atomic long cleaned;

static void clean(void *by) { cleaned += (long)by; }

static void *waits_for_ever(void *ready) {
    pthread_cleanup_push(clean, (void *)1L);
    sem_post(ready);
    poll(NULL, 0, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *sleeps(void *ready) {
    uid_t mine;
    sem_post(ready);
    sem_wait((sem_t *)ready + 1);
    mine = getuid();
    return (void *)(long)mine;
}

static void threads(void) {
    pthread_t four[4];
    pthread_barrier_init(&barrier, NULL, 4);
    for (long i = 0; i < 4; i++)
        pthread_create(&four[i], NULL, takes_turns, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(four[i], NULL);
    part("turns of four threads", turn, 4 * ROUNDS);

    sem_t ready[2];
    sem_init(&ready[0], 0, 0);
    sem_init(&ready[1], 0, 0);
    pthread_t one;
    void *result;
    pthread_create(&one, NULL, waits_for_ever, ready);
    sem_wait(ready);
    pthread_cancel(one);
    pthread_join(one, &result);
    part("a thread is cancelled", result == PTHREAD_CANCELED && cleaned == 1, 1);

    // musl stops every thread by a signal and has each make the call.
    pthread_create(&one, NULL, sleeps, ready);
    sem_wait(ready);
    if (getuid() == 0) {
        part("setuid", setresuid(1000, 1000, 0), 0);
        sem_post(&ready[1]);
        pthread_join(one, &result);
        part("setuid reaches all threads", (long)result, 1000);
        part("and back", setresuid(0, 0, 0), 0);
    } else {
        sem_post(&ready[1]);
        pthread_join(one, &result);
    }
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += soon.tv_nsec < 980000000 ? 20000000 : 0;
    part("a semaphore times out", sem_timedwait(ready, &soon) == -1 && errno == ETIMEDOUT, 1);
}

static sem_t expired;

static void on_expiry(union sigval value) {
    (void)value;
    sem_post(&expired);
}

static void timers(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_expiry};
    struct itimerspec often = {.it_value.tv_nsec = 5000000, .it_interval.tv_nsec = 5000000};
    timer_t timer;
    sem_init(&expired, 0, 0);
    part("a timer that runs a function", timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    timer_settime(timer, 0, &often, NULL);
    for (int i = 0; i < 5; i++)
        sem_wait(&expired);
    part("and is deleted", timer_delete(timer), 0);
}

static void loading(const char *folder) {
    char path[256];
    snprintf(path, sizeof path, "%s/libpart.so", folder);
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        printf("%s\n", dlerror());
    long (*add)(long) = library ? (long (*)(long))dlsym(library, "add") : NULL;
    part("a library's own data", add ? add(5) + add(6) : -1, 105 + 111);
    part("a missing library", dlopen("/none.so", RTLD_NOW) == NULL, 1);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    part("locale C.UTF-8", setlocale(LC_ALL, "C.UTF-8") != NULL, 1);
    loading(argc > 1 ? argv[1] : "/opt/musl");
    network();
    threads();
    timers();
    printf("musl: %s\n", all_right ? "ok" : "WRONG");
    return all_right ? 0 : 1;
}
