// SPDX-License-Identifier: Apache-2.0
//
// execve(2): what the new program is handed, what stays and what goes, and what becomes of threads.
#include "exec.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

// ---- what is handed over ----

CASE(exec_passes_arguments_and_environment) {
    if (abi_step == 0) {
        char *argv[] = {"name", "", "two words", "\xff\x01", NULL};
        char *envp[] = {"A=1", abi_resume(), "no equals sign", "A=2", "", NULL};
        execve(SELF, argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    char text[4096];
    size_t size = whole_file("/proc/self/cmdline", text, sizeof text);
    CHECK_EQ(size, 5 + 1 + 10 + 3);
    CHECK(!memcmp(text, "name\0\0two words\0\xff\x01", 19));
    CHECK(!strcmp(getenv("A"), "1"));
    CHECK(!strcmp(environ[2], "no equals sign") && !strcmp(environ[3], "A=2") && !strcmp(environ[4], ""));
    CHECK(environ[5] == NULL);
    size = whole_file("/proc/self/environ", text, sizeof text);
    CHECK(!strcmp(nth(text, size, 0), "A=1") && !strcmp(nth(text, size, 3), "A=2"));
}

CASE(exec_without_environment) {
    if (abi_step == 0) {
        char *argv[] = {"exec", abi_resume(), NULL};
        execve(SELF, argv, NULL);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(environ[0] == NULL);
    char text[16];
    CHECK_EQ(whole_file("/proc/self/environ", text, sizeof text), 0);
}

CASE(exec_without_arguments_has_an_empty_name) {
    if (abi_step < 2) {
        char *envp[] = {abi_resume(), NULL};
        execve(SELF, abi_step == 0 ? NULL : no_strings, envp);
    }
    CHECK_EQ(abi_step, 2);
    char text[16];
    CHECK_EQ(whole_file("/proc/self/cmdline", text, sizeof text), 1);
    CHECK_EQ(text[0], 0);
}

CASE(exec_names_thread_after_the_path) {
    if (abi_step == 0) {
        prctl(PR_SET_NAME, "something");
        copy_self("a name of more than 15");
        char *argv[] = {"other", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./a name of more than 15", argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    char name[16], text[64];
    CHECK(prctl(PR_GET_NAME, name) == 0);
    CHECK(!strcmp(name, "a name of more "));
    read_file("/proc/self/comm", text, sizeof text);
    CHECK(!strcmp(text, "a name of more \n"));
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "./a name of more than 15"));
    CHECK(strstr(program_invocation_name, "other"));
}

CASE(exec_shows_the_file_in_proc) {
    if (abi_step == 0) {
        copy_self("real");
        CHECK(symlink("real", "link") == 0);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("link", argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    char path[512], here[512];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(size > 0);
    path[size] = 0;
    CHECK(getcwd(here, sizeof here) != NULL);
    CHECK(!strncmp(path, here, strlen(here)) && !strcmp(path + strlen(here), "/real"));
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "link"));
    struct stat by_link, by_name;
    CHECK(stat("/proc/self/exe", &by_link) == 0 && stat("real", &by_name) == 0);
    CHECK(by_link.st_ino == by_name.st_ino && by_link.st_dev == by_name.st_dev);
}

CASE(exec_of_a_file_that_is_then_removed) {
    if (abi_step == 0) {
        copy_self("gone");
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./gone", argv, envp);
    }
    if (abi_step == 1) {
        CHECK(unlink("gone") == 0);
        char path[512];
        ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
        CHECK(size > 10 && !memcmp(path + size - 10, " (deleted)", 10));
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("/proc/self/exe", argv, envp); // the link still leads to the file
    }
    CHECK_EQ(abi_step, 2);
}

CASE(exec_auxiliary_vector) {
    if (abi_step == 0)
        REEXEC();
    CHECK_EQ(getauxval(AT_PAGESZ), 4096);
    CHECK_EQ(getauxval(AT_CLKTCK), 100);
    CHECK_EQ(getauxval(AT_SECURE), 0);
    CHECK_EQ(getauxval(AT_UID), getuid());
    CHECK_EQ(getauxval(AT_EGID), getegid());
    CHECK(!strcmp((char *)getauxval(AT_PLATFORM), "x86_64"));
    CHECK(getauxval(AT_RANDOM) && getauxval(AT_SYSINFO_EHDR) && getauxval(AT_PHDR));
    CHECK_EQ(getauxval(AT_PHENT), sizeof(Elf64_Phdr));
    Elf64_auxv_t vector[64];
    int fd = open("/proc/self/auxv", O_RDONLY);
    ssize_t size = read(fd, vector, sizeof vector);
    CHECK(size > 0 && size % sizeof vector[0] == 0);
    CHECK_EQ(vector[size / (ssize_t)sizeof vector[0] - 1].a_type, AT_NULL);
    for (int i = 0; vector[i].a_type != AT_NULL; i++)
        if (vector[i].a_type == AT_ENTRY || vector[i].a_type == AT_RANDOM || vector[i].a_type == AT_EXECFN)
            CHECK_EQ(getauxval(vector[i].a_type), vector[i].a_un.a_val);
}

CASE(exec_random_bytes_differ) {
    if (abi_step == 0) {
        write_file("bytes", "");
        int fd = open("bytes", O_WRONLY);
        CHECK_EQ(write(fd, (void *)getauxval(AT_RANDOM), 16), 16);
        close(fd);
        REEXEC();
    }
    char before[16];
    int fd = open("bytes", O_RDONLY);
    CHECK_EQ(read(fd, before, 16), 16);
    CHECK(memcmp(before, (void *)getauxval(AT_RANDOM), 16) != 0);
}

CASE(exec_stack_holds_strings_in_order) {
    if (abi_step == 0)
        REEXEC("one", "two");
    // argv[0] .. argv[n], then the environment, then the path: one behind the other, as setproctitle(3) expects.
    char **argv = environ - 1;
    CHECK(*argv == NULL);
    CHECK(!strcmp(argv[-1], "two") && !strcmp(argv[-2], "one") && !strcmp(argv[-3], "exec"));
    CHECK(argv[-2] == argv[-3] + 5 && argv[-1] == argv[-2] + 4 && environ[0] == argv[-1] + 4);
    CHECK((char *)getauxval(AT_EXECFN) == environ[0] + strlen(environ[0]) + 1);
}

// ---- what stays, what goes ----

CASE(exec_keeps_pid_and_directory_and_umask) {
    if (abi_step == 0) {
        write_file("pid", "");
        int fd = open("pid", O_WRONLY | O_CLOEXEC), pid = getpid();
        CHECK_EQ(write(fd, &pid, sizeof pid), sizeof pid);
        CHECK(mkdir("below", 0755) == 0 && chdir("below") == 0);
        umask(031);
        REEXEC();
    }
    int pid = 0, fd = open("../pid", O_RDONLY);
    CHECK_EQ(read(fd, &pid, sizeof pid), sizeof pid);
    CHECK_EQ(getpid(), pid);
    CHECK_EQ(umask(022), 031);
}

CASE(exec_closes_what_is_marked) {
    if (abi_step == 0) {
        write_file("f", "0123456789");
        CHECK_EQ(open("f", O_RDONLY), 3);
        CHECK_EQ(open("f", O_RDONLY | O_CLOEXEC), 4);
        CHECK_EQ(dup(3), 5);
        CHECK_EQ(fcntl(3, F_DUPFD_CLOEXEC, 6), 6);
        CHECK_EQ(eventfd(7, EFD_NONBLOCK), 7);
        CHECK_EQ(dup3(3, 900, O_CLOEXEC), 900);
        CHECK_EQ(dup2(3, 901), 901);
        CHECK(fcntl(5, F_SETFD, FD_CLOEXEC) == 0);
        CHECK_EQ(lseek(3, 4, SEEK_SET), 4);
        REEXEC();
    }
    CHECK_EQ(fcntl(3, F_GETFD), 0);
    FAILS(fcntl(4, F_GETFD), EBADF);
    FAILS(fcntl(5, F_GETFD), EBADF);
    FAILS(fcntl(6, F_GETFD), EBADF);
    FAILS(fcntl(900, F_GETFD), EBADF);
    char byte;
    CHECK_EQ(read(901, &byte, 1), 1);
    CHECK_EQ(byte, '4');
    uint64_t value;
    CHECK_EQ(read(7, &value, 8), 8);
    CHECK_EQ(value, 7);
    FAILS(read(7, &value, 8), EAGAIN);
}

CASE(exec_closing_tells_the_other_end) {
    if (abi_step == 0) {
        int fds[2];
        CHECK(pipe(fds) == 0);
        CHECK(fcntl(fds[1], F_SETFD, FD_CLOEXEC) == 0);
        CHECK_EQ(fds[0], 3);
        REEXEC();
    }
    char byte;
    CHECK_EQ(read(3, &byte, 1), 0);
}

CASE(exec_keeps_timer_descriptors) {
    if (abi_step == 0) {
        int fd = timerfd_create(CLOCK_MONOTONIC, 0);
        CHECK_EQ(fd, 3);
        struct itimerspec soon = {.it_value = to_timespec(50 * MS)};
        CHECK(timerfd_settime(fd, 0, &soon, NULL) == 0);
        REEXEC();
    }
    uint64_t count;
    CHECK_EQ(read(3, &count, 8), 8);
    CHECK_EQ(count, 1);
}

CASE(exec_resets_handlers_and_keeps_ignored) {
    if (abi_step == 0) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        struct sigaction caught = {.sa_handler = handler, .sa_mask = mask, .sa_flags = SA_RESTART};
        CHECK(sigaction(SIGUSR1, &caught, NULL) == 0);
        CHECK(sigaction(SIGSEGV, &caught, NULL) == 0);
        CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
        CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
        REEXEC();
    }
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, NULL, &now) == 0);
    CHECK(now.sa_handler == SIG_DFL);
    CHECK_EQ(now.sa_flags, 0);
    CHECK(sigismember(&now.sa_mask, SIGINT) == 0);
    CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
    CHECK(sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
}

CASE(exec_keeps_mask_and_pending_signals) {
    if (abi_step == 0) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        sigaddset(&mask, SIGUSR2);
        sigaddset(&mask, SIGRTMIN + 3);
        CHECK(sigprocmask(SIG_SETMASK, &mask, NULL) == 0);
        CHECK(kill(getpid(), SIGUSR1) == 0);
        CHECK(syscall(SYS_tgkill, getpid(), tid(), SIGUSR2) == 0);
        union sigval value = {.sival_int = 42};
        CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
        CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
        REEXEC();
    }
    sigset_t mask, pending;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && sigpending(&pending) == 0);
    for (int s = 1; s < 64; s++) {
        bool wanted = s == SIGUSR1 || s == SIGUSR2 || s == SIGRTMIN + 3;
        CHECK_EQ(sigismember(&mask, s) == 1, wanted);
        CHECK_EQ(sigismember(&pending, s) == 1, wanted);
    }
    siginfo_t info;
    for (int i = 0; i < 4; i++) {
        CHECK(sigwaitinfo(&mask, &info) > 0);
        if (i >= 2)
            CHECK_EQ(info.si_value.sival_int, 42);
    }
    struct timespec none = {0};
    FAILS(sigtimedwait(&mask, &info, &none), EAGAIN);
}

