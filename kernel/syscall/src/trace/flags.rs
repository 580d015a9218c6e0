// SPDX-License-Identifier: Apache-2.0
//! Names of the bits and numbers in arguments of system calls.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use coracle_abi::raw::{general as g, net as n};

type Names = &'static [(u32, &'static str)];

macro_rules! names {
    ($group:ident: $($name:ident)*) => { &[$(($group::$name, stringify!($name))),*] };
}

const OPEN: Names = names!(g: O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_DIRECT O_LARGEFILE O_NOFOLLOW
    O_NOATIME O_CLOEXEC O_PATH O_SYNC O_DSYNC O_TMPFILE O_DIRECTORY);
const ACCESS: [&str; 4] = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"];
const PROTECTION: Names = names!(g: PROT_READ PROT_WRITE PROT_EXEC);
const MAP: Names = names!(g: MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_32BIT MAP_GROWSDOWN MAP_NORESERVE
    MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB MAP_FIXED_NOREPLACE);
const AT: Names =
    names!(g: AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH);
const CLONE: Names = names!(g: CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_VFORK CLONE_THREAD CLONE_SYSVSEM
    CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_CHILD_SETTID CLONE_NEWNS CLONE_NEWPID);
const MESSAGE: Names = names!(n: MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_DONTWAIT MSG_WAITALL MSG_NOSIGNAL MSG_MORE
    MSG_TRUNC MSG_ERRQUEUE MSG_CMSG_CLOEXEC);
const FCNTL: Names = names!(g: F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_DUPFD_CLOEXEC
    F_GETPIPE_SZ F_SETPIPE_SZ F_ADD_SEALS F_GET_SEALS);
const EPOLL: Names = names!(g: EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD);
const WHENCE: Names = names!(g: SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE);
const FUTEX: Names = names!(g: FUTEX_WAIT FUTEX_WAKE FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI
    FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET);
const FAMILY: Names = names!(n: AF_UNIX AF_INET AF_INET6 AF_NETLINK);
const SOCKET: Names = &[
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (5, "SOCK_SEQPACKET"),
];
const ADVICE: Names = names!(g: MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE
    MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DONTFORK);
const SHUTDOWN: Names = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];
const MASK: Names = names!(g: SIG_BLOCK SIG_UNBLOCK SIG_SETMASK);

/// The argument `label` of the call `name` in names; `None` if it has none.
pub(super) fn describe(name: &str, label: &str, value: u32) -> Option<String> {
    let is = |prefix: &str| name.starts_with(prefix);
    Some(match label {
        "flags" if is("open") => {
            let access = ACCESS[coracle_abi::convert::usize_from_u32(value & g::O_ACCMODE)];
            bits(value & !g::O_ACCMODE, OPEN, access)
        }
        "flags" if is("accept") || is("pipe2") || is("dup3") || is("epoll_create") => {
            bits(value, OPEN, "")
        }
        "flags" if name == "mmap" => bits(value, MAP, ""),
        "flags" if is("clone") => bits(value & !g::CSIGNAL, CLONE, ""),
        "flags" if is("send") || is("recv") => bits(value, MESSAGE, ""),
        "flags" if is("unlinkat") || is("newfstatat") || is("statx") || is("fchownat") => {
            bits(value, AT, "")
        }
        "flags" if is("execveat") || is("faccessat") || is("linkat") || is("utimensat") => {
            bits(value, AT, "")
        }
        "protection" => match value {
            0 => "PROT_NONE".into(),
            value => bits(value, PROTECTION, ""),
        },
        "command" if name == "fcntl" => number(value, FCNTL),
        "operation" if name == "epoll_ctl" => number(value, EPOLL),
        "operation" if name == "futex" => {
            let private = if value & g::FUTEX_PRIVATE_FLAG != 0 {
                "|PRIVATE"
            } else {
                ""
            };
            number(value & 0x7f, FUTEX) + private
        }
        "whence" => number(value, WHENCE),
        "domain" => number(value, FAMILY),
        "kind" if is("socket") => {
            let kind = number(value & 0xf, SOCKET);
            bits(value & !0xf, OPEN, &kind)
        }
        "advice" => number(value, ADVICE),
        "how" if name == "shutdown" => number(value, SHUTDOWN),
        "how" if name == "rt_sigprocmask" => number(value, MASK),
        _ => return None,
    })
}

fn number(value: u32, names: Names) -> String {
    let name = names.iter().find(|(number, _)| *number == value);
    name.map_or_else(|| format!("{value}"), |(_, name)| (*name).into())
}

/// The names of the bits, behind `first`; what has no name as a number.
fn bits(value: u32, names: Names, first: &str) -> String {
    let mut left = value;
    let mut parts: Vec<String> = Vec::new();
    if !first.is_empty() {
        parts.push(first.into());
    }
    // Names of several bits come first, since they hold the bits of others.
    let (several, one): (Vec<_>, Vec<_>) =
        names.iter().partition(|(bits, _)| bits.count_ones() > 1);
    for (bits, name) in several.into_iter().chain(one) {
        if bits != 0 && left & bits == bits {
            left &= !bits;
            parts.push((*name).into());
        }
    }
    if left != 0 || parts.is_empty() {
        parts.push(if left == 0 {
            "0".into()
        } else {
            format!("{left:#x}")
        });
    }
    parts.join("|")
}
