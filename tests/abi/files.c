// SPDX-License-Identifier: Apache-2.0
//
// Files by descriptor: opening, reading, writing, positions, sizes.
#include "harness.h"
#include <limits.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static void check_contents(const char *path, const char *wanted) {
    char text[4096];
    size_t size = read_file(path, text, sizeof text);
    CHECK_EQ(size, strlen(wanted));
    CHECK(memcmp(text, wanted, size) == 0);
}

CASE(open_creates_with_mode_and_umask) {
    struct stat status;
    umask(027);
    int fd = open("f", O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0);
    CHECK(fstat(fd, &status) == 0);
    CHECK_EQ(status.st_mode, S_IFREG | 0640);
    CHECK_EQ(umask(022), 027);
}

CASE(open_lowest_free_descriptor) {
    int one = open("/dev/null", O_RDONLY), two = open("/dev/null", O_RDONLY), three = open("/dev/null", O_RDONLY);
    CHECK(two == one + 1 && three == two + 1);
    CHECK(close(two) == 0);
    CHECK_EQ(open("/dev/null", O_RDONLY), two);
}

CASE(open_excl_refuses_what_exists) {
    CHECK(open("f", O_RDWR | O_CREAT | O_EXCL, 0600) >= 0);
    FAILS(open("f", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    CHECK(symlink("nowhere", "dangling") == 0);
    FAILS(open("dangling", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
}

CASE(open_creates_through_a_dangling_link) {
    CHECK(symlink("target", "link") == 0);
    CHECK(open("link", O_WRONLY | O_CREAT, 0600) >= 0);
    CHECK(access("target", F_OK) == 0);
}

CASE(open_missing_and_misplaced) {
    write_file("f", "");
    CHECK(mkdir("d", 0755) == 0);
    FAILS(open("missing", O_RDONLY), ENOENT);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(open("missing/f", O_RDONLY | O_CREAT, 0600), ENOENT);
    FAILS(open("f/below", O_RDONLY), ENOTDIR);
    FAILS(open("f/", O_RDONLY), ENOTDIR);
    FAILS(open("d", O_WRONLY), EISDIR);
    FAILS(open("d", O_RDWR), EISDIR);
    FAILS(open("d", O_RDONLY | O_CREAT, 0600), EISDIR);
    FAILS(open("new/", O_RDWR | O_CREAT, 0600), EISDIR);
    CHECK(open("d", O_RDONLY) >= 0);
}

CASE(open_directory_flag) {
    write_file("f", "");
    CHECK(open(".", O_RDONLY | O_DIRECTORY) >= 0);
    FAILS(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
}

CASE(open_nofollow_refuses_a_link) {
    write_file("f", "");
    CHECK(symlink("f", "link") == 0);
    FAILS(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK(open("f", O_RDONLY | O_NOFOLLOW) >= 0);
    int fd = open("link", O_PATH | O_NOFOLLOW);
    CHECK(fd >= 0);
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    CHECK(S_ISLNK(status.st_mode));
}

CASE(open_path_descriptor_cannot_be_read) {
    write_file("f", "text");
    int fd = open("f", O_PATH);
    char byte;
    CHECK(fd >= 0);
    FAILS(read(fd, &byte, 1), EBADF);
    FAILS(write(fd, &byte, 1), EBADF);
    FAILS(ftruncate(fd, 0), EBADF);
}

CASE(open_trunc_empties) {
    write_file("f", "some text");
    int fd = open("f", O_WRONLY | O_TRUNC);
    CHECK(fd >= 0);
    check_contents("f", "");
}

CASE(open_append_writes_at_the_end) {
    write_file("f", "one");
    int fd = open("f", O_RDWR | O_APPEND), other = open("f", O_WRONLY | O_APPEND);
    CHECK_EQ(write(fd, " two", 4), 4);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(other, " three", 6), 6);
    CHECK_EQ(write(fd, " four", 5), 5);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 18);
    check_contents("f", "one two three four");
}

CASE(access_mode_is_enforced) {
    write_file("f", "text");
    char byte;
    int reader = open("f", O_RDONLY), writer = open("f", O_WRONLY);
    FAILS(write(reader, "x", 1), EBADF);
    FAILS(read(writer, &byte, 1), EBADF);
    FAILS(ftruncate(reader, 0), EINVAL);
    FAILS(pread(writer, &byte, 1, 0), EBADF);
}

CASE(tmpfile_flag_if_supported) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd == -1) {
        CHECK(errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
        return;
    }
    struct stat status;
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK(fstat(fd, &status) == 0);
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(status.st_size, 1);
}

CASE(read_and_write_move_the_position) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char text[16] = {0};
    CHECK_EQ(write(fd, "hello world", 11), 11);
    CHECK_EQ(read(fd, text, 5), 0); // at the end
    CHECK_EQ(lseek(fd, 6, SEEK_SET), 6);
    CHECK_EQ(read(fd, text, sizeof text), 5);
    CHECK(memcmp(text, "world", 5) == 0);
    CHECK_EQ(read(fd, text, 0), 0);
    CHECK_EQ(write(fd, text, 0), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 11);
}

CASE(pread_and_pwrite_do_not) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char text[8] = {0};
    CHECK_EQ(pwrite(fd, "abcdef", 6, 0), 6);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 0);
    CHECK_EQ(pread(fd, text, 3, 2), 3);
    CHECK(memcmp(text, "cde", 3) == 0);
    CHECK_EQ(pread(fd, text, 3, 100), 0);
    FAILS(pread(fd, text, 3, -1), EINVAL);
    FAILS(pwrite(fd, text, 3, -1), EINVAL);
}

