// SPDX-License-Identifier: Apache-2.0
//
// Absurd sizes, negative values, wrong kinds of descriptors, unknown flags: an error each, and nothing else happens.
#include "net.h"
#include <linux/futex.h>
#include <linux/mman.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>

CASE(absurd_read_and_write_sizes) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char byte = 'x';
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    // A size that reaches into the kernel's half is refused; one above 2 GiB is cut to it.
    FAILS(pread(fd, &byte, SIZE_MAX, 0), EFAULT);
    FAILS(pwrite(fd, &byte, SIZE_MAX / 2 + 1, 0), EFAULT);
    char *at = mmap((void *)0x1000000000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(pread(fd, at, (size_t)1 << 40, 0), 10);
    CHECK_EQ(lseek(fd, 0, SEEK_END), 10);
}

CASE(offsets_near_the_end_of_the_number_range) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char byte = 'x';
    FAILS(lseek(fd, INT64_MIN, SEEK_SET), EINVAL);
    CHECK(lseek(fd, INT64_MAX, SEEK_SET) == -1 || lseek(fd, 0, SEEK_CUR) == INT64_MAX);
    CHECK_EQ(pread(fd, &byte, 1, INT64_MAX - 1), 0);
    CHECK(pwrite(fd, &byte, 1, INT64_MAX) == -1);
    CHECK(errno == EFBIG || errno == EINVAL);
    CHECK(ftruncate(fd, INT64_MAX) == -1 || lseek(fd, 0, SEEK_END) == INT64_MAX);
    FAILS(fallocate(fd, 0, INT64_MAX, 1), EFBIG);
    FAILS(lseek(fd, INT64_MIN, SEEK_END), EINVAL);
}

CASE(sparse_file_far_away_costs_nothing) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char text[4] = "xyz";
    CHECK(ftruncate(fd, (off_t)1 << 36) == 0);
    CHECK_EQ(pwrite(fd, "far", 3, ((off_t)1 << 36) - 3), 3);
    CHECK_EQ(pread(fd, text, 4, ((off_t)1 << 35)), 4);
    CHECK(text[0] == 0 && text[3] == 0);
    CHECK_EQ(pread(fd, text, 4, ((off_t)1 << 36) - 3), 3);
    CHECK(memcmp(text, "far", 3) == 0);
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    CHECK(status.st_blocks < 100);
}

CASE(wrong_kinds_of_descriptors) {
    int file = open("f", O_RDWR | O_CREAT, 0600), folder = open(".", O_RDONLY), event = eventfd(0, EFD_NONBLOCK);
    char byte[16] = "";
    struct sockaddr_in address = loopback(1);
    struct epoll_event interest = {0};
    struct itimerspec never = {0};
    FAILS(bind(file, ADDRESS(address)), ENOTSOCK);
    FAILS(send(file, byte, 1, 0), ENOTSOCK);
    FAILS(recv(event, byte, 1, 0), ENOTSOCK);
    FAILS(accept(file, NULL, NULL), ENOTSOCK);
    FAILS(shutdown(file, SHUT_RD), ENOTSOCK);
    FAILS(epoll_wait(file, &interest, 1, 0), EINVAL);
    FAILS(timerfd_settime(event, 0, &never, NULL), EINVAL);
    FAILS(syscall(SYS_getdents64, event, byte, 16), ENOTDIR);
    FAILS(pread(event, byte, 8, 0), ESPIPE);
    FAILS(ftruncate(event, 0), EINVAL);
    FAILS(ftruncate(folder, 0), EINVAL);
    FAILS(fchdir(file), ENOTDIR);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, folder, 0), ENODEV);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, event, 0), ENODEV);
    FAILS(fallocate(event, 0, 0, 10), ENODEV);
    FAILS(fsync(event), EINVAL);
}

CASE(unknown_flags_are_refused) {
    struct timespec t = {0};
    int ends[2];
    FAILS(pipe2(ends, 0x40000000), EINVAL);
    FAILS(dup3(0, 50, 0x1), EINVAL);
    FAILS(epoll_create1(0x40000000), EINVAL);
    FAILS(eventfd(0, 0x40000000), EINVAL);
    FAILS(timerfd_create(CLOCK_MONOTONIC, 0x40000000), EINVAL);
    FAILS(syscall(SYS_memfd_create, "x", 0x40000000), EINVAL);
    FAILS(socket(AF_INET, SOCK_STREAM | 0x40000000, 0), EINVAL);
    FAILS(unlinkat(AT_FDCWD, "x", 0x40000000), EINVAL);
    FAILS(linkat(AT_FDCWD, "x", AT_FDCWD, "y", 0x40000000), EINVAL);
    FAILS(utimensat(AT_FDCWD, "x", NULL, 0x40000000), EINVAL);
    FAILS(syscall(SYS_getrandom, &t, 4, 0x40), EINVAL);
    FAILS(close_range(3, 4, 0x40), EINVAL);
    FAILS(syscall(SYS_renameat2, AT_FDCWD, "x", AT_FDCWD, "y", 0x40), EINVAL);
    FAILS(syscall(SYS_madvise, pages(1), PAGE, 0x40000), EINVAL);
    FAILS(syscall(SYS_msync, pages(1), PAGE, 0x40), EINVAL);
    FAILS(syscall(SYS_mremap, pages(1), PAGE, PAGE, 0x40, 0), EINVAL);
}

