// SPDX-License-Identifier: Apache-2.0
//
// What is known about a file besides its bytes: status, mode, times, access, the file system around it.
#include "harness.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

static struct stat status_of(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return status;
}

CASE(stat_tells_size_kind_and_owner) {
    write_file("f", "12345");
    struct stat status = status_of("f");
    CHECK_EQ(status.st_mode, S_IFREG | 0644);
    CHECK_EQ(status.st_size, 5);
    CHECK_EQ(status.st_nlink, 1);
    CHECK_EQ(status.st_uid, geteuid());
    CHECK(status.st_ino != 0);
    CHECK_EQ(status.st_blksize, 4096);
    CHECK(status.st_blocks > 0 && status.st_blocks <= 16);
    CHECK(S_ISDIR(status_of("/").st_mode));
}

CASE(stat_by_path_and_descriptor_agree) {
    write_file("f", "x");
    struct stat by_path = status_of("f"), by_descriptor;
    int fd = open("f", O_RDONLY);
    CHECK(fstat(fd, &by_descriptor) == 0);
    CHECK_EQ(by_path.st_ino, by_descriptor.st_ino);
    CHECK_EQ(by_path.st_dev, by_descriptor.st_dev);
    CHECK(memcmp(&by_path.st_mtim, &by_descriptor.st_mtim, sizeof by_path.st_mtim) == 0);
}

CASE(inodes_differ) {
    write_file("a", "");
    write_file("b", "");
    CHECK(status_of("a").st_ino != status_of("b").st_ino);
    CHECK_EQ(status_of("a").st_dev, status_of(".").st_dev);
}

CASE(statx_tells_the_same) {
    write_file("f", "123456");
    struct statx x;
    struct stat s = status_of("f");
    memset(&x, 0xff, sizeof x);
    CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x) == 0);
    CHECK_EQ(x.stx_mask & STATX_BASIC_STATS, STATX_BASIC_STATS);
    CHECK_EQ(x.stx_size, 6);
    CHECK_EQ(x.stx_mode, s.st_mode);
    CHECK_EQ(x.stx_ino, s.st_ino);
    CHECK_EQ(x.stx_nlink, 1);
    CHECK_EQ(x.stx_mtime.tv_sec, s.st_mtim.tv_sec);
    CHECK_EQ(x.stx_mtime.tv_nsec, s.st_mtim.tv_nsec);
    CHECK_EQ(makedev(x.stx_dev_major, x.stx_dev_minor), s.st_dev);
    int fd = open("f", O_RDONLY);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x) == 0);
    CHECK_EQ(x.stx_size, 6);
    CHECK(symlink("f", "link") == 0);
    CHECK(statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x) == 0);
    CHECK(S_ISLNK(x.stx_mode));
    FAILS(statx(AT_FDCWD, "missing", 0, STATX_SIZE, &x), ENOENT);
    FAILS(statx(AT_FDCWD, "f", 0x40000000, STATX_SIZE, &x), EINVAL);
    FAILS(statx(AT_FDCWD, "f", 0, STATX__RESERVED, &x), EINVAL);
}

CASE(kinds_of_descriptors_in_stat) {
    int ends[2];
    struct stat status;
    CHECK(pipe(ends) == 0);
    CHECK(fstat(ends[0], &status) == 0);
    CHECK(S_ISFIFO(status.st_mode));
    CHECK(stat("/dev/null", &status) == 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK(major(status.st_rdev) == 1 && minor(status.st_rdev) == 3);
}

CASE(chmod_forms) {
    write_file("f", "");
    CHECK(chmod("f", 0600) == 0);
    CHECK_EQ(status_of("f").st_mode, S_IFREG | 0600);
    int fd = open("f", O_RDWR);
    CHECK(fchmod(fd, 04755) == 0);
    CHECK_EQ(status_of("f").st_mode, S_IFREG | 04755);
    CHECK(fchmodat(AT_FDCWD, "f", 0400, 0) == 0);
    CHECK_EQ(status_of("f").st_mode, S_IFREG | 0400);
    CHECK(symlink("f", "link") == 0);
    CHECK(chmod("link", 0640) == 0);
    CHECK_EQ(status_of("f").st_mode, S_IFREG | 0640);
    CHECK(mkdir("d", 0777) == 0);
    CHECK(chmod("d", 01777) == 0);
    CHECK_EQ(status_of("d").st_mode, S_IFDIR | 01777);
    FAILS(chmod("missing", 0600), ENOENT);
}

CASE(chown_to_oneself) {
    write_file("f", "");
    CHECK(chown("f", geteuid(), getegid()) == 0);
    CHECK(chown("f", (uid_t)-1, (gid_t)-1) == 0);
    CHECK(lchown("f", geteuid(), (gid_t)-1) == 0);
    CHECK(fchown(open("f", O_RDONLY), (uid_t)-1, getegid()) == 0);
    CHECK_EQ(status_of("f").st_uid, geteuid());
    FAILS(chown("missing", 0, 0), ENOENT);
}

CASE(umask_masks_every_kind) {
    umask(077);
    CHECK(mkdir("d", 0777) == 0);
    CHECK(close(open("f", O_CREAT | O_WRONLY, 0777)) == 0);
    CHECK(mkfifo("p", 0666) == 0);
    CHECK_EQ(status_of("d").st_mode & 07777, 0700);
    CHECK_EQ(status_of("f").st_mode & 07777, 0700);
    CHECK_EQ(status_of("p").st_mode, S_IFIFO | 0600);
    CHECK_EQ(umask(022), 077);
}

CASE(utimensat_sets_and_omits) {
    write_file("f", "");
    struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 123}, {.tv_sec = 2000, .tv_nsec = 456}};
    CHECK(utimensat(AT_FDCWD, "f", times, 0) == 0);
    struct stat status = status_of("f");
    CHECK(status.st_atim.tv_sec == 1000 && status.st_atim.tv_nsec == 123);
    CHECK(status.st_mtim.tv_sec == 2000 && status.st_mtim.tv_nsec == 456);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = UTIME_NOW;
    time_t before = time(NULL);
    CHECK(utimensat(AT_FDCWD, "f", times, 0) == 0);
    status = status_of("f");
    CHECK_EQ(status.st_atim.tv_sec, 1000);
    CHECK(status.st_mtim.tv_sec >= before - 1 && status.st_mtim.tv_sec <= time(NULL) + 1);
    times[0].tv_nsec = 1000000000;
    FAILS(utimensat(AT_FDCWD, "f", times, 0), EINVAL);
    FAILS(utimensat(AT_FDCWD, "missing", NULL, 0), ENOENT);
    times[0] = times[1] = (struct timespec){.tv_sec = 5};
    CHECK(futimens(open("f", O_RDWR), times) == 0);
    CHECK_EQ(status_of("f").st_mtim.tv_sec, 5);
}

