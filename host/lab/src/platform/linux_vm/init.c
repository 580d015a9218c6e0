// SPDX-License-Identifier: Apache-2.0

// The first program of the lab's Linux VM. It does the least a Linux machine needs before a service can run: mounts,
// kernel modules, one network interface, the disks. Then it starts the service and waits for its end.
//
// Arguments (from the kernel command line, after `--`): ADDRESS NETMASK GATEWAY, or nothing for no network.
// Modules are those named, in load order, one path a line, in /modules/order.
// /job says what to run: strings that each end in NUL, see read_job.
//
// The host is spoken to over ports of a virtio console: 1 and 2 are the service's standard output and error, 3 is for
// control: from here "started", "exit CODE" and "error TEXT", from the host "stop", which becomes SIGTERM.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// Control port; -1 before it is open.
static int control = -1;

// Ends the machine. With `reboot=t` on the kernel's command line and QEMU's -no-reboot that is at once.
static void power_off(void)
{
    sync();
    reboot(RB_AUTOBOOT);
    _exit(1);
}

static void tell(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || control < 0)
        return;
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(control, line, length) != length)
        perror("control");
}

static void die(const char *what)
{
    tell("error %s: %s", what, strerror(errno));
    power_off();
}

static void make_folder(const char *path)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        die(path);
}

static void mount_at(const char *type, const char *where, const char *options)
{
    make_folder(where);
    if (mount(type, where, type, 0, options) < 0)
        die(where);
}

static void load_modules(void)
{
    char path[256];
    FILE *order = fopen("/modules/order", "re");
    if (!order)
        die("/modules/order");
    while (fgets(path, sizeof path, order)) {
        path[strcspn(path, "\n")] = 0;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0)
            die(path);
        close(fd);
    }
    fclose(order);
}

// The kernel opens no console for us, so the numbers of the standard streams are free; nothing else may get them.
static void open_streams(void)
{
    int fd = open("/dev/null", O_RDWR);
    if (fd != 0 || dup(fd) != 1 || dup(fd) != 2)
        die("/dev/null");
}

// A port appears when the host has answered that it is there, shortly after its driver was loaded.
static int open_port(int number, int flags)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/vport0p%d", number);
    for (int tries = 0; tries < 50000; tries++) {
        int fd = open(path, flags | O_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (errno != ENOENT && errno != ENXIO && errno != ENODEV)
            die(path);
        usleep(100);
    }
    die(path);
    return -1;
}

static struct sockaddr_in ipv4(const char *text)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        die(text);
    return address;
}

static void interface_up(int socket, const char *name)
{
    struct ifreq request = { 0 };
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (ioctl(socket, SIOCGIFFLAGS, &request) < 0)
        die(name);
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(socket, SIOCSIFFLAGS, &request) < 0)
        die(name);
}

static void configure_network(char **argv)
{
    struct ifreq request = { .ifr_name = "eth0" };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    interface_up(fd, "lo");
    if (!argv[1]) {
        close(fd);
        return;
    }
    if (!argv[2] || !argv[3])
        die("want ADDRESS NETMASK GATEWAY");
    struct sockaddr_in value = ipv4(argv[1]);
    memcpy(&request.ifr_addr, &value, sizeof value);
    if (ioctl(fd, SIOCSIFADDR, &request) < 0)
        die("eth0 address");
    value = ipv4(argv[2]);
    memcpy(&request.ifr_netmask, &value, sizeof value);
    if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
        die("eth0 netmask");
    interface_up(fd, "eth0");

    struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
    struct sockaddr_in any = { .sin_family = AF_INET };
    value = ipv4(argv[3]);
    memcpy(&route.rt_dst, &any, sizeof any);
    memcpy(&route.rt_genmask, &any, sizeof any);
    memcpy(&route.rt_gateway, &value, sizeof value);
    if (ioctl(fd, SIOCADDRT, &route) < 0)
        die("default route");
    close(fd);
}

struct job {
    char *folder;       // working folder in the root
    char *runtime;      // "" or "cgroups": prepare control groups for a container runtime in the initial file system
    unsigned uid, gid;
    char **volumes;     // where the disks behind the first go
    char **arguments;
    char **environment;
};

// `count` strings from *at on, as a vector that ends in NULL.
static char **take(char ***at, size_t count)
{
    char **vector = calloc(count + 1, sizeof *vector);
    if (!vector)
        die("memory");
    for (size_t index = 0; index < count; index++) {
        if (!**at)
            die("/job ends too early");
        vector[index] = *(*at)++;
    }
    return vector;
}

static size_t take_count(char ***at)
{
    char **one = take(at, 1);
    return strtoul(one[0], NULL, 10);
}

