// SPDX-License-Identifier: Apache-2.0
//
// Large mappings, which a kernel may hold in huge pages: every page keeps its own content through partial changes.
#include "harness.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define HUGE ((size_t)2 << 20)
#define LARGE (5 * HUGE)

// A mapping filled from its lowest page up, with each page's number in it.
static char *numbered(void) {
    char *at = pages(LARGE / PAGE);
    for (size_t page = 0; page < LARGE / PAGE; page++)
        *(size_t *)(at + page * PAGE) = page;
    return at;
}

// Checks pages `first` to `end` of what was made by numbered(), lying at `at` now.
static void check_numbers(const char *at, size_t first, size_t end) {
    for (size_t page = first; page < end; page++)
        CHECK_EQ(*(const size_t *)(at + page * PAGE), page);
}

static void check_zeroes(const char *at, size_t first, size_t end) {
    for (size_t page = first; page < end; page++)
        CHECK_EQ(*(const size_t *)(at + page * PAGE), 0);
}

#define END (LARGE / PAGE)

static void give_back(char *at, size_t len) { CHECK(munmap(at, len) == 0); }

CASE(content_survives_write_protection) {
    char *at = numbered();
    CHECK(mprotect(at, LARGE, PROT_READ) == 0);
    CHECK_FAULT(touch_write, at + 777 * PAGE, SIGSEGV, SEGV_ACCERR);
    CHECK(mprotect(at, LARGE, RW) == 0);
    for (size_t page = 3; page < END; page += 97)
        *(size_t *)(at + page * PAGE + 8) = ~page;
    check_numbers(at, 0, END);
    for (size_t page = 3; page < END; page += 97)
        CHECK_EQ(*(size_t *)(at + page * PAGE + 8), ~page);
    give_back(at, LARGE);
}

CASE(content_survives_prot_none) {
    char *at = numbered();
    CHECK(mprotect(at, LARGE, PROT_NONE) == 0);
    CHECK_FAULT(touch_read, at + 600 * PAGE, SIGSEGV, SEGV_ACCERR);
    CHECK(mprotect(at, LARGE, RW) == 0);
    for (size_t page = 0; page < END; page++)
        *(size_t *)(at + page * PAGE) += 1;
    for (size_t page = 0; page < END; page++)
        CHECK_EQ(*(size_t *)(at + page * PAGE), page + 1);
    give_back(at, LARGE);
}

CASE(one_page_can_be_protected) {
    char *at = numbered();
    char *one = at + 1100 * PAGE;
    CHECK(mprotect(one, PAGE, PROT_READ) == 0);
    CHECK_FAULT(touch_write, one, SIGSEGV, SEGV_ACCERR);
    CHECK_NO_FAULT(touch_write, one - PAGE + 8);
    CHECK_NO_FAULT(touch_write, one + PAGE + 8);
    check_numbers(at, 0, END);
    CHECK(mprotect(one, PAGE, RW) == 0);
    *(size_t *)one = 1;
    CHECK_EQ(*(size_t *)one, 1);
    *(size_t *)one = 1100;
    check_numbers(at, 0, END);
    give_back(at, LARGE);
}