CASE(writing_moves_the_times) {
    write_file("f", "x");
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK(utimensat(AT_FDCWD, "f", old, 0) == 0);
    int fd = open("f", O_RDWR);
    CHECK_EQ(write(fd, "y", 1), 1);
    CHECK(status_of("f").st_mtim.tv_sec > 1000000);
    CHECK(utimensat(AT_FDCWD, ".", old, 0) == 0);
    write_file("g", "");
    CHECK(status_of(".").st_mtim.tv_sec > 1000000); // a new name changes the directory
    struct stat before = status_of("g");
    sleep_ms(30);
    CHECK(chmod("g", 0600) == 0);
    struct stat after = status_of("g");
    CHECK(to_ns(after.st_ctim) > to_ns(before.st_ctim)); // the status changed, the contents did not
    CHECK_EQ(to_ns(after.st_mtim), to_ns(before.st_mtim));
}

CASE(access_checks) {
    write_file("f", "");
    CHECK(access("f", F_OK) == 0);
    CHECK(access("f", R_OK | W_OK) == 0);
    FAILS(access("f", X_OK), EACCES); // not even root executes a file without any x bit
    CHECK(chmod("f", 0700) == 0);
    CHECK(access("f", X_OK) == 0);
    FAILS(access("missing", F_OK), ENOENT);
    FAILS(access("f", 8), EINVAL);
    FAILS(access("f/x", F_OK), ENOTDIR);
    CHECK(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS) == 0);
    FAILS(faccessat(AT_FDCWD, "f", R_OK, 0x40000000), EINVAL);
}

CASE(statfs_of_the_scratch_folder) {
    struct statfs fs;
    CHECK(statfs(".", &fs) == 0);
    CHECK(fs.f_bsize >= 512 && fs.f_blocks > 0 && fs.f_bfree <= fs.f_blocks && fs.f_bavail <= fs.f_bfree);
    CHECK_EQ(fs.f_namelen, 255);
    struct statfs by_descriptor;
    CHECK(fstatfs(open(".", O_RDONLY), &by_descriptor) == 0);
    CHECK_EQ(fs.f_type, by_descriptor.f_type);
    FAILS(statfs("missing", &fs), ENOENT);
    FAILS(fstatfs(99, &fs), EBADF);
    CHECK(statfs("/proc", &fs) == 0);
    CHECK_EQ(fs.f_type, 0x9fa0);
}

CASE(fifo_in_the_file_system) {
    CHECK(mkfifo("p", 0600) == 0);
    FAILS(open("p", O_WRONLY | O_NONBLOCK), ENXIO); // nobody reads
    int reader = open("p", O_RDONLY | O_NONBLOCK), writer = open("p", O_WRONLY | O_NONBLOCK);
    CHECK(reader >= 0 && writer >= 0);
    char text[8];
    CHECK_EQ(write(writer, "fifo", 4), 4);
    CHECK_EQ(read(reader, text, sizeof text), 4);
    FAILS(read(reader, text, 1), EAGAIN);
    CHECK(close(writer) == 0);
    CHECK_EQ(read(reader, text, 1), 0);
    FAILS(mkfifo("p", 0600), EEXIST);
}

CASE(mknod_kinds) {
    CHECK(mknod("f", S_IFREG | 0600, 0) == 0);
    CHECK_EQ(status_of("f").st_mode, S_IFREG | 0600);
    FAILS(mknod("f", S_IFREG | 0600, 0), EEXIST);
    FAILS(mknod("x", 0150000 | 0600, 0), EINVAL);
}
