// SPDX-License-Identifier: Apache-2.0
//
// Extended attributes of files: setxattr(2), getxattr(2), listxattr(2), removexattr(2) and their forms for links and
// descriptors. Access control lists are not among them.
#include "harness.h"
#include <sys/xattr.h>

CASE(an_attribute_is_set_read_and_removed) {
    char value[16] = "";
    write_file("f", "x");
    CHECK(setxattr("f", "user.one", "12345", 5, 0) == 0);
    CHECK_EQ(getxattr("f", "user.one", NULL, 0), 5);
    CHECK_EQ(getxattr("f", "user.one", value, sizeof value), 5);
    CHECK(memcmp(value, "12345", 5) == 0);
    CHECK(setxattr("f", "user.one", "", 0, 0) == 0);
    CHECK_EQ(getxattr("f", "user.one", value, sizeof value), 0);
    CHECK(removexattr("f", "user.one") == 0);
    FAILS(getxattr("f", "user.one", value, sizeof value), ENODATA);
    FAILS(removexattr("f", "user.one"), ENODATA);
}

CASE(names_are_listed) {
    char names[64];
    write_file("f", "");
    CHECK_EQ(listxattr("f", NULL, 0), 0);
    CHECK_EQ(listxattr("f", names, sizeof names), 0);
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0);
    CHECK(setxattr("f", "trusted.bc", "2", 1, 0) == 0);
    CHECK_EQ(listxattr("f", NULL, 0), 7 + 11);
    CHECK_EQ(listxattr("f", names, sizeof names), 7 + 11);
    CHECK(memmem(names, 18, "user.a", 7) != NULL);
    CHECK(memmem(names, 18, "trusted.bc", 11) != NULL);
    FAILS(listxattr("f", names, 17), ERANGE);
}

CASE(too_little_room_is_refused) {
    char value[8];
    write_file("f", "");
    CHECK(setxattr("f", "user.a", "12345", 5, 0) == 0);
    FAILS(getxattr("f", "user.a", value, 4), ERANGE);
}

CASE(flags_say_what_must_be_there) {
    write_file("f", "");
    FAILS(setxattr("f", "user.a", "1", 1, XATTR_REPLACE), ENODATA);
    CHECK(setxattr("f", "user.a", "1", 1, XATTR_CREATE) == 0);
    FAILS(setxattr("f", "user.a", "1", 1, XATTR_CREATE), EEXIST);
    CHECK(setxattr("f", "user.a", "2", 1, XATTR_REPLACE) == 0);
    FAILS(setxattr("f", "user.a", "1", 1, 4), EINVAL);
}

CASE(names_are_checked) {
    char name[300] = "user.", value[4];
    write_file("f", "");
    memset(name + 5, 'x', 250);
    CHECK(setxattr("f", name, "1", 1, 0) == 0);
    name[255] = 'x';
    FAILS(setxattr("f", name, "1", 1, 0), ERANGE);
    FAILS(setxattr("f", "", "1", 1, 0), ERANGE);
    FAILS(getxattr("f", "", value, sizeof value), ERANGE);
    FAILS(setxattr("f", "user.", "1", 1, 0), EINVAL);
    FAILS(setxattr("f", "nokind", "1", 1, 0), EOPNOTSUPP);
    FAILS(getxattr("f", "nokind.x", value, sizeof value), EOPNOTSUPP);
    FAILS(setxattr("f", "user.a", "1", 65537, 0), E2BIG);
    FAILS(setxattr("f", NULL, "1", 1, 0), EFAULT);
    FAILS(setxattr("f", "user.a", (void *)8, 1, 0), EFAULT);
    FAILS(setxattr("none", "user.a", "1", 1, 0), ENOENT);
}

CASE(descriptors_have_the_attributes_of_their_file) {
    char value[4];
    write_file("f", "");
    int fd = open("f", O_RDONLY);
    CHECK(fsetxattr(fd, "user.a", "1", 1, 0) == 0);
    CHECK_EQ(getxattr("f", "user.a", value, sizeof value), 1);
    CHECK_EQ(flistxattr(fd, NULL, 0), 7);
    CHECK(fremovexattr(fd, "user.a") == 0);
    FAILS(fgetxattr(fd, "user.a", value, sizeof value), ENODATA);
    FAILS(fgetxattr(-1, "user.a", value, sizeof value), EBADF);
    int path = open("f", O_PATH);
    FAILS(fgetxattr(path, "user.a", value, sizeof value), EBADF);
}

CASE(pipes_have_none) {
    int ends[2];
    char value[4];
    CHECK(pipe(ends) == 0);
    CHECK_EQ(flistxattr(ends[0], NULL, 0), 0);
    FAILS(fgetxattr(ends[0], "user.a", value, sizeof value), ENODATA);
    FAILS(fsetxattr(ends[0], "user.a", "1", 1, 0), EPERM);
}

CASE(links_have_their_own_but_no_user_attributes) {
    char value[4];
    write_file("f", "");
    CHECK(symlink("f", "l") == 0);
    CHECK(setxattr("l", "user.a", "1", 1, 0) == 0);
    CHECK_EQ(getxattr("f", "user.a", value, sizeof value), 1);
    FAILS(lsetxattr("l", "user.a", "1", 1, 0), EPERM);
    FAILS(lgetxattr("l", "user.a", value, sizeof value), ENODATA);
    CHECK(lsetxattr("l", "trusted.a", "1", 1, 0) == 0);
    CHECK_EQ(lgetxattr("l", "trusted.a", value, sizeof value), 1);
    CHECK_EQ(llistxattr("l", NULL, 0), 10);
    CHECK(lremovexattr("l", "trusted.a") == 0);
}

CASE(directories_have_attributes_that_move_with_them) {
    char value[4];
    CHECK(mkdir("d", 0755) == 0);
    CHECK(setxattr("d", "user.a", "1", 1, 0) == 0);
    CHECK(rename("d", "e") == 0);
    CHECK_EQ(getxattr("e", "user.a", value, sizeof value), 1);
}

CASE(a_change_is_a_change_of_the_status) {
    struct stat before, after;
    write_file("f", "");
    CHECK(stat("f", &before) == 0);
    usleep(20000);
    CHECK(setxattr("f", "user.a", "1", 1, 0) == 0);
    CHECK(stat("f", &after) == 0);
    CHECK(memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim) == 0);
    CHECK(memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim) != 0);
}

CASE(proc_keeps_none) {
    char value[4];
    CHECK_EQ(listxattr("/proc/version", NULL, 0), 0);
    FAILS(getxattr("/proc/version", "user.a", value, sizeof value), EOPNOTSUPP);
    FAILS(setxattr("/proc/version", "user.a", "1", 1, 0), EOPNOTSUPP);
}
