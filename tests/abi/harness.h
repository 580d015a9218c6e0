// SPDX-License-Identifier: Apache-2.0
//
// A test framework of one header for programs that run on Linux and inside the guest.
//
// A guest has one process and no fork, so cases share an address space. The harness restores what it can between two
// cases (signal handlers and mask, alternate stack, timers, descriptors above 2, umask, a fresh working directory), turns
// an unexpected fault into a failure of the running case, and lets a watchdog thread pull a hanging case out.
//
// Everything printed is deterministic: two correct systems print the same bytes.
//   ok NAME                                   every check of the case held
//   FAIL NAME file:line: expr (errno NAME)    the first check that did not
//     text                                    what OBSERVE() recorded in the case, after its verdict
//   N passed, M failed                        last line; exit status 1 if M > 0
//
// A case may replace the program by itself (exec.c): it begins again in the new program with `abi_step` one higher, before
// anything else happened there, and the cases behind it follow.
//
// Arguments name the cases to run (default: all). Environment: ABI_TMP is the folder for scratch files (default: /dev/shm
// if it is a tmpfs, as the guest's /tmp is, else /tmp), ABI_TIMEOUT_S the seconds one case may take (default 20).
#ifndef ABI_HARNESS_H
#define ABI_HARNESS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))
#define PAGE ((size_t)4096)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
// The harness keeps this signal for its watchdog.
#define ABI_WATCHDOG_SIGNAL 64

struct abi_case {
    const char *name;
    void (*run)(void);
    struct abi_case *next;
};

static struct abi_case *abi_first;
static struct abi_case **abi_last = &abi_first;

// Defines one case and registers it; cases run in the order of the file.
#define CASE(case_name)                                                                                               \
    static void case_##case_name(void);                                                                               \
    __attribute__((constructor)) static void register_##case_name(void) {                                             \
        static struct abi_case entry = {#case_name, case_##case_name, NULL};                                          \
        *abi_last = &entry;                                                                                           \
        abi_last = &entry.next;                                                                                       \
    }                                                                                                                 \
    static void case_##case_name(void)

// Ends the case as failed unless `expr` holds. Works in helper functions and in threads the case started.
#define CHECK(expr) ((expr) ? (void)0 : abi_fail(__FILE__, __LINE__, #expr, NULL))

