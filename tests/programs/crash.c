// SPDX-License-Identifier: Apache-2.0
//
// Ends in the way it is told to, so that what the host reports can be checked.
//   crash MODE [NUMBER]
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long number;

static void null_dereference(void) { *(volatile int *)(uintptr_t)number = 1; }

// Not inlined and not static: the report must name it.
__attribute__((noinline)) void function_that_crashes(volatile char *at) { at[0x10] = 1; }
__attribute__((noinline)) void caller_of_function_that_crashes(volatile char *at) {
    function_that_crashes(at);
    __asm__ volatile(""); // keeps the call from becoming a jump
}

static void in_function(void) { caller_of_function_that_crashes((char *)0xdead0000); }

static void exits(void) { exit((int)number); }

static void writes_then_exits(void) {
    fprintf(stdout, "to standard output\n");
    fflush(stdout);
    fprintf(stderr, "to standard error\n");
    _exit((int)number);
}

static void out_of_memory(void) {
    for (size_t mib = 1;; mib++) {
        char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            fprintf(stderr, "mmap refused after %zu MiB\n", mib);
            exit(99);
        }
        for (size_t i = 0; i < 1 << 20; i += 4096)
            at[i] = 1;
        if (number && mib >= (size_t)number) { // a bound, so that the mode can be tried on a shared machine
            fprintf(stderr, "touched %zu MiB\n", mib);
            exit(98);
        }
    }
}

static volatile int deeper = 1; // never changes, but the compiler cannot know

__attribute__((noinline)) static int recursion(volatile char *above) {
    volatile char frame[4096];
    frame[0] = (char)(above[0] + 1);
    return deeper ? recursion(frame) + frame[0] : 0;
}

static void stack_overflow(void) {
    volatile char bottom = 0;
    exit(recursion(&bottom));
}

static void illegal_instruction(void) { __asm__ volatile("ud2"); }

static void divide_by_zero(void) {
    __asm__ volatile("xor %%ecx, %%ecx; mov $1, %%eax; cltd; idiv %%ecx" ::: "eax", "ecx", "edx");
}

static void deadlock(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    puts("waiting for ever");
    fflush(stdout);
    pthread_mutex_lock(&mutex);
}

static void *spins(void *unused) {
    for (volatile long i = 0;; i++)
        (void)unused;
    return NULL;
}

static void busy(void) {
    puts("busy for ever");
    fflush(stdout);
    spins(NULL);
}

static void *crashes(void *unused) {
    null_dereference();
    return unused;
}

static void in_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, crashes, NULL);
    pthread_join(thread, NULL);
}

static void *ends_the_process(void *unused) {
    exit((int)number);
    return unused;
}

static void exit_in_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, ends_the_process, NULL);
    for (;;)
        pause();
}

static void raises(void) { raise((int)number); }

static void terminates_gracefully(int signal) {
    (void)signal;
    static const char text[] = "asked to stop\n";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0)
        _exit(1);
    _exit((int)number);
}

static void waits_for_sigterm(void) {
    signal(SIGTERM, terminates_gracefully);
    puts("waiting for SIGTERM");
    fflush(stdout);
    for (;;)
        pause();
}

static void ignores_sigterm(void) {
    signal(SIGTERM, SIG_IGN);
    puts("ignoring SIGTERM");
    fflush(stdout);
    for (;;)
        pause();
}

static void unknown_call(void) {
    long result = syscall(1999);
    fprintf(stderr, "system call 1999: %ld %s\n", result, result == -1 ? "ENOSYS" : "?");
    exit(result == -1 ? 0 : 1);
}

static const struct {
    const char *name, *help;
    void (*run)(void);
} modes[] = {
    {"null", "write to address NUMBER (default 0): SIGSEGV", null_dereference},
    {"function", "SIGSEGV in function_that_crashes", in_function},
    {"thread", "SIGSEGV in a second thread", in_thread},
    {"abort", "abort(): SIGABRT", abort},
    {"raise", "raise(NUMBER)", raises},
    {"exit", "exit(NUMBER)", exits},
    {"output", "write to both outputs, then _exit(NUMBER)", writes_then_exits},
    {"exit-thread", "exit(NUMBER) in a second thread", exit_in_thread},
    {"oom", "touch memory without end (or NUMBER MiB, then exit 98)", out_of_memory},
    {"stack", "recurse without end: SIGSEGV", stack_overflow},
    {"illegal", "ud2: SIGILL", illegal_instruction},
    {"divide", "integer division by zero: SIGFPE", divide_by_zero},
    {"deadlock", "lock a mutex twice: waits for ever", deadlock},
    {"busy", "an endless loop without system calls", busy},
    {"sigterm", "exit(NUMBER) when SIGTERM comes", waits_for_sigterm},
    {"ignore-sigterm", "wait for ever, ignoring SIGTERM", ignores_sigterm},
    {"unknown-call", "a system call that does not exist; exit 0 if it fails", unknown_call},
};

int main(int argc, char **argv) {
    number = argc > 2 ? strtol(argv[2], NULL, 0) : 0;
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (!strcmp(argv[1], modes[i].name)) {
            modes[i].run();
            return 0;
        }
    fprintf(stderr, "usage: crash MODE [NUMBER]\n");
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        fprintf(stderr, "  %-16s %s\n", modes[i].name, modes[i].help);
    return 2;
}
