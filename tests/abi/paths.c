// SPDX-License-Identifier: Apache-2.0
//
// Names: directories, links, renames, and how a path is walked.
#include "harness.h"
#include <limits.h>
#include <linux/fs.h>

CASE(mkdir_and_rmdir_errors) {
    struct stat status;
    write_file("f", "");
    CHECK(mkdir("d", 0750) == 0);
    CHECK(stat("d", &status) == 0);
    CHECK_EQ(status.st_mode, S_IFDIR | 0750);
    FAILS(mkdir("d", 0755), EEXIST);
    FAILS(mkdir("f", 0755), EEXIST);
    FAILS(mkdir("missing/d", 0755), ENOENT);
    FAILS(mkdir("f/d", 0755), ENOTDIR);
    FAILS(mkdir("", 0755), ENOENT);
    FAILS(mkdir(".", 0755), EEXIST);
    FAILS(mkdir("/", 0755), EEXIST);
    CHECK(mkdir("d/e/", 0755) == 0); // a trailing slash is welcome
    FAILS(rmdir("d"), ENOTEMPTY);
    FAILS(rmdir("f"), ENOTDIR);
    FAILS(rmdir("missing"), ENOENT);
    FAILS(rmdir("d/e/."), EINVAL);
    FAILS(rmdir("d/e/.."), ENOTEMPTY);
    CHECK(rmdir("d/e") == 0);
    CHECK(rmdir("d/") == 0);
    FAILS(stat("d", &status), ENOENT);
}

CASE(link_count_of_directories) {
    struct stat status;
    CHECK(mkdir("d", 0755) == 0);
    CHECK(mkdir("d/a", 0755) == 0);
    CHECK(mkdir("d/b", 0755) == 0);
    CHECK(stat("d", &status) == 0);
    CHECK_EQ(status.st_nlink, 4);
    CHECK(rmdir("d/a") == 0);
    CHECK(stat("d", &status) == 0);
    CHECK_EQ(status.st_nlink, 3);
}

CASE(unlink_errors) {
    CHECK(mkdir("d", 0755) == 0);
    write_file("f", "");
    FAILS(unlink("missing"), ENOENT);
    FAILS(unlink("d"), EISDIR);
    FAILS(unlink("f/"), ENOTDIR);
    FAILS(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR), ENOTDIR);
    FAILS(unlinkat(AT_FDCWD, "f", 0x8000), EINVAL);
    CHECK(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR) == 0);
    CHECK(unlink("f") == 0);
}

