// SPDX-License-Identifier: Apache-2.0
//
// mmap, munmap, mremap and brk: where mappings go, what they show, and which arguments are refused.
#include "harness.h"

#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

// A file of `size` bytes in which each byte is the low part of its page's number plus one.
static int numbered_file(size_t size) {
    int fd = open("numbered", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    for (size_t at = 0; at < size; at += PAGE) {
        char page[PAGE];
        memset(page, (int)(at / PAGE) + 1, sizeof page);
        size_t part = size - at < PAGE ? size - at : PAGE;
        CHECK_EQ(pwrite(fd, page, part, (off_t)at), part);
    }
    return fd;
}

CASE(anonymous_is_zero_and_writable) {
    char *at = pages(16);
    for (size_t i = 0; i < 16 * PAGE; i += 512)
        CHECK_EQ(at[i], 0);
    memset(at, 0x5a, 16 * PAGE);
    CHECK_EQ(at[16 * PAGE - 1], 0x5a);
    CHECK(munmap(at, 16 * PAGE) == 0);
}

CASE(result_is_page_aligned_and_length_rounded_up) {
    char *at = mmap(NULL, PAGE + 1, RW, ANON, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ((uintptr_t)at % PAGE, 0);
    at[2 * PAGE - 1] = 1;
    CHECK(munmap(at, PAGE + 1) == 0);
    CHECK_FAULT(touch_read, at + PAGE, SIGSEGV, SEGV_MAPERR);
}

CASE(length_zero_is_einval) {
    FAILS((intptr_t)mmap(NULL, 0, RW, ANON, -1, 0), EINVAL);
    FAILS(munmap(pages(1), 0), EINVAL);
}

CASE(huge_lengths_are_enomem) {
    FAILS((intptr_t)mmap(NULL, (size_t)1 << 60, RW, ANON, -1, 0), ENOMEM);
    FAILS((intptr_t)mmap(NULL, SIZE_MAX, RW, ANON, -1, 0), ENOMEM);
    FAILS((intptr_t)mmap(NULL, SIZE_MAX - PAGE + 1, RW, ANON, -1, 0), ENOMEM);
}

CASE(large_reservation_costs_no_memory) {
    size_t size = (size_t)64 << 30;
    char *at = mmap(NULL, size, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(mprotect(at + size / 2, PAGE, RW) == 0);
    at[size / 2] = 7;
    CHECK_FAULT(touch_read, at + size / 2 + PAGE, SIGSEGV, SEGV_ACCERR);
    CHECK(munmap(at, size) == 0);
}

CASE(neither_shared_nor_private_is_einval) {
    FAILS((intptr_t)mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0), EINVAL);
}

CASE(unaligned_offset_and_addresses_are_einval) {
    int fd = numbered_file(2 * PAGE);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 1), EINVAL);
    FAILS((intptr_t)mmap(pages(2) + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
    FAILS(munmap(pages(2) + 1, PAGE), EINVAL);
}

CASE(file_descriptor_errors) {
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0), EBADF);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    CHECK(close(numbered_file(PAGE)) == 0);
    int fd = open("numbered", O_WRONLY);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0), EACCES);
    fd = open("numbered", O_RDONLY);
    FAILS((intptr_t)mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), EACCES);
    CHECK(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0);
    FAILS((intptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, pipe_ends[0], 0), ENODEV);
}

CASE(hint_is_used_when_free) {
    char *hole = pages(4);
    CHECK(munmap(hole, 4 * PAGE) == 0);
    CHECK(mmap(hole, 4 * PAGE, RW, ANON, -1, 0) == hole);
    char *other = mmap(hole, 4 * PAGE, RW, ANON, -1, 0); // taken: must go elsewhere
    CHECK(other != MAP_FAILED && other != hole);
}

CASE(fixed_replaces_what_was_there) {
    char *at = pages(4);
    memset(at, 1, 4 * PAGE);
    CHECK(mmap(at + PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0) == at + PAGE);
    CHECK_EQ(at[0], 1);
    CHECK_EQ(at[PAGE], 0);
    CHECK_EQ(at[2 * PAGE], 1);
}

