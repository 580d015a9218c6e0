// SPDX-License-Identifier: Apache-2.0
//
// /proc and /sys: the parts that runtimes read.
#include "harness.h"
#include <elf.h>
#include <limits.h>
#include <sched.h>
#include <sys/auxv.h>

static char text[65536];

static size_t get(const char *path) { return read_file(path, text, sizeof text); }

// The number behind a line's name in /proc/self/status, /proc/meminfo and their kind; -1: no such line.
static long field(const char *name) {
    size_t size = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, name, size) && line[size] == ':')
            return strtol(line + size + 1, NULL, 0);
    return -1;
}

CASE(self_exe_is_this_program) {
    char path[PATH_MAX] = "";
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(size > 0);
    CHECK_EQ(path[0], '/');
    CHECK(!strcmp(strrchr(path, '/') + 1, program_invocation_short_name));
    int fd = open("/proc/self/exe", O_RDONLY);
    Elf64_Ehdr header;
    CHECK_EQ(read(fd, &header, sizeof header), sizeof header);
    CHECK(memcmp(header.e_ident, ELFMAG, SELFMAG) == 0);
    CHECK_EQ(header.e_machine, EM_X86_64);
    struct stat one, two;
    CHECK(stat(path, &one) == 0 && fstat(fd, &two) == 0);
    CHECK_EQ(one.st_ino, two.st_ino);
}

struct line {
    unsigned long start, end, offset;
    char rights[5], name[256];
};

// The line of /proc/self/maps that covers the address.
static bool find_mapping(const void *address, struct line *found) {
    get("/proc/self/maps");
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        struct line one = {0};
        unsigned major, minor;
        unsigned long inode;
        CHECK(sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %255[^\n]", &one.start, &one.end, one.rights, &one.offset, &major,
                     &minor, &inode, one.name) >= 7);
        CHECK(one.start < one.end && one.start % PAGE == 0 && one.end % PAGE == 0);
        if ((unsigned long)address >= one.start && (unsigned long)address < one.end) {
            *found = one;
            return true;
        }
    }
    return false;
}

