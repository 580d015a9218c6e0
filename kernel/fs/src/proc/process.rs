// SPDX-License-Identifier: Apache-2.0
//! `/proc/PID`: the one process and its threads.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use super::descriptors::{DescriptorInfo, Descriptors, follow};
use super::system::NS_PER_TICK;
use super::{Info, ProcInfo, ThreadInfo, bytes, network, text};
use crate::Errno;
use crate::pseudo::{List, Reader, Spec};
use crate::vfs::{Mount, Place, Target, device_major, device_minor};
use coracle_abi::raw::general as g;

pub(super) fn directory(info: &Info) -> Spec {
    let jump = |place: fn(&dyn ProcInfo) -> Place| {
        let (shown, info) = (info.clone(), info.clone());
        Spec::Link(
            Box::new(move || place(&*shown).directory_path()),
            Some(Box::new(move || Ok(Target::Jump(place(&*info), None)))),
        )
    };
    Spec::Directory(
        [
            ("exe", executable(info)),
            ("cwd", jump(|i| i.working_directory())),
            ("root", jump(|i| i.root())),
            ("maps", bytes(info, maps)),
            ("statm", text(info, statm)),
            ("cmdline", bytes(info, |i| i.arguments())),
            ("environ", bytes(info, |i| i.environment())),
            ("auxv", bytes(info, |i| i.auxiliary_vector())),
            ("limits", text(info, limits)),
            ("mounts", text(info, mounts)),
            ("mountinfo", text(info, mountinfo)),
            ("cgroup", Spec::constant("0::/\n")),
            ("fd", Spec::List(Box::new(Descriptors(info.clone())))),
            ("fdinfo", Spec::List(Box::new(DescriptorInfo(info.clone())))),
            ("net", network::directory(info)),
            ("task", Spec::List(Box::new(Threads(info.clone())))),
        ]
        .into_iter()
        .chain(thread_files(info, None))
        .map(|(name, spec)| (name.to_string(), spec))
        .collect(),
    )
}

/// `exe`: leads to the file itself, whatever became of its name.
fn executable(info: &Info) -> Spec {
    let (shown, info) = (info.clone(), info.clone());
    Spec::Link(
        Box::new(move || Ok(shown.executable())),
        Some(Box::new(move || match info.executable_file() {
            Some(file) => follow(file, info.root().mount),
            None => Ok(Target::Path(info.executable())),
        })),
    )
}

