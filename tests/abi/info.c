// SPDX-License-Identifier: Apache-2.0
//
// What a program asks about itself and its machine.
#include "harness.h"
#include <asm/prctl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

CASE(uname_says_linux_on_x86_64) {
    struct utsname name;
    CHECK(uname(&name) == 0);
    CHECK(!strcmp(name.sysname, "Linux"));
    CHECK(!strcmp(name.machine, "x86_64"));
    int major = 0, minor = -1;
    CHECK(sscanf(name.release, "%d.%d", &major, &minor) == 2);
    CHECK(major >= 4 && minor >= 0); // older than 3.2 glibc refuses to run
    CHECK(name.nodename[0] && name.version[0]);
    char host[256];
    CHECK(gethostname(host, sizeof host) == 0);
    CHECK(!strcmp(host, name.nodename));
}

CASE(sysinfo_is_plausible) {
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0);
    unsigned long total = info.totalram * info.mem_unit, unused = info.freeram * info.mem_unit;
    CHECK(total > 4 << 20 && unused > 0 && unused < total);
    CHECK(info.uptime >= 0 && info.uptime <= clock_ns(CLOCK_BOOTTIME) / SECOND + 1);
    CHECK(info.procs >= 1);
}

CASE(identity_is_consistent) {
    CHECK(getpid() > 0);
    CHECK_EQ(tid(), getpid());
    CHECK_EQ(syscall(SYS_getpid), getpid());
    CHECK(getppid() >= 0);
    uid_t real, effective, saved;
    gid_t real_group, effective_group, saved_group;
    CHECK(getresuid(&real, &effective, &saved) == 0);
    CHECK(getresgid(&real_group, &effective_group, &saved_group) == 0);
    CHECK(real == getuid() && effective == geteuid());
    CHECK(real_group == getgid() && effective_group == getegid());
    gid_t groups[64];
    CHECK(getgroups(0, NULL) >= 0);
    CHECK(getgroups(64, groups) >= 0);
    FAILS(getgroups(-1, groups), EINVAL);
    CHECK(getpgid(0) == getpgrp());
    CHECK(getsid(0) >= 0);
    FAILS(getpgid(999999), ESRCH);
}

CASE(identity_can_be_set_to_itself) {
    CHECK(setuid(getuid()) == 0);
    CHECK(setgid(getgid()) == 0);
    CHECK(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1) == 0);
    CHECK(setresgid((gid_t)-1, (gid_t)-1, (gid_t)-1) == 0);
}

CASE(rlimits_are_read_and_set) {
    struct rlimit limit, lower, now;
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        CHECK(getrlimit(resource, &limit) == 0);
        CHECK(limit.rlim_cur <= limit.rlim_max);
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(limit.rlim_cur >= 256);
    lower = (struct rlimit){.rlim_cur = limit.rlim_cur - 1, .rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &lower) == 0);
    CHECK(prlimit(0, RLIMIT_NOFILE, &limit, &now) == 0); // sets and returns the old
    CHECK_EQ(now.rlim_cur, limit.rlim_cur - 1);
    CHECK(prlimit(getpid(), RLIMIT_NOFILE, NULL, &now) == 0);
    CHECK_EQ(now.rlim_cur, limit.rlim_cur);
    FAILS(getrlimit(99, &now), EINVAL);
    struct rlimit wrong = {.rlim_cur = 10, .rlim_max = 5};
    FAILS(setrlimit(RLIMIT_NOFILE, &wrong), EINVAL);
    FAILS(prlimit(999999, RLIMIT_NOFILE, NULL, &now), ESRCH);
}

CASE(rusage_counts) {
    struct rusage usage, later;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(usage.ru_maxrss > 0);
    char *at = pages(512);
    memset(at, 1, 512 * PAGE);
    CHECK(getrusage(RUSAGE_SELF, &later) == 0);
    CHECK(later.ru_minflt > usage.ru_minflt);
    CHECK(later.ru_maxrss >= usage.ru_maxrss);
    CHECK(getrusage(RUSAGE_THREAD, &later) == 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &later) == 0);
    CHECK_EQ(later.ru_utime.tv_sec, 0);
    FAILS(getrusage(77, &later), EINVAL);
}

