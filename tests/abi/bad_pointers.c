// SPDX-License-Identifier: Apache-2.0
//
// A pointer that is no good gives EFAULT, whatever the call; what lies before the bad page is done or not done exactly as
// on Linux. Each case tries NULL, a hole, a PROT_NONE page, the kernel's half and a non-canonical address.
#include "net.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>

#define KERNEL_HALF ((char *)0xffff800000000000)
#define TOP ((char *)0xfffffffffffff000)
#define NON_CANONICAL ((char *)0x1234567890abcdef)

// The bad addresses a case goes through.
static char *bad[6];

static void find_bad(void) {
    char *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(none != MAP_FAILED);
    char *const all[] = {(char *)8, unmapped_page(), none, KERNEL_HALF, TOP, NON_CANONICAL};
    memcpy(bad, all, sizeof bad);
}

#define EACH_BAD(at, ...)                                                                                             \
    do {                                                                                                              \
        find_bad();                                                                                                   \
        for (size_t bad_index = 0; bad_index < COUNT(bad); bad_index++) {                                             \
            char *at = bad[bad_index];                                                                                \
            __VA_ARGS__                                                                                               \
        }                                                                                                             \
    } while (0)

static char *read_only_page(void) {
    char *at = pages(1);
    CHECK(mprotect(at, PAGE, PROT_READ) == 0);
    return at;
}

// The last `size` bytes before a hole.
static char *before_a_hole(size_t size) {
    char *page = page_before_a_hole();
    memset(page, 'w', PAGE);
    return page + PAGE - size;
}

CASE(paths) {
    struct stat status;
    write_file("f", "");
    EACH_BAD(at, {
        FAILS(open(at, O_RDONLY), EFAULT);
        FAILS(stat(at, &status), EFAULT);
        FAILS(access(at, F_OK), EFAULT);
        FAILS(mkdir(at, 0755), EFAULT);
        FAILS(rmdir(at), EFAULT);
        FAILS(unlink(at), EFAULT);
        FAILS(chdir(at), EFAULT);
        FAILS(rename(at, "x"), EFAULT);
        FAILS(rename("x", at), EFAULT);
        FAILS(symlink(at, "x"), EFAULT);
        FAILS(link("f", at), EFAULT);
        FAILS(chmod(at, 0600), EFAULT);
        FAILS(truncate(at, 0), EFAULT);
        FAILS(syscall(SYS_readlink, at, &status, sizeof status), EFAULT);
    });
}

CASE(path_that_runs_into_a_hole) {
    char *at = before_a_hole(4);
    struct stat status;
    memcpy(at, "abcd", 4);
    FAILS(stat(at, &status), EFAULT);
    memcpy(at, "abc", 4);
    FAILS(stat(at, &status), ENOENT); // ends in time
}

CASE(stat_results) {
    write_file("f", "x");
    int fd = open("f", O_RDONLY);
    EACH_BAD(at, {
        FAILS(syscall(SYS_stat, "f", at), EFAULT);
        FAILS(syscall(SYS_lstat, "f", at), EFAULT);
        FAILS(syscall(SYS_fstat, fd, at), EFAULT);
        FAILS(syscall(SYS_newfstatat, AT_FDCWD, "f", at, 0), EFAULT);
        FAILS(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_BASIC_STATS, at), EFAULT);
        FAILS(syscall(SYS_statfs, "/", at), EFAULT);
    });
    FAILS(syscall(SYS_stat, "f", read_only_page()), EFAULT);
}

CASE(file_reads_and_writes) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    EACH_BAD(at, {
        FAILS(write(fd, at, 5), EFAULT);
        FAILS(pwrite(fd, at, 5, 0), EFAULT);
        FAILS(pread(fd, at, 5, 0), EFAULT);
    });
    FAILS(pread(fd, read_only_page(), 5, 0), EFAULT);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10); // nothing moved
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    FAILS(read(fd, unmapped_page(), 5), EFAULT);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_EQ(read(fd, unmapped_page(), 0), 0);
}

CASE(file_read_up_to_a_hole_is_partial) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    char *at = before_a_hole(4);
    CHECK_EQ(pread(fd, at, 10, 0), 4);
    CHECK(memcmp(at, "0123", 4) == 0);
    CHECK_EQ(lseek(fd, 2, SEEK_SET), 2);
    CHECK_EQ(read(fd, at, 8), 4);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 6);
}

CASE(write_from_before_a_hole_writes_no_garbage) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char *at = before_a_hole(4), text[16] = "";
    ssize_t n = write(fd, at, 10); // file systems differ in how much of the first part they take
    CHECK(n == 4 || (n == -1 && errno == EFAULT));
    CHECK_EQ(lseek(fd, 0, SEEK_END), n == 4 ? 4 : 0);
    CHECK_EQ(pread(fd, text, sizeof text, 0), n == 4 ? 4 : 0);
    CHECK(n == -1 || memcmp(text, "wwww", 4) == 0);
}

