// SPDX-License-Identifier: Apache-2.0
//
// Asks for one kind of thing until it is refused, to see that the end of memory is an answer and not the end.
//   exhaust KIND      prints how the refusal is called and exits with 0
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char data[65536];

static int a_socket(void) { return socket(AF_INET, SOCK_STREAM, 0); }

static int a_watched_event(void) {
    static int watcher = -1;
    if (watcher == -1)
        watcher = epoll_create1(0);
    int fd = eventfd(0, 0);
    struct epoll_event interest = {.events = EPOLLIN};
    return fd == -1 ? -1 : epoll_ctl(watcher, EPOLL_CTL_ADD, fd, &interest);
}

static int a_full_pipe(void) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) == -1)
        return -1;
    while (write(ends[1], data, 4096) > 0)
        ;
    return 0;
}

static int a_full_pair(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == -1)
        return -1;
    while (write(ends[1], data, sizeof data) > 0)
        ;
    return 0;
}

// A TCP connection to ourselves, with as much unread data in it as it takes.
static int a_full_connection(void) {
    static int listener = -1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4000)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener == -1) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&address, sizeof address) == -1 || listen(listener, 16) == -1)
            return -1;
    }
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (client == -1 || connect(client, (struct sockaddr *)&address, sizeof address) == -1)
        return -1;
    int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (server == -1)
        return -1;
    while (write(server, data, sizeof data) > 0)
        ;
    return 0;
}

static void *waits(void *unused) {
    pause();
    return unused;
}

static int a_thread(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    errno = pthread_create(&thread, &attributes, waits, NULL);
    return errno ? -1 : 0;
}

static int a_mapping(void) {
    static int turn;
    int protection = turn++ % 2 ? PROT_READ : PROT_NONE; // neighbours differ, so that each stays a mapping of its own
    return mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}

static int a_populated_mapping(void) {
    void *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
}

static int a_buffer_read_into(void) {
    static int zero = -1;
    if (zero == -1)
        zero = open("/dev/zero", O_RDONLY);
    void *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED || read(zero, at, 1 << 20) < 0 ? -1 : 0;
}

static int file_content(void) {
    static int fd = -1;
    if (fd == -1)
        fd = open("/tmp/content", O_WRONLY | O_CREAT, 0600);
    return write(fd, data, sizeof data) > 0 ? 0 : -1; // the last one that fits may be cut
}

static const struct {
    const char *name;
    int (*make)(void);
} kinds[] = {
    {"socket", a_socket},       {"event", a_watched_event}, {"pipe", a_full_pipe},
    {"pair", a_full_pair},      {"tcp", a_full_connection}, {"thread", a_thread},
    {"mapping", a_mapping},     {"populate", a_populated_mapping}, {"read", a_buffer_read_into},
    {"file", file_content},
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(argv[1], kinds[i].name) != 0)
            continue;
        long made = 0;
        while (kinds[i].make() >= 0)
            made++;
        printf("%s refused: %s\n", argv[1], strerrorname_np(errno));
        return made > 100 ? 0 : 1;
    }
    fprintf(stderr, "usage: exhaust KIND\n");
    return 2;
}