CASE(affinity_can_be_read_and_narrowed) {
    cpu_set_t all, one, now;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(CPU_COUNT(&all) >= 1);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0);
    CHECK(CPU_EQUAL(&now, &one));
    CHECK_EQ(sched_getcpu(), cpu);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    FAILS(sched_setaffinity(0, sizeof one, &one), EINVAL);
    FAILS(sched_getaffinity(999999, sizeof now, &now), ESRCH);
    FAILS(syscall(SYS_sched_getaffinity, 0, 1, &now), EINVAL);
    long size = syscall(SYS_sched_getaffinity, 0, sizeof now, &now);
    CHECK(size > 0 && size % 8 == 0 && size <= (long)sizeof now);
}

static void *moves_over_cpus(void *unused) {
    (void)unused;
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int round = 0; round < 5; round++)
        for (int cpu = 0; cpu < 8; cpu++)
            if (CPU_ISSET(cpu, &all)) {
                cpu_set_t one;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
                CHECK_EQ(sched_getcpu(), cpu);
            }
    return NULL;
}

CASE(a_thread_moves_where_its_affinity_says) { join(spawn(moves_over_cpus, NULL)); }

CASE(getcpu_is_within_bounds) {
    unsigned cpu = 999, node = 999;
    CHECK(getcpu(&cpu, &node) == 0);
    CHECK(cpu < 1024 && node < 64);
    CHECK(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0);
    CHECK(syscall(SYS_getcpu, NULL, NULL, NULL) == 0);
}

CASE(scheduling_parameters) {
    struct sched_param parameters = {.sched_priority = 77};
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
    CHECK(sched_getparam(0, &parameters) == 0);
    CHECK_EQ(parameters.sched_priority, 0);
    CHECK_EQ(sched_get_priority_max(SCHED_FIFO), 99);
    CHECK_EQ(sched_get_priority_min(SCHED_FIFO), 1);
    CHECK_EQ(sched_get_priority_max(SCHED_OTHER), 0);
    FAILS(sched_get_priority_max(77), EINVAL);
    FAILS(sched_getscheduler(999999), ESRCH);
    CHECK(sched_yield() == 0);
    errno = 0;
    CHECK(getpriority(PRIO_PROCESS, 0) >= -20 && errno == 0);
}

static void *nice_of_a_new_thread(void *nice) {
    *(int *)nice = getpriority(PRIO_PROCESS, 0);
    return NULL;
}

CASE(nice_values) {
    int base = getpriority(PRIO_PROCESS, 0), inherited = 99;
    if (base > 10)
        base = 0; // run with a large one: then its bounds would come in between
    CHECK(setpriority(PRIO_PROCESS, 0, base + 3) == 0);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), base + 3);
    CHECK_EQ(getpriority(PRIO_PROCESS, (id_t)gettid()), base + 3);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, nice_of_a_new_thread, &inherited) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_EQ(inherited, base + 3);
    CHECK(setpriority(PRIO_PROCESS, 0, 100) == 0);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
    CHECK_EQ(syscall(SYS_getpriority, PRIO_PROCESS, 0), 1);
    FAILS(setpriority(PRIO_PROCESS, 999999, 0), ESRCH);
    FAILS(setpriority(3, 0, 0), EINVAL);
    FAILS(getpriority(-1, 0), EINVAL);
}

CASE(thread_name) {
    char name[16] = "", before[16];
    CHECK(prctl(PR_GET_NAME, before) == 0);
    CHECK(prctl(PR_SET_NAME, "a-name-that-is-too-long") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0);
    CHECK(!strcmp(name, "a-name-that-is-")); // 15 bytes and the terminator
    CHECK(prctl(PR_SET_NAME, before) == 0);
}

static void *has_its_own_name(void *unused) {
    (void)unused;
    char name[16];
    CHECK(prctl(PR_SET_NAME, "worker") == 0);
    CHECK(prctl(PR_GET_NAME, name) == 0);
    CHECK(!strcmp(name, "worker"));
    return NULL;
}

CASE(names_belong_to_threads) {
    char before[16], after[16];
    CHECK(prctl(PR_GET_NAME, before) == 0);
    join(spawn(has_its_own_name, NULL));
    CHECK(prctl(PR_GET_NAME, after) == 0);
    CHECK(!strcmp(before, after));
    pthread_t thread = spawn(has_its_own_name, NULL);
    join(thread);
}

CASE(prctl_of_what_runtimes_use) {
    CHECK_EQ(prctl(PR_GET_DUMPABLE), prctl(PR_GET_DUMPABLE));
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
    FAILS(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0), EINVAL);
    FAILS(prctl(99999, 0, 0, 0, 0), EINVAL);
}