CASE(maps_show_mappings_and_rights) {
    char *at = pages(4);
    struct line line;
    CHECK(find_mapping(at, &line));
    CHECK(!strcmp(line.rights, "rw-p"));
    CHECK(mprotect(at + PAGE, 2 * PAGE, PROT_READ) == 0);
    CHECK(find_mapping(at + PAGE, &line));
    CHECK_EQ(line.start, (unsigned long)at + PAGE);
    CHECK_EQ(line.end, (unsigned long)at + 3 * PAGE);
    CHECK(!strcmp(line.rights, "r--p"));
    CHECK(mprotect(at + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(find_mapping(at + PAGE, &line));
    CHECK(!strcmp(line.rights, "---p"));
    CHECK(munmap(at + 2 * PAGE, PAGE) == 0);
    CHECK(!find_mapping(at + 2 * PAGE, &line));
}

CASE(maps_name_stack_and_files) {
    struct line line;
    int here;
    CHECK(find_mapping(&here, &line));
    CHECK(strstr(line.name, "[stack]") != NULL);
    CHECK(!strcmp(line.rights, "rw-p"));
    CHECK(find_mapping((void *)(uintptr_t)&find_mapping, &line));
    CHECK(!strcmp(line.rights, "r-xp"));
    CHECK(strstr(line.name, program_invocation_short_name) != NULL);
    write_file("mapped", "some text");
    int fd = open("mapped", O_RDWR);
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(find_mapping(at, &line));
    CHECK(!strcmp(line.rights, "r--s"));
    CHECK(strstr(line.name, "/mapped") != NULL);
    CHECK_EQ(line.offset, 0);
}

CASE(maps_are_sorted_and_do_not_overlap) {
    get("/proc/self/maps");
    unsigned long last = 0;
    int count = 0;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long start, end;
        CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        CHECK(start >= last && end > start);
        last = end;
        count++;
    }
    CHECK(count > 5);
}

CASE(stat_has_its_fields) {
    memset(pages(1024), 1, 1024 * PAGE); // resident pages may be counted a little late, not by so much
    get("/proc/self/stat");
    int pid;
    char state;
    char *behind = strrchr(text, ')');
    CHECK(sscanf(text, "%d (", &pid) == 1);
    CHECK_EQ(pid, getpid());
    CHECK(behind != NULL && sscanf(behind, ") %c", &state) == 1);
    CHECK_EQ(state, 'R');
    int fields = 2;
    for (char *at = behind + 1; *at; at++)
        fields += *at == ' ';
    CHECK_EQ(fields, 52);
    long value = 0; // field 20 is the number of threads, 23 the virtual size, 24 the resident pages
    char *at = behind + 2;
    for (int i = 3; i < 20; i++)
        at = strchr(at, ' ') + 1;
    CHECK(sscanf(at, "%ld", &value) == 1 && value >= 2); // this one and the watchdog
    for (int i = 20; i < 23; i++)
        at = strchr(at, ' ') + 1;
    CHECK(sscanf(at, "%ld", &value) == 1 && value > 100000);
    at = strchr(at, ' ') + 1;
    CHECK(sscanf(at, "%ld", &value) == 1 && value > 900);
}

CASE(status_has_what_programs_ask_for) {
    get("/proc/self/status");
    CHECK_EQ(field("Pid"), getpid());
    CHECK_EQ(field("Tgid"), getpid());
    CHECK_EQ(field("Uid"), getuid());
    CHECK_EQ(field("Gid"), getgid());
    CHECK(field("Threads") >= 2);
    CHECK(field("VmRSS") > 0 && field("VmSize") >= field("VmRSS"));
    CHECK(strstr(text, "Name:\t") == text);
    CHECK(strstr(text, "\nState:\tR (running)\n") != NULL);
    CHECK(field("SigQ") >= 0);
    CHECK(strstr(text, "\nCpus_allowed_list:\t") != NULL);
}

CASE(resident_memory_follows_touching) {
    get("/proc/self/status");
    long before = field("VmRSS");
    char *at = pages(1024);
    memset(at, 1, 1024 * PAGE);
    get("/proc/self/status");
    long during = field("VmRSS");
    CHECK(munmap(at, 1024 * PAGE) == 0);
    get("/proc/self/status");
    CHECK(during - before > 3500);              // 4096 KiB, counted a little late at most
    CHECK(during - field("VmRSS") > 3500);
    long size, resident;
    get("/proc/self/statm");
    CHECK(sscanf(text, "%ld %ld", &size, &resident) == 2);
    CHECK(size > resident && resident > 0);
}

CASE(cmdline_and_environ) {
    size_t size = get("/proc/self/cmdline");
    CHECK(size > 0 && text[size - 1] == 0);
    const char *name = strrchr(text, '/') ? strrchr(text, '/') + 1 : text;
    CHECK(!strcmp(name, program_invocation_short_name));
    get("/proc/self/environ");
}

CASE(comm_can_be_read_and_set) {
    int fd = open("/proc/self/comm", O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, "renamed", 7), 7);
    CHECK_EQ(get("/proc/self/comm"), 8);
    CHECK(!strcmp(text, "renamed\n"));
    fd = open("/proc/self/comm", O_WRONLY);
    CHECK(write(fd, program_invocation_short_name, strlen(program_invocation_short_name)) > 0);
}

CASE(auxv_file_equals_getauxval) {
    size_t size = get("/proc/self/auxv");
    Elf64_auxv_t *vector = (Elf64_auxv_t *)text;
    CHECK_EQ(size % sizeof *vector, 0);
    int checked = 0;
    for (size_t i = 0; i < size / sizeof *vector && vector[i].a_type != AT_NULL; i++) {
        if (vector[i].a_type == AT_HWCAP) // the C library puts its own value in the place of this one
            continue;
        CHECK_EQ(vector[i].a_un.a_val, getauxval(vector[i].a_type));
        checked++;
    }
    CHECK(checked > 10);
    CHECK(getauxval(AT_RANDOM) != 0 && getauxval(AT_PHNUM) > 0 && getauxval(AT_ENTRY) != 0);
    CHECK_EQ(getauxval(AT_PAGESZ), PAGE);
    CHECK_EQ(getauxval(AT_CLKTCK), 100);
}

