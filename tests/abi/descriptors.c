// SPDX-License-Identifier: Apache-2.0
//
// The descriptor table: duplicates, flags, close-on-exec, locks, limits.
#include "harness.h"
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static int open_file(void) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    return fd;
}

CASE(dup_shares_the_position) {
    int fd = open_file(), copy = dup(fd);
    CHECK_EQ(copy, fd + 1);
    CHECK_EQ(write(fd, "0123456789", 10), 10);
    CHECK_EQ(lseek(copy, 0, SEEK_CUR), 10);
    CHECK_EQ(lseek(copy, 3, SEEK_SET), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 3);
    int own = open("f", O_RDWR); // a second open has its own position
    CHECK_EQ(lseek(own, 0, SEEK_CUR), 0);
}

CASE(dup2_replaces_and_returns_the_same) {
    int fd = open_file(), other = open("/dev/null", O_RDWR);
    CHECK_EQ(dup2(fd, other), other);
    CHECK_EQ(write(other, "x", 1), 1);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 1);
    CHECK_EQ(dup2(fd, fd), fd);
    CHECK_EQ(dup2(fd, 100), 100);
    CHECK(close(100) == 0);
    FAILS(dup2(99, 50), EBADF);
    FAILS(dup2(99, 99), EBADF);
    FAILS(dup2(fd, -1), EBADF);
    FAILS(dup2(fd, 1 << 30), EBADF);
}

CASE(dup3_flags) {
    int fd = open_file();
    CHECK_EQ(dup3(fd, 60, O_CLOEXEC), 60);
    CHECK_EQ(fcntl(60, F_GETFD), FD_CLOEXEC);
    FAILS(dup3(fd, fd, 0), EINVAL);
    FAILS(dup3(fd, 61, O_NONBLOCK), EINVAL);
}

