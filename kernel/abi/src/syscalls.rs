// SPDX-License-Identifier: Apache-2.0
//! The one list of system calls. Dispatch, trace, documentation and `coracle check` are made from it.

/// How much of a call works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As on Linux, for what a single-process program can do.
    Full,
    /// Part of it; the note says which.
    Partial,
    /// Always fails; the note says with what and why.
    Refused,
}

impl Level {
    /// The word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Refused => "refused",
        }
    }
}

/// One line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number on the architecture the list was compiled for.
    pub number: u32,
    /// Name as in the manual.
    pub name: &'static str,
    /// Names and types of the arguments, for the trace.
    pub arguments: &'static str,
    /// How much of it works.
    pub level: Level,
    /// What does not work, or why.
    pub note: &'static str,
}

/// Calls `$then!` with the whole list: `name => family::handler(argument: type, ...) Level "note";`.
#[macro_export]
macro_rules! for_each_syscall {
    ($then:ident) => {
        $then! {
            // Descriptors.
            read => fd::read(fd: Fd, buf: User, len: usize) Full "";
            write => fd::write(fd: Fd, buf: User, len: usize) Full "";
            close => fd::close(fd: Fd) Full "";
            close_range => fd::close_range(first: u32, last: u32, flags: u32) Full "";
            lseek => fd::lseek(fd: Fd, offset: i64, whence: u32) Full "";
            pread64 => fd::pread64(fd: Fd, buf: User, len: usize, position: i64) Full "";
            pwrite64 => fd::pwrite64(fd: Fd, buf: User, len: usize, position: i64) Full "";
            readv => fd::readv(fd: Fd, iov: User, count: usize) Full "";
            writev => fd::writev(fd: Fd, iov: User, count: usize) Full "";
            preadv => fd::preadv(fd: Fd, iov: User, count: usize, position: i64) Full "";
            pwritev => fd::pwritev(fd: Fd, iov: User, count: usize, position: i64) Full "";
            preadv2 => fd::preadv2(fd: Fd, iov: User, count: usize, position: i64, high: usize, flags: u32) Partial "RWF_NOWAIT and RWF_APPEND; others are hints";
            pwritev2 => fd::pwritev2(fd: Fd, iov: User, count: usize, position: i64, high: usize, flags: u32) Partial "RWF_NOWAIT and RWF_APPEND; others are hints";
            dup => fd::dup(fd: Fd) Full "";
            dup2 => fd::dup2(old: Fd, new: Fd) Full "";
            dup3 => fd::dup3(old: Fd, new: Fd, flags: u32) Full "";
            fcntl => fd::fcntl(fd: Fd, command: u32, argument: usize) Partial "leases and notifications are refused";
            ioctl => fd::ioctl(fd: Fd, command: u32, argument: usize) Partial "FIONBIO, FIONREAD, FIOCLEX, SIOCGIF*; there is no terminal";
            flock => fd::flock(fd: Fd, operation: u32) Full "";
            pipe => fd::pipe(fds: UserOut<[i32; 2]>) Full "";
            pipe2 => fd::pipe2(fds: UserOut<[i32; 2]>, flags: u32) Full "";
            eventfd => fd::eventfd(initial: u32) Full "";
            eventfd2 => fd::eventfd2(initial: u32, flags: u32) Full "";
            epoll_create => fd::epoll_create(size: i32) Full "";
            epoll_create1 => fd::epoll_create1(flags: u32) Full "";
            epoll_ctl => fd::epoll_ctl(epfd: Fd, operation: u32, fd: Fd, event: User) Full "";
            epoll_wait => fd::epoll_wait(epfd: Fd, events: User, max: i32, timeout: i32) Full "";
            epoll_pwait => fd::epoll_pwait(epfd: Fd, events: User, max: i32, timeout: i32, mask: User, size: usize) Full "";
            epoll_pwait2 => fd::epoll_pwait2(epfd: Fd, events: User, max: i32, timeout: User, mask: User, size: usize) Full "";
            poll => fd::poll(fds: User, count: usize, timeout: i32) Full "";
            ppoll => fd::ppoll(fds: User, count: usize, timeout: User, mask: User, size: usize) Full "";
            select => fd::select(count: i32, read: User, write: User, except: User, timeout: User) Full "";
            pselect6 => fd::pselect6(count: i32, read: User, write: User, except: User, timeout: User, mask: User) Full "";
            timerfd_create => fd::timerfd_create(clock: i32, flags: u32) Full "";
            timerfd_settime => fd::timerfd_settime(fd: Fd, flags: u32, new: User, old: User) Full "";
            timerfd_gettime => fd::timerfd_gettime(fd: Fd, value: User) Full "";
            signalfd => fd::signalfd(fd: Fd, mask: User, size: usize) Full "";
            signalfd4 => fd::signalfd4(fd: Fd, mask: User, size: usize, flags: u32) Full "";
            memfd_create => fd::memfd_create(name: User, flags: u32) Partial "no huge pages";
            sendfile => fd::sendfile(out: Fd, input: Fd, offset: User, count: usize) Full "";
            copy_file_range => fd::copy_file_range(input: Fd, offset_in: User, out: Fd, offset_out: User, len: usize, flags: u32) Full "";
            splice => fd::splice(input: Fd, offset_in: User, out: Fd, offset_out: User, len: usize, flags: u32) Full "";
            tee => fd::tee(input: Fd, out: Fd, len: usize, flags: u32) Full "";
            vmsplice => fd::vmsplice(fd: Fd, iov: User, count: usize, flags: u32) Full "";
            fsync => fd::fsync(fd: Fd) Full "";
            sync_file_range => fd::sync_file_range(fd: Fd, offset: i64, len: i64, flags: u32) Full "";
            fdatasync => fd::fdatasync(fd: Fd) Full "";
            sync => fd::sync() Full "";
            syncfs => fd::syncfs(fd: Fd) Full "";
            ftruncate => fd::ftruncate(fd: Fd, len: i64) Full "";
            fallocate => fd::fallocate(fd: Fd, mode: u32, offset: i64, len: i64) Partial "no collapse, insert or unshare";
            fadvise64 => fd::fadvise64(fd: Fd, offset: i64, len: i64, advice: u32) Full "";
            readahead => fd::readahead(fd: Fd, offset: i64, count: usize) Full "";

            // Paths.
            open => path::open(path: User, flags: u32, mode: u32) Full "";
            creat => path::creat(path: User, mode: u32) Full "";
            openat => path::openat(dir: Fd, path: User, flags: u32, mode: u32) Full "";
            openat2 => path::openat2(dir: Fd, path: User, how: User, size: usize) Partial "no RESOLVE_* flags";
            stat => path::stat(path: User, out: User) Full "";
            lstat => path::lstat(path: User, out: User) Full "";
            fstat => path::fstat(fd: Fd, out: User) Full "";
            newfstatat => path::newfstatat(dir: Fd, path: User, out: User, flags: u32) Full "";
            statx => path::statx(dir: Fd, path: User, flags: u32, mask: u32, out: User) Full "";
            access => path::access(path: User, mode: u32) Full "";
            faccessat => path::faccessat(dir: Fd, path: User, mode: u32) Full "";
            faccessat2 => path::faccessat2(dir: Fd, path: User, mode: u32, flags: u32) Full "";
            readlink => path::readlink(path: User, buf: User, len: usize) Full "";
            readlinkat => path::readlinkat(dir: Fd, path: User, buf: User, len: usize) Full "";
            getcwd => path::getcwd(buf: User, len: usize) Full "";
            chdir => path::chdir(path: User) Full "";
            fchdir => path::fchdir(fd: Fd) Full "";
            mkdir => path::mkdir(path: User, mode: u32) Full "";
            mkdirat => path::mkdirat(dir: Fd, path: User, mode: u32) Full "";
            rmdir => path::rmdir(path: User) Full "";
            unlink => path::unlink(path: User) Full "";
            unlinkat => path::unlinkat(dir: Fd, path: User, flags: u32) Full "";
            rename => path::rename(old: User, new: User) Full "";
            renameat => path::renameat(old_dir: Fd, old: User, new_dir: Fd, new: User) Full "";
            renameat2 => path::renameat2(old_dir: Fd, old: User, new_dir: Fd, new: User, flags: u32) Full "";
            link => path::link(old: User, new: User) Full "";
            linkat => path::linkat(old_dir: Fd, old: User, new_dir: Fd, new: User, flags: u32) Full "";
            symlink => path::symlink(target: User, path: User) Full "";
            symlinkat => path::symlinkat(target: User, dir: Fd, path: User) Full "";
            chmod => path::chmod(path: User, mode: u32) Full "";
            fchmod => path::fchmod(fd: Fd, mode: u32) Full "";
            fchmodat => path::fchmodat(dir: Fd, path: User, mode: u32) Full "";
            chown => path::chown(path: User, uid: u32, gid: u32) Full "";
            fchown => path::fchown(fd: Fd, uid: u32, gid: u32) Full "";
            lchown => path::lchown(path: User, uid: u32, gid: u32) Full "";
            fchownat => path::fchownat(dir: Fd, path: User, uid: u32, gid: u32, flags: u32) Full "";
            utime => path::utime(path: User, times: User) Full "";
            utimes => path::utimes(path: User, times: User) Full "";
            futimesat => path::futimesat(dir: Fd, path: User, times: User) Full "";
            utimensat => path::utimensat(dir: Fd, path: User, times: User, flags: u32) Full "";
            setxattr => path::setxattr(path: User, name: User, value: User, size: usize, flags: u32) Partial "user., trusted. and security. attributes, of files in memory";
            getxattr => path::getxattr(path: User, name: User, value: User, size: usize) Partial "user., trusted. and security. attributes, of files in memory";
            listxattr => path::listxattr(path: User, names: User, size: usize) Full "";
            removexattr => path::removexattr(path: User, name: User) Partial "user., trusted. and security. attributes, of files in memory";
            lsetxattr => path::lsetxattr(path: User, name: User, value: User, size: usize, flags: u32) Partial "user., trusted. and security. attributes, of files in memory";
            lgetxattr => path::lgetxattr(path: User, name: User, value: User, size: usize) Partial "user., trusted. and security. attributes, of files in memory";
            llistxattr => path::llistxattr(path: User, names: User, size: usize) Full "";
            lremovexattr => path::lremovexattr(path: User, name: User) Partial "user., trusted. and security. attributes, of files in memory";
            fsetxattr => path::fsetxattr(fd: Fd, name: User, value: User, size: usize, flags: u32) Partial "user., trusted. and security. attributes, of files in memory";
            fgetxattr => path::fgetxattr(fd: Fd, name: User, value: User, size: usize) Partial "user., trusted. and security. attributes, of files in memory";
            flistxattr => path::flistxattr(fd: Fd, names: User, size: usize) Full "";
            fremovexattr => path::fremovexattr(fd: Fd, name: User) Partial "user., trusted. and security. attributes, of files in memory";
            umask => path::umask(mask: u32) Full "";
            truncate => path::truncate(path: User, len: i64) Full "";
            getdents => path::getdents(fd: Fd, buf: User, len: usize) Full "";
            getdents64 => path::getdents64(fd: Fd, buf: User, len: usize) Full "";
            statfs => path::statfs(path: User, out: User) Full "";
            fstatfs => path::fstatfs(fd: Fd, out: User) Full "";
            inotify_init => path::inotify_init() Full "";
            inotify_init1 => path::inotify_init1(flags: u32) Full "";
            inotify_add_watch => path::inotify_add_watch(fd: Fd, path: User, mask: u32) Partial "the watch of an object without a name ends at once, also while it is open";
            inotify_rm_watch => path::inotify_rm_watch(fd: Fd, watch: i32) Full "";
            mknod => path::mknod(path: User, mode: u32, device: u32) Partial "files, pipes and sockets; no device files";
            mknodat => path::mknodat(dir: Fd, path: User, mode: u32, device: u32) Partial "files, pipes and sockets; no device files";

            // Memory.
            mmap => mem::mmap(at: usize, len: usize, protection: u32, flags: u32, fd: Fd, offset: usize) Partial "no MAP_HUGETLB; huge pages are used by themselves";
            munmap => mem::munmap(at: usize, len: usize) Full "";
            mprotect => mem::mprotect(at: usize, len: usize, protection: u32) Full "";
            mremap => mem::mremap(at: usize, old_len: usize, new_len: usize, flags: u32, new: usize) Full "";
            madvise => mem::madvise(at: usize, len: usize, advice: u32) Partial "DONTNEED, FREE, POPULATE and WILLNEED act; other hints are checked and have no effect";
            brk => mem::brk(end: usize) Full "";
            mincore => mem::mincore(at: usize, len: usize, out: User) Full "";
            msync => mem::msync(at: usize, len: usize, flags: u32) Full "";
            mlock => mem::mlock(at: usize, len: usize) Full "";
            mlock2 => mem::mlock2(at: usize, len: usize, flags: u32) Full "";
            munlock => mem::munlock(at: usize, len: usize) Full "";
            mlockall => mem::mlockall(flags: u32) Full "";
            munlockall => mem::munlockall() Full "";
            membarrier => mem::membarrier(command: i32, flags: u32, cpu: i32) Full "";

            // Threads.
            clone => thread::clone(flags: usize, stack: usize, parent_tid: User, child_tid: User, tls: usize) Partial "threads only; a new process is refused with ENOSYS";
            clone3 => thread::clone3(arguments: User, size: usize) Partial "threads only; a new process is refused with ENOSYS";
            fork => thread::fork() Refused "ENOSYS: one program, one process; start the other program as an instance of its own";
            vfork => thread::vfork() Refused "ENOSYS: one program, one process; start the other program as an instance of its own";
            execve => thread::execve(path: User, argv: User, envp: User) Full "";
            execveat => thread::execveat(dir: Fd, path: User, argv: User, envp: User, flags: u32) Full "";
            exit => thread::exit(status: u32) Full "";
            exit_group => thread::exit_group(status: u32) Full "";
            wait4 => thread::wait4(pid: i32, status: User, options: u32, usage: User) Full "there are never children: ECHILD";
            waitid => thread::waitid(kind: u32, id: u32, info: User, options: u32, usage: User) Full "there are never children: ECHILD";
            futex => thread::futex(at: User, operation: u32, value: u32, timeout: usize, at2: User, value3: u32) Partial "no priority inheritance";
            set_robust_list => thread::set_robust_list(head: usize, len: usize) Full "";
            get_robust_list => thread::get_robust_list(tid: i32, head: User, len: User) Full "";
            set_tid_address => thread::set_tid_address(at: usize) Full "";
            gettid => thread::gettid() Full "";
            getpid => thread::getpid() Full "";
            getppid => thread::getppid() Full "";
            getpgid => thread::getpgid(pid: i32) Full "";
            getpgrp => thread::getpgrp() Full "";
            getsid => thread::getsid(pid: i32) Full "";
            setpgid => thread::setpgid(pid: i32, group: i32) Full "";
            setsid => thread::setsid() Full "";
            sched_yield => thread::sched_yield() Full "";
            sched_getaffinity => thread::sched_getaffinity(tid: i32, size: usize, mask: User) Full "";
            sched_setaffinity => thread::sched_setaffinity(tid: i32, size: usize, mask: User) Full "";
            sched_getscheduler => thread::sched_getscheduler(tid: i32) Full "";
            sched_setscheduler => thread::sched_setscheduler(tid: i32, policy: i32, parameter: User) Partial "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE; real-time classes give EPERM";
            sched_getparam => thread::sched_getparam(tid: i32, parameter: User) Full "";
            sched_setparam => thread::sched_setparam(tid: i32, parameter: User) Partial "priority 0 only";
            sched_getattr => thread::sched_getattr(tid: i32, out: User, size: u32, flags: u32) Full "";
            sched_get_priority_max => thread::sched_get_priority_max(policy: i32) Full "";
            sched_get_priority_min => thread::sched_get_priority_min(policy: i32) Full "";
            sched_rr_get_interval => thread::sched_rr_get_interval(tid: i32, out: User) Full "";
            getpriority => thread::getpriority(which: i32, who: i32) Full "";
            setpriority => thread::setpriority(which: i32, who: i32, priority: i32) Full "";
            getcpu => thread::getcpu(cpu: User, node: User) Full "";
            arch_prctl => thread::arch_prctl(code: u32, value: usize) Partial "FS and GS bases; no CET, no CPUID faulting";
            prctl => thread::prctl(option: u32, a: usize, b: usize, c: usize, d: usize) Partial "names, dumpable, no_new_privs, death signal, capabilities read; timer slack is remembered, but always 50 us";

            // Time.
            clock_gettime => time::clock_gettime(clock: i32, out: User) Full "";
            clock_getres => time::clock_getres(clock: i32, out: User) Full "";
            clock_settime => time::clock_settime(clock: i32, value: User) Full "";
            clock_nanosleep => time::clock_nanosleep(clock: i32, flags: u32, request: User, remain: User) Full "";
            nanosleep => time::nanosleep(request: User, remain: User) Full "";
            gettimeofday => time::gettimeofday(time: User, zone: User) Full "";
            settimeofday => time::settimeofday(time: User, zone: User) Full "";
            time => time::time(out: User) Full "";
            times => time::times(out: User) Full "";
            getitimer => time::getitimer(which: i32, out: User) Full "";
            setitimer => time::setitimer(which: i32, new: User, old: User) Full "";
            alarm => time::alarm(seconds: u32) Full "";
            timer_create => time::timer_create(clock: i32, event: User, out: User) Partial "no SIGEV_THREAD in the kernel (libraries use SIGEV_THREAD_ID)";
            timer_settime => time::timer_settime(id: i32, flags: u32, new: User, old: User) Full "";
            timer_gettime => time::timer_gettime(id: i32, out: User) Full "";
            timer_getoverrun => time::timer_getoverrun(id: i32) Full "";
            timer_delete => time::timer_delete(id: i32) Full "";

            // Signals.
            rt_sigaction => signal::rt_sigaction(number: u32, new: User, old: User, size: usize) Full "";
            rt_sigprocmask => signal::rt_sigprocmask(how: u32, new: User, old: User, size: usize) Full "";
            rt_sigpending => signal::rt_sigpending(out: User, size: usize) Full "";
            rt_sigsuspend => signal::rt_sigsuspend(mask: User, size: usize) Full "";
            rt_sigtimedwait => signal::rt_sigtimedwait(set: User, info: User, timeout: User, size: usize) Full "";
            rt_sigqueueinfo => signal::rt_sigqueueinfo(pid: i32, number: u32, info: User) Full "";
            rt_tgsigqueueinfo => signal::rt_tgsigqueueinfo(pid: i32, tid: i32, number: u32, info: User) Full "";
            rt_sigreturn => signal::rt_sigreturn() Full "";
            sigaltstack => signal::sigaltstack(new: User, old: User) Full "";
            kill => signal::kill(pid: i32, number: u32) Full "";
            tkill => signal::tkill(tid: i32, number: u32) Full "";
            tgkill => signal::tgkill(pid: i32, tid: i32, number: u32) Full "";
            pause => signal::pause() Full "";

            // Sockets.
            socket => socket::socket(domain: i32, kind: i32, protocol: i32) Partial "AF_INET, AF_INET6, AF_UNIX, AF_NETLINK (route dump)";
            socketpair => socket::socketpair(domain: i32, kind: i32, protocol: i32, fds: UserOut<[i32; 2]>) Full "";
            bind => socket::bind(fd: Fd, address: User, len: usize) Full "";
            listen => socket::listen(fd: Fd, backlog: i32) Full "";
            accept => socket::accept(fd: Fd, address: User, len: User) Full "";
            accept4 => socket::accept4(fd: Fd, address: User, len: User, flags: u32) Full "";
            connect => socket::connect(fd: Fd, address: User, len: usize) Full "";
            getsockname => socket::getsockname(fd: Fd, address: User, len: User) Full "";
            getpeername => socket::getpeername(fd: Fd, address: User, len: User) Full "";
            sendto => socket::sendto(fd: Fd, buf: User, len: usize, flags: u32, address: User, address_len: usize) Full "";
            recvfrom => socket::recvfrom(fd: Fd, buf: User, len: usize, flags: u32, address: User, address_len: User) Full "";
            sendmsg => socket::sendmsg(fd: Fd, message: User, flags: u32) Full "";
            recvmsg => socket::recvmsg(fd: Fd, message: User, flags: u32) Full "";
            sendmmsg => socket::sendmmsg(fd: Fd, messages: User, count: u32, flags: u32) Full "";
            recvmmsg => socket::recvmmsg(fd: Fd, messages: User, count: u32, flags: u32, timeout: User) Full "";
            shutdown => socket::shutdown(fd: Fd, how: i32) Full "";
            setsockopt => socket::setsockopt(fd: Fd, level: i32, option: i32, value: User, len: u32) Partial "what programs use; others ENOPROTOOPT";
            getsockopt => socket::getsockopt(fd: Fd, level: i32, option: i32, value: User, len: User) Partial "what programs use; others ENOPROTOOPT";

            // Information and identity.
            uname => info::uname(out: User) Full "";
            sysinfo => info::sysinfo(out: User) Full "";
            getrandom => info::getrandom(buf: User, len: usize, flags: u32) Full "";
            getrusage => info::getrusage(who: i32, out: User) Partial "times and page faults";
            getrlimit => info::getrlimit(resource: u32, out: User) Full "";
            setrlimit => info::setrlimit(resource: u32, value: User) Partial "only NOFILE is enforced";
            prlimit64 => info::prlimit64(pid: i32, resource: u32, new: User, old: User) Partial "only NOFILE is enforced";
            sethostname => info::sethostname(name: User, len: usize) Full "";
            setdomainname => info::setdomainname(name: User, len: usize) Full "";
            getuid => info::getuid() Full "";
            geteuid => info::geteuid() Full "";
            getgid => info::getgid() Full "";
            getegid => info::getegid() Full "";
            getresuid => info::getresuid(real: User, effective: User, saved: User) Full "";
            getresgid => info::getresgid(real: User, effective: User, saved: User) Full "";
            setuid => info::setuid(uid: u32) Full "there is one user; changing the number grants and removes nothing";
            setgid => info::setgid(gid: u32) Full "there is one user; changing the number grants and removes nothing";
            setreuid => info::setreuid(real: u32, effective: u32) Full "there is one user; changing the number grants and removes nothing";
            setregid => info::setregid(real: u32, effective: u32) Full "there is one user; changing the number grants and removes nothing";
            setresuid => info::setresuid(real: u32, effective: u32, saved: u32) Full "there is one user; changing the number grants and removes nothing";
            setresgid => info::setresgid(real: u32, effective: u32, saved: u32) Full "there is one user; changing the number grants and removes nothing";
            getgroups => info::getgroups(count: i32, out: User) Full "";
            setgroups => info::setgroups(count: i32, groups: User) Full "";
            capget => info::capget(header: User, data: User) Full "";
            capset => info::capset(header: User, data: User) Partial "dropping capabilities is accepted and remembered";
            personality => info::personality(persona: u32) Partial "PER_LINUX only";
            syslog => info::syslog(kind: i32, buf: User, len: i32) Refused "EPERM: the kernel log goes to the host";
        }
    };
}

