// SPDX-License-Identifier: Apache-2.0
//! What a program asks about its machine and itself.

mod identity;
mod limits;

use alloc::string::String;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::{general as g, system as s};
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_core::memory::{self, space};
use coracle_core::sync::SpinLock;
use coracle_core::thread::{self, PENDING_EXIT, PENDING_SIGNAL};
use coracle_core::user::{self, User};
use coracle_core::{Result, random, time as kernel_time};

pub use identity::{Identity, Ids, identity, set_groups, set_identity};
pub(crate) use identity::{
    capget, capset, getegid, geteuid, getgid, getgroups, getresgid, getresuid, getuid, on_exec,
    real_uid, setgid, setgroups, setregid, setresgid, setresuid, setreuid, setuid,
};
pub use limits::{LIMIT_NAMES, limit, limits, set_limit, set_limit_by_name};
pub(crate) use limits::{getrlimit, prlimit64, setrlimit};

use identity::Capability;

/// The version of Linux whose interface this is, with our own name.
pub const RELEASE: &str = "6.1.0-coracle";

/// The build, as `uname -v` shows it.
pub const VERSION: &str = concat!("#1 SMP Coracle ", env!("CARGO_PKG_VERSION"));

/// Longest name of a host or domain.
const NAME_LIMIT: usize = 64;

static HOSTNAME: SpinLock<String> = SpinLock::new(String::new());
static DOMAIN: SpinLock<String> = SpinLock::new(String::new());

/// Sets the name of the host, at boot; cut to 64 bytes.
pub fn set_hostname(name: &str) {
    let end = (0..=NAME_LIMIT.min(name.len()))
        .rfind(|n| name.is_char_boundary(*n))
        .unwrap_or(0);
    let old = core::mem::replace(&mut *HOSTNAME.lock(), name[..end].into());
    drop(old);
}

/// The name of the host.
#[must_use]
pub fn hostname() -> String {
    let name = HOSTNAME.lock().clone();
    if name.is_empty() {
        "(none)".into()
    } else {
        name
    }
}

/// The NIS domain name.
#[must_use]
pub fn domain_name() -> String {
    let name = DOMAIN.lock().clone();
    if name.is_empty() {
        "(none)".into()
    } else {
        name
    }
}

/// `uname(2)`
pub(crate) fn uname(out: User) -> Result<usize> {
    let field = |text: &str| {
        let mut field = [0; 65];
        for (to, from) in field.iter_mut().zip(text.bytes().take(NAME_LIMIT)) {
            *to = from.cast_signed();
        }
        field
    };
    out.write(s::new_utsname {
        sysname: field("Linux"),
        nodename: field(&hostname()),
        release: field(RELEASE),
        version: field(VERSION),
        machine: field(coracle_abi::MACHINE),
        domainname: field(&domain_name()),
    })?;
    Ok(0)
}

fn set_name(target: &SpinLock<String>, name: User, len: usize) -> Result<usize> {
    Capability::SysAdmin.require()?;
    if len > NAME_LIMIT {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; NAME_LIMIT];
    user::read_all(&mut bytes[..len], name.0)?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let text = text.trim_end_matches('\0').into();
    let old = core::mem::replace(&mut *target.lock(), text);
    drop(old);
    Ok(0)
}

/// `sethostname(2)`
pub(crate) fn sethostname(name: User, len: usize) -> Result<usize> {
    set_name(&HOSTNAME, name, len)
}

/// `setdomainname(2)`
pub(crate) fn setdomainname(name: User, len: usize) -> Result<usize> {
    set_name(&DOMAIN, name, len)
}

/// `sysinfo(2)`. The load averages are 0: nobody measures them.
pub(crate) fn sysinfo(out: User) -> Result<usize> {
    let page = u64_from(PAGE_SIZE);
    // `struct sysinfo` in words: uptime, three loads, total, free, shared and buffer memory, total and free swap,
    // number of threads (two bytes), two kinds of high memory, the unit of all sizes (four bytes).
    let words: [u64; 14] = [
        kernel_time::now() / 1_000_000_000,
        0,
        0,
        0,
        memory::total_frames() * page,
        memory::free_frames() * page,
        0,
        0,
        0,
        0,
        u64_from(thread::thread_count()) & 0xffff,
        0,
        0,
        1,
    ];
    out.write(words)?;
    Ok(0)
}

/// `getrandom(2)`. The generator never blocks, so the flags change nothing; a signal shortens a request of more than
/// 256 bytes.
pub(crate) fn getrandom(buf: User, len: usize, flags: u32) -> Result<usize> {
    let both = g::GRND_RANDOM | g::GRND_INSECURE;
    if flags & !(both | g::GRND_NONBLOCK) != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let len = len.min(usize_from(i32::MAX as u64));
    let mut bytes = [0; 256];
    let mut done = 0;
    while done < len {
        let chunk = &mut bytes[..(len - done).min(256)];
        random::fill(chunk);
        match user::write_all(buf.offset(done)?.0, chunk) {
            Err(_) if done > 0 => break,
            result => result?,
        }
        done += chunk.len();
        if thread::current().pending() & (PENDING_SIGNAL | PENDING_EXIT) != 0 {
            break;
        }
    }
    bytes.fill(0);
    Ok(done)
}

/// `getrusage(2)`. All processor time counts as the application's own; faults are those of the whole process.
pub(crate) fn getrusage(who: i32, out: User) -> Result<usize> {
    let cpu_ns = match who.cast_unsigned() {
        g::RUSAGE_SELF => thread::process_cpu_ns(),
        g::RUSAGE_THREAD => thread::current().cpu_ns(),
        _ if who == g::RUSAGE_CHILDREN => {
            out.write(user::zeroed::<g::rusage>())?; // there are never children
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    let count = |n: usize| u64_from(n).cast_signed();
    let time = crate::time::timeval_of(cpu_ns);
    let mut usage: g::rusage = user::zeroed();
    usage.ru_utime.tv_sec = time.tv_sec;
    usage.ru_utime.tv_usec = time.tv_usec;
    usage.ru_maxrss = count(space::peak_resident_pages() * PAGE_SIZE / 1024);
    usage.ru_minflt = count(space::fault_count());
    usage.ru_nvcsw = thread::context_switches().cast_signed();
    out.write(usage)?;
    Ok(0)
}

/// `personality(2)`: `PER_LINUX` is the only one.
pub(crate) fn personality(persona: u32) -> Result<usize> {
    match persona {
        0 | u32::MAX => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `syslog(2)`: the kernel's log goes to the host.
pub(crate) fn syslog(_kind: i32, _buf: User, _len: i32) -> Result<usize> {
    Err(Errno::EPERM)
}