CASE(hard_links_are_one_file) {
    struct stat a, b;
    write_file("a", "text");
    CHECK(link("a", "b") == 0);
    CHECK(stat("a", &a) == 0 && stat("b", &b) == 0);
    CHECK(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
    CHECK_EQ(a.st_nlink, 2);
    write_file("b", "changed");
    char text[16];
    CHECK_EQ(read_file("a", text, sizeof text), 7);
    CHECK(unlink("a") == 0);
    CHECK(stat("b", &b) == 0);
    CHECK_EQ(b.st_nlink, 1);
    FAILS(link("b", "b"), EEXIST);
    FAILS(link("missing", "c"), ENOENT);
    CHECK(mkdir("d", 0755) == 0);
    FAILS(link("d", "e"), EPERM);
}

CASE(symbolic_links) {
    char text[64];
    struct stat status;
    write_file("f", "text");
    CHECK(symlink("f", "link") == 0);
    CHECK_EQ(readlink("link", text, sizeof text), 1);
    CHECK_EQ(readlink("link", text, 0) == -1 ? errno : 0, EINVAL);
    CHECK(lstat("link", &status) == 0);
    CHECK(S_ISLNK(status.st_mode) && status.st_size == 1);
    CHECK(stat("link", &status) == 0);
    CHECK(S_ISREG(status.st_mode));
    FAILS(readlink("f", text, sizeof text), EINVAL);
    FAILS(readlink("missing", text, sizeof text), ENOENT);
    FAILS(symlink("x", "link"), EEXIST);
    FAILS(symlink("", "empty"), ENOENT);
    CHECK(symlink("a/long/target/that/does/not/exist", "dangling") == 0);
    CHECK_EQ(readlink("dangling", text, 6), 6); // cut, without a terminator
    CHECK(memcmp(text, "a/long", 6) == 0);
    FAILS(stat("dangling", &status), ENOENT);
    CHECK(unlink("link") == 0);
    CHECK(access("f", F_OK) == 0);
}

CASE(links_to_directories_are_followed_in_the_middle) {
    CHECK(mkdir("d", 0755) == 0);
    write_file("d/f", "x");
    CHECK(symlink("d", "link") == 0);
    CHECK(access("link/f", R_OK) == 0);
    CHECK(access("link/../d/f", R_OK) == 0);
    struct stat status;
    CHECK(lstat("link/", &status) == 0);
    CHECK(S_ISDIR(status.st_mode)); // the slash asks for what it points to
    FAILS(rmdir("link"), ENOTDIR);
    FAILS(unlink("link/"), ENOTDIR);
}

CASE(link_loops_are_eloop) {
    CHECK(symlink("b", "a") == 0);
    CHECK(symlink("a", "b") == 0);
    CHECK(symlink("self/x", "self") == 0);
    struct stat status;
    FAILS(open("a", O_RDONLY), ELOOP);
    FAILS(stat("a", &status), ELOOP);
    FAILS(stat("self", &status), ELOOP);
    FAILS(chdir("a"), ELOOP);
    CHECK(lstat("a", &status) == 0);
    // 40 links in a row are followed, 41 are not
    char from[16], to[16];
    write_file("l0", "end");
    for (int i = 1; i <= 41; i++) {
        snprintf(from, sizeof from, "l%d", i);
        snprintf(to, sizeof to, "l%d", i - 1);
        CHECK(symlink(to, from) == 0);
    }
    CHECK(stat("l40", &status) == 0);
    FAILS(stat("l41", &status), ELOOP);
}

CASE(names_too_long) {
    char name[300], *path = malloc(PATH_MAX + 10);
    struct stat status;
    memset(name, 'n', sizeof name);
    name[255] = 0;
    CHECK(mkdir(name, 0755) == 0);
    CHECK(rmdir(name) == 0);
    name[255] = 'n', name[256] = 0;
    FAILS(mkdir(name, 0755), ENAMETOOLONG);
    FAILS(stat(name, &status), ENAMETOOLONG);
    memset(path, '/', PATH_MAX);
    path[PATH_MAX - 1] = 0;
    CHECK(stat(path, &status) == 0); // 4095 bytes and the terminator
    path[PATH_MAX - 1] = '/', path[PATH_MAX] = 0;
    FAILS(stat(path, &status), ENAMETOOLONG);
    free(path);
}

CASE(slashes_and_dots) {
    struct stat one, two;
    CHECK(mkdir("d", 0755) == 0);
    write_file("d/f", "x");
    CHECK(stat("d/f", &one) == 0);
    const char *same[] = {"./d/f", "d//f", "d/./f", "d/../d/f", ".//d///f", "d/./././../d/f"};
    for (size_t i = 0; i < COUNT(same); i++) {
        CHECK(stat(same[i], &two) == 0);
        CHECK_EQ(two.st_ino, one.st_ino);
    }
    CHECK(stat("/", &one) == 0 && stat("/..", &two) == 0);
    CHECK_EQ(one.st_ino, two.st_ino);
    CHECK(stat("/../../..", &two) == 0);
    CHECK_EQ(one.st_ino, two.st_ino);
    FAILS(stat("d/f/..", &two), ENOTDIR);
    FAILS(stat("d/f/.", &two), ENOTDIR);
    FAILS(stat("missing/..", &two), ENOENT);
}

CASE(rename_moves_and_replaces) {
    char text[16];
    write_file("a", "from a");
    write_file("b", "from b");
    CHECK(rename("a", "b") == 0);
    FAILS(access("a", F_OK), ENOENT);
    CHECK_EQ(read_file("b", text, sizeof text), 6);
    CHECK(!strcmp(text, "from a"));
    CHECK(mkdir("d", 0755) == 0);
    CHECK(rename("b", "d/c") == 0);
    CHECK(access("d/c", F_OK) == 0);
    CHECK(rename("d/c", "d/c") == 0);
    CHECK(link("d/c", "d/same") == 0);
    CHECK(rename("d/c", "d/same") == 0); // two names of one file: nothing happens
    CHECK(access("d/c", F_OK) == 0 && access("d/same", F_OK) == 0);
}

CASE(rename_errors) {
    write_file("f", "");
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0 && mkdir("empty", 0755) == 0);
    FAILS(rename("missing", "x"), ENOENT);
    FAILS(rename("f", "missing/x"), ENOENT);
    FAILS(rename("f", "d"), EISDIR);
    FAILS(rename("d", "f"), ENOTDIR);
    FAILS(rename("empty", "d"), ENOTEMPTY);
    FAILS(rename("d", "d/e/inside"), EINVAL);
    FAILS(rename("f", "f/x"), ENOTDIR);
    FAILS(rename("f", "new/"), ENOTDIR);
    CHECK(rename("d", "empty") == 0); // an empty directory is replaced
    CHECK(access("empty/e", F_OK) == 0);
    FAILS(rename("empty", "."), EBUSY);
}

