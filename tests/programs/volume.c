// SPDX-License-Identifier: Apache-2.0
//
// Works in a folder that is on a disk; exit 0 if all is as it should be.
//   volume write DIR      makes "kept" and "mapped", syncs them, says so, writes on without syncing, and waits
//   volume read DIR       finds in both what was synced
//   volume fill DIR       writes until there is no space, frees some and writes again; what was synced before is there
//   volume first DIR      finds what its image has there, "seed", with the mode of the folder, and renames it
//   volume second DIR     finds it under the new name only
//   volume hold DIR       opens "kept" to read, says so, and waits
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, KEPT = 300 * BLOCK, MAPPED = 5 * BLOCK + 7 };

static char big[1 << 20];

static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "volume: wrong: %s (%s)\n", what, strerror(errno));
        exit(1);
    }
}

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

static char byte_at(long at) { return (char)(at * 7 + at / BLOCK); }

static void wait_for_ever(void) {
    for (;;)
        pause();
}

static void write_and_wait(void) {
    int fd = open("kept", O_RDWR | O_CREAT | O_EXCL, 0640);
    must(fd >= 0, "open kept");
    static char content[KEPT];
    for (long at = 0; at < KEPT; at++)
        content[at] = byte_at(at);
    must(write(fd, content, KEPT) == KEPT && fsync(fd) == 0, "write and fsync");

    int mapped_fd = open("mapped", O_RDWR | O_CREAT, 0600);
    must(mapped_fd >= 0 && ftruncate(mapped_fd, MAPPED) == 0, "make mapped");
    char *mapped = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, mapped_fd, 0);
    must(mapped != MAP_FAILED, "mmap");
    for (long at = 0; at < MAPPED; at++)
        mapped[at] = byte_at(at);
    must(msync(mapped, MAPPED, MS_SYNC) == 0, "msync");

    must(mkdir("folder", 0755) == 0 && rename("mapped", "folder/mapped") == 0, "rename");
    int folder = open("folder", O_RDONLY | O_DIRECTORY);
    must(folder >= 0 && fsync(folder) == 0, "fsync of a folder");
    int gone = open("gone", O_RDWR | O_CREAT, 0600);
    must(gone >= 0 && write(gone, big, sizeof big) == sizeof big && unlink("gone") == 0, "a file without a name");
    sync();
    // Behind what was synced: it may be lost, or not.
    must(write(fd, big, sizeof big) == sizeof big, "write on");
    say("synced");
    wait_for_ever();
}

static void read_back(void) {
    static char content[KEPT];
    int fd = open("kept", O_RDONLY);
    struct stat status;
    must(fd >= 0 && fstat(fd, &status) == 0, "open kept");
    must((status.st_mode & 07777) == 0640 && status.st_size >= KEPT, "mode and size");
    must(read(fd, content, KEPT) == KEPT, "read");
    for (long at = 0; at < KEPT; at++)
        must(content[at] == byte_at(at), "what was synced with fsync");
    close(fd);
    fd = open("folder/mapped", O_RDONLY);
    must(fd >= 0 && read(fd, content, KEPT) == MAPPED, "read what was mapped");
    for (long at = 0; at < MAPPED; at++)
        must(content[at] == byte_at(at), "what was synced with msync");
    close(fd);
    must(access("gone", F_OK) != 0 && access("mapped", F_OK) != 0, "old names");
    say("all is there");
}

static void fill(void) {
    int fd = open("filler", O_RDWR | O_CREAT | O_APPEND, 0600);
    must(fd >= 0, "open filler");
    long total = 0;
    ssize_t count;
    while ((count = write(fd, big, sizeof big)) > 0) {
        total += count;
        must(total < 1L << 30, "a volume has an end");
    }
    must(count < 0 && errno == ENOSPC, "the error of a full volume is ENOSPC");
    must(fsync(fd) == 0, "fsync on a full volume");
    must(ftruncate(fd, total / 2) == 0, "free some");
    must(write(fd, big, sizeof big) == sizeof big && fsync(fd) == 0, "what was freed can be used at once");
    must(mkdir("after", 0700) == 0, "mkdir");
    while (write(fd, big, sizeof big) > 0)
        ;
    must(errno == ENOSPC, "full again");
    printf("full after %ld MiB\n", total >> 20);
}

static void seeded(const char *name) {
    char text[16] = {0};
    struct stat status;
    must(stat(".", &status) == 0 && (status.st_mode & 07777) == 01777, "mode of the folder");
    must(chdir(name) == 0 && stat(".", &status) == 0 && (status.st_mode & 07777) == 0750, "folder of the image");
    int fd = open("link", O_RDONLY);
    must(fd >= 0 && read(fd, text, sizeof text) == 6 && strcmp(text, "hello\n") == 0, "file of the image");
    must(fstat(fd, &status) == 0 && (status.st_mode & 07777) == 0640, "mode");
    // An image that `coracle build` made has no times.
    must(status.st_mtime == 1000000000 || status.st_mtime == 0, "time");
    must(chdir("..") == 0, "chdir");
}

int main(int argc, char **argv) {
    must(argc == 3 && chdir(argv[2]) == 0, "arguments: write|read|fill|first|second|hold DIR");
    if (strcmp(argv[1], "write") == 0)
        write_and_wait();
    else if (strcmp(argv[1], "read") == 0)
        read_back();
    else if (strcmp(argv[1], "fill") == 0)
        fill();
    else if (strcmp(argv[1], "first") == 0) {
        seeded("seed");
        must(rename("seed", "own") == 0, "rename");
    } else if (strcmp(argv[1], "second") == 0) {
        seeded("own");
        must(access("seed", F_OK) != 0, "an old volume gets nothing");
    } else if (strcmp(argv[1], "hold") == 0) {
        must(open("kept", O_RDONLY) >= 0, "open kept");
        say("holding");
        wait_for_ever();
    } else
        must(0, argv[1]);
    return 0;
}