CASE(negative_counts_and_lengths) {
    struct pair pair = tcp_pair();
    struct epoll_event event;
    char byte = 0;
    FAILS(epoll_wait(epoll_create1(0), &event, INT32_MIN, 0), EINVAL);
    FAILS(select(INT32_MIN, NULL, NULL, NULL, NULL), EINVAL);
    FAILS(syscall(SYS_readv, pair.client, &byte, -1L), EINVAL);
    FAILS(syscall(SYS_getgroups, INT32_MIN, &byte), EINVAL);
    FAILS(syscall(SYS_bind, pair.client, &byte, -1), EINVAL);
    FAILS(syscall(SYS_setsockopt, pair.client, SOL_SOCKET, SO_REUSEADDR, &byte, -1), EINVAL);
    FAILS(ftruncate(open("f", O_RDWR | O_CREAT, 0600), INT64_MIN), EINVAL);
    FAILS(syscall(SYS_sendto, pair.client, &byte, 1, MSG_NOSIGNAL, &byte, -1), EINVAL);
}

CASE(lengths_that_wrap_around) {
    char *at = pages(2);
    FAILS(munmap(at, SIZE_MAX), EINVAL);
    FAILS(mprotect(at, SIZE_MAX & ~(PAGE - 1), PROT_READ), ENOMEM);
    FAILS(madvise(at, SIZE_MAX & ~(PAGE - 1), MADV_DONTNEED), EINVAL);
    FAILS((intptr_t)mmap(at, SIZE_MAX & ~(PAGE - 1), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), ENOMEM);
    FAILS((intptr_t)mremap(at, PAGE, SIZE_MAX & ~(PAGE - 1), MREMAP_MAYMOVE) == -1 ? -1 : 0, errno);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    FAILS((intptr_t)mmap(NULL, PAGE * 2, PROT_READ, MAP_PRIVATE, fd, INT64_MAX & ~(off_t)(PAGE - 1)), EOVERFLOW);
    at[0] = 1; // still there
}

CASE(message_flags_and_sizes) {
    struct pair pair = tcp_pair();
    char byte = 0;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = (size_t)1 << 40};
    FAILS(sendmsg(pair.client, &message, 0), EMSGSIZE);
    FAILS(recvmsg(pair.client, &message, MSG_DONTWAIT), EMSGSIZE);
    vector.iov_len = SIZE_MAX;
    message.msg_iovlen = 1;
    FAILS(sendmsg(pair.client, &message, 0), EINVAL);
    FAILS(recv(pair.client, &byte, 1, MSG_OOB | MSG_DONTWAIT), EINVAL); // no urgent data
    FAILS(recv(pair.client, &byte, 1, MSG_ERRQUEUE), EAGAIN);           // no queued error
}

CASE(futex_arguments) {
    uint32_t word = 0;
    FAILS(syscall(SYS_futex, &word, FUTEX_WAIT | 0x40000000, 1, NULL, NULL, 0), ENOSYS);
    FAILS(syscall(SYS_futex, (char *)&word + 1, FUTEX_WAKE, 1, NULL, NULL, 0), EINVAL);
    FAILS(syscall(SYS_futex, &word, FUTEX_REQUEUE, -1, -1L, &word, 0), EINVAL);
}

CASE(signal_numbers_out_of_range) {
    FAILS(kill(getpid(), 1000), EINVAL);
    FAILS(kill(getpid(), INT32_MIN), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), tid(), INT32_MAX), EINVAL);
    struct sigaction action = {.sa_handler = SIG_IGN};
    FAILS(syscall(SYS_rt_sigaction, 65, &action, NULL, 8), EINVAL);
    FAILS(syscall(SYS_rt_sigaction, 1 << 20, &action, NULL, 8), EINVAL);
}

CASE(descriptors_out_of_range) {
    char byte;
    const int numbers[] = {-1, INT32_MIN, INT32_MAX, 1 << 20, 1023};
    for (size_t i = 0; i < COUNT(numbers); i++) {
        FAILS(read(numbers[i], &byte, 1), EBADF);
        FAILS(close(numbers[i]), EBADF);
        FAILS(dup(numbers[i]), EBADF);
        FAILS(fcntl(numbers[i], F_GETFD), EBADF);
    }
    FAILS(fcntl(0, 99999), EINVAL);
    // A descriptor is an int: what lies above in the register does not count.
    int fd = open("/dev/zero", O_RDONLY);
    CHECK_EQ(syscall(SYS_read, 0xabcd00000000L | fd, &byte, 1), 1);
}

static void *closes(void *fd) {
    sleep_ms(20);
    CHECK(close((int)(intptr_t)fd) == 0);
    return NULL;
}

