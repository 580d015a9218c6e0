// SPDX-License-Identifier: Apache-2.0
//
// mprotect, madvise and their kind: what an access to memory meets afterwards.
#include "harness.h"
#include <sys/resource.h>

#define RW (PROT_READ | PROT_WRITE)

static const unsigned char return_instruction[] = {0xc3};

CASE(read_only_page_faults_on_write) {
    char *at = pages(2);
    at[7] = 3;
    CHECK(mprotect(at, PAGE, PROT_READ) == 0);
    CHECK_EQ(at[7], 3);
    CHECK_FAULT(touch_write, at + 7, SIGSEGV, SEGV_ACCERR);
    CHECK_NO_FAULT(touch_write, at + PAGE);
    CHECK(mprotect(at, PAGE, RW) == 0);
    CHECK_NO_FAULT(touch_write, at + 7);
}

CASE(prot_none_faults_on_everything_and_keeps_contents) {
    char *at = pages(1);
    at[1] = 77;
    CHECK(mprotect(at, PAGE, PROT_NONE) == 0);
    CHECK_FAULT(touch_read, at + 1, SIGSEGV, SEGV_ACCERR);
    CHECK_FAULT(touch_write, at + 1, SIGSEGV, SEGV_ACCERR);
    CHECK(mprotect(at, PAGE, PROT_READ) == 0);
    CHECK_EQ(at[1], 77);
}

CASE(untouched_pages_obey_too) {
    char *at = mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK_FAULT(touch_write, at + PAGE, SIGSEGV, SEGV_ACCERR); // never read before
    CHECK_EQ(at[2 * PAGE], 0);
    CHECK_FAULT(touch_write, at + 2 * PAGE, SIGSEGV, SEGV_ACCERR); // read before
    CHECK(mprotect(at, 3 * PAGE, RW) == 0);
    CHECK_NO_FAULT(touch_write, at + PAGE);
    CHECK_NO_FAULT(touch_write, at + 2 * PAGE);
}

