// SPDX-License-Identifier: Apache-2.0
//! A world for one test: its own XDG folders, a program to run, and a VMM that needs no kernel.
//!
//! The VMM is a shell script that takes QEMU's place and speaks the guest's side of the control channel, so that every
//! path of the command is tested on machines without QEMU and at the speed of a script.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The script. `BEHAVIOUR` says what the guest does.
const VMM: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then echo "QEMU emulator version ${FAKE_VERSION:-8.1.0} (test)"; exit 0; fi
for argument in "$@"; do
    case $argument in
        socket,id=control,fd=*) control=${argument##*=} ;;
        socket,id=console,fd=*) console=${argument##*=} ;;
        file,id=console,*) exec {console}>>"${argument##*path=}" ;;
        isa-debug-exit,*) echo "qemu: this is the probe" >&2; exit "${FAKE_PROBE:-1}" ;;
    esac
done
say() { echo "$1" >&"$control"; }
booted() { say '{"event":"booted","t_ns":1000,"laps":[["memory",1]],"kernel":"0.1.0"}'; }
exited() { say "{\"event\":\"exit\",\"t_ns\":2000,$1}"; exit 0; }
case $BEHAVIOUR in
    exit)    booted; printf 'out\0put' >&"$console"; exited '"reason":"exit","code":'"${CODE:-0}" ;;
    echo)    booted; read -r line <&"$console"; read -r op <&"$control"
             echo "read $line then $op" >&"$console"; exited '"reason":"exit","code":0' ;;
    print)   booted; printf '%s\n' "$PRINT" >&"$console"; exited '"reason":"exit","code":'"${CODE:-0}" ;;
    oom)     booted; exited '"reason":"out-of-memory","code":137,"detail":"8 MiB were there, 9 needed"' ;;
    exec)    exited '"reason":"exec","code":126,"detail":"/hello: not understood"' ;;
    refuse)  echo "qemu-system-x86_64: -netdev user: no luck today" >&2; exit 1 ;;
    reset)   exit 0 ;;
    crash)   booted; kill -SEGV $$ ;;
    deaf)    booted; while :; do read -r -t 60 line <&"$control" || exit 0; done ;;
    serve)
        booted
        echo serving >&"$console"
        while read -r line <&"$control"; do
            case $line in
                '{"op":"eof",'*) ;;
                '{"op":"counters"}') say '{"event":"counters","t_ns":3000,"syscalls":42}' ;;
                '{"op":"signal","number":10}') echo "signal 10" >&"$console" ;;
                *'"number":15}') exited '"reason":"exit","code":0' ;;
                *) number=${line##*:}; number=${number%\}}
                   exited "\"reason\":\"signal\",\"signal\":$number,\"code\":$((128 + number)),\"detail\":\"test\"" ;;
            esac
        done ;;
esac
"#;

/// The folders of one test; gone when dropped.
pub(crate) struct World {
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Self { dir };
        fs::write(world.path("qemu"), VMM).unwrap();
        fs::set_permissions(world.path("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(world.path("kernel"), elf::kernel()).unwrap();
        fs::write(world.path("hello"), elf::program()).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command with everything it needs, in an environment without anything else of ours.
    pub(crate) fn coracle(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
        for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("CORACLE_")) {
            command.env_remove(variable);
        }
        command
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("CORACLE_QEMU", self.path("qemu"))
            .env("CORACLE_KERNEL", self.path("kernel"))
            .env("CORACLE_ACCEL", "tcg");
        command
    }

    /// Runs `coracle ARGS` with a guest of that behaviour.
    pub(crate) fn run(&self, behaviour: &str, args: &[&str]) -> Done {
        Done::from(
            self.coracle(args)
                .env("BEHAVIOUR", behaviour)
                .output()
                .unwrap(),
        )
    }

    /// Names of the folders of instances.
    pub(crate) fn instances(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("state/coracle/instances")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// One value of `inspect`, by its JSON pointer.
    pub(crate) fn inspect(&self, name: &str, pointer: &str) -> serde_json::Value {
        let done = self.run("", &["inspect", name]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let value: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        value[0].pointer(pointer).cloned().unwrap_or_default()
    }

    /// Pids of processes whose command line names this world.
    pub(crate) fn processes(&self) -> Vec<String> {
        let here = self.dir.path().to_str().unwrap();
        let ours = |pid: &String| {
            let line = fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(here)
        };
        let entries = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        entries
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            .filter(ours)
            .collect()
    }

    /// Asserts that a failed start left nothing behind.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.instances(), Vec::<String>::new());
        eventually("no process is left", || self.processes().is_empty());
    }
}

/// A port nobody listens on, so that tests can run beside each other.
pub(crate) fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    /// Asserts a failure with one line that holds all of `parts`.
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "{part:?} is not in {:?}",
                self.stderr
            );
        }
    }
}