CASE(rename_moves_a_directory_with_its_dot_dot) {
    struct stat parent, up;
    CHECK(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0 && mkdir("c", 0755) == 0);
    CHECK(rename("a/b", "c/b") == 0);
    CHECK(stat("c", &parent) == 0 && stat("c/b/..", &up) == 0);
    CHECK_EQ(parent.st_ino, up.st_ino);
    CHECK_EQ(parent.st_nlink, 3);
    CHECK(stat("a", &parent) == 0);
    CHECK_EQ(parent.st_nlink, 2);
}

CASE(renameat2_flags) {
    char text[16];
    write_file("a", "A");
    write_file("b", "B");
    FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
    CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE) == 0);
    CHECK(renameat2(AT_FDCWD, "c", AT_FDCWD, "b", RENAME_EXCHANGE) == 0);
    CHECK_EQ(read_file("b", text, sizeof text), 1);
    CHECK_EQ(text[0], 'A');
    CHECK_EQ(read_file("c", text, sizeof text), 1);
    CHECK_EQ(text[0], 'B');
    FAILS(renameat2(AT_FDCWD, "c", AT_FDCWD, "missing", RENAME_EXCHANGE), ENOENT);
    FAILS(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
    FAILS(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", 1 << 10), EINVAL);
}

CASE(at_calls_are_relative_to_a_descriptor) {
    CHECK(mkdir("d", 0755) == 0);
    int folder = open("d", O_RDONLY | O_DIRECTORY);
    struct stat status;
    CHECK(folder >= 0);
    int fd = openat(folder, "f", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    CHECK(access("d/f", F_OK) == 0);
    CHECK(mkdirat(folder, "sub", 0755) == 0);
    CHECK(symlinkat("f", folder, "link") == 0);
    CHECK(linkat(folder, "f", AT_FDCWD, "hard", 0) == 0);
    CHECK(renameat(AT_FDCWD, "hard", folder, "sub/moved") == 0);
    CHECK(fstatat(folder, "link", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode));
    CHECK(fstatat(folder, "link", &status, 0) == 0 && S_ISREG(status.st_mode));
    CHECK(faccessat(folder, "sub/moved", F_OK, 0) == 0);
    CHECK(fstatat(folder, "/", &status, 0) == 0); // an absolute path ignores the descriptor
    FAILS(openat(fd, "x", O_RDONLY), ENOTDIR);
    CHECK(unlinkat(folder, "sub/moved", 0) == 0);
    CHECK(rename("d", "elsewhere") == 0);
    CHECK(faccessat(folder, "f", F_OK, 0) == 0); // the descriptor follows the directory
}

CASE(empty_path_means_the_descriptor_itself) {
    write_file("f", "12345");
    int fd = open("f", O_RDONLY);
    struct stat status;
    CHECK(fstatat(fd, "", &status, AT_EMPTY_PATH) == 0);
    CHECK_EQ(status.st_size, 5);
    FAILS(fstatat(fd, "", &status, 0), ENOENT);
    CHECK(fstatat(AT_FDCWD, "", &status, AT_EMPTY_PATH) == 0);
    CHECK(S_ISDIR(status.st_mode));
    FAILS(fstatat(fd, "f", &status, 0x40000000), EINVAL);
}

CASE(working_directory) {
    char before[PATH_MAX], now[PATH_MAX], wanted[PATH_MAX + 8];
    CHECK(getcwd(before, sizeof before) == before);
    CHECK_EQ(before[0], '/');
    CHECK(mkdir("d", 0755) == 0);
    int here = open(".", O_RDONLY);
    CHECK(chdir("d") == 0);
    CHECK(getcwd(now, sizeof now) == now);
    snprintf(wanted, sizeof wanted, "%s/d", before);
    CHECK(!strcmp(now, wanted));
    CHECK_EQ(syscall(SYS_getcwd, now, sizeof now), strlen(wanted) + 1);
    FAILS(syscall(SYS_getcwd, now, strlen(wanted)), ERANGE);
    CHECK(fchdir(here) == 0);
    CHECK(getcwd(now, sizeof now) && !strcmp(now, before));
    write_file("f", "");
    FAILS(chdir("f"), ENOTDIR);
    FAILS(chdir("missing"), ENOENT);
    FAILS(fchdir(open("f", O_RDONLY)), ENOTDIR);
    CHECK(chdir("/") == 0);
    CHECK(getcwd(now, sizeof now) && !strcmp(now, "/"));
}

CASE(removed_working_directory) {
    CHECK(mkdir("d", 0755) == 0);
    CHECK(chdir("d") == 0);
    CHECK(rmdir("../d") == 0);
    char now[PATH_MAX];
    FAILS(syscall(SYS_getcwd, now, sizeof now), ENOENT);
    FAILS(open("f", O_RDWR | O_CREAT, 0600), ENOENT);
    FAILS(mkdir("e", 0755), ENOENT);
    CHECK(chdir("..") == 0); // the way up is still known
}

struct entry {
    uint64_t inode, offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

CASE(getdents64_lists_everything_once) {
    enum { FILES = 120 };
    char name[32], buffer[1024];
    CHECK(mkdir("d", 0755) == 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "d/file-%d", i);
        write_file(name, "");
    }
    CHECK(mkdir("d/folder", 0755) == 0 && symlink("x", "d/link") == 0);
    int fd = open("d", O_RDONLY | O_DIRECTORY), seen[FILES] = {0}, dots = 0, folders = 0, links = 0;
    long got;
    while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < got;) {
            struct entry *entry = (struct entry *)(buffer + at);
            int number;
            CHECK(entry->size >= 24 && entry->size % 8 == 0 && entry->inode != 0);
            if (sscanf(entry->name, "file-%d", &number) == 1) {
                seen[number]++;
                CHECK_EQ(entry->type, DT_REG);
            } else if (!strcmp(entry->name, ".") || !strcmp(entry->name, "..")) {
                dots++;
            } else {
                folders += !strcmp(entry->name, "folder") && entry->type == DT_DIR;
                links += !strcmp(entry->name, "link") && entry->type == DT_LNK;
            }
            at += entry->size;
        }
    }
    CHECK_EQ(got, 0);
    for (int i = 0; i < FILES; i++)
        CHECK_EQ(seen[i], 1);
    CHECK(dots == 2 && folders == 1 && links == 1);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK(syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    FAILS(syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
    write_file("plain", "");
    FAILS(syscall(SYS_getdents64, open("plain", O_RDONLY), buffer, sizeof buffer), ENOTDIR);
}

CASE(removing_while_listing_skips_nothing_else) {
    char name[32];
    CHECK(mkdir("d", 0755) == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "d/%d", i);
        write_file(name, "");
    }
    DIR *folder = opendir("d");
    CHECK(folder != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            CHECK(unlinkat(dirfd(folder), entry->d_name, 0) == 0);
            count++;
        }
    closedir(folder);
    CHECK_EQ(count, 40);
    CHECK(rmdir("d") == 0);
}

CASE(directory_cannot_be_read_as_a_file) {
    char byte;
    int fd = open(".", O_RDONLY);
    FAILS(read(fd, &byte, 1), EISDIR);
    FAILS(pread(fd, &byte, 1, 0), EISDIR);
    FAILS(write(fd, &byte, 1), EBADF);
}
