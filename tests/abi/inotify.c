// SPDX-License-Identifier: Apache-2.0
//
// inotify(7): which changes of files are told, in which order, and how they are read.
#include "harness.h"

#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/epoll.h>

static const struct {
    uint32_t bit;
    const char *name;
} BITS[] = {
    {IN_ACCESS, "ACCESS"},         {IN_MODIFY, "MODIFY"},         {IN_ATTRIB, "ATTRIB"},
    {IN_CLOSE_WRITE, "CLOSE_WR"},  {IN_CLOSE_NOWRITE, "CLOSE_RD"}, {IN_OPEN, "OPEN"},
    {IN_MOVED_FROM, "FROM"},       {IN_MOVED_TO, "TO"},           {IN_CREATE, "CREATE"},
    {IN_DELETE, "DELETE"},         {IN_DELETE_SELF, "DELETE_SELF"}, {IN_MOVE_SELF, "MOVE_SELF"},
    {IN_Q_OVERFLOW, "OVERFLOW"},   {IN_IGNORED, "IGNORED"},       {IN_ISDIR, "(dir)"},
};

// Records all events that wait. Cookies are shown as whether they equal the event's before.
static void observe_events(int fd) {
    static uint32_t last_cookie;
    _Alignas(struct inotify_event) char buffer[4096];
    for (;;) {
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got < 0) {
            CHECK_EQ(errno, EAGAIN);
            return;
        }
        for (char *at = buffer; at < buffer + got;) {
            struct inotify_event *event = (struct inotify_event *)at;
            char text[256] = "";
            for (size_t i = 0; i < COUNT(BITS); i++)
                if (event->mask & BITS[i].bit)
                    sprintf(text + strlen(text), " %s", BITS[i].name);
            const char *cookie = !event->cookie ? "" : event->cookie == last_cookie ? " same cookie" : " new cookie";
            last_cookie = event->cookie;
            OBSERVE("wd %d%s%s%s, name of %u bytes: %s", event->wd, text, cookie, "", event->len,
                    event->len ? event->name : "-");
            at += sizeof *event + event->len;
        }
    }
}

static int watching(const char *path, uint32_t mask) {
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(inotify_add_watch(fd, path, mask), 1);
    return fd;
}

CASE(a_file_comes_and_goes) {
    int fd = watching(".", IN_ALL_EVENTS);
    write_file("a", "x");
    observe_events(fd);
    write_file("a", "y");
    observe_events(fd);
    unlink("a");
    observe_events(fd);
}

CASE(reading_is_told) {
    write_file("a", "text");
    int fd = watching(".", IN_ALL_EVENTS), file = open("a", O_RDONLY);
    char buffer[8];
    CHECK_EQ(read(file, buffer, 8), 4);
    CHECK_EQ(read(file, buffer, 8), 0);
    CHECK_EQ(pread(file, buffer, 2, 0), 2);
    close(file);
    observe_events(fd);
}