CASE(exec_forgets_the_alternate_stack) {
    if (abi_step == 0) {
        static char stack[65536];
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        CHECK(sigaltstack(&alternate, NULL) == 0);
        REEXEC();
    }
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK_EQ(now.ss_flags, SS_DISABLE);
}

CASE(exec_keeps_the_interval_timer) {
    if (abi_step == 0) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGALRM);
        CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
        struct itimerval soon = {.it_value = {.tv_usec = 100000}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        REEXEC();
    }
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGALRM);
    int got = 0;
    CHECK(sigwait(&mask, &got) == 0);
    CHECK_EQ(got, SIGALRM);
}

CASE(exec_deletes_posix_timers_and_their_signals) {
    if (abi_step == 0) {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        struct itimerspec often = {.it_value = to_timespec(MS), .it_interval = to_timespec(5 * MS)};
        CHECK(timer_settime(timer, 0, &often, NULL) == 0);
        sigset_t pending;
        do {
            sleep_ms(5);
            sigpending(&pending);
        } while (!sigismember(&pending, SIGUSR1));
        REEXEC();
    }
    sigset_t pending;
    sleep_ms(30);
    CHECK(sigpending(&pending) == 0);
    CHECK_EQ(sigismember(&pending, SIGUSR1), 0);
    struct itimerspec value;
    FAILS(syscall(SYS_timer_gettime, 0, &value), EINVAL);
}