CASE(pipes) {
    int ends[2];
    EACH_BAD(at, { FAILS(syscall(SYS_pipe2, at, 0), EFAULT); });
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    EACH_BAD(at, { FAILS(write(ends[1], at, 5), EFAULT); });
    char byte;
    FAILS(read(ends[0], &byte, 1), EAGAIN); // nothing of it came through
    CHECK_EQ(write(ends[1], "x", 1), 1);
    EACH_BAD(at, { FAILS(read(ends[0], at, 1), EFAULT); });
    CHECK_EQ(read(ends[0], &byte, 1), 1); // and the byte is still there
    CHECK_EQ(byte, 'x');
}

CASE(failed_pipe_leaves_no_descriptors) {
    int before = open("/dev/null", O_RDONLY);
    CHECK(close(before) == 0);
    FAILS(syscall(SYS_pipe2, unmapped_page(), 0), EFAULT);
    FAILS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, unmapped_page()), EFAULT);
    CHECK_EQ(open("/dev/null", O_RDONLY), before);
}

CASE(vectors) {
    int fd = open("f", O_RDWR | O_CREAT, 0600), ends[2];
    CHECK(pipe(ends) == 0);
    EACH_BAD(at, {
        FAILS(syscall(SYS_writev, fd, at, 2), EFAULT);
        FAILS(syscall(SYS_readv, fd, at, 2), EFAULT);
        struct iovec good_then_bad[2] = {{"good", 4}, {at, 4}};
        ssize_t n = writev(ends[1], good_then_bad, 2);
        // The kernel's half is refused before anything is moved; a hole is found on the way.
        CHECK(n == 4 || (n == -1 && errno == EFAULT));
        if (n == 4) {
            char text[4];
            CHECK_EQ(read(ends[0], text, 4), 4);
            CHECK(memcmp(text, "good", 4) == 0);
        }
    });
}

CASE(results_of_time_calls) {
    EACH_BAD(at, {
        FAILS(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at), EFAULT);
        FAILS(syscall(SYS_clock_getres, CLOCK_MONOTONIC, at), EFAULT);
        FAILS(syscall(SYS_gettimeofday, at, NULL), EFAULT);
        FAILS(syscall(SYS_time, at), EFAULT);
        FAILS(syscall(SYS_times, at), EFAULT);
        FAILS(syscall(SYS_nanosleep, at, NULL), EFAULT);
        FAILS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, at, NULL), EFAULT);
        FAILS(syscall(SYS_setitimer, ITIMER_REAL, at, NULL), EFAULT);
        FAILS(syscall(SYS_getitimer, ITIMER_REAL, at), EFAULT);
        FAILS(syscall(SYS_timer_create, CLOCK_MONOTONIC, at, at), EFAULT);
    });
}

CASE(results_of_information_calls) {
    EACH_BAD(at, {
        FAILS(syscall(SYS_uname, at), EFAULT);
        FAILS(syscall(SYS_sysinfo, at), EFAULT);
        FAILS(syscall(SYS_getrusage, RUSAGE_SELF, at), EFAULT);
        FAILS(syscall(SYS_getrlimit, RLIMIT_NOFILE, at), EFAULT);
        FAILS(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, at), EFAULT);
        FAILS(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, at, NULL), EFAULT);
        FAILS(syscall(SYS_getcwd, at, 4096), EFAULT);
        FAILS(syscall(SYS_getresuid, at, at, at), EFAULT);
        FAILS(syscall(SYS_getcpu, at, NULL, NULL), EFAULT);
        FAILS(syscall(SYS_sched_getaffinity, 0, 128, at), EFAULT);
        FAILS(syscall(SYS_sched_setaffinity, 0, 128, at), EFAULT);
        FAILS(syscall(SYS_getrandom, at, 16, 0), EFAULT);
        FAILS(syscall(SYS_sched_getparam, 0, at), EFAULT);
        FAILS(syscall(SYS_prctl, 15 /* PR_SET_NAME */, at), EFAULT);
        FAILS(syscall(SYS_prctl, 16 /* PR_GET_NAME */, at), EFAULT);
    });
}

CASE(signal_calls) {
    sigset_t set;
    sigemptyset(&set);
    EACH_BAD(at, {
        FAILS(syscall(SYS_rt_sigaction, SIGUSR1, at, NULL, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigaction, SIGUSR1, NULL, at, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, at, NULL, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, at, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigpending, at, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigsuspend, at, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigtimedwait, at, NULL, NULL, 8), EFAULT);
        FAILS(syscall(SYS_rt_sigtimedwait, &set, NULL, at, 8), EFAULT);
        FAILS(syscall(SYS_sigaltstack, at, NULL), EFAULT);
        FAILS(syscall(SYS_sigaltstack, NULL, at), EFAULT);
        FAILS(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, at), EFAULT);
        FAILS(syscall(SYS_signalfd4, -1, at, 8, 0), EFAULT);
    });
}