CASE(data_is_not_executable) {
    char *at = pages(1);
    memcpy(at, return_instruction, sizeof return_instruction);
    CHECK_FAULT(touch_call, at, SIGSEGV, SEGV_ACCERR);
    CHECK(mprotect(at, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK_NO_FAULT(touch_call, at);
    CHECK_FAULT(touch_write, at, SIGSEGV, SEGV_ACCERR);
}

CASE(stack_is_not_executable) {
    char code[64] __attribute__((aligned(64)));
    memcpy(code, return_instruction, sizeof return_instruction);
    __asm__ volatile("" ::"r"(code) : "memory");
    CHECK_FAULT(touch_call, code, SIGSEGV, SEGV_ACCERR);
}

CASE(program_text_is_read_only) {
    CHECK_FAULT(touch_write, (volatile void *)(uintptr_t)&abi_remove_tree, SIGSEGV, SEGV_ACCERR);
    CHECK_FAULT(touch_write, (volatile void *)(uintptr_t)return_instruction, SIGSEGV, SEGV_ACCERR);
}

CASE(null_page_faults) {
    CHECK_FAULT(touch_read, (char *)0, SIGSEGV, SEGV_MAPERR);
    CHECK_FAULT(touch_write, (char *)8, SIGSEGV, SEGV_MAPERR);
    CHECK_FAULT(touch_call, (char *)0, SIGSEGV, SEGV_MAPERR);
}

CASE(non_canonical_address_is_reported_without_address) {
    struct fault got = fault_of(touch_read, (char *)0x1234567890abcdef);
    CHECK_EQ(got.signal, SIGSEGV);
    CHECK_EQ(got.code, SI_KERNEL);
    CHECK_EQ((uintptr_t)got.address, 0);
}

CASE(fault_address_is_exact_within_a_page) {
    char *at = unmapped_page();
    for (size_t offset = 0; offset < PAGE; offset += 1021)
        CHECK_FAULT(touch_read, at + offset, SIGSEGV, SEGV_MAPERR);
}

CASE(mprotect_middle_splits_and_merges) {
    char *at = pages(6);
    memset(at, 1, 6 * PAGE);
    CHECK(mprotect(at + 2 * PAGE, 2 * PAGE, PROT_READ) == 0);
    for (int i = 0; i < 6; i++) {
        if (i == 2 || i == 3)
            CHECK_FAULT(touch_write, at + (size_t)i * PAGE, SIGSEGV, SEGV_ACCERR);
        else
            CHECK_NO_FAULT(touch_write, at + (size_t)i * PAGE);
    }
    CHECK(mprotect(at, 6 * PAGE, RW) == 0);
    for (int i = 0; i < 6; i++)
        CHECK_NO_FAULT(touch_write, at + (size_t)i * PAGE);
}

CASE(mprotect_over_a_hole_is_enomem) {
    char *at = pages(3);
    CHECK(munmap(at + PAGE, PAGE) == 0);
    FAILS(mprotect(at, 3 * PAGE, PROT_READ), ENOMEM);
    FAILS(mprotect(at + PAGE, PAGE, PROT_READ), ENOMEM);
    CHECK_FAULT(touch_write, at, SIGSEGV, SEGV_ACCERR); // what lay before the hole was changed
    CHECK_NO_FAULT(touch_write, at + 2 * PAGE);
}

CASE(mprotect_refuses_nonsense) {
    char *at = pages(2);
    FAILS(mprotect(at + 1, PAGE, PROT_READ), EINVAL);
    FAILS(mprotect(at, PAGE, 0x70000), EINVAL);
    FAILS(mprotect(at, SIZE_MAX - PAGE + 1, PROT_READ), ENOMEM);
    CHECK(mprotect(at, 0, PROT_NONE) == 0); // nothing to do
    CHECK_NO_FAULT(touch_write, at);
}

CASE(mprotect_cannot_exceed_the_descriptor) {
    write_file("f", "text");
    int fd = open("f", O_RDONLY);
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    FAILS(mprotect(at, PAGE, RW), EACCES);
    char *own = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(own != MAP_FAILED);
    CHECK(mprotect(own, PAGE, RW) == 0);
    own[0] = 'T';
    CHECK_EQ(at[0], 't');
}

static char *volatile shared_page;
static atomic_int keep_writing, faults_seen;

static void *writes_until_stopped(void *unused) {
    (void)unused;
    while (atomic_load(&keep_writing))
        shared_page[0]++;
    return NULL;
}

static void makes_writable_again(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if (info->si_addr != shared_page || info->si_code != SEGV_ACCERR)
        _exit(3);
    mprotect(shared_page, PAGE, RW);
    atomic_fetch_add(&faults_seen, 1);
}

// A right taken away is taken from every thread, also from one that runs on another CPU with the translation cached.
CASE(mprotect_reaches_other_threads) {
    struct sigaction action = {.sa_sigaction = makes_writable_again, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    shared_page = pages(1);
    atomic_store(&keep_writing, 1);
    atomic_store(&faults_seen, 0);
    pthread_t writer = spawn(writes_until_stopped, NULL);
    for (int round = 1; round <= 10; round++) {
        while (*(volatile char *)shared_page == 0)
            sched_yield();
        CHECK(mprotect(shared_page, PAGE, PROT_READ) == 0);
        await(&faults_seen, round);
    }
    atomic_store(&keep_writing, 0);
    join(writer);
}

CASE(replaced_page_is_seen_by_other_threads) {
    shared_page = pages(1);
    atomic_store(&keep_writing, 1);
    pthread_t writer = spawn(writes_until_stopped, NULL);
    for (int round = 0; round < 10; round++) {
        CHECK(mmap(shared_page, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == shared_page);
        while (*(volatile char *)shared_page == 0) // until the writer has found the new page
            sched_yield();
    }
    atomic_store(&keep_writing, 0);
    join(writer);
}

CASE(madvise_dontneed_zeroes_anonymous_pages) {
    char *at = pages(4);
    memset(at, 8, 4 * PAGE);
    CHECK(madvise(at + PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
    CHECK_EQ(at[PAGE - 1], 8);
    CHECK_EQ(at[PAGE], 0);
    CHECK_EQ(at[3 * PAGE - 1], 0);
    CHECK_EQ(at[3 * PAGE], 8);
    at[PAGE] = 1;
    CHECK_EQ(at[PAGE], 1);
}

CASE(madvise_dontneed_rereads_private_file_pages) {
    write_file("f", "original");
    int fd = open("f", O_RDWR);
    char *at = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    at[0] = 'X';
    CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0);
    CHECK_EQ(at[0], 'o');
}

CASE(madvise_accepts_hints_and_refuses_nonsense) {
    char *at = pages(4);
    at[0] = 2;
    CHECK(madvise(at, 4 * PAGE, MADV_NORMAL) == 0);
    CHECK(madvise(at, 4 * PAGE, MADV_WILLNEED) == 0);
    CHECK(madvise(at, 4 * PAGE, MADV_RANDOM) == 0);
    CHECK_EQ(at[0], 2);
    FAILS(madvise(at + 1, PAGE, MADV_NORMAL), EINVAL);
    FAILS(madvise(at, PAGE, 9999), EINVAL);
    FAILS(madvise(unmapped_page(), PAGE, MADV_DONTNEED), ENOMEM);
    CHECK(madvise(at, 0, MADV_DONTNEED) == 0);
    CHECK_EQ(at[0], 2);
}

CASE(madvise_willneed_reads_files_in_any_mapping) {
    enum { LENGTH = 40 * PAGE };
    char *content = malloc(LENGTH);
    for (size_t at = 0; at < LENGTH; at++)
        content[at] = (char)(at / 100);
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(write(fd, content, LENGTH - 5), LENGTH - 5);
    for (int n = 0; n < 3; n++) {
        int protection = n == 0 ? PROT_NONE : n == 1 ? PROT_READ : RW;
        char *at = mmap(NULL, LENGTH + 3 * PAGE, protection, n == 2 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        CHECK(at != MAP_FAILED);
        CHECK(madvise(at + PAGE, LENGTH - PAGE, MADV_WILLNEED) == 0);
        // Pages behind the end of the file are no error.
        CHECK(madvise(at, LENGTH + 3 * PAGE, MADV_WILLNEED) == 0);
        CHECK(munmap(at + PAGE, PAGE) == 0);
        FAILS(madvise(at, LENGTH, MADV_WILLNEED), ENOMEM);
        if (n > 0)
            CHECK(memcmp(at + 2 * PAGE, content + 2 * PAGE, LENGTH - 5 - 2 * PAGE) == 0);
        CHECK(munmap(at, LENGTH + 3 * PAGE) == 0);
    }
    free(content);
}

CASE(madvise_free_keeps_or_zeroes) {
    char *at = pages(2);
    memset(at, 5, 2 * PAGE);
    CHECK(madvise(at, PAGE, MADV_FREE) == 0);
    CHECK(at[10] == 5 || at[10] == 0);
    at[11] = 6; // a write cancels it for this page
    CHECK_EQ(at[11], 6);
    CHECK_EQ(at[PAGE], 5);
}

CASE(mincore_tells_mapped_from_unmapped) {
    char *at = pages(2);
    at[0] = 1;
    unsigned char present[2] = {0};
    CHECK(mincore(at, 2 * PAGE, present) == 0);
    CHECK_EQ(present[0] & 1, 1);
    FAILS(mincore(unmapped_page(), PAGE, present), ENOMEM);
    FAILS(mincore(at + 1, PAGE, present), EINVAL);
}

CASE(mlock_and_msync_on_holes_are_enomem) {
    char *at = pages(2);
    CHECK(mlock(at, PAGE) == 0);
    CHECK(munlock(at, PAGE) == 0);
    CHECK(msync(at, PAGE, MS_ASYNC) == 0);
    FAILS(mlock(unmapped_page(), PAGE), ENOMEM);
    FAILS(msync(unmapped_page(), PAGE, MS_SYNC), ENOMEM);
    FAILS(msync(at, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    FAILS(msync(at + 1, PAGE, MS_SYNC), EINVAL);
}

static int recurse(int depth) {
    volatile char frame[8192];
    frame[0] = (char)depth;
    return depth == 0 ? frame[0] : recurse(depth - 1) + frame[0];
}

CASE(main_stack_grows_on_demand) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
    CHECK(limit.rlim_cur >= (8 << 20));
    CHECK(recurse(500) != 1); // 4 MiB of frames
}

static volatile int overflow_depth;

__attribute__((noinline)) static int overflow(volatile char *above) {
    volatile char frame[1024];
    frame[0] = *above;
    overflow_depth++;
    return overflow_depth < 1 << 20 ? overflow(frame) + frame[0] : frame[0];
}

static void *overflows_its_stack(void *unused) {
    (void)unused;
    char bottom = 1;
    overflow(&bottom);
    return NULL;
}

static sigjmp_buf overflow_exit;
static char overflow_stack[32768];

static void on_overflow(int signal, siginfo_t *info, void *context) {
    (void)context;
    siglongjmp(overflow_exit, signal == SIGSEGV && info->si_code == SEGV_ACCERR ? 1 : 2);
}

static void *catches_its_overflow(void *unused) {
    stack_t stack = {.ss_sp = overflow_stack, .ss_size = sizeof overflow_stack};
    CHECK(sigaltstack(&stack, NULL) == 0);
    int how = sigsetjmp(overflow_exit, 1);
    if (how == 0)
        overflows_its_stack(unused);
    CHECK_EQ(how, 1);
    return NULL;
}

CASE(thread_stack_overflow_hits_the_guard_page) {
    struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    pthread_t thread;
    overflow_depth = 0;
    CHECK(pthread_create(&thread, &attributes, catches_its_overflow, NULL) == 0);
    join(thread);
    CHECK(overflow_depth > 20 && overflow_depth < 128);
}

static void *maps_and_unmaps(void *seed) {
    for (int i = 0; i < 100; i++) {
        size_t count = 1 + (size_t)(i + (int)(intptr_t)seed) % 5;
        char *at = pages(count);
        for (size_t page = 0; page < count; page++) {
            CHECK_EQ(at[page * PAGE], 0);
            at[page * PAGE] = (char)(intptr_t)seed;
        }
        CHECK(mprotect(at, PAGE, PROT_READ) == 0);
        CHECK_EQ(at[0], (char)(intptr_t)seed);
        CHECK(munmap(at, count * PAGE) == 0);
    }
    return NULL;
}

CASE(threads_map_and_unmap_at_once) {
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        threads[i] = spawn(maps_and_unmaps, (void *)(i + 1));
    for (size_t i = 0; i < COUNT(threads); i++)
        join(threads[i]);
}
