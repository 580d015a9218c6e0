// SPDX-License-Identifier: Apache-2.0
//
// For cases that replace the program by itself.
#ifndef ABI_EXEC_H
#define ABI_EXEC_H

#include "harness.h"

#include <elf.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>

// The tests' own executable, also in a case that runs a copy of it.
#define SELF abi_program

// Replaces the program by itself, with arguments after its name; comes back only if that fails.
#define REEXEC(...)                                                                                                   \
    do {                                                                                                              \
        char *abi_argv[] = {"exec", ##__VA_ARGS__, NULL}, *abi_envp[] = {abi_resume(), NULL};                         \
        execve(SELF, abi_argv, abi_envp);                                                                             \
        CHECK(!"execve came back");                                                                                   \
    } while (0)

// What the program was started with, read from the kernel.
MAYBE_UNUSED static size_t whole_file(const char *path, char *text, size_t room) { return read_file(path, text, room); }

// The n-th string of a file of strings with NULs, or NULL.
MAYBE_UNUSED static const char *nth(const char *text, size_t size, int n) {
    for (const char *at = text; at < text + size; at += strlen(at) + 1)
        if (n-- == 0)
            return at;
    return NULL;
}

MAYBE_UNUSED static const char *argument(int n) {
    static char text[65536];
    size_t size = whole_file("/proc/self/cmdline", text, sizeof text);
    return nth(text, size, n);
}

MAYBE_UNUSED static int threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

MAYBE_UNUSED static void *sleeper(void *unused) {
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

MAYBE_UNUSED static void *spinner(void *counter) {
    for (;;)
        atomic_fetch_add((atomic_int *)counter, 1);
    return NULL;
}

// A file that can be executed.
MAYBE_UNUSED static void executable(const char *path, const char *text) {
    write_file(path, text);
    CHECK(chmod(path, 0755) == 0);
}

MAYBE_UNUSED static char *const no_strings[] = {NULL};

MAYBE_UNUSED static void copy_self(const char *to) {
    static char block[1 << 16];
    int in = open(SELF, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t got; (got = read(in, block, sizeof block)) > 0;)
        CHECK_EQ(write(out, block, (size_t)got), got);
    close(in);
    close(out);
}

MAYBE_UNUSED static void handler(int signal) { (void)signal; }

#endif
