// SPDX-License-Identifier: Apache-2.0

// The first program of the Linux VM that `cargo xtask demo` and `bench apps` measure beside the unikernel. It does the
// least a Linux machine needs before a service can run: mounts, kernel modules, one network interface. Then it becomes
// the service.
//
// Arguments (from the kernel command line, after `--`): ADDRESS NETMASK GATEWAY PROGRAM.
// Modules are those named, in load order, one path a line, in /modules/order.
// If there is a file /command, the service lies in the root file system of the first disk and PROGRAM is ignored. The
// file has strings that each end in NUL: working directory, number of arguments, arguments, environment.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Ends the machine: the kernel panics when its first program exits, and `panic=-1` then resets at once.
static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void mount_at(const char *type, const char *where)
{
    if (mkdir(where, 0755) < 0 && errno != EEXIST)
        die(where);
    if (mount(type, where, type, 0, NULL) < 0)
        die(where);
}

static void mount_all(void)
{
    mount_at("devtmpfs", "/dev");
    mount_at("proc", "/proc");
    mount_at("sysfs", "/sys");
    mount_at("tmpfs", "/tmp");
    mount_at("tmpfs", "/run");
}

// Standard streams on the console if the kernel has one, else on /dev/null.
static void open_streams(void)
{
    int fd = open("/dev/console", O_RDWR);
    if (fd < 0)
        fd = open("/dev/null", O_RDWR);
    if (fd < 0)
        die("/dev/null");
    for (int stream = 0; stream < 3; stream++)
        if (dup2(fd, stream) < 0)
            die("dup2");
    if (fd > 2)
        close(fd);
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

static void configure_network(const char *address, const char *netmask, const char *gateway)
{
    struct ifreq request = { .ifr_name = "eth0" };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    struct sockaddr_in value = ipv4(address);
    memcpy(&request.ifr_addr, &value, sizeof value);
    if (ioctl(fd, SIOCSIFADDR, &request) < 0)
        die("eth0 address");
    value = ipv4(netmask);
    memcpy(&request.ifr_netmask, &value, sizeof value);
    if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
        die("eth0 netmask");
    interface_up(fd, "eth0");
    interface_up(fd, "lo");

    struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };
    struct sockaddr_in any = { .sin_family = AF_INET };
    value = ipv4(gateway);
    memcpy(&route.rt_dst, &any, sizeof any);
    memcpy(&route.rt_genmask, &any, sizeof any);
    memcpy(&route.rt_gateway, &value, sizeof value);
    if (ioctl(fd, SIOCADDRT, &route) < 0)
        die("default route");
    close(fd);
}

// A file of strings that end in NUL, as a vector that ends in NULL.
static char **strings(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        die(path);
    char *text = malloc(status.st_size + 1);
    char **vector = calloc(status.st_size + 1, sizeof *vector);
    if (!text || !vector || read(fd, text, status.st_size) != status.st_size)
        die(path);
    close(fd);
    size_t count = 0;
    for (char *at = text; at < text + status.st_size; at += strlen(at) + 1)
        vector[count++] = at;
    return vector;
}

// Becomes the service that /command names, in the root file system of the first disk.
static void become_service_on_disk(void)
{
    char **words = strings("/command");
    if (!words[0] || !words[1])
        die("/command");
    int count = atoi(words[1]);
    char **arguments = calloc(count + 1, sizeof *arguments);
    if (!arguments)
        die("memory");
    memcpy(arguments, words + 2, count * sizeof *arguments);

    if (mkdir("/root", 0755) < 0 && errno != EEXIST)
        die("/root");
    if (mount("/dev/vda", "/root", "ext4", MS_NOATIME, NULL) < 0)
        die("/dev/vda");
    if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        die("/root");
    mount_all();
    if (chdir(words[0]) < 0)
        die(words[0]);
    execve(arguments[0], arguments, words + 2 + count);
    die(arguments[0]);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "init: want ADDRESS NETMASK GATEWAY PROGRAM, got %d arguments\n", argc - 1);
        return 1;
    }
    mount_at("devtmpfs", "/dev");
    open_streams();
    mount_at("proc", "/proc");
    mount_at("sysfs", "/sys");
    load_modules();
    configure_network(argv[1], argv[2], argv[3]);

    struct rlimit files = { 65536, 65536 };
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        die("RLIMIT_NOFILE");
    if (access("/command", F_OK) == 0)
        become_service_on_disk();
    mount_at("tmpfs", "/tmp");
    execl(argv[4], argv[4], (char *)NULL);
    die(argv[4]);
}