CASE(fd_folder_lists_descriptors) {
    write_file("f", "x");
    int fd = open("f", O_RDONLY);
    char path[64], target[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, target, sizeof target - 1) > 0);
    CHECK(strlen(target) > 2 && !strcmp(strrchr(target, '/'), "/f"));
    int ends[2];
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    memset(target, 0, sizeof target);
    CHECK(readlink(path, target, sizeof target - 1) > 0);
    CHECK(!strncmp(target, "pipe:[", 6));
    FAILS(readlink("/proc/self/fd/99", target, sizeof target), ENOENT);
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        found += atoi(entry->d_name) == fd || atoi(entry->d_name) == ends[1];
    closedir(folder);
    CHECK_EQ(found, 2);
}

static atomic_int may_end;

static void *waits(void *unused) {
    (void)unused;
    await(&may_end, 1);
    return NULL;
}

static int tasks(void) {
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += atoi(entry->d_name) > 0;
    closedir(folder);
    return count;
}

CASE(task_folder_counts_threads) {
    atomic_store(&may_end, 0);
    int before = tasks();
    pthread_t one = spawn(waits, NULL), two = spawn(waits, NULL);
    int during = tasks();
    atomic_store(&may_end, 1);
    join(one);
    join(two);
    CHECK_EQ(during, before + 2);
}

CASE(proc_self_is_the_pid) {
    char target[32] = "", path[64];
    CHECK(readlink("/proc/self", target, sizeof target - 1) > 0);
    CHECK_EQ(atoi(target), getpid());
    snprintf(path, sizeof path, "/proc/%d/status", getpid());
    get(path);
    CHECK_EQ(field("Pid"), getpid());
    CHECK(access("/proc/999999", F_OK) == -1);
}

CASE(meminfo) {
    get("/proc/meminfo");
    long total = field("MemTotal"), unused = field("MemFree"), available = field("MemAvailable");
    CHECK(total > 4096);
    CHECK(unused > 0 && unused < total);
    CHECK(available > 0 && available <= total);
    CHECK(field("Buffers") >= 0 && field("Cached") >= 0 && field("SwapTotal") >= 0);
}

CASE(cpuinfo_and_online_agree_with_affinity) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    get("/proc/cpuinfo");
    int processors = 0;
    for (char *at = text; (at = strstr(at, "processor\t")); at++)
        processors++;
    CHECK(processors >= CPU_COUNT(&set));
    CHECK(strstr(text, "vendor_id\t: ") && strstr(text, "flags\t\t: ") && strstr(text, " sse2 "));
    get("/sys/devices/system/cpu/online");
    int first = -1, last = -1;
    int count = sscanf(text, "%d-%d", &first, &last);
    CHECK(count >= 1 && first == 0);
    CHECK_EQ(count == 2 ? last + 1 : 1, processors);
    CHECK_EQ(sysconf(_SC_NPROCESSORS_ONLN), processors);
    get("/sys/devices/system/cpu/possible");
    CHECK_EQ(text[0], '0');
}

CASE(proc_stat_and_uptime) {
    get("/proc/stat");
    CHECK(!strncmp(text, "cpu  ", 5));
    CHECK(strstr(text, "\ncpu0 ") && strstr(text, "\nbtime "));
    double up = 0, idle = 0;
    get("/proc/uptime");
    CHECK(sscanf(text, "%lf %lf", &up, &idle) == 2);
    double now = (double)clock_ns(CLOCK_BOOTTIME) / SECOND;
    CHECK(up > 0 && up <= now + 0.01 && up > now - 5);
    double load;
    get("/proc/loadavg");
    CHECK(sscanf(text, "%lf", &load) == 1 && load >= 0);
}