CASE(vectors_scatter_and_gather) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char a[3] = {0}, b[4] = {0};
    struct iovec out[3] = {{"abc", 3}, {NULL, 0}, {"defgh", 5}}, in[2] = {{a, 3}, {b, 4}};
    CHECK_EQ(writev(fd, out, 3), 8);
    CHECK_EQ(lseek(fd, 1, SEEK_SET), 1);
    CHECK_EQ(readv(fd, in, 2), 7);
    CHECK(memcmp(a, "bcd", 3) == 0 && memcmp(b, "efgh", 4) == 0);
    CHECK_EQ(preadv(fd, in, 2, 0), 7);
    CHECK(memcmp(a, "abc", 3) == 0);
    CHECK_EQ(pwritev(fd, out, 1, 8), 3);
    CHECK_EQ(preadv2(fd, in, 1, 8, 0), 3);
    CHECK(memcmp(a, "abc", 3) == 0);
    CHECK_EQ(lseek(fd, 2, SEEK_SET), 2);
    CHECK_EQ(preadv2(fd, in, 1, -1, 0), 3); // -1: the file's own position, which moves
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 5);
}

CASE(vector_errors) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char byte;
    struct iovec one = {&byte, 1}, negative[2] = {{&byte, 1}, {&byte, (size_t)SSIZE_MAX + 1}};
    FAILS(readv(fd, &one, -1), EINVAL);
    FAILS(writev(fd, &one, IOV_MAX + 1), EINVAL);
    FAILS(writev(fd, negative, 2), EINVAL);
    CHECK_EQ(writev(fd, &one, 0), 0);
    FAILS(preadv2(fd, &one, 1, 0, 0x4000), EOPNOTSUPP);
    FAILS(preadv(fd, &one, 1, -5), EINVAL);
}

CASE(lseek_forms_and_errors) {
    write_file("f", "0123456789");
    int fd = open("f", O_RDWR), ends[2];
    CHECK_EQ(lseek(fd, -3, SEEK_END), 7);
    CHECK_EQ(lseek(fd, 2, SEEK_CUR), 9);
    CHECK_EQ(lseek(fd, 100, SEEK_SET), 100);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(lseek(fd, -11, SEEK_END), EINVAL);
    FAILS(lseek(fd, 0, 99), EINVAL);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), 100);
    CHECK(pipe(ends) == 0);
    FAILS(lseek(ends[0], 0, SEEK_CUR), ESPIPE);
    char byte;
    FAILS(pread(ends[0], &byte, 1, 0), ESPIPE);
}