CASE(closing_what_another_thread_polls) {
    // Linux leaves open whether the poller notices; it must neither crash nor hang past its time.
    int ends[2];
    CHECK(pipe(ends) == 0);
    pthread_t other = spawn(closes, (void *)(intptr_t)ends[0]);
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    int64_t start = now_ns();
    CHECK(poll(&wanted, 1, 100) >= 0);
    CHECK(now_ns() - start < 10 * SECOND);
    join(other);
    CHECK(poll(&wanted, 1, 0) == 1 && wanted.revents == POLLNVAL);
}

static atomic_int fuzzing;

static void *opens_and_closes(void *unused) {
    (void)unused;
    while (atomic_load(&fuzzing)) {
        int fd = open("/dev/zero", O_RDONLY);
        sched_yield();
        close(fd);
    }
    return NULL;
}

CASE(descriptors_closed_under_use) {
    atomic_store(&fuzzing, 1);
    pthread_t other = spawn(opens_and_closes, NULL);
    char text[64];
    for (int i = 0; i < 2000; i++) {
        ssize_t n = read(3 + i % 4, text, sizeof text);
        CHECK(n == sizeof text || (n == -1 && errno == EBADF));
    }
    atomic_store(&fuzzing, 0);
    join(other);
}

// A fixed stream of random numbers (xorshift), so that Linux and guest see the same calls.
static uint64_t random_state;

static uint64_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

// A number of the kinds that programs get wrong: small, negative, huge, and pointers to `page`, to a hole, to the kernel.
static long nonsense(char *page, int first_fd, int last_fd) {
    uint64_t number = next_random();
    switch (number >> 61) {
    case 0: return (long)number;
    case 1: return (long)(number >> 8 & 0xf);
    case 2: return -(long)(number >> 8 & 0xff);
    case 3: return (long)(page + 17 * PAGE + number % PAGE);
    case 4: return (long)0xffff800000000000 + (long)(number & 0xffffff);
    case 5: return first_fd + (long)(number >> 8) % (last_fd - first_fd + 1);
    default: return (long)(page + number % PAGE);
    }
}

// Calls that neither end nor block the program. What they return does not matter; that the program and the kernel are
// well afterwards does.
CASE(random_nonsense_does_no_harm) {
    enum { BY_DESCRIPTOR = 18 }; // the first so many take a descriptor
    const long calls[] = {SYS_read,   SYS_write, SYS_fstat,      SYS_lseek,      SYS_ioctl,     SYS_pread64,
                          SYS_writev, SYS_dup3,  SYS_getsockopt, SYS_setsockopt, SYS_epoll_ctl, SYS_fcntl,
                          SYS_statx,  SYS_bind,  SYS_getdents64, SYS_sendto,     SYS_readv,     SYS_timerfd_settime,
                          SYS_uname,  SYS_clock_gettime, SYS_getrandom, SYS_sysinfo, SYS_madvise, SYS_msync, SYS_mincore};
    signal(SIGPIPE, SIG_IGN);
    // 16 pages to write to, a guard that stops every write behind them, and a hole.
    char *page = pages(32);
    CHECK(mprotect(page + 16 * PAGE, PAGE, PROT_NONE) == 0);
    CHECK(munmap(page + 17 * PAGE, 15 * PAGE) == 0);
    int first = eventfd(0, EFD_NONBLOCK);
    set_nonblocking(socket(AF_INET, SOCK_STREAM, 0));
    set_nonblocking(socket(AF_INET6, SOCK_DGRAM, 0));
    epoll_create1(0);
    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int last = open("scratch", O_RDWR | O_CREAT, 0600);
    random_state = 0x9e3779b97f4a7c15;
    for (int i = 0; i < 3000; i++) {
        size_t which = next_random() % COUNT(calls);
        long call = calls[which], a[6];
        for (int j = 0; j < 6; j++)
            a[j] = nonsense(page, first, last);
        if (which < BY_DESCRIPTOR)
            a[0] = first + (long)(next_random() % (uint64_t)(last - first + 1)); // never the standard descriptors
        if (call == SYS_ioctl || call == SYS_fcntl)
            a[1] &= 0xff; // nothing that configures the machine
        if (call == SYS_fcntl && (a[1] == F_SETLKW || a[1] == F_OFD_SETLKW || a[1] == F_SETFL))
            continue; // would block
        if (call == SYS_setsockopt)
            a[1] = a[1] & 1 ? SOL_SOCKET : IPPROTO_TCP;
        if (call == SYS_dup3)
            a[1] = 60 + (a[1] & 7);
        if (call == SYS_madvise || call == SYS_msync || call == SYS_mincore) {
            a[0] = (long)page + (a[0] & 1); // the case's own memory
            a[1] &= 4 * (long)PAGE - 1;
        }
        if (call == SYS_madvise && (a[2] == 100 || a[2] == 101))
            continue; // MADV_HWPOISON, MADV_SOFT_OFFLINE: harm to the machine itself
        syscall(call, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    page[0] = 1;
    CHECK_EQ(write(open("/dev/null", O_WRONLY), "well", 4), 4);
}