CASE(sysctl_values_that_runtimes_read) {
    long value = 0;
    get("/proc/sys/net/core/somaxconn");
    CHECK(sscanf(text, "%ld", &value) == 1 && value >= 128);
    get("/proc/sys/kernel/pid_max");
    CHECK(sscanf(text, "%ld", &value) == 1 && value >= 1024);
    get("/proc/sys/vm/overcommit_memory");
    CHECK(sscanf(text, "%ld", &value) == 1 && value >= 0 && value <= 2);
    get("/proc/sys/vm/max_map_count");
    CHECK(sscanf(text, "%ld", &value) == 1 && value >= 65530);
    get("/proc/sys/kernel/osrelease");
    CHECK(sscanf(text, "%ld.", &value) == 1 && value >= 4);
    get("/proc/sys/kernel/hostname");
    CHECK(strlen(text) > 1);
    get("/proc/version");
    CHECK(!strncmp(text, "Linux version ", 14));
    get("/proc/sys/kernel/random/boot_id");
    CHECK_EQ(strlen(text), 37);
    CHECK(text[8] == '-' && text[13] == '-');
}

CASE(random_uuid_changes) {
    char first[64];
    CHECK_EQ(get("/proc/sys/kernel/random/uuid"), 37);
    memcpy(first, text, 37);
    CHECK_EQ(get("/proc/sys/kernel/random/uuid"), 37);
    CHECK(memcmp(first, text, 37) != 0);
    CHECK_EQ(first[14], '4'); // version 4: random
}

CASE(net_route_has_linux_columns) {
    get("/proc/net/route");
    char *line = strtok(text, "\n");
    CHECK(line != NULL);
    OBSERVE("%s|", line);
    while ((line = strtok(NULL, "\n")) != NULL) {
        char name[32];
        unsigned to, gateway, flags, mask;
        int end = 0;
        CHECK_EQ(strlen(line), 127);
        CHECK_EQ(sscanf(line, "%31s %8X %8X %4X %*d %*u %*d %8X %*d %*u %*u%n", name, &to, &gateway, &flags, &mask, &end), 5);
        CHECK(line[end + strspn(line + end, " ")] == 0);
        CHECK(strcmp(name, "lo") != 0);
        CHECK_EQ(to & ~mask, 0);
        CHECK(flags & 1);
        CHECK_EQ((flags & 2) != 0, gateway != 0);
    }
}

CASE(filesystems_and_mounts) {
    get("/proc/self/mounts");
    CHECK(strstr(text, " / ") != NULL);
    CHECK(strstr(text, " /proc proc ") != NULL);
    get("/proc/self/mountinfo");
    CHECK(strstr(text, " - proc ") != NULL);
    get("/proc/self/cgroup");
    get("/proc/self/limits");
    CHECK(strstr(text, "Max open files") != NULL);
}

CASE(proc_files_can_be_read_in_pieces) {
    size_t size = get("/proc/self/status");
    char byte, *all = malloc(size + 4096);
    size_t count = 0;
    int fd = open("/proc/self/status", O_RDONLY);
    while (count < size + 4095 && read(fd, &byte, 1) == 1)
        all[count++] = byte;
    all[count] = 0;
    CHECK(count > size / 2);
    CHECK(!strncmp(all, text, 6) && strstr(all, "\nThreads:") != NULL);
    char part[8] = "";
    CHECK_EQ(pread(fd, part, 4, 0), 4);
    CHECK(!strcmp(part, "Name"));
    free(all);
}

CASE(proc_is_not_writable_where_linux_is_not) {
    FAILS(open("/proc/self/maps", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    CHECK(open("/proc/new-file", O_WRONLY | O_CREAT, 0600) == -1);
    CHECK(mkdir("/proc/new-folder", 0755) == -1);
    CHECK(unlink("/proc/self/maps") == -1);
    CHECK(open("/proc/nonsense", O_RDONLY) == -1 && errno == ENOENT);
}