CASE(writing_behind_the_end_leaves_zeros) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char text[12];
    memset(text, 'x', sizeof text);
    CHECK_EQ(pwrite(fd, "end", 3, 9000), 3);
    CHECK_EQ(pread(fd, text, 12, 8992), 11);
    CHECK(memcmp(text, "\0\0\0\0\0\0\0\0end", 11) == 0);
    CHECK_EQ(lseek(fd, 0, SEEK_END), 9003);
}

CASE(seek_data_and_hole) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    CHECK_EQ(pwrite(fd, "x", 1, 1 << 20), 1);
    off_t data = lseek(fd, 0, SEEK_DATA), hole = lseek(fd, 1 << 20, SEEK_HOLE);
    CHECK(data >= 0 && data <= 1 << 20); // a file system without holes says 0
    CHECK_EQ(hole, (1 << 20) + 1);
    FAILS(lseek(fd, (1 << 20) + 1, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 1 << 21, SEEK_HOLE), ENXIO);
}

CASE(truncate_shrinks_and_grows) {
    write_file("f", "0123456789");
    int fd = open("f", O_RDWR);
    char text[16];
    CHECK(ftruncate(fd, 4) == 0);
    CHECK(ftruncate(fd, 8) == 0);
    CHECK_EQ(pread(fd, text, sizeof text, 0), 8);
    CHECK(memcmp(text, "0123\0\0\0\0", 8) == 0);
    CHECK(truncate("f", 2) == 0);
    check_contents("f", "01");
    FAILS(ftruncate(fd, -1), EINVAL);
    FAILS(truncate("f", -1), EINVAL);
    FAILS(truncate("missing", 0), ENOENT);
    FAILS(truncate(".", 0), EISDIR);
    int ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(ftruncate(ends[1], 0), EINVAL);
}

CASE(truncated_tail_does_not_come_back) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    char page[PAGE], text[200];
    memset(page, 'x', sizeof page);
    CHECK_EQ(write(fd, page, sizeof page), PAGE);
    CHECK(ftruncate(fd, 100) == 0);
    CHECK(ftruncate(fd, (off_t)PAGE) == 0);
    CHECK_EQ(pread(fd, text, sizeof text, 50), 200);
    CHECK_EQ(text[49], 'x');
    CHECK_EQ(text[50], 0);
    CHECK_EQ(text[199], 0);
}

CASE(fallocate_extends_and_keeps_size) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    struct stat status;
    CHECK(fallocate(fd, 0, 0, 10000) == 0);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 10000);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 20000) == 0);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 10000);
    CHECK_EQ(pwrite(fd, "data", 4, 4096), 4);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
    char byte = 'x';
    CHECK_EQ(pread(fd, &byte, 1, 4096), 1);
    CHECK_EQ(byte, 0);
    FAILS(fallocate(fd, 0, -1, 10), EINVAL);
    FAILS(fallocate(fd, 0, 0, 0), EINVAL);
    FAILS(fallocate(fd, 0x8000, 0, 10), EOPNOTSUPP);
}

CASE(unlinked_file_lives_while_open) {
    write_file("f", "alive");
    int fd = open("f", O_RDWR);
    struct stat status;
    char text[8];
    CHECK(unlink("f") == 0);
    FAILS(open("f", O_RDONLY), ENOENT);
    CHECK(fstat(fd, &status) == 0);
    CHECK_EQ(status.st_nlink, 0);
    CHECK_EQ(pread(fd, text, sizeof text, 0), 5);
    CHECK_EQ(pwrite(fd, "still", 5, 5), 5);
    write_file("f", "new"); // another file of the same name
    CHECK_EQ(pread(fd, text, 5, 5), 5);
    CHECK(memcmp(text, "still", 5) == 0);
}