CASE(equal_events_in_a_row_are_one) {
    int fd = watching(".", IN_MODIFY), file = open("a", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(write(file, "x", 1), 1);
    observe_events(fd);
    CHECK_EQ(write(file, "x", 1), 1);
    observe_events(fd);
}

CASE(descriptors_change_files) {
    int file = open("a", O_RDWR | O_CREAT, 0600), fd = watching(".", IN_ALL_EVENTS);
    CHECK_EQ(ftruncate(file, 10), 0);
    observe_events(fd);
    CHECK_EQ(fchmod(file, 0644), 0);
    observe_events(fd);
    CHECK_EQ(fallocate(file, 0, 0, 100), 0);
    observe_events(fd);
    struct timespec times[2] = {{1, 0}, {2, 0}};
    CHECK_EQ(futimens(file, times), 0);
    observe_events(fd);
    struct timespec only_access[2] = {{1, 0}, {0, UTIME_OMIT}};
    CHECK_EQ(futimens(file, only_access), 0);
    observe_events(fd);
    struct timespec only_modified[2] = {{0, UTIME_OMIT}, {3, 0}};
    CHECK_EQ(futimens(file, only_modified), 0);
    observe_events(fd);
}

CASE(paths_change_files) {
    write_file("a", "text");
    int fd = watching(".", IN_ALL_EVENTS);
    CHECK_EQ(chmod("a", 0640), 0);
    observe_events(fd);
    CHECK_EQ(truncate("a", 2), 0);
    observe_events(fd);
    CHECK_EQ(chmod(".", 0750), 0);
    observe_events(fd);
}

CASE(links_and_special_files) {
    write_file("a", "text");
    int fd = watching(".", IN_ALL_EVENTS);
    CHECK_EQ(symlink("a", "soft"), 0);
    CHECK_EQ(link("a", "hard"), 0);
    CHECK_EQ(mkfifo("fifo", 0600), 0);
    observe_events(fd);
    CHECK_EQ(unlink("hard"), 0);
    observe_events(fd);
}

CASE(a_watched_file) {
    write_file("a", "text");
    int fd = watching("a", IN_ALL_EVENTS);
    write_file("a", "more");
    observe_events(fd);
    CHECK_EQ(chmod("a", 0640), 0);
    CHECK_EQ(link("a", "b"), 0);
    observe_events(fd);
    CHECK_EQ(rename("a", "c"), 0);
    observe_events(fd);
    CHECK_EQ(unlink("b"), 0);
    observe_events(fd);
    CHECK_EQ(unlink("c"), 0);
    observe_events(fd);
    FAILS(inotify_rm_watch(fd, 1), EINVAL);
}

CASE(moves_share_a_cookie) {
    CHECK_EQ(mkdir("from", 0700), 0);
    CHECK_EQ(mkdir("to", 0700), 0);
    write_file("from/a", "text");
    int fd = watching("from", IN_ALL_EVENTS);
    CHECK_EQ(inotify_add_watch(fd, "to", IN_ALL_EVENTS), 2);
    CHECK_EQ(inotify_add_watch(fd, "from/a", IN_MOVE_SELF), 3);
    observe_events(fd);
    CHECK_EQ(rename("from/a", "to/b"), 0);
    observe_events(fd);
    CHECK_EQ(rename("to/b", "to/c"), 0);
    observe_events(fd);
    write_file("to/d", "");
    observe_events(fd);
    CHECK_EQ(rename("to/d", "to/c"), 0);
    observe_events(fd);
}

CASE(exchange_is_two_moves) {
    write_file("a", "1");
    write_file("b", "2");
    int fd = watching(".", IN_ALL_EVENTS);
    CHECK_EQ(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", 2), 0);
    observe_events(fd);
}

CASE(directories) {
    int fd = watching(".", IN_ALL_EVENTS);
    CHECK_EQ(mkdir("d", 0700), 0);
    CHECK_EQ(inotify_add_watch(fd, "d", IN_ALL_EVENTS), 2);
    observe_events(fd);
    DIR *directory = opendir("d");
    while (readdir(directory))
        continue;
    closedir(directory);
    observe_events(fd);
    CHECK_EQ(chmod("d", 0750), 0);
    observe_events(fd);
    CHECK_EQ(rename("d", "e"), 0);
    observe_events(fd);
    CHECK_EQ(rmdir("e"), 0);
    observe_events(fd);
}

CASE(a_file_renamed_while_open) {
    int file = open("a", O_RDWR | O_CREAT, 0600), fd = watching(".", IN_MODIFY);
    CHECK_EQ(rename("a", "b"), 0);
    CHECK_EQ(write(file, "x", 1), 1);
    observe_events(fd);
}

CASE(masks_choose) {
    int fd = watching(".", IN_CREATE);
    write_file("a", "x");
    unlink("a");
    observe_events(fd);
    CHECK_EQ(inotify_add_watch(fd, ".", IN_DELETE), 1);
    write_file("a", "x");
    unlink("a");
    observe_events(fd);
    CHECK_EQ(inotify_add_watch(fd, ".", IN_CREATE | IN_MASK_ADD), 1);
    write_file("a", "x");
    unlink("a");
    observe_events(fd);
    FAILS(inotify_add_watch(fd, ".", IN_CREATE | IN_MASK_CREATE), EEXIST);
}

CASE(one_shot) {
    int fd = watching(".", IN_CREATE | IN_ONESHOT);
    write_file("a", "x");
    write_file("b", "x");
    observe_events(fd);
    FAILS(inotify_rm_watch(fd, 1), EINVAL);
    CHECK_EQ(inotify_add_watch(fd, ".", IN_CREATE), 2);
}

CASE(removing_a_watch) {
    int fd = watching(".", IN_CREATE);
    write_file("a", "x");
    CHECK_EQ(inotify_rm_watch(fd, 1), 0);
    write_file("b", "x");
    observe_events(fd);
    FAILS(inotify_rm_watch(fd, 1), EINVAL);
    FAILS(inotify_rm_watch(fd, -1), EINVAL);
}

CASE(two_instances_see_the_same) {
    int first = watching(".", IN_CREATE), second = watching(".", IN_CREATE);
    write_file("a", "x");
    close(first);
    write_file("b", "x");
    observe_events(second);
}

CASE(buffers_too_small_are_refused) {
    int fd = watching(".", IN_CREATE);
    char buffer[64];
    FAILS(read(fd, buffer, 64), EAGAIN);
    write_file("a", "x");
    write_file("b", "x");
    FAILS(read(fd, buffer, 31), EINVAL);
    CHECK_EQ(read(fd, buffer, 63), 32);
    int left = 0;
    CHECK_EQ(ioctl(fd, FIONREAD, &left), 0);
    CHECK_EQ(left, 32);
    CHECK_EQ(read(fd, buffer, 64), 32);
    CHECK_EQ(ioctl(fd, FIONREAD, &left), 0);
    CHECK_EQ(left, 0);
    FAILS(write(fd, buffer, 1), EBADF);
}

CASE(names_are_padded) {
    int fd = watching(".", IN_CREATE);
    write_file("fifteen-letters", "");
    write_file("sixteen--letters", "");
    observe_events(fd);
}

CASE(poll_and_epoll_wait_for_events) {
    int fd = watching(".", IN_CREATE), epoll = epoll_create1(0);
    struct pollfd poller = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK_EQ(poll(&poller, 1, 0), 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd}, got;
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    CHECK_EQ(epoll_wait(epoll, &got, 1, 0), 0);
    write_file("a", "x");
    CHECK_EQ(poll(&poller, 1, 0), 1);
    CHECK_EQ(poller.revents, POLLIN);
    CHECK_EQ(epoll_wait(epoll, &got, 1, 0), 1);
    CHECK_EQ(epoll_wait(epoll, &got, 1, 0), 0);
    write_file("b", "x");
    CHECK_EQ(epoll_wait(epoll, &got, 1, 0), 1);
}

static void *create_soon(void *name) {
    usleep(20000);
    write_file(name, "x");
    return NULL;
}

CASE(reading_waits) {
    int fd = inotify_init();
    CHECK(fd >= 0);
    CHECK_EQ(inotify_add_watch(fd, ".", IN_CREATE), 1);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, create_soon, "late"), 0);
    char buffer[64];
    CHECK_EQ(read(fd, buffer, sizeof buffer), 32);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

CASE(too_many_events_overflow) {
    int fd = watching(".", IN_ATTRIB);
    write_file("a", "x");
    write_file("b", "x");
    for (int i = 0; i < 9000; i++) {
        CHECK_EQ(chmod("a", 0600), 0);
        CHECK_EQ(chmod("b", 0600), 0);
    }
    static _Alignas(struct inotify_event) char buffer[1 << 20];
    ssize_t got = read(fd, buffer, sizeof buffer);
    CHECK_EQ(got, 16384 * 32 + 16);
    struct inotify_event *last = (struct inotify_event *)(buffer + got - 16);
    CHECK_EQ(last->mask, IN_Q_OVERFLOW);
    CHECK_EQ(last->wd, -1);
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
}

CASE(wrong_arguments) {
    int fd = watching(".", IN_CREATE), other = open("f", O_RDWR | O_CREAT, 0600);
    FAILS(inotify_init1(1), EINVAL);
    FAILS(inotify_add_watch(fd, ".", 0), EINVAL);
    FAILS(inotify_add_watch(fd, ".", IN_CREATE | IN_MASK_ADD | IN_MASK_CREATE), EINVAL);
    FAILS(inotify_add_watch(fd, "none", IN_CREATE), ENOENT);
    FAILS(inotify_add_watch(fd, "f", IN_CREATE | IN_ONLYDIR), ENOTDIR);
    FAILS(inotify_add_watch(other, ".", IN_CREATE), EINVAL);
    FAILS(inotify_add_watch(-1, ".", IN_CREATE), EBADF);
    FAILS(inotify_add_watch(fd, (char *)1, IN_CREATE), EFAULT);
    FAILS(inotify_rm_watch(other, 1), EINVAL);
    FAILS(inotify_rm_watch(-1, 1), EBADF);
    CHECK_EQ(symlink("none", "dangling"), 0);
    FAILS(inotify_add_watch(fd, "dangling", IN_ATTRIB), ENOENT);
    CHECK_EQ(inotify_add_watch(fd, "dangling", IN_ATTRIB | IN_DONT_FOLLOW), 2);
}