CASE(a_hole_can_be_cut_and_filled) {
    char *at = numbered();
    CHECK(munmap(at + 700 * PAGE, 900 * PAGE) == 0);
    CHECK_FAULT(touch_read, at + 700 * PAGE, SIGSEGV, SEGV_MAPERR);
    CHECK_FAULT(touch_read, at + 1599 * PAGE, SIGSEGV, SEGV_MAPERR);
    CHECK(mmap(at + 700 * PAGE, 900 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == at + 700 * PAGE);
    check_zeroes(at, 700, 1600);
    for (size_t page = 700; page < 1600; page++)
        *(size_t *)(at + page * PAGE) = page;
    check_numbers(at, 0, END);
    give_back(at, LARGE);
}

CASE(dontneed_zeroes_just_its_range) {
    char *at = numbered();
    CHECK(madvise(at + 513 * PAGE, 1024 * PAGE, MADV_DONTNEED) == 0);
    check_zeroes(at, 513, 1537);
    check_numbers(at, 0, 513);
    check_numbers(at, 1537, END);
    for (size_t page = 513; page < 1537; page++)
        *(size_t *)(at + page * PAGE) = page;
    check_numbers(at, 0, END);
    give_back(at, LARGE);
}

CASE(moving_carries_the_content) {
    char *at = numbered();
    char *to = mmap(NULL, LARGE + HUGE, PROT_NONE, ANON, -1, 0);
    CHECK(to != MAP_FAILED);
    to += 5 * PAGE; // another position within a huge page than before
    CHECK(mremap(at, LARGE, LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    check_numbers(to, 0, END);
    CHECK_FAULT(touch_read, at, SIGSEGV, SEGV_MAPERR);
    for (size_t page = 0; page < END; page++)
        *(size_t *)(to + page * PAGE + 8) = 1;
    check_numbers(to, 0, END);
    give_back(to, LARGE);
}

CASE(moving_a_part_leaves_the_rest) {
    char *at = numbered();
    char *to = mmap(NULL, 1000 * PAGE, PROT_NONE, ANON, -1, 0);
    CHECK(to != MAP_FAILED);
    CHECK(mremap(at + 300 * PAGE, 1000 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    check_numbers(to - 300 * PAGE, 300, 1300);
    check_numbers(at, 0, 300);
    check_numbers(at, 1300, END);
    CHECK_FAULT(touch_read, at + 300 * PAGE, SIGSEGV, SEGV_MAPERR);
    give_back(at, LARGE);
    give_back(to, 1000 * PAGE);
}

CASE(growing_and_shrinking_keep_the_content) {
    char *at = numbered();
    char *grown = mremap(at, LARGE, 2 * LARGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    check_numbers(grown, 0, END);
    check_zeroes(grown, END, 2 * END);
    CHECK(mremap(grown, 2 * LARGE, 700 * PAGE, 0) == grown);
    check_numbers(grown, 0, 700);
    CHECK_FAULT(touch_read, grown + 700 * PAGE, SIGSEGV, SEGV_MAPERR);
    give_back(grown, 700 * PAGE);
}

static _Atomic int stop;

static void *counts_up(void *at) {
    size_t rounds = 0;
    while (!atomic_load(&stop)) {
        for (size_t page = 0; page < 4; page++)
            atomic_fetch_add((_Atomic size_t *)((char *)at + page * 300 * PAGE), 1);
        rounds++;
    }
    return (void *)rounds;
}

// No write of another thread may be lost while pages are split, moved between small and huge, or copied.
CASE(changes_nearby_lose_no_write) {
    char *at = numbered();
    for (size_t page = 0; page < 4; page++)
        *(size_t *)(at + page * 300 * PAGE) = 0;
    atomic_store(&stop, 0);
    pthread_t thread = spawn(counts_up, at);
    for (size_t i = 0; i < 200; i++) {
        char *one = at + (1 + i * 7 % 290) * PAGE;
        CHECK(mprotect(one, PAGE, PROT_READ) == 0);
        CHECK(mprotect(one, PAGE, RW) == 0);
        *(size_t *)one += 0;
        CHECK(madvise(at + (1300 + i) * PAGE, PAGE, MADV_DONTNEED) == 0);
    }
    atomic_store(&stop, 1);
    size_t rounds = (size_t)join(thread);
    for (size_t page = 0; page < 4; page++)
        CHECK_EQ(*(size_t *)(at + page * 300 * PAGE), rounds);
    give_back(at, LARGE);
}

CASE(unmapping_much_takes_no_longer_than_filling_it) {
    size_t len = 48 << 20;
    char *at = mmap(NULL, len, RW, ANON, -1, 0);
    CHECK(at != MAP_FAILED);
    int64_t start = now_ns();
    for (size_t i = len; i > 0; i -= PAGE) // from above: small pages
        at[i - PAGE] = 1;
    int64_t filled = now_ns();
    CHECK(munmap(at, len) == 0);
    CHECK(now_ns() - filled < filled - start + SECOND);
}