CASE(sendfile_copies_from_offset_or_position) {
    write_file("from", "0123456789");
    int from = open("from", O_RDONLY), to = open("to", O_RDWR | O_CREAT, 0600);
    off_t offset = 3;
    CHECK_EQ(sendfile(to, from, &offset, 4), 4);
    CHECK_EQ(offset, 7);
    CHECK_EQ(lseek(from, 0, SEEK_CUR), 0);
    CHECK_EQ(sendfile(to, from, NULL, 100), 10);
    CHECK_EQ(sendfile(to, from, NULL, 100), 0);
    check_contents("to", "34560123456789");
    int ends[2];
    CHECK(pipe(ends) == 0);
    offset = 8;
    CHECK_EQ(sendfile(ends[1], from, &offset, 100), 2);
    FAILS(sendfile(from, from, NULL, 1), EBADF); // not open for writing
    offset = -1;
    FAILS(sendfile(to, from, &offset, 1), EINVAL);
}

CASE(copy_file_range_copies) {
    write_file("from", "0123456789");
    int from = open("from", O_RDONLY), to = open("to", O_RDWR | O_CREAT, 0600);
    off_t in = 2, out = 1;
    CHECK_EQ(copy_file_range(from, &in, to, &out, 5, 0), 5);
    CHECK(in == 7 && out == 6);
    char text[8];
    CHECK_EQ(pread(to, text, 8, 0), 6);
    CHECK(memcmp(text, "\00023456", 6) == 0);
    FAILS(copy_file_range(from, NULL, to, NULL, 5, 1), EINVAL);
    FAILS(copy_file_range(from, NULL, from, NULL, 5, 0), EBADF);
}

CASE(big_file_keeps_its_bytes) {
    int fd = open("f", O_RDWR | O_CREAT, 0600);
    static unsigned block[16384];
    for (unsigned i = 0; i < 32; i++) { // 2 MiB
        for (unsigned j = 0; j < COUNT(block); j++)
            block[j] = i * 2654435761U + j;
        CHECK_EQ(write(fd, block, sizeof block), sizeof block);
    }
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    for (unsigned i = 0; i < 32; i++) {
        CHECK_EQ(read(fd, block, sizeof block), sizeof block);
        for (unsigned j = 0; j < COUNT(block); j += 97)
            CHECK_EQ(block[j], i * 2654435761U + j);
    }
}

CASE(sync_calls_succeed) {
    write_file("f", "x");
    int fd = open("f", O_RDWR), ends[2];
    CHECK(fsync(fd) == 0);
    CHECK(fdatasync(fd) == 0);
    CHECK(syncfs(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
    CHECK(pipe(ends) == 0);
    FAILS(fsync(ends[0]), EINVAL);
    CHECK_EQ(posix_fadvise(ends[0], 0, 0, POSIX_FADV_NORMAL), ESPIPE);
}

static void *appends(void *letter) {
    int fd = open("shared", O_WRONLY | O_APPEND);
    char line[32];
    memset(line, (int)(intptr_t)letter, sizeof line);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(write(fd, line, sizeof line), sizeof line);
    CHECK(close(fd) == 0);
    return NULL;
}

CASE(appends_of_threads_do_not_mix) {
    write_file("shared", "");
    pthread_t threads[3];
    for (intptr_t i = 0; i < 3; i++)
        threads[i] = spawn(appends, (void *)('a' + i));
    for (size_t i = 0; i < 3; i++)
        join(threads[i]);
    int fd = open("shared", O_RDONLY), count = 0;
    char line[32];
    while (read(fd, line, sizeof line) == sizeof line) {
        for (size_t i = 1; i < sizeof line; i++)
            CHECK_EQ(line[i], line[0]);
        count++;
    }
    CHECK_EQ(count, 300);
}