CASE(arch_prctl_reads_and_sets_bases) {
    unsigned long fs = 0, gs = 1, kept;
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs) == 0);
    __asm__("mov %%fs:0, %0" : "=r"(kept)); // the first word of the thread block points to itself
    CHECK_EQ(fs, kept);
    static unsigned long block[4] = {0xabc, 0xdef};
    CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) == 0);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, block) == 0);
    __asm__ volatile("mov %%gs:8, %0" : "=r"(kept));
    CHECK_EQ(kept, 0xdef);
    for (int i = 0; i < 5; i++)
        sleep_ms(1); // kept over switches
    __asm__ volatile("mov %%gs:0, %0" : "=r"(kept));
    CHECK_EQ(kept, 0xabc);
    CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, gs) == 0);
    FAILS(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
    FAILS(syscall(SYS_arch_prctl, ARCH_SET_FS, 0xffff800000000000), EPERM);
    FAILS(syscall(SYS_arch_prctl, ARCH_GET_FS, unmapped_page()), EFAULT);
}

CASE(membarrier_query_tells_what_works) {
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands == -1) {
        CHECK(errno == ENOSYS);
        return;
    }
    FAILS(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 1, 0), EINVAL);
    FAILS(syscall(SYS_membarrier, 1 << 30, 0, 0), EINVAL);
    if (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
    }
}

CASE(rseq_is_registered_or_unknown) {
    // glibc registers at start where it can; a second, different registration must fail either way.
    static char area[32] __attribute__((aligned(32)));
    long result = syscall(SYS_rseq, area, sizeof area, 0, 0x12345678);
    CHECK(result == -1 || syscall(SYS_rseq, area, sizeof area, 1, 0x12345678) == 0);
    CHECK(result == 0 || errno == ENOSYS || errno == EINVAL || errno == EBUSY || errno == EPERM);
}

CASE(personality_is_linux) {
    int now = personality(0xffffffff);
    CHECK(now >= 0);
    CHECK_EQ(now & 0xff, PER_LINUX);
}

CASE(unknown_system_calls_are_enosys) {
    FAILS(syscall(1000), ENOSYS);
    FAILS(syscall(1999, 1, 2, 3, 4, 5, 6), ENOSYS);
    FAILS(syscall(-1), ENOSYS);
    FAILS(syscall(0x7fffffff), ENOSYS);
    FAILS(syscall(SYS_create_module), ENOSYS); // once existed
}

CASE(system_calls_keep_registers) {
    // All but rax, rcx and r11 survive a system call.
    unsigned long mismatches = 0;
    __asm__ volatile("mov $0x11, %%rbx\n\tmov $0x22, %%r12\n\tmov $0x33, %%r13\n\tmov $0x44, %%r14\n\t"
                     "mov $0x55, %%r15\n\tmov $0x66, %%rdi\n\tmov $0x77, %%rsi\n\tmov $0x88, %%rdx\n\t"
                     "mov $0x99, %%r8\n\tmov $0xaa, %%r9\n\tmov $0xbb, %%r10\n\t"
                     "mov %1, %%eax\n\tsyscall\n\t"
                     "xor $0x11, %%rbx\n\txor $0x22, %%r12\n\txor $0x33, %%r13\n\txor $0x44, %%r14\n\t"
                     "xor $0x55, %%r15\n\txor $0x66, %%rdi\n\txor $0x77, %%rsi\n\txor $0x88, %%rdx\n\t"
                     "xor $0x99, %%r8\n\txor $0xaa, %%r9\n\txor $0xbb, %%r10\n\t"
                     "or %%r12, %%rbx\n\tor %%r13, %%rbx\n\tor %%r14, %%rbx\n\tor %%r15, %%rbx\n\tor %%rdi, %%rbx\n\t"
                     "or %%rsi, %%rbx\n\tor %%rdx, %%rbx\n\tor %%r8, %%rbx\n\tor %%r9, %%rbx\n\tor %%r10, %%rbx\n\t"
                     "mov %%rbx, %0"
                     : "=m"(mismatches)
                     : "i"(SYS_getpid)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                       "cc", "memory");
    CHECK_EQ(mismatches, 0);
}

CASE(environment_and_arguments) {
    CHECK(program_invocation_name != NULL && program_invocation_name[0] != 0);
    CHECK(sysconf(_SC_PAGESIZE) == (long)PAGE);
    CHECK(sysconf(_SC_NPROCESSORS_CONF) >= sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(sysconf(_SC_PHYS_PAGES) > 1024);
    CHECK(sysconf(_SC_OPEN_MAX) >= 256);
}