// /job: working folder, runtime, user, group, number of volumes, volumes, number of arguments, arguments, environment.
static struct job read_job(void)
{
    struct stat status;
    int fd = open("/job", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        die("/job");
    char *text = calloc(status.st_size + 1, 1);
    char **all = calloc(status.st_size + 1, sizeof *all);
    if (!text || !all || read(fd, text, status.st_size) != status.st_size)
        die("/job");
    close(fd);
    size_t count = 0;
    for (char *at = text; at < text + status.st_size; at += strlen(at) + 1)
        all[count++] = at;
    struct job job;
    job.folder = *take(&all, 1);
    job.runtime = *take(&all, 1);
    job.uid = take_count(&all);
    job.gid = take_count(&all);
    job.volumes = take(&all, take_count(&all));
    job.arguments = take(&all, take_count(&all));
    job.environment = all;
    return job;
}

// The folder of `path` and those above it, then `path`.
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        make_folder(path);
        *slash = '/';
    }
    make_folder(path);
}

// The root file system at /root with the volumes in it.
static void mount_disks(const struct job *job)
{
    make_folder("/root");
    if (mount("/dev/vda", "/root", "ext4", MS_NOATIME, NULL) < 0)
        die("/dev/vda");
    for (int index = 0; job->volumes[index]; index++) {
        char device[16], path[4096];
        snprintf(device, sizeof device, "/dev/vd%c", 'b' + index);
        snprintf(path, sizeof path, "/root/%s", job->volumes[index]);
        make_folders(path);
        if (mount(device, path, "ext4", MS_NOATIME, NULL) < 0)
            die(device);
    }
}

static void mount_system(void)
{
    mount_at("devtmpfs", "/dev", NULL);
    make_folder("/dev/shm");
    mount_at("tmpfs", "/dev/shm", "mode=1777");
    mount_at("proc", "/proc", NULL);
    mount_at("sysfs", "/sys", NULL);
    mount_at("tmpfs", "/tmp", "mode=1777");
}

// The disk becomes the root, as it would after a boot loader.
static void enter_root(void)
{
    if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        die("/root");
    mount_system();
}

// One hierarchy of control groups with all controllers, and a root in which a runtime can pivot: the initial file system
// itself cannot be a mount that is left.
static void prepare_runtime(void)
{
    mount_at("proc", "/proc", NULL);
    mount_at("sysfs", "/sys", NULL);
    mount_at("tmpfs", "/run", NULL);
    mount_at("tmpfs", "/tmp", "mode=1777");
    make_folder("/dev/pts");
    mount_at("devpts", "/dev/pts", NULL);
    if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0)
        die("/sys/fs/cgroup");
}

static pid_t start(const struct job *job, int out, int err)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child > 0)
        return child;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int in = open("/dev/null", O_RDONLY);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        die("streams");
    struct rlimit files = { 65536, 65536 };
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        die("RLIMIT_NOFILE");
    gid_t group = job->gid;
    if (setgroups(1, &group) < 0 || setgid(job->gid) < 0 || setuid(job->uid) < 0)
        die("user");
    if (chdir(job->folder) < 0)
        die(job->folder);
    execve(job->arguments[0], job->arguments, job->environment);
    tell("error %s: %s", job->arguments[0], strerror(errno));
    _exit(127);
}

// Waits for the end of `child`; passes the host's wish to stop on. Answers the exit code, 128+n for a signal.
static int supervise(pid_t child, int ends)
{
    struct pollfd ready[2] = { { .fd = ends, .events = POLLIN }, { .fd = control, .events = POLLIN } };
    for (;;) {
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            die("poll");
        if (ready[0].revents) {
            struct signalfd_siginfo info;
            if (read(ends, &info, sizeof info) < 0 && errno != EAGAIN)
                die("signalfd");
            int status;
            for (pid_t gone = waitpid(-1, &status, WNOHANG); gone > 0; gone = waitpid(-1, &status, WNOHANG))
                if (gone == child)
                    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        if (ready[1].revents) {
            char words[64];
            ssize_t count = read(control, words, sizeof words - 1);
            if (count > 0) {
                words[count] = 0;
                if (strstr(words, "stop"))
                    kill(child, SIGTERM);
            } else {
                ready[1].fd = -1; // the host has gone; the service need not
            }
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    mount_at("devtmpfs", "/dev", NULL);
    open_streams();
    load_modules();
    control = open_port(3, O_RDWR);
    int out = open_port(1, O_WRONLY), err = open_port(2, O_WRONLY);
    configure_network(argv);
    struct job job = read_job();
    mount_disks(&job);
    if (job.runtime[0])
        prepare_runtime();
    else
        enter_root();

    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &watched, NULL) < 0)
        die("sigprocmask");
    int ends = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ends < 0)
        die("signalfd");
    pid_t child = start(&job, out, err);
    close(out);
    close(err);
    tell("started");
    int code = supervise(child, ends);
    // What the service wrote to its volumes reaches the disk before the host hears that it is over.
    sync();
    tell("exit %d", code);
    power_off();
}