/// `stat`, `status` and `comm` of a thread, or of the process as a whole.
fn thread_files(info: &Info, tid: Option<u32>) -> [(&'static str, Spec); 3] {
    let reader = |make: fn(&dyn ProcInfo, &ThreadInfo, bool) -> String| -> Reader {
        let info = info.clone();
        Box::new(move || {
            let number = tid.unwrap_or_else(|| info.pid());
            let threads = info.threads();
            let thread = threads.iter().find(|thread| thread.tid == number);
            // The first thread may have ended before the process.
            let thread = thread.or(threads.first()).ok_or(Errno::ESRCH)?;
            Ok(make(&*info, thread, tid.is_none()).into_bytes())
        })
    };
    let named = info.clone();
    let rename = move |name: &[u8]| {
        let name = name.strip_suffix(b"\n").unwrap_or(name);
        named.set_thread_name(tid.unwrap_or_else(|| named.pid()), name)
    };
    let comm = reader(|_, thread, _| thread.name.clone() + "\n");
    [
        ("stat", Spec::File(reader(stat))),
        ("status", Spec::File(reader(status))),
        ("comm", Spec::Writable(comm, Box::new(rename))),
    ]
}

/// `task`
struct Threads(Info);

impl List for Threads {
    fn names(&self) -> Vec<String> {
        let threads = self.0.threads();
        threads
            .iter()
            .map(|thread| thread.tid.to_string())
            .collect()
    }

    fn find(&self, name: &str) -> Option<Spec> {
        let tid = number(name)?;
        self.0.threads().iter().find(|thread| thread.tid == tid)?;
        Some(Spec::directory(thread_files(&self.0, Some(tid))))
    }
}

/// A name that is a number in its usual form.
pub(super) fn number(name: &str) -> Option<u32> {
    let number: u32 = name.parse().ok()?;
    (number.to_string() == name).then_some(number)
}

fn maps(info: &dyn ProcInfo) -> Vec<u8> {
    let mut out = Vec::new();
    for mapping in info.mappings() {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        let head = format!(
            "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {}",
            mapping.range.start,
            mapping.range.end,
            flag(mapping.read, 'r'),
            flag(mapping.write, 'w'),
            flag(mapping.execute, 'x'),
            if mapping.shared { 's' } else { 'p' },
            mapping.offset,
            device_major(mapping.device),
            device_minor(mapping.device),
            mapping.inode,
        );
        if mapping.name.is_empty() {
            out.extend_from_slice(format!("{head} ").as_bytes());
        } else {
            out.extend_from_slice(format!("{head:<73}").as_bytes());
            out.extend_from_slice(&mapping.name);
        }
        out.push(b'\n');
    }
    out
}

/// Sizes of the address space in bytes.
struct Sizes {
    all: u64,
    resident: u64,
    resident_files: u64,
    code: u64,
    data: u64,
    stack: u64,
}

fn sizes(info: &dyn ProcInfo) -> Sizes {
    let mappings = info.mappings();
    let sum = |what: fn(&super::Mapping) -> u64| mappings.iter().map(what).sum();
    let len = |mapping: &super::Mapping| mapping.range.end - mapping.range.start;
    let len_if =
        |wanted: fn(&super::Mapping) -> bool| mappings.iter().filter(|m| wanted(m)).map(len).sum();
    Sizes {
        all: sum(|m| m.range.end - m.range.start),
        resident: sum(|m| m.resident_bytes),
        resident_files: sum(|m| if m.inode != 0 { m.resident_bytes } else { 0 }),
        code: len_if(|m| m.execute && m.inode != 0),
        data: len_if(|m| m.write && !m.shared && m.name != b"[stack]"),
        stack: len_if(|m| m.name == b"[stack]"),
    }
}

/// Pages: size, resident, resident in files, code, 0, data and stack, 0.
fn statm(info: &dyn ProcInfo) -> String {
    let sizes = sizes(info);
    let pages = |bytes: u64| bytes / 4096;
    format!(
        "{} {} {} {} 0 {} 0\n",
        pages(sizes.all),
        pages(sizes.resident),
        pages(sizes.resident_files),
        pages(sizes.code),
        pages(sizes.data + sizes.stack),
    )
}

/// The 52 fields of proc_pid_stat(5); what is not known or does not exist here is 0.
fn stat(info: &dyn ProcInfo, thread: &ThreadInfo, whole: bool) -> String {
    let threads = info.threads();
    let sizes = sizes(info);
    let signals = info.signals();
    let pid = info.pid();
    let time = if whole {
        threads.iter().map(|t| t.cpu_time_ns).sum()
    } else {
        thread.cpu_time_ns
    };
    let mut fields = [0u64; 53];
    fields[5] = pid.into(); // process group
    fields[6] = pid.into(); // session
    fields[14] = time / NS_PER_TICK; // user time
    fields[18] = 20; // priority
    fields[20] = coracle_abi::convert::u64_from(threads.len());
    fields[22] = thread.started_ns / NS_PER_TICK;
    fields[23] = sizes.all;
    fields[24] = sizes.resident / 4096;
    fields[25] = u64::MAX; // limit of resident memory: none
    fields[31] = signals.pending | thread.pending;
    fields[32] = thread.blocked;
    fields[33] = signals.ignored;
    fields[34] = signals.caught;
    fields[38] = 17; // exit signal: SIGCHLD
    fields[39] = thread.cpu.into();
    let number = if whole { pid } else { thread.tid };
    let mut out = format!("{number} ({}) {} 0", thread.name, thread.state);
    for (at, field) in fields.iter().enumerate().skip(5) {
        // tty_nr is 0, tpgid -1: there is no terminal.
        let _ = match at {
            8 => write!(out, " -1"),
            _ => write!(out, " {field}"),
        };
    }
    out.push('\n');
    out
}

fn status(info: &dyn ProcInfo, thread: &ThreadInfo, whole: bool) -> String {
    let sizes = sizes(info);
    let signals = info.signals();
    let (uid, gid) = info.owner();
    let cpus = info.cpus().len();
    let state = match thread.state {
        'R' => "R (running)",
        'T' => "T (stopped)",
        _ => "S (sleeping)",
    };
    let number = if whole { info.pid() } else { thread.tid };
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name}:\t{value}");
    };
    line("Name", &thread.name);
    line("Umask", &format!("{:04o}", info.umask()));
    line("State", state);
    line("Tgid", &info.pid().to_string());
    line("Ngid", "0");
    line("Pid", &number.to_string());
    line("PPid", "0");
    line("TracerPid", "0");
    line("Uid", &format!("{uid}\t{uid}\t{uid}\t{uid}"));
    line("Gid", &format!("{gid}\t{gid}\t{gid}\t{gid}"));
    let last_fd = info.descriptors().last().map_or(0, |fd| fd + 1);
    line("FDSize", &last_fd.next_multiple_of(64).to_string());
    line("Groups", &format!("{gid} "));
    let peak = info.peak_resident_bytes().max(sizes.resident);
    for (name, bytes) in [
        ("VmSize", sizes.all),
        ("VmLck", 0),
        ("VmHWM", peak),
        ("VmRSS", sizes.resident),
        ("RssAnon", sizes.resident - sizes.resident_files),
        ("RssFile", sizes.resident_files),
        ("VmData", sizes.data),
        ("VmStk", sizes.stack),
        ("VmExe", sizes.code),
        ("VmSwap", 0),
    ] {
        line(name, &format!("{:>8} kB", bytes / 1024));
    }
    line("Threads", &info.threads().len().to_string());
    let (allowed, _) = info.limits()[coracle_abi::convert::usize_from_u32(g::RLIMIT_SIGPENDING)];
    line("SigQ", &format!("{}/{allowed}", signals.queued));
    line("SigPnd", &format!("{:016x}", thread.pending));
    line("ShdPnd", &format!("{:016x}", signals.pending));
    line("SigBlk", &format!("{:016x}", thread.blocked));
    line("SigIgn", &format!("{:016x}", signals.ignored));
    line("SigCgt", &format!("{:016x}", signals.caught));
    line("Seccomp", "0");
    let mask = (1u64 << cpus.min(63)) - 1;
    line("Cpus_allowed", &format!("{mask:x}"));
    line("Cpus_allowed_list", &crate::sys::cpu_range(cpus));
    line("Mems_allowed", "1");
    line("Mems_allowed_list", "0");
    out
}

