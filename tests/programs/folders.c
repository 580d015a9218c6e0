// SPDX-License-Identifier: Apache-2.0
//
// Uses a folder that is shared with the host; exit 0 if all is as it should be.
//   folders exchange DIR      reads "from-host" there, makes files of many kinds, changes them, maps one
//   folders append DIR NAME   adds 200 lines with that name to "log", as others do at the same time
//   folders big DIR MIB       writes a file, reads it again and compares
//   folders refused DIR       cannot be changed
//   folders alone DIR         a file is mounted there, read-only, without its neighbours
//   folders gone DIR          waits until "f" is gone, with the folder
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "folders: wrong: %s (%s)\n", what, strerror(errno));
        exit(1);
    }
}

static void write_all(int fd, const char *text) {
    must(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
}

static void exchange(void) {
    char text[64] = {0};
    int fd = open("from-host", O_RDONLY);
    must(fd >= 0 && read(fd, text, sizeof text) == 6 && strcmp(text, "hello\n") == 0, "the host's file");
    close(fd);

    must(mkdir("made", 0750) == 0, "mkdir");
    fd = open("made/file", O_RDWR | O_CREAT | O_EXCL, 0400);
    must(fd >= 0, "a file of one's own can be written, whatever its mode");
    write_all(fd, "0123456789");
    must(fsync(fd) == 0 && fdatasync(fd) == 0, "fsync");
    must(pwrite(fd, "XY", 2, 3) == 2, "pwrite");
    must(fchmod(fd, 0600) == 0 && ftruncate(fd, 8192) == 0, "fchmod and ftruncate");
    char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(mapped != MAP_FAILED && memcmp(mapped, "012XY56789\0", 11) == 0, "the mapping shows the file");
    strcpy(mapped + 5000, "mapped");
    must(pwrite(fd, "ab", 2, 0) == 2 && memcmp(mapped, "ab2", 3) == 0, "the mapping shows what is written");
    must(msync(mapped, 8192, MS_SYNC) == 0, "msync");
    must(pread(fd, text, 6, 5000) == 6 && memcmp(text, "mapped", 6) == 0, "the file shows what is mapped");
    strcpy(mapped + 6000, "later");
    close(fd);
    must(munmap(mapped, 8192) == 0, "munmap");

    must(symlink("file", "made/link") == 0 && link("made/file", "made/other") == 0, "links");
    must(rename("made/other", "made/renamed") == 0, "rename");
    must(chmod("made/renamed", 0640) == 0, "chmod");
    struct stat one, two;
    must(stat("made/link", &one) == 0 && stat("made/renamed", &two) == 0, "stat");
    must(one.st_ino == two.st_ino && one.st_nlink == 2 && (one.st_mode & 07777) == 0640, "one file, two names");

    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "made/a-rather-long-name-in-a-long-listing-%03d", i);
        fd = open(name, O_WRONLY | O_CREAT, 0644);
        must(fd >= 0, "many files");
        close(fd);
    }
    DIR *dir = opendir("made");
    int count = 0;
    while (dir && readdir(dir))
        count++;
    must(count == 305, "all of them are listed");
    closedir(dir);

    fd = open("made/temporary", O_RDWR | O_CREAT, 0600);
    must(unlink("made/temporary") == 0, "unlink");
    write_all(fd, "still here");
    must(pread(fd, text, 10, 0) == 10 && fstat(fd, &one) == 0, "a file without name");
    must(one.st_nlink == 0 && one.st_size == 10, "its attributes");
    close(fd);

    int first = open("made/file", O_RDONLY), second = open("made/renamed", O_RDONLY);
    must(flock(first, LOCK_EX | LOCK_NB) == 0, "flock");
    must(flock(second, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK, "flock excludes");
    close(first);
    must(flock(second, LOCK_EX | LOCK_NB) == 0, "closing unlocks");
    must(rmdir("made") == -1 && errno == ENOTEMPTY, "rmdir of a full directory");

    // What is still mapped when the program ends is written then.
    fd = open("made/file", O_RDWR);
    mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(mapped != MAP_FAILED && strcmp(mapped + 6000, "later") == 0, "another mapping");
    strcpy(mapped + 7000, "at the end");
}

static void append(const char *name) {
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    must(fd >= 0, "open for appending");
    for (int i = 0; i < 200; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s %03d\n", name, i);
        write_all(fd, line);
    }
}

static unsigned block[65536];

static void fill(unsigned *state) {
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        block[i] = *state = *state * 1664525 + 1013904223;
}

static void big(long mib) {
    static unsigned found[65536];
    int fd = open("big", O_RDWR | O_CREAT | O_TRUNC, 0644);
    must(fd >= 0, "open");
    unsigned state = 1;
    for (long i = 0; i < mib * 4; i++) {
        fill(&state);
        must(write(fd, block, sizeof block) == (ssize_t)sizeof block, "write");
    }
    must(fsync(fd) == 0 && lseek(fd, 0, SEEK_SET) == 0, "fsync and lseek");
    state = 1;
    for (long i = 0; i < mib * 4; i++) {
        fill(&state);
        must(read(fd, found, sizeof found) == (ssize_t)sizeof found, "read");
        must(memcmp(found, block, sizeof found) == 0, "the same bytes");
    }
    must(read(fd, found, 1) == 0, "the end");
}

static void refused(void) {
    must(open("from-host", O_WRONLY) == -1 && errno == EROFS, "opening for writing");
    must(mkdir("another", 0755) == -1 && errno == EROFS, "mkdir");
    must(unlink("from-host") == -1 && errno == EROFS, "unlink");
    must(access("from-host", R_OK) == 0 && access("from-host", W_OK) == -1, "access");
}

static void alone(void) {
    char text[64] = {0};
    int fd = open("from-host", O_RDONLY);
    must(fd >= 0 && read(fd, text, sizeof text) == 6 && strcmp(text, "hello\n") == 0, "the host's file");
    close(fd);
    must(open("from-host", O_WRONLY) == -1 && errno == EROFS, "opening for writing");
    must(unlink("from-host") == -1 && errno == EBUSY, "unlink of a mount point");
    must(access("neighbour", F_OK) == -1 && errno == ENOENT, "no neighbours");
    FILE *mounts = fopen("/proc/mounts", "r");
    char line[256];
    int found = 0;
    while (mounts && fgets(line, sizeof line, mounts))
        found += strstr(line, "/from-host 9p ro,") != NULL;
    must(found == 1, "/proc/mounts");
}

static void gone(void) {
    puts("waiting");
    fflush(stdout);
    int tries = 0;
    while (access("f", F_OK) == 0 && tries++ < 600)
        usleep(50000);
    must(errno == ENOENT || errno == EIO, "the file is gone");
    must(open("new", O_WRONLY | O_CREAT, 0644) == -1, "nothing can be made");
}

int main(int argc, char **argv) {
    if (argc < 3 || chdir(argv[2]) != 0) {
        fprintf(stderr, "folders: a verb and a folder\n");
        return 2;
    }
    if (strcmp(argv[1], "exchange") == 0)
        exchange();
    else if (strcmp(argv[1], "append") == 0 && argc == 4)
        append(argv[3]);
    else if (strcmp(argv[1], "big") == 0 && argc == 4)
        big(atol(argv[3]));
    else if (strcmp(argv[1], "refused") == 0)
        refused();
    else if (strcmp(argv[1], "alone") == 0)
        alone();
    else if (strcmp(argv[1], "gone") == 0)
        gone();
    else
        return 2;
    puts("folders: as it should be");
    return 0;
}