// As CHECK(left == right) for integers, but shows both values when they differ.
#define CHECK_EQ(left, right)                                                                                         \
    do {                                                                                                              \
        long long abi_left = (long long)(left), abi_right = (long long)(right);                                       \
        if (abi_left != abi_right)                                                                                    \
            abi_fail(__FILE__, __LINE__, #left " == " #right, "%lld, %lld", abi_left, abi_right);                     \
    } while (0)

// Checks that a call returns -1 with this errno.
#define FAILS(expr, error)                                                                                            \
    do {                                                                                                              \
        errno = 0;                                                                                                    \
        long long abi_result = (long long)(expr);                                                                     \
        if (abi_result != -1 || errno != (error))                                                                     \
            abi_fail(__FILE__, __LINE__, #expr " fails with " #error, "returned %lld", abi_result);                   \
    } while (0)

// Records a line that is printed below the verdict and compared between Linux and guest.
#define OBSERVE(...) abi_observe(__VA_ARGS__)

static pthread_t abi_main_thread;
static sigjmp_buf abi_case_exit;
static char abi_verdict[512];       // empty while the case is well
static char abi_observed[8192];
static size_t abi_observed_size;
static pthread_mutex_t abi_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(const char *) abi_running;
static _Atomic int64_t abi_started_ns;
static char abi_home[200];          // the folder scratch folders are made in
static char abi_program[400];       // the path of the program of the tests
static int abi_passed, abi_failed;
static int abi_step;                // how often the running case has replaced the program
static const char *abi_rest = "*";  // names of the cases still to run, each with a comma; "*" for all in order

static const char *abi_errno_name(int error) {
    const char *name = strerrorname_np(error);
    return error == 0 ? "0" : name ? name : "unknown";
}

MAYBE_UNUSED __attribute__((format(printf, 1, 2))) static void abi_observe(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&abi_lock);
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    size_t room = sizeof abi_observed - abi_observed_size;
    int size = snprintf(abi_observed + abi_observed_size, room, "  %s\n", line);
    if ((size_t)size < room)
        abi_observed_size += (size_t)size;
    pthread_mutex_unlock(&abi_lock);
    va_end(arguments);
}

// Records the failure and leaves the case: by a jump from the main thread, by ending any other thread.
MAYBE_UNUSED __attribute__((noreturn, cold, format(printf, 4, 5))) static void
abi_fail(const char *file, int line, const char *expr, const char *format, ...) {
    int error = errno;
    char detail[128] = "";
    if (format) {
        va_list arguments;
        va_start(arguments, format);
        detail[0] = ':', detail[1] = ' ';
        vsnprintf(detail + 2, sizeof detail - 2, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_lock(&abi_lock);
    if (!abi_verdict[0])
        snprintf(abi_verdict, sizeof abi_verdict, "%s:%d: %s%s (errno %s)", file, line, expr, detail,
                 abi_errno_name(error));
    pthread_mutex_unlock(&abi_lock);
    if (pthread_equal(pthread_self(), abi_main_thread))
        siglongjmp(abi_case_exit, 1);
    pthread_exit(NULL);
}

// ---- small helpers for cases ----

#define ABI_RESUME "ABI_RESUME="

// What the new program must find, in its environment or its arguments, to go on with the running case.
MAYBE_UNUSED static char *abi_resume(void) {
    static char text[2048];
    snprintf(text, sizeof text, ABI_RESUME "%s %d %d %d %s %s %s", atomic_load(&abi_running), abi_step + 1, abi_passed,
             abi_failed, abi_home, abi_program, abi_rest);
    return text;
}

#define MS 1000000LL
#define SECOND 1000000000LL

MAYBE_UNUSED static int64_t to_ns(struct timespec t) { return t.tv_sec * SECOND + t.tv_nsec; }

MAYBE_UNUSED static struct timespec to_timespec(int64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

MAYBE_UNUSED static int64_t clock_ns(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return to_ns(t);
}

MAYBE_UNUSED static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

MAYBE_UNUSED static void sleep_ms(int ms) {
    struct timespec left = to_timespec(ms * MS);
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        ;
}

MAYBE_UNUSED static pthread_t spawn(void *(*body)(void *), void *argument) {
    pthread_t thread;
    errno = pthread_create(&thread, NULL, body, argument);
    CHECK(errno == 0);
    return thread;
}

// Joins, and ends the case if the thread failed a check.
MAYBE_UNUSED static void *join(pthread_t thread) {
    void *result;
    errno = pthread_join(thread, &result);
    CHECK(errno == 0);
    if (abi_verdict[0] && pthread_equal(pthread_self(), abi_main_thread))
        siglongjmp(abi_case_exit, 1);
    return result;
}

MAYBE_UNUSED static pid_t tid(void) { return (pid_t)syscall(SYS_gettid); }

// Waits until another thread has set the flag.
MAYBE_UNUSED static void await(atomic_int *flag, int value) {
    while (atomic_load(flag) != value)
        sleep_ms(1);
}

// Anonymous private pages, writable.
MAYBE_UNUSED static char *pages(size_t count) {
    char *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

// A writable page, followed by a hole. The hole is long and mmap fills holes from their upper end, so that its first page
// stays unmapped while a case maps a few pages more.
MAYBE_UNUSED static char *page_before_a_hole(void) {
    char *at = pages(66);
    CHECK(munmap(at + PAGE, 64 * PAGE) == 0);
    return at;
}

// The address of a page with nothing mapped at it.
MAYBE_UNUSED static char *unmapped_page(void) { return page_before_a_hole() + PAGE; }

MAYBE_UNUSED static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    CHECK(close(fd) == 0);
}

// Reads a whole small file into `buffer` as a string; returns its length.
MAYBE_UNUSED static size_t read_file(const char *path, char *buffer, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    size_t size = 0;
    while (size + 1 < room) {
        ssize_t got = read(fd, buffer + size, room - 1 - size);
        CHECK(got >= 0);
        if (got == 0)
            break;
        size += (size_t)got;
    }
    buffer[size] = 0;
    CHECK(close(fd) == 0);
    return size;
}

// What a load or store met. signal 0: it went through.
struct fault {
    int signal, code;
    void *address;
};

static sigjmp_buf abi_fault_exit;
static volatile sig_atomic_t abi_fault_armed;
static struct fault abi_fault_seen;

// Runs `touch(address)` and reports the SIGSEGV or SIGBUS it raised.
MAYBE_UNUSED static struct fault fault_of(void (*touch)(volatile char *), volatile void *address) {
    abi_fault_seen = (struct fault){0};
    if (sigsetjmp(abi_fault_exit, 1) == 0) {
        abi_fault_armed = 1;
        touch(address);
    }
    abi_fault_armed = 0;
    return abi_fault_seen;
}

MAYBE_UNUSED static void touch_read(volatile char *at) { (void)*at; }
MAYBE_UNUSED static void touch_write(volatile char *at) { *at = 1; }
MAYBE_UNUSED static void touch_call(volatile char *at) { ((void (*)(void))(uintptr_t)at)(); }

#define CHECK_FAULT(touch, at, wanted_signal, wanted_code)                                                            \
    do {                                                                                                              \
        struct fault abi_got = fault_of(touch, (at));                                                                 \
        CHECK_EQ(abi_got.signal, wanted_signal);                                                                      \
        CHECK_EQ(abi_got.code, wanted_code);                                                                          \
        CHECK_EQ((uintptr_t)abi_got.address, (uintptr_t)(at));                                                        \
    } while (0)

#define CHECK_NO_FAULT(touch, at) CHECK_EQ(fault_of(touch, (at)).signal, 0)

// ---- the runner ----

static void abi_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void abi_print(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (int done = 0; done < size;) {
        ssize_t n = write(STDOUT_FILENO, line + done, (size_t)(size - done));
        if (n <= 0)
            _exit(2);
        done += (int)n;
    }
}

static void abi_on_crash(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (abi_fault_armed && pthread_equal(pthread_self(), abi_main_thread)) {
        abi_fault_seen = (struct fault){signal, info->si_code, info->si_addr};
        siglongjmp(abi_fault_exit, 1);
    }
    char text[160];
    snprintf(text, sizeof text, "no SIG%s (code %d)", sigabbrev_np(signal), info->si_code);
    if (!pthread_equal(pthread_self(), abi_main_thread)) {
        // Other threads cannot be abandoned safely: say what happened and stop the whole family.
        abi_print("FAIL %s thread of the case: %s\n", atomic_load(&abi_running), text);
        _exit(1);
    }
    abi_fail("crash", 0, text, NULL);
}

static void abi_on_timeout(int signal) {
    (void)signal;
    if (atomic_load(&abi_running) && pthread_equal(pthread_self(), abi_main_thread))
        abi_fail("watchdog", 0, "the case ends in time", NULL);
}

static void *abi_watchdog(void *limit) {
    int64_t limit_ns = (int64_t)(intptr_t)limit * SECOND;
    const char *warned = NULL;
    for (;;) {
        sleep_ms(100);
        const char *name = atomic_load(&abi_running);
        int64_t age_ns = now_ns() - atomic_load(&abi_started_ns);
        if (!name || age_ns < limit_ns)
            continue;
        if (name != warned) {
            warned = name;
            pthread_kill(abi_main_thread, ABI_WATCHDOG_SIGNAL);
        } else if (age_ns > limit_ns + 2 * SECOND) {
            abi_print("FAIL %s hangs and cannot be interrupted\n", name);
            abi_print("%d passed, %d failed, the rest was not run\n", abi_passed, abi_failed + 1);
            _exit(1);
        }
    }
    return NULL;
}

static void abi_remove_tree(const char *path) {
    DIR *folder = opendir(path);
    if (folder) {
        for (struct dirent *entry; (entry = readdir(folder));) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                continue;
            char below[4096];
            if ((size_t)snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= sizeof below)
                continue;
            if (unlink(below) == -1)
                abi_remove_tree(below);
        }
        closedir(folder);
    }
    rmdir(path);
}

// Puts the process into the state every case starts from.
static void abi_reset(void) {
    static char alternate[65536];
    struct itimerval off = {0};
    setitimer(ITIMER_REAL, &off, NULL);
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    setitimer(ITIMER_PROF, &off, NULL);

    // Ignoring a signal discards pending instances, so that unblocking below cannot deliver a leftover.
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    struct sigaction crash = {.sa_sigaction = abi_on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    struct sigaction timeout = {.sa_handler = abi_on_timeout, .sa_flags = SA_NODEFER};
    for (int signal = 1; signal <= 64; signal++)
        sigaction(signal, &ignore, NULL); // fails for SIGKILL, SIGSTOP and those the C library keeps
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    for (int signal = 1; signal <= 64; signal++)
        sigaction(signal, &standard, NULL);
    const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    for (size_t i = 0; i < COUNT(crashes); i++)
        sigaction(crashes[i], &crash, NULL);
    sigaction(ABI_WATCHDOG_SIGNAL, &timeout, NULL);
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);

    if (syscall(SYS_close_range, 3U, ~0U, 0U) == -1)
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    umask(022);
}

static void abi_run(struct abi_case *one) {
    char scratch[300];
    snprintf(scratch, sizeof scratch, "%s/%s", abi_home, one->name);
    if (abi_step == 0) {
        abi_reset();
        mkdir(scratch, 0755);
    }
    abi_verdict[0] = 0;
    abi_observed[0] = 0;
    abi_observed_size = 0;
    abi_fault_armed = 0;
    atomic_store(&abi_started_ns, now_ns());
    atomic_store(&abi_running, one->name);
    if (sigsetjmp(abi_case_exit, 1) == 0) {
        CHECK(abi_step > 0 || chdir(scratch) == 0);
        errno = 0;
        one->run();
    }
    atomic_store(&abi_running, NULL);
    abi_step = 0;
    if (abi_verdict[0]) {
        abi_failed++;
        abi_print("FAIL %s %s\n", one->name, abi_verdict);
    } else {
        abi_passed++;
        abi_print("ok %s\n", one->name);
    }
    for (char *line = abi_observed, *end; (end = strchr(line, '\n')); line = end + 1)
        abi_print("%.*s", (int)(end + 1 - line), line);
    if (chdir("/") == 0)
        abi_remove_tree(scratch);
}

static const char *abi_default_folder(void) {
    struct statfs fs;
    bool is_tmpfs = statfs("/dev/shm", &fs) == 0 && fs.f_type == 0x01021994;
    return is_tmpfs && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static void abi_start_watchdog(void) {
    const char *limit = getenv("ABI_TIMEOUT_S");
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t watchdog;
    int error = pthread_create(&watchdog, NULL, abi_watchdog, (void *)(intptr_t)(limit ? atoi(limit) : 20));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        abi_print("no watchdog thread: %s\n", abi_errno_name(error));
}

static struct abi_case *abi_find(const char *name, size_t length) {
    for (struct abi_case *one = abi_first; one; one = one->next)
        if (strlen(one->name) == length && !strncmp(one->name, name, length))
            return one;
    return NULL;
}

// Runs the cases named in `abi_rest`.
static int abi_run_named(void) {
    while (*abi_rest) {
        size_t length = strcspn(abi_rest, ",");
        struct abi_case *one = abi_find(abi_rest, length);
        if (!one) {
            abi_print("no case is named %.*s\n", (int)length, abi_rest);
            return 2;
        }
        abi_rest += length + 1;
        abi_run(one);
    }
    return 0;
}

// Goes on with the case that replaced the program, if this is such a program. Returns that case.
static struct abi_case *abi_go_on(int argc, char **argv) {
    const size_t prefix = strlen(ABI_RESUME);
    const char *state = NULL;
    for (char **all = environ; all && *all && !state; all++)
        state = strncmp(*all, ABI_RESUME, prefix) ? NULL : *all + prefix;
    for (int i = 0; i < argc && !state; i++)
        state = strncmp(argv[i], ABI_RESUME, prefix) ? NULL : argv[i] + prefix;
    if (!state)
        return NULL;
    char name[128];
    int end = 0;
    if (sscanf(state, "%127s %d %d %d %199s %399s %n", name, &abi_step, &abi_passed, &abi_failed, abi_home, abi_program,
               &end) != 6)
        return NULL;
    abi_rest = state + end;
    struct abi_case *one = abi_find(name, strlen(name));
    if (one)
        abi_run(one); // without a watchdog: the case finds what a new program finds
    return one;
}

int main(int argc, char **argv) {
    static char names[4096];
    abi_main_thread = pthread_self();
    struct abi_case *done = abi_go_on(argc, argv);
    if (!done) {
        const char *folder = getenv("ABI_TMP");
        if (readlink("/proc/self/exe", abi_program, sizeof abi_program - 1) < 0)
            abi_print("no /proc/self/exe: %s\n", abi_errno_name(errno));
        snprintf(abi_home, sizeof abi_home, "%s/abi-%s", folder ? folder : abi_default_folder(),
                 program_invocation_short_name);
        abi_remove_tree(abi_home);
        if (mkdir(abi_home, 0755) == -1) {
            abi_print("cannot make %s: %s\n", abi_home, abi_errno_name(errno));
            return 2;
        }
        for (int i = 1; i < argc; i++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s,", argv[i]);
        if (argc > 1)
            abi_rest = names;
    }
    abi_start_watchdog();
    if (!strcmp(abi_rest, "*"))
        for (struct abi_case *one = done ? done->next : abi_first; one; one = one->next)
            abi_run(one);
    else if (abi_run_named())
        return 2;
    rmdir(abi_home);
    abi_print("%d passed, %d failed\n", abi_passed, abi_failed);
    return abi_failed ? 1 : 0;
}

#endif