CASE(fcntl_dupfd_starts_at_a_minimum) {
    int fd = open_file();
    CHECK_EQ(fcntl(fd, F_DUPFD, 50), 50);
    CHECK_EQ(fcntl(fd, F_DUPFD, 50), 51);
    CHECK_EQ(fcntl(fd, F_DUPFD_CLOEXEC, 70), 70);
    CHECK_EQ(fcntl(70, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(50, F_GETFD), 0);
    FAILS(fcntl(fd, F_DUPFD, -1), EINVAL);
    FAILS(fcntl(fd, F_DUPFD, 1 << 30), EINVAL);
}

CASE(close_on_exec_is_per_descriptor) {
    int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0600), copy = dup(fd);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(copy, F_GETFD), 0);
    CHECK(fcntl(copy, F_SETFD, FD_CLOEXEC) == 0);
    CHECK_EQ(fcntl(copy, F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    CHECK_EQ(fcntl(fd, F_GETFD), 0);
}

CASE(status_flags_are_per_open_file) {
    int fd = open("f", O_RDWR | O_CREAT | O_APPEND, 0600), copy = dup(fd);
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_CREAT), O_RDWR | O_APPEND);
    CHECK(fcntl(copy, F_SETFL, O_NONBLOCK) == 0); // clears O_APPEND, leaves the access mode
    CHECK_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), O_RDWR | O_NONBLOCK);
    int reader = open("f", O_RDONLY);
    CHECK_EQ(fcntl(reader, F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK_EQ(fcntl(open("f", O_PATH), F_GETFL) & O_PATH, O_PATH);
}

CASE(ioctl_fionbio_and_fioclex) {
    int ends[2], on = 1, off = 0;
    CHECK(pipe(ends) == 0);
    CHECK(ioctl(ends[0], FIONBIO, &on) == 0);
    CHECK((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
    CHECK(ioctl(ends[0], FIONBIO, &off) == 0);
    CHECK((fcntl(ends[0], F_GETFL) & O_NONBLOCK) == 0);
    CHECK(ioctl(ends[0], FIOCLEX) == 0);
    CHECK_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    CHECK(ioctl(ends[0], FIONCLEX) == 0);
    CHECK_EQ(fcntl(ends[0], F_GETFD), 0);
    FAILS(ioctl(ends[0], 0xdeadbeef, 0), ENOTTY);
    FAILS(ioctl(99, FIONBIO, &on), EBADF);
}

CASE(files_are_no_terminals) {
    int fd = open_file(), ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(isatty(fd) - 1, ENOTTY);
    FAILS(isatty(ends[0]) - 1, ENOTTY);
    struct winsize size;
    FAILS(ioctl(fd, TIOCGWINSZ, &size), ENOTTY);
}

CASE(closing_twice_is_ebadf) {
    int fd = open_file();
    CHECK(close(fd) == 0);
    FAILS(close(fd), EBADF);
    FAILS(close(-1), EBADF);
    FAILS(close(1 << 30), EBADF);
}

CASE(bad_descriptors_are_ebadf_everywhere) {
    char byte = 0;
    struct stat status;
    FAILS(read(99, &byte, 1), EBADF);
    FAILS(write(99, &byte, 1), EBADF);
    FAILS(pread(99, &byte, 1, 0), EBADF);
    FAILS(lseek(99, 0, SEEK_SET), EBADF);
    FAILS(fstat(99, &status), EBADF);
    FAILS(ftruncate(99, 0), EBADF);
    FAILS(fsync(99), EBADF);
    FAILS(dup(99), EBADF);
    FAILS(fcntl(99, F_GETFL), EBADF);
    FAILS(fchdir(99), EBADF);
    FAILS(fchmod(99, 0600), EBADF);
    FAILS(flock(99, LOCK_SH), EBADF);
    FAILS(openat(99, "f", O_RDONLY), EBADF);
    FAILS(syscall(SYS_getdents64, 99, &byte, 1), EBADF);
    FAILS(read(-1, &byte, 1), EBADF);
    FAILS(read(INT32_MIN, &byte, 1), EBADF);
}

CASE(close_range_closes_and_marks) {
    int fd = open_file();
    for (int i = 40; i < 50; i++)
        CHECK_EQ(dup2(fd, i), i);
    CHECK(close_range(42, 44, 0) == 0);
    CHECK_EQ(fcntl(41, F_GETFD), 0);
    FAILS(fcntl(42, F_GETFD), EBADF);
    FAILS(fcntl(44, F_GETFD), EBADF);
    CHECK_EQ(fcntl(45, F_GETFD), 0);
    CHECK(close_range(46, 47, CLOSE_RANGE_CLOEXEC) == 0);
    CHECK_EQ(fcntl(46, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(fcntl(48, F_GETFD), 0);
    FAILS(close_range(10, 5, 0), EINVAL);
    FAILS(close_range(10, 20, 0x100), EINVAL);
    CHECK(close_range(40, ~0U, 0) == 0);
    FAILS(fcntl(49, F_GETFD), EBADF);
}

CASE(descriptor_limit_is_emfile) {
    struct rlimit old, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = 30;
    int fd = open_file();
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    int last = fd, copy;
    while ((copy = dup(fd)) >= 0)
        last = copy;
    int error = errno, opened = open("/dev/null", O_RDONLY), open_error = errno, ends[2];
    int piped = pipe(ends), pipe_error = errno, beyond = dup2(fd, 30), beyond_error = errno;
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK_EQ(error, EMFILE);
    CHECK_EQ(last, 29);
    CHECK(opened == -1 && open_error == EMFILE);
    CHECK(piped == -1 && pipe_error == EMFILE);
    CHECK(beyond == -1 && beyond_error == EBADF);
}

CASE(flock_within_one_process) {
    int fd = open_file(), copy = dup(fd), other = open("f", O_RDWR);
    CHECK(flock(fd, LOCK_EX) == 0);
    CHECK(flock(copy, LOCK_EX | LOCK_NB) == 0); // the same open file
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(fd, LOCK_SH) == 0);
    CHECK(flock(other, LOCK_SH | LOCK_NB) == 0);
    CHECK(flock(fd, LOCK_UN) == 0);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(fd, 0x40), EINVAL);
}

CASE(flock_is_released_by_the_last_close) {
    int fd = open_file(), copy = dup(fd), other = open("f", O_RDWR);
    CHECK(flock(fd, LOCK_EX) == 0);
    CHECK(close(fd) == 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(close(copy) == 0);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == 0);
}

static struct flock range(short type, off_t start, off_t length) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

CASE(posix_locks_do_not_conflict_within_a_process) {
    int fd = open_file(), other = open("f", O_RDWR), reader = open("f", O_RDONLY);
    struct flock lock = range(F_WRLCK, 0, 10), again = range(F_WRLCK, 5, 10), query = range(F_WRLCK, 0, 0);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    CHECK(fcntl(other, F_SETLK, &again) == 0);
    CHECK(fcntl(other, F_GETLK, &query) == 0);
    CHECK_EQ(query.l_type, F_UNLCK);
    struct flock wrong = range(99, 0, 1), reading = range(F_WRLCK, 0, 1);
    FAILS(fcntl(fd, F_SETLK, &wrong), EINVAL);
    FAILS(fcntl(reader, F_SETLK, &reading), EBADF);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
}

CASE(open_file_locks_conflict_within_a_process) {
    int fd = open_file(), other = open("f", O_RDWR);
    struct flock lock = range(F_WRLCK, 0, 10), inside = range(F_RDLCK, 5, 1), outside = range(F_WRLCK, 10, 5);
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    FAILS(fcntl(other, F_OFD_SETLK, &inside), EAGAIN);
    CHECK(fcntl(other, F_OFD_SETLK, &outside) == 0);
    CHECK(fcntl(other, F_OFD_GETLK, &inside) == 0);
    CHECK_EQ(inside.l_type, F_WRLCK);
    CHECK_EQ(inside.l_start, 0);
    CHECK_EQ(inside.l_len, 10);
    CHECK_EQ(inside.l_pid, -1);
    CHECK(close(fd) == 0);
    inside = range(F_RDLCK, 5, 1);
    CHECK(fcntl(other, F_OFD_SETLK, &inside) == 0);
}

static atomic_int closing;

static void *opens_and_closes(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        int fd = open("f", O_RDWR);
        CHECK(fd >= 0);
        char byte = (char)i;
        CHECK_EQ(pwrite(fd, &byte, 1, i), 1);
        CHECK(close(fd) == 0);
    }
    atomic_fetch_add(&closing, 1);
    return NULL;
}

CASE(threads_open_and_close_at_once) {
    open_file();
    atomic_store(&closing, 0);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(opens_and_closes, NULL);
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
    CHECK_EQ(atomic_load(&closing), 4);
}
