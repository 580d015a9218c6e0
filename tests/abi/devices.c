// SPDX-License-Identifier: Apache-2.0
//
// /dev: the devices that are no hardware.
#include "harness.h"
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/random.h>

static int open_device(const char *path) {
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    return fd;
}

static bool all(const char *at, size_t size, char value) {
    for (size_t i = 0; i < size; i++)
        if (at[i] != value)
            return false;
    return true;
}

CASE(null_swallows_and_is_empty) {
    int fd = open_device("/dev/null");
    char bytes[100] = {1};
    CHECK_EQ(write(fd, bytes, sizeof bytes), sizeof bytes);
    CHECK_EQ(read(fd, bytes, sizeof bytes), 0);
    CHECK_EQ(lseek(fd, 5, SEEK_SET), 0);
    CHECK_EQ(write(fd, NULL, 1 << 20), 1 << 20); // the bytes are never looked at
}

CASE(zero_gives_zeros) {
    int fd = open_device("/dev/zero");
    char bytes[10000];
    memset(bytes, 1, sizeof bytes);
    CHECK_EQ(read(fd, bytes, sizeof bytes), sizeof bytes);
    CHECK(all(bytes, sizeof bytes, 0));
    CHECK_EQ(write(fd, bytes, 10), 10);
}

CASE(full_is_full) {
    int fd = open_device("/dev/full");
    char bytes[16] = {1};
    CHECK_EQ(read(fd, bytes, sizeof bytes), sizeof bytes);
    CHECK(all(bytes, sizeof bytes, 0));
    FAILS(write(fd, bytes, 1), ENOSPC);
}

static void check_randomness(const unsigned char *bytes, size_t size) {
    int seen[256] = {0}, kinds = 0;
    long ones = 0;
    for (size_t i = 0; i < size; i++) {
        kinds += seen[bytes[i]]++ == 0;
        ones += __builtin_popcount(bytes[i]);
    }
    CHECK(kinds > 240); // of 4096 random bytes all but very few values occur
    CHECK(ones > (long)size * 4 * 95 / 100 && ones < (long)size * 4 * 105 / 100);
}

CASE(random_devices_give_random_bytes) {
    const char *paths[] = {"/dev/urandom", "/dev/random"};
    unsigned char first[4096], second[4096];
    for (size_t i = 0; i < COUNT(paths); i++) {
        int fd = open_device(paths[i]);
        CHECK_EQ(read(fd, first, sizeof first), sizeof first);
        CHECK_EQ(read(fd, second, sizeof second), sizeof second);
        check_randomness(first, sizeof first);
        check_randomness(second, sizeof second);
        CHECK(memcmp(first, second, sizeof first) != 0);
        CHECK_EQ(write(fd, "seed", 4), 4);
    }
}

CASE(getrandom_flags) {
    unsigned char bytes[4096];
    CHECK_EQ(getrandom(bytes, sizeof bytes, 0), sizeof bytes);
    check_randomness(bytes, sizeof bytes);
    CHECK_EQ(getrandom(bytes, 16, GRND_NONBLOCK), 16);
    CHECK_EQ(getrandom(bytes, 16, GRND_RANDOM), 16);
    CHECK_EQ(getrandom(bytes, 16, GRND_INSECURE), 16);
    CHECK_EQ(getrandom(bytes, 0, 0), 0);
    FAILS(getrandom(bytes, 16, 0x100), EINVAL);
    FAILS(getrandom(bytes, 16, GRND_RANDOM | GRND_INSECURE), EINVAL);
    FAILS(getrandom(unmapped_page(), 16, 0), EFAULT);
}

CASE(getrandom_never_repeats) {
    enum { N = 500 };
    static uint64_t values[N];
    for (int i = 0; i < N; i++) {
        CHECK_EQ(getrandom(&values[i], 8, 0), 8);
        for (int j = 0; j < i; j++)
            CHECK(values[j] != values[i]);
    }
}

CASE(device_numbers) {
    const struct {
        const char *path;
        unsigned minor;
    } devices[] = {{"/dev/null", 3}, {"/dev/zero", 5}, {"/dev/full", 7}, {"/dev/random", 8}, {"/dev/urandom", 9}};
    for (size_t i = 0; i < COUNT(devices); i++) {
        struct stat status;
        CHECK(stat(devices[i].path, &status) == 0);
        CHECK(S_ISCHR(status.st_mode));
        CHECK_EQ(status.st_rdev, 0x100 + devices[i].minor);
        CHECK_EQ(status.st_mode & 0777, 0666);
    }
}

CASE(devices_are_always_ready) {
    const char *paths[] = {"/dev/null", "/dev/zero", "/dev/urandom"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct pollfd wanted = {.fd = open_device(paths[i]), .events = POLLIN | POLLOUT};
        CHECK_EQ(poll(&wanted, 1, 0), 1);
        CHECK_EQ(wanted.revents, POLLIN | POLLOUT);
    }
}

CASE(dev_fd_opens_descriptors) {
    write_file("f", "through /dev/fd");
    int fd = open("f", O_RDONLY);
    char path[32], text[32];
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    CHECK_EQ(read_file(path, text, sizeof text), 15);
    CHECK(!strcmp(text, "through /dev/fd"));
    CHECK(access("/dev/fd/99", F_OK) == -1);
    CHECK(access("/dev/stdin", F_OK) == 0 && access("/dev/stdout", F_OK) == 0 && access("/dev/stderr", F_OK) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    int again = open(path, O_WRONLY);
    CHECK(again >= 0);
    CHECK_EQ(write(again, "pipe", 4), 4);
    CHECK_EQ(read(ends[0], text, sizeof text), 4);
}

CASE(dev_lists_its_devices) {
    DIR *folder = opendir("/dev");
    CHECK(folder != NULL);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *wanted[] = {"null", "zero", "full", "random", "urandom"};
        for (size_t i = 0; i < COUNT(wanted); i++)
            found += !strcmp(entry->d_name, wanted[i]) && entry->d_type == DT_CHR;
    }
    closedir(folder);
    CHECK_EQ(found, 5);
}

CASE(standard_descriptors_are_open) {
    for (int fd = 0; fd <= 2; fd++)
        CHECK(fcntl(fd, F_GETFL) >= 0);
    struct pollfd wanted = {.fd = STDOUT_FILENO, .events = POLLOUT};
    CHECK_EQ(poll(&wanted, 1, 5000), 1);
    CHECK_EQ(write(STDOUT_FILENO, "", 0), 0);
}