/// Waits for something that must become true within ten seconds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Executables made by hand, so that no compiler is needed.
pub(crate) mod elf {
    /// A static program for x86-64: one header, one segment.
    pub(crate) fn program() -> Vec<u8> {
        build(2, 62, None)
    }

    /// The same for another ELF machine number.
    pub(crate) fn for_machine(machine: u16) -> Vec<u8> {
        build(2, machine, None)
    }

    /// A 32-bit program.
    pub(crate) fn class32() -> Vec<u8> {
        build(1, 3, None)
    }

    /// A dynamic program with that loader.
    pub(crate) fn dynamic(loader: &str) -> Vec<u8> {
        build(2, 62, Some(loader))
    }

    fn build(class: u8, machine: u16, loader: Option<&str>) -> Vec<u8> {
        let segments: u16 = if loader.is_some() { 2 } else { 1 };
        let data_at = 64 + 56 * u64::from(segments);
        let loader_bytes = loader
            .map(|path| [path.as_bytes(), &[0]].concat())
            .unwrap_or_default();
        let size = data_at + 256;
        let mut file = vec![0x7f, b'E', b'L', b'F', class, 1, 1, 0];
        file.resize(16, 0);
        file.extend(2u16.to_le_bytes()); // ET_EXEC
        file.extend(machine.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(0x40_0000u64.to_le_bytes()); // entry
        file.extend(64u64.to_le_bytes()); // program headers
        file.extend(0u64.to_le_bytes()); // no section headers
        file.extend(0u32.to_le_bytes());
        for half in [64, 56, segments, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let mut segment = |kind: u32, offset: u64, length: u64| {
            file.extend(kind.to_le_bytes());
            file.extend(5u32.to_le_bytes());
            for word in [
                offset,
                0x40_0000 + offset,
                0x40_0000 + offset,
                length,
                length,
                4096,
            ] {
                file.extend(word.to_le_bytes());
            }
        };
        segment(1, 0, size);
        if loader.is_some() {
            segment(3, data_at, loader_bytes.len() as u64);
        }
        file.extend(loader_bytes);
        file.resize(usize::try_from(size).unwrap(), 0x90);
        file
    }

    /// A PVH kernel that prints its command line on the serial port and resets: an ELF file of one segment at 1 MiB and
    /// the note that names its entry.
    pub(crate) fn kernel() -> Vec<u8> {
        const ENTRY: u32 = 0x10_0000;
        let code = [
            0x8b, 0x73, 0x18, // mov 24(%ebx), %esi   hvm_start_info.cmdline_paddr
            0x66, 0xba, 0xf8, 0x03, // mov $0x3f8, %dx
            0xac, // 1: lods (%esi), %al
            0x84, 0xc0, // test %al, %al
            0x74, 0x03, // jz 2f
            0xee, // out %al, (%dx)
            0xeb, 0xf8, // jmp 1b
            0x0f, 0x01, 0x1d, 0x18, 0, 0x10,
            0, // 2: lidt 0x100018   an empty interrupt table: the next
            0x0f, 0x0b, // ud2                                        fault resets the machine
            0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let note: Vec<u8> = [4u32, 4, 18] // XEN_ELFNOTE_PHYS32_ENTRY
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .chain(*b"Xen\0")
            .chain(ENTRY.to_le_bytes())
            .collect();
        let (code_len, note_len) = (
            u32::try_from(code.len()).unwrap(),
            u32::try_from(note.len()).unwrap(),
        );
        let code_at = 52 + 2 * 32;
        let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0];
        file.resize(16, 0);
        file.extend([2, 0, 3, 0]); // ET_EXEC, EM_386
        for word in [1, ENTRY, 52, 0, 0] {
            file.extend(u32::to_le_bytes(word));
        }
        for half in [52u16, 32, 2, 40, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        for word in [1, code_at, ENTRY, ENTRY, code_len, code_len, 7, 4] {
            file.extend(u32::to_le_bytes(word));
        }
        for word in [4, code_at + code_len, 0, 0, note_len, note_len, 4, 4] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend(code);
        file.extend(note);
        file
    }
}