macro_rules! entries {
    ($($name:ident => $family:ident::$handler:ident($($argument:ident: $type:ty),*) $level:ident $note:literal;)*) => {
        /// Every call that has a handler, ordered by family.
        pub const TABLE: &[Entry] = &[$(
            Entry {
                number: $crate::number!($name),
                name: stringify!($name),
                arguments: stringify!($($argument: $type),*),
                level: Level::$level,
                note: $note,
            },
        )*];
    };
}

/// The number of a system call by its name.
#[macro_export]
macro_rules! number {
    ($name:ident) => {
        $crate::numbers::$name
    };
}

for_each_syscall!(entries);

/// The line of a call that has a handler.
#[must_use]
pub fn find(number: u32) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.number == number)
}

/// The name of any Linux call, with a handler or not.
#[must_use]
pub fn name(number: u32) -> &'static str {
    crate::numbers::ALL
        .iter()
        .find(|(n, _)| *n == number)
        .map_or("?", |(_, name)| name)
}

/// Calls of Linux that have no handler and return `ENOSYS`.
pub fn missing() -> impl Iterator<Item = (u32, &'static str)> {
    crate::numbers::ALL
        .iter()
        .copied()
        .filter(|(number, _)| find(*number).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_listed_once() {
        for (n, entry) in TABLE.iter().enumerate() {
            assert!(
                TABLE[n + 1..]
                    .iter()
                    .all(|other| other.number != entry.number),
                "{} twice",
                entry.name
            );
            assert_eq!(name(entry.number), entry.name);
            assert!(
                entry.level == Level::Full || !entry.note.is_empty(),
                "{} needs a note",
                entry.name
            );
        }
        assert_eq!(name(0), "read");
        assert!(missing().any(|(_, name)| name == "ptrace"));
    }
}
