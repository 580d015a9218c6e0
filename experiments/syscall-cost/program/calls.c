// SPDX-License-Identifier: Apache-2.0
//
// Calls that one thread makes, and memory.
#include "cost.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// No system at all: the same on every kernel that leaves the processor alone.
static void compute(long n) {
    uint64_t x = 1;
    for (long i = 0; i < n * 100; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
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

static int opened(const char *path, int flags) {
    int fd = open(path, flags);
    check(fd >= 0, path);
    return fd;
}

static char buffer[4096];

static void read_zero(long n) {
    int fd = opened("/dev/zero", O_RDONLY);
    for (long i = 0; i < n; i++)
        check(read(fd, buffer, 1) == 1, "read of /dev/zero");
    close(fd);
}

static void write_null(long n) {
    int fd = opened("/dev/null", O_WRONLY);
    for (long i = 0; i < n; i++)
        check(write(fd, buffer, 1) == 1, "write to /dev/null");
    close(fd);
}

static void read_file(long n) {
    int fd = opened(own_path, O_RDONLY);
    for (long i = 0; i < n; i++)
        check(pread(fd, buffer, sizeof buffer, 0) == sizeof buffer, "pread");
    close(fd);
}

static void open_close(long n) {
    for (long i = 0; i < n; i++)
        close(opened(own_path, O_RDONLY));
}

static void stat_path(long n) {
    struct stat about;
    for (long i = 0; i < n; i++)
        check(stat(own_path, &about) == 0, "stat");
}

static void pipe_alone(long n) {
    int fds[2];
    check(pipe(fds) == 0, "pipe");
    for (long i = 0; i < n; i++)
        check(write(fds[1], buffer, 1) == 1 && read(fds[0], buffer, 1) == 1, "pipe");
    close(fds[0]), close(fds[1]);
}

static void event_alone(long n) {
    int fd = eventfd(0, 0);
    check(fd >= 0, "eventfd");
    for (long i = 0; i < n; i++) {
        uint64_t one = 1;
        check(write(fd, &one, sizeof one) == sizeof one && read(fd, &one, sizeof one) == sizeof one, "eventfd");
    }
    close(fd);
}

// One of 64 descriptors is ready.
static void epoll_ready(long n) {
    enum { WATCHED = 64 };
    int fds[WATCHED], epoll = epoll_create1(0);
    check(epoll >= 0, "epoll_create1");
    for (int i = 0; i < WATCHED; i++) {
        fds[i] = eventfd(i == WATCHED / 2, 0);
        struct epoll_event interest = {.events = EPOLLIN, .data.fd = fds[i]};
        check(fds[i] >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &interest) == 0, "epoll_ctl");
    }
    struct epoll_event events[WATCHED];
    for (long i = 0; i < n; i++)
        check(epoll_wait(epoll, events, WATCHED, -1) == 1, "epoll_wait");
    for (int i = 0; i < WATCHED; i++)
        close(fds[i]);
    close(epoll);
}

static volatile sig_atomic_t handled;

static void handler(int number) { handled = number; }

static void own_signal(long n) {
    struct sigaction action = {.sa_handler = handler}, before;
    check(sigaction(SIGUSR1, &action, &before) == 0, "sigaction");
    pid_t process = getpid(), thread = (pid_t)syscall(SYS_gettid);
    for (long i = 0; i < n; i++) {
        handled = 0;
        check(syscall(SYS_tgkill, process, thread, SIGUSR1) == 0 && handled == SIGUSR1, "tgkill");
    }
    sigaction(SIGUSR1, &before, NULL);
}

static void sleep_a_millisecond(long n) {
    struct timespec t = {.tv_nsec = 1000000};
    for (long i = 0; i < n; i++)
        check(nanosleep(&t, NULL) == 0, "nanosleep");
}

const struct measurement call_measurements[] = {
    {"compute_100_ns", compute, 0},
    {"getpid_ns", getpid_call, 0},
    {"clock_vdso_ns", clock_vdso, 0},
    {"clock_call_ns", clock_call, 0},
    {"read_zero_1_ns", read_zero, 0},
    {"write_null_1_ns", write_null, 0},
    {"read_file_4096_ns", read_file, 0},
    {"open_close_ns", open_close, 0},
    {"stat_ns", stat_path, 0},
    {"pipe_write_read_ns", pipe_alone, 0},
    {"eventfd_write_read_ns", event_alone, 0},
    {"epoll_wait_ready_ns", epoll_ready, 0},
    {"signal_handled_ns", own_signal, 0},
    {"sleep_1ms_ns", sleep_a_millisecond, 0},
    {NULL, NULL, 0},
};

enum { PAGE = 4096 };

static char *mapped(size_t size) {
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(at != MAP_FAILED, "mmap");
    return at;
}

// First touch of pages, one mapping of at most 4 MiB after the other; making and ending the mapping is part of it.
static void page_faults(long n) {
    while (n > 0) {
        long pages = n < 1024 ? n : 1024;
        char *at = mapped((size_t)pages * PAGE);
        check(madvise(at, (size_t)pages * PAGE, MADV_NOHUGEPAGE) == 0, "madvise");
        for (long i = 0; i < pages; i++)
            at[i * PAGE] = 1;
        munmap(at, (size_t)pages * PAGE);
        n -= pages;
    }
}

static void map_unmap(long n) {
    for (long i = 0; i < n; i++)
        munmap(mapped(PAGE), PAGE);
}

// Takes the right to write from a page and gives it back.
static void protect(long n) {
    char *at = mapped(PAGE);
    *at = 1;
    for (long i = 0; i < n; i++)
        check(mprotect(at, PAGE, PROT_READ) == 0 && mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    munmap(at, PAGE);
}

const struct measurement memory_measurements[] = {
    {"page_fault_ns", page_faults, 0},
    {"map_unmap_ns", map_unmap, 0},
    {"mprotect_ns", protect, 2},
    {NULL, NULL, 0},
};