CASE(waiting_calls) {
    int epoll = epoll_create1(0), ends[2];
    CHECK(pipe(ends) == 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    uint32_t word = 0;
    EACH_BAD(at, {
        FAILS(syscall(SYS_poll, at, 1, 0), EFAULT);
        FAILS(syscall(SYS_select, 10, at, NULL, NULL, NULL), EFAULT);
        FAILS(syscall(SYS_select, 0, NULL, NULL, NULL, at), EFAULT);
        FAILS(syscall(SYS_ppoll, NULL, 0, at, NULL, 8), EFAULT);
        FAILS(syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_MOD, ends[0], at), EFAULT);
        FAILS(syscall(SYS_epoll_wait, epoll, at, 1, 0), EFAULT);
        FAILS(syscall(SYS_futex, &word, 128 /* WAIT */, 0, at, NULL, 0), EFAULT);
    });
}

CASE(socket_calls) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct pair pair = tcp_pair();
    struct sockaddr_in name;
    socklen_t size = sizeof name;
    int value = 0;
    EACH_BAD(at, {
        FAILS(syscall(SYS_bind, fd, at, sizeof name), EFAULT);
        FAILS(syscall(SYS_connect, fd, at, sizeof name), EFAULT);
        FAILS(syscall(SYS_getsockname, fd, at, &size), EFAULT);
        FAILS(syscall(SYS_getsockname, fd, &name, at), EFAULT);
        FAILS(syscall(SYS_getpeername, pair.client, at, &size), EFAULT);
        FAILS(syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, at, sizeof value), EFAULT);
        FAILS(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &value, at), EFAULT);
        FAILS(syscall(SYS_sendmsg, pair.client, at, 0), EFAULT);
        FAILS(syscall(SYS_recvmsg, pair.client, at, MSG_DONTWAIT), EFAULT);
        FAILS(syscall(SYS_sendto, pair.client, at, 10, 0, NULL, 0), EFAULT);
        FAILS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, at), EFAULT);
    });
}

CASE(failed_receive_keeps_stream_data) {
    struct pair pair = tcp_pair();
    char byte = 0;
    CHECK_EQ(write(pair.client, "x", 1), 1);
    CHECK_EQ(ready(pair.server, POLLIN, 1000), POLLIN);
    EACH_BAD(at, { FAILS(recv(pair.server, at, 1, 0), EFAULT); });
    CHECK_EQ(recv(pair.server, &byte, 1, 0), 1);
    CHECK_EQ(byte, 'x');
}

CASE(accept_with_a_bad_address_takes_the_connection_off) {
    uint16_t port;
    int listening = listener(4, &port);
    connected(port);
    socklen_t size = sizeof(struct sockaddr_in);
    FAILS(syscall(SYS_accept4, listening, unmapped_page(), &size, 0), EFAULT);
    set_nonblocking(listening);
    FAILS(accept(listening, NULL, NULL), EAGAIN);
}

CASE(ioctl_and_directory_results) {
    int ends[2], folder = open(".", O_RDONLY);
    CHECK(pipe(ends) == 0);
    EACH_BAD(at, {
        FAILS(syscall(SYS_ioctl, ends[0], 0x541b /* FIONREAD */, at), EFAULT);
        FAILS(syscall(SYS_ioctl, ends[0], 0x5421 /* FIONBIO */, at), EFAULT);
        CHECK(lseek(folder, 0, SEEK_SET) == 0);
        FAILS(syscall(SYS_getdents64, folder, at, 4096), EFAULT);
        FAILS(syscall(SYS_fcntl, folder, F_GETLK, at), EFAULT);
    });
}

CASE(structures_over_a_border_are_refused) {
    // Half of the structure is in a good page, half in a hole.
    char *half = before_a_hole(8);
    FAILS(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, half), EFAULT);
    FAILS(syscall(SYS_nanosleep, half, NULL), EFAULT);
    FAILS(syscall(SYS_uname, half), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, SIGUSR1, half, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, before_a_hole(4), NULL, 8), EFAULT);
}

CASE(good_pages_that_were_never_touched_work) {
    // A kernel that copies must bring pages in, as a program's own access would.
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char *fresh = pages(8), *other = pages(8);
    CHECK_EQ(write(fd, fresh + PAGE - 5, 3 * PAGE), 3 * PAGE);
    CHECK_EQ(pread(fd, other + 10, 3 * PAGE, 0), 3 * PAGE);
    struct stat *status = (struct stat *)(pages(2) + PAGE - 16); // over a page border
    CHECK(fstat(fd, status) == 0);
    CHECK_EQ(status->st_size, 3 * PAGE);
    char *path = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(open(path, O_RDONLY), ENOENT); // an untouched page is an empty string
}

CASE(read_into_copy_on_write_pages) {
    write_file("f", "file contents");
    int fd = open("f", O_RDONLY);
    char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(at[0], 'f');
    CHECK_EQ(pread(fd, at + 5, 4, 0), 4);
    CHECK(memcmp(at, "file fileents", 13) == 0);
    char text[16];
    CHECK_EQ(pread(fd, text, 13, 0), 13);
    CHECK(memcmp(text, "file contents", 13) == 0); // the file itself did not change
}