CASE(exec_keeps_limits_and_resets_attributes) {
    if (abi_step == 0) {
        struct rlimit limit = {.rlim_cur = 500, .rlim_max = 600};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
        CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
        REEXEC();
    }
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_EQ(limit.rlim_cur, 500);
    CHECK_EQ(limit.rlim_max, 600);
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 1);
    CHECK_EQ(prctl(PR_GET_KEEPCAPS), 0);
    limit.rlim_cur = 600;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

CASE(exec_keeps_no_new_privs) {
    if (abi_step == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        REEXEC();
    }
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
}

CASE(exec_forgets_memory) {
    static char *const at = (char *)0x300000000;
    if (abi_step == 0) {
        CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        strcpy(at, "secret");
        CHECK(sbrk(1 << 20) != (void *)-1);
        REEXEC();
    }
    FAILS(madvise(at, PAGE, MADV_NORMAL), ENOMEM);
    CHECK(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
    CHECK_EQ(at[0], 0);
    CHECK(munmap(at, PAGE) == 0);
}

CASE(exec_begins_with_a_fresh_fpu) {
    if (abi_step == 0) {
        unsigned mxcsr = 0x1f80 | 0x6000; // round towards zero
        unsigned short control = 0x37f | 0x0c00;
        __asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(mxcsr), "m"(control));
        REEXEC();
    }
    unsigned mxcsr;
    unsigned short control;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(control));
    CHECK_EQ(mxcsr & 0xffc0, 0x1f80);
    CHECK_EQ(control, 0x37f);
}