CASE(fixed_noreplace_refuses_overlap) {
    char *at = pages(3);
    FAILS((intptr_t)mmap(at + PAGE, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    CHECK(munmap(at + PAGE, PAGE) == 0);
    CHECK(mmap(at + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == at + PAGE);
}

CASE(fixed_outside_user_addresses_is_enomem) {
    void *kernel_half = (void *)0xffff800000000000;
    FAILS((intptr_t)mmap(kernel_half, PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
    FAILS((intptr_t)mmap((void *)(UINTPTR_MAX - PAGE + 1), PAGE, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
}

CASE(hint_outside_user_addresses_is_ignored) {
    char *at = mmap((void *)0xffff800000000000, PAGE, RW, ANON, -1, 0);
    CHECK(at != MAP_FAILED);
    at[0] = 1;
}

CASE(private_file_mapping_copies_on_write) {
    int fd = numbered_file(3 * PAGE);
    char *at = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, (off_t)PAGE);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(at[0], 2);
    CHECK_EQ(at[PAGE], 3);
    at[5] = 99;
    char byte = 0;
    CHECK_EQ(pread(fd, &byte, 1, (off_t)PAGE + 5), 1);
    CHECK_EQ(byte, 2);
}

CASE(shared_file_mapping_and_read_write_agree) {
    int fd = numbered_file(2 * PAGE);
    char *at = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    at[10] = 'm';
    char byte = 0;
    CHECK_EQ(pread(fd, &byte, 1, 10), 1);
    CHECK_EQ(byte, 'm');
    CHECK_EQ(pwrite(fd, "w", 1, (off_t)PAGE + 3), 1);
    CHECK_EQ(at[PAGE + 3], 'w');
    char *second = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(second != MAP_FAILED && second != at);
    at[11] = 'n';
    CHECK_EQ(second[11], 'n');
    CHECK(msync(at, 2 * PAGE, MS_SYNC) == 0);
}

CASE(mapping_outlives_descriptor_and_name) {
    int fd = numbered_file(PAGE);
    char *at = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK(close(fd) == 0);
    CHECK(unlink("numbered") == 0);
    CHECK_EQ(at[100], 1);
    at[100] = 2;
    CHECK_EQ(at[100], 2);
}

CASE(tail_of_the_last_page_is_zero) {
    int fd = numbered_file(PAGE + 100);
    char *at = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(at[PAGE + 99], 2);
    CHECK_EQ(at[PAGE + 100], 0);
    CHECK_EQ(at[2 * PAGE - 1], 0);
}

CASE(beyond_end_of_file_is_sigbus) {
    int fd = numbered_file(PAGE);
    char *at = mmap(NULL, 3 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_FAULT(touch_read, at + PAGE + 8, SIGBUS, BUS_ADRERR);
    CHECK_FAULT(touch_write, at + 2 * PAGE, SIGBUS, BUS_ADRERR);
    CHECK(ftruncate(fd, 2 * (off_t)PAGE) == 0);
    CHECK_NO_FAULT(touch_write, at + PAGE + 8);
    CHECK(ftruncate(fd, (off_t)PAGE) == 0);
    CHECK_FAULT(touch_read, at + PAGE + 8, SIGBUS, BUS_ADRERR);
}

CASE(shared_anonymous_is_one_memory) {
    char *at = mmap(NULL, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(at[PAGE], 0);
    at[PAGE] = 3;
    CHECK(madvise(at, 2 * PAGE, MADV_DONTNEED) == 0);
    CHECK_EQ(at[PAGE], 3); // shared memory keeps its contents: the pages belong to the object
}

CASE(dev_zero_maps_like_anonymous) {
    int fd = open("/dev/zero", O_RDWR);
    CHECK(fd >= 0);
    char *at = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK_EQ(at[17], 0);
    at[17] = 1;
    CHECK_EQ(at[17], 1);
}

CASE(memfd_maps_shared) {
    int fd = memfd_create("abi", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, 2 * (off_t)PAGE) == 0);
    char *one = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0), *two = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(one != MAP_FAILED && two != MAP_FAILED);
    one[PAGE + 1] = 42;
    CHECK_EQ(two[PAGE + 1], 42);
}

CASE(populate_gives_the_same_bytes) {
    int fd = numbered_file(4 * PAGE);
    char *at = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    CHECK(at != MAP_FAILED);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(at[(size_t)i * PAGE + 9], i + 1);
}

CASE(munmap_makes_holes_and_accepts_them) {
    char *at = pages(8);
    memset(at, 4, 8 * PAGE);
    CHECK(munmap(at + 2 * PAGE, 2 * PAGE) == 0);
    CHECK_FAULT(touch_read, at + 2 * PAGE, SIGSEGV, SEGV_MAPERR);
    CHECK_FAULT(touch_write, at + 4 * PAGE - 1, SIGSEGV, SEGV_MAPERR);
    CHECK_EQ(at[2 * PAGE - 1], 4);
    CHECK_EQ(at[4 * PAGE], 4);
    CHECK(munmap(at + 2 * PAGE, 2 * PAGE) == 0); // nothing there: still success
    CHECK(munmap(at, 8 * PAGE) == 0);            // across the hole
    CHECK_FAULT(touch_read, at, SIGSEGV, SEGV_MAPERR);
    CHECK_FAULT(touch_read, at + 7 * PAGE, SIGSEGV, SEGV_MAPERR);
}

CASE(munmap_outside_user_addresses_is_einval) {
    FAILS(munmap((void *)0xffff800000000000, PAGE), EINVAL);
    FAILS(munmap(pages(1), SIZE_MAX - PAGE + 1), EINVAL);
}

CASE(mremap_shrinks_in_place) {
    char *at = pages(4);
    memset(at, 6, 4 * PAGE);
    CHECK(mremap(at, 4 * PAGE, 2 * PAGE, 0) == at);
    CHECK_EQ(at[2 * PAGE - 1], 6);
    CHECK_FAULT(touch_read, at + 2 * PAGE, SIGSEGV, SEGV_MAPERR);
}

CASE(mremap_grows_in_place_into_free_space) {
    char *at = pages(4);
    CHECK(munmap(at + 2 * PAGE, 2 * PAGE) == 0);
    at[0] = 5;
    CHECK(mremap(at, 2 * PAGE, 4 * PAGE, 0) == at);
    CHECK_EQ(at[0], 5);
    CHECK_EQ(at[3 * PAGE], 0);
}

CASE(mremap_moves_when_it_must) {
    char *at = pages(4);
    for (size_t i = 0; i < 2; i++)
        memset(at + i * PAGE, (int)i + 1, PAGE);
    FAILS((intptr_t)mremap(at, 2 * PAGE, 8 * PAGE, 0), ENOMEM); // the neighbour is in the way
    char *moved = mremap(at, 2 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != at);
    CHECK_EQ(moved[0], 1);
    CHECK_EQ(moved[2 * PAGE - 1], 2);
    CHECK_EQ(moved[8 * PAGE - 1], 0);
    CHECK_FAULT(touch_read, at, SIGSEGV, SEGV_MAPERR);
}

CASE(mremap_fixed_replaces_the_target) {
    char *from = pages(2), *to = pages(4);
    memset(from, 1, 2 * PAGE);
    memset(to, 2, 4 * PAGE);
    CHECK(mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE) == to + PAGE);
    CHECK_EQ(to[0], 2);
    CHECK_EQ(to[PAGE], 1);
    CHECK_EQ(to[3 * PAGE], 2);
    CHECK_FAULT(touch_read, from, SIGSEGV, SEGV_MAPERR);
}

CASE(mremap_refuses_nonsense) {
    char *at = pages(4);
    FAILS((intptr_t)mremap(at + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EINVAL);
    FAILS((intptr_t)mremap(at, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
    FAILS((intptr_t)mremap(at, PAGE, PAGE, 0x100), EINVAL);
    FAILS((intptr_t)mremap(at, PAGE, PAGE, MREMAP_FIXED, pages(1)), EINVAL);
    FAILS((intptr_t)mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE), EINVAL);
    CHECK(mremap(at, PAGE, (size_t)1 << 60, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK(errno == ENOMEM || errno == EINVAL); // differs between versions of Linux
    FAILS((intptr_t)mremap(unmapped_page(), PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
}

CASE(mremap_carries_a_file_mapping) {
    int fd = numbered_file(4 * PAGE);
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)PAGE);
    CHECK(at != MAP_FAILED);
    char *grown = mremap(at, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    CHECK_EQ(grown[0], 2);
    CHECK_EQ(grown[PAGE], 3);
    CHECK_EQ(grown[2 * PAGE], 4);
}

CASE(brk_grows_and_shrinks) {
    char *start = (char *)syscall(SYS_brk, 0);
    char *page = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
    CHECK((char *)syscall(SYS_brk, page + 3 * PAGE) == page + 3 * PAGE);
    CHECK_EQ(page[0], 0);
    memset(page, 9, 3 * PAGE);
    CHECK((char *)syscall(SYS_brk, page + PAGE) == page + PAGE);
    CHECK_EQ(page[PAGE - 1], 9);
    CHECK_FAULT(touch_read, page + PAGE, SIGSEGV, SEGV_MAPERR);
    CHECK((char *)syscall(SYS_brk, page + 2 * PAGE) == page + 2 * PAGE);
    CHECK_EQ(page[PAGE], 0); // given back and taken again: zero
    CHECK((char *)syscall(SYS_brk, start) == start);
}

CASE(brk_returns_the_old_break_when_it_cannot_move) {
    char *start = (char *)syscall(SYS_brk, 0);
    CHECK((char *)syscall(SYS_brk, 1) == start);
    CHECK((char *)syscall(SYS_brk, (char *)0x7fffffffe000) == start);
    CHECK((char *)syscall(SYS_brk, (char *)0xffff800000000000) == start);
}

CASE(many_small_mappings) {
    enum { N = 200 };
    char *at[N];
    for (int i = 0; i < N; i++) {
        // Alternating rights, so that neighbours cannot be merged.
        at[i] = mmap(NULL, PAGE, i % 2 ? RW : PROT_READ, ANON, -1, 0);
        CHECK(at[i] != MAP_FAILED);
    }
    for (int i = 1; i < N; i += 2)
        *(int *)at[i] = i;
    for (int i = 0; i < N; i++)
        CHECK_EQ(*(int *)at[i], i % 2 ? i : 0);
    for (int i = 0; i < N; i++)
        CHECK(munmap(at[i], PAGE) == 0);
}