/// Name, unit and number of each limit, in the order of proc_pid_limits(5).
const LIMITS: [(&str, &str, u32); 16] = [
    ("Max cpu time", "seconds", g::RLIMIT_CPU),
    ("Max file size", "bytes", g::RLIMIT_FSIZE),
    ("Max data size", "bytes", g::RLIMIT_DATA),
    ("Max stack size", "bytes", g::RLIMIT_STACK),
    ("Max core file size", "bytes", g::RLIMIT_CORE),
    ("Max resident set", "bytes", g::RLIMIT_RSS),
    ("Max processes", "processes", g::RLIMIT_NPROC),
    ("Max open files", "files", g::RLIMIT_NOFILE),
    ("Max locked memory", "bytes", g::RLIMIT_MEMLOCK),
    ("Max address space", "bytes", g::RLIMIT_AS),
    ("Max file locks", "locks", g::RLIMIT_LOCKS),
    ("Max pending signals", "signals", g::RLIMIT_SIGPENDING),
    ("Max msgqueue size", "bytes", g::RLIMIT_MSGQUEUE),
    ("Max nice priority", "", g::RLIMIT_NICE),
    ("Max realtime priority", "", g::RLIMIT_RTPRIO),
    ("Max realtime timeout", "us", g::RLIMIT_RTTIME),
];

fn limits(info: &dyn ProcInfo) -> String {
    let values = info.limits();
    let shown = |value: u64| match value {
        u64::MAX => "unlimited".to_string(),
        value => value.to_string(),
    };
    let mut out = format!(
        "{:<25} {:<20} {:<20} {:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    );
    for (name, unit, number) in LIMITS {
        let (soft, hard) = values[coracle_abi::convert::usize_from_u32(number)];
        let _ = writeln!(
            out,
            "{name:<25} {:<20} {:<20} {unit:<10}",
            shown(soft),
            shown(hard)
        );
    }
    out
}

/// A path with the characters escaped that would break the columns (proc_pid_mountinfo(5)).
fn escaped(path: &[u8]) -> String {
    let mut out = String::new();
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => {
                let _ = write!(out, "\\{byte:03o}");
            }
            _ => out.push(char::from(*byte)),
        }
    }
    out
}

fn mount_path(mount: &Mount) -> String {
    match mount.path() {
        Ok(path) => escaped(&path),
        Err(_) => "(unreachable)".to_string(),
    }
}

fn options(mount: &Mount) -> &'static str {
    if mount.options().read_only {
        "ro,relatime"
    } else {
        "rw,relatime"
    }
}

fn mounts(info: &dyn ProcInfo) -> String {
    let mut out = String::new();
    for mount in info.mounts() {
        let fs = mount.file_system();
        let _ = writeln!(
            out,
            "{} {} {} {}{} 0 0",
            escaped(fs.source().as_bytes()),
            mount_path(&mount),
            fs.type_name(),
            options(&mount),
            fs.options(),
        );
    }
    out
}

fn mountinfo(info: &dyn ProcInfo) -> String {
    let mut out = String::new();
    for mount in info.mounts() {
        let fs = mount.file_system();
        let parent = mount.mount_point().map_or(0, |at| at.mount.id());
        let device = mount.root().metadata().unwrap_or_default().device;
        let access = if mount.options().read_only {
            "ro"
        } else {
            "rw"
        };
        let _ = writeln!(
            out,
            "{} {parent} {}:{} / {} {} - {} {} {access}{}",
            mount.id(),
            device_major(device),
            device_minor(device),
            mount_path(&mount),
            options(&mount),
            fs.type_name(),
            escaped(fs.source().as_bytes()),
            fs.options(),
        );
    }
    out
}