CASE(exec_forgets_robust_list_and_tid_address) {
    if (abi_step == 0)
        REEXEC();
    // The C library of the new program has set its own; they lie in its memory.
    void *head = NULL;
    size_t size = 0;
    CHECK(syscall(SYS_get_robust_list, 0, &head, &size) == 0);
    CHECK_EQ(size, 24);
    int *address = NULL;
    CHECK(prctl(PR_GET_TID_ADDRESS, &address) == 0);
    CHECK_EQ(*address, tid());
}

CASE(exec_marks_robust_locks_of_shared_memory) {
    // A robust lock held at exec is found abandoned by whoever maps its file later.
    if (abi_step == 0) {
        write_file("lock", "");
        CHECK(truncate("lock", 4096) == 0);
        int fd = open("lock", O_RDWR);
        CHECK_EQ(fd, 3);
        pthread_mutex_t *lock = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(lock != MAP_FAILED);
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        CHECK(pthread_mutex_init(lock, &how) == 0);
        CHECK(pthread_mutex_lock(lock) == 0);
        REEXEC();
    }
    pthread_mutex_t *lock = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    CHECK(lock != MAP_FAILED);
    CHECK_EQ(pthread_mutex_lock(lock), EOWNERDEAD);
    CHECK(pthread_mutex_consistent(lock) == 0);
    CHECK(pthread_mutex_unlock(lock) == 0);
}

// ---- threads ----

CASE(exec_ends_other_threads) {
    if (abi_step == 0) {
        static atomic_int counter;
        for (int i = 0; i < 8; i++) {
            spawn(sleeper, NULL);
            spawn(spinner, &counter);
        }
        while (atomic_load(&counter) < 1000)
            sleep_ms(1);
        REEXEC();
    }
    CHECK_EQ(threads(), 1);
    CHECK_EQ(tid(), getpid());
}

static void *reexec_from_thread(void *unused) {
    (void)unused;
    CHECK(tid() != getpid());
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    REEXEC();
    return NULL;
}

CASE(exec_from_another_thread_makes_it_the_first) {
    if (abi_step == 0) {
        spawn(reexec_from_thread, NULL);
        for (;;)
            pause();
    }
    CHECK_EQ(threads(), 1);
    CHECK_EQ(tid(), getpid());
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK_EQ(sigismember(&mask, SIGUSR2), 1);
}

static void *many_exec(void *go) {
    while (!atomic_load((atomic_int *)go))
        ;
    REEXEC();
    return NULL;
}

CASE(exec_by_many_threads_at_once) {
    if (abi_step == 0) {
        static atomic_int go;
        for (int i = 0; i < 6; i++)
            spawn(many_exec, &go);
        sleep_ms(20);
        atomic_store(&go, 1);
        for (;;)
            pause();
    }
    CHECK_EQ(abi_step, 1);
    CHECK_EQ(threads(), 1);
    CHECK_EQ(tid(), getpid());
}

static void *nothing(void *unused) { return unused; }

static void *make_threads(void *unused) {
    (void)unused;
    for (;;) {
        pthread_t thread;
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        if (pthread_create(&thread, &small, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return NULL;
}

CASE(exec_while_threads_are_made_many_times) {
    if (abi_step < 10) {
        for (int i = 0; i < 3; i++)
            spawn(make_threads, NULL);
        sleep_ms(5);
        REEXEC();
    }
    CHECK_EQ(threads(), 1);
}

CASE(exec_ends_threads_in_every_kind_of_wait) {
    if (abi_step == 0) {
        static int pipe_ends[2];
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        CHECK(pipe(pipe_ends) == 0);
        pthread_mutex_lock(&mutex);
        void *lock_it(void *lock) {
            pthread_mutex_lock(lock);
            return NULL;
        }
        spawn(lock_it, &mutex);
        void *read_it(void *fd) {
            char byte;
            (void)!read(*(int *)fd, &byte, 1);
            return NULL;
        }
        void *poll_it(void *fd) {
            struct pollfd one = {.fd = *(int *)fd, .events = POLLIN};
            poll(&one, 1, -1);
            return NULL;
        }
        void *wait_signal(void *unused) {
            (void)unused;
            sigset_t set;
            int got;
            sigemptyset(&set);
            sigaddset(&set, SIGUSR1);
            sigwait(&set, &got);
            return NULL;
        }
        spawn(read_it, &pipe_ends[0]);
        spawn(poll_it, &pipe_ends[0]);
        spawn(wait_signal, NULL);
        sleep_ms(30);
        REEXEC();
    }
    CHECK_EQ(threads(), 1);
}
