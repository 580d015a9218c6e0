// SPDX-License-Identifier: Apache-2.0
//! Says before the run whether an image can run as a unikernel, and if not, why, and what to do.
//!
//! Nothing of the image is executed. [`files`] is the view of it; [`script`] reads entry points that are shell scripts;
//! [`libraries`] finds what the dynamic loader will find; [`code`] and [`reach`] follow the machine code from the entry
//! point to system calls; [`known`] holds what cannot be read from code. What comes out is a [`Report`].

mod code;
pub mod files;
mod known;
mod libraries;
mod object_file;
mod reach;
mod report;
mod script;
mod start;

use std::collections::BTreeMap;

use coracle_abi::syscalls::{self, Level};

use crate::code::CodeMap;
use crate::files::{Files, resolve};
use crate::known::Known;
use crate::libraries::{Search, load};
use crate::reach::{Loaded, Place, Reached};
pub use crate::report::{Finding, Library, Report, Subject, SystemCall, Verdict};
pub use crate::start::Start;

/// Memory of the kernel and its buffers, and of the program's stacks: below this no guest starts.
const KERNEL_BYTES: u64 = 10 << 20;

/// Functions that start other processes.
const STARTERS: [&str; 11] = [
    "fork",
    "vfork",
    "_Fork",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "popen",
    "daemon",
    "forkpty",
    "syscall.forkExec",
    "os/exec.(*Cmd).Start",
];

/// System calls that programs try and do without if they fail.
const TRIED: [&str; 24] = [
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "perf_event_open",
    "bpf",
    "userfaultfd",
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "migrate_pages",
    "move_pages",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    "landlock_create_ruleset",
    "seccomp",
    "keyctl",
    "memfd_secret",
    "fanotify_init",
    "open_by_handle_at",
    "name_to_handle_at",
    "process_madvise",
    "vmsplice",
    "ptrace",
];

/// Checks what `start` would run from `files`.
#[must_use]
pub fn check(files: &dyn Files, start: &Start) -> Report {
    let mut findings = Vec::new();
    let begun = start::follow(files, start, &mut findings);
    let commands = begun.commands;
    let mut report = Report {
        verdict: Verdict::Fits,
        commands,
        runtime: None,
        interpreter: None,
        libraries: Vec::new(),
        findings,
        system_calls: Vec::new(),
        memory_floor_bytes: KERNEL_BYTES,
    };
    if let Some(path) = begun.program {
        let args = report
            .commands
            .last()
            .and_then(|c| c.get(1..))
            .unwrap_or_default()
            .to_vec();
        check_program(files, start, &path, &args, &mut report);
    }
    report
        .findings
        .sort_by_key(|f| std::cmp::Reverse(f.verdict));
    report.verdict = report
        .findings
        .iter()
        .map(|f| f.verdict)
        .max()
        .unwrap_or(Verdict::Fits);
    report
}

fn check_program(
    files: &dyn Files,
    start: &Start,
    path: &str,
    args: &[String],
    report: &mut Report,
) {
    let program = match load(files, path) {
        Ok(program) => program,
        Err(why) => {
            let message = why.unwrap_or_else(|| format!("{path}: cannot be read"));
            let remedy = if message.contains(" is for ") {
                "take the image for linux/amd64"
            } else {
                ""
            };
            report
                .findings
                .push(Finding::new(Verdict::CannotRun, Subject::Program, message).remedy(remedy));
            return;
        }
    };
    let mut known = known::known(files, &program.0, args, &start.directory);
    if program.1.is_go {
        known.runtime = Some("Go");
        known.forks_on_request = true;
    }
    report.runtime = known.runtime;
    report.findings.append(&mut known.findings);
    report.interpreter.clone_from(&program.1.interpreter);
    let loaded = match &program.1.interpreter {
        None => vec![program],
        Some(interpreter) => {
            let interpreter = interpreter.clone();
            match load(files, &interpreter) {
                Ok(loader) => {
                    with_libraries(files, start, program, loader, &interpreter, &known, report)
                }
                Err(why) => {
                    let why = why.map(|w| format!(": {w}")).unwrap_or_default();
                    report.findings.push(
                        Finding::new(
                            Verdict::CannotRun,
                            Subject::Library,
                            format!("the dynamic loader {interpreter} is missing{why}"),
                        )
                        .remedy(
                            "give an image or a folder that has it, or link the program statically",
                        ),
                    );
                    return;
                }
            }
        }
    };
    let mut files: Vec<Loaded> = loaded
        .into_iter()
        .map(|(path, object)| {
            let code = CodeMap::of(&object);
            Loaded { path, object, code }
        })
        .collect();
    // By the name it was asked for, not by where links lead.
    if let Some(name) = report.commands.last().and_then(|c| c.first()) {
        files[0].path.clone_from(name);
    }
    report.memory_floor_bytes +=
        (known.memory_mib << 20) + files.iter().map(|f| f.object.private_bytes()).sum::<u64>();
    report.memory_floor_bytes = report.memory_floor_bytes.next_multiple_of(1 << 20);
    let reached = Reached::from(&files);
    add_starters(&files, &reached, &known, report);
    add_system_calls(&files, &reached, &known, report);
}

fn with_libraries(
    files: &dyn Files,
    start: &Start,
    program: libraries::Found,
    loader: libraries::Found,
    interpreter: &str,
    known: &Known,
    report: &mut Report,
) -> Vec<libraries::Found> {
    let search = Search::new(files, interpreter, &start.environment);
    let mut first = vec![program];
    for folder in &known.extra_libraries {
        let Some(folder) = resolve(files, folder) else {
            continue;
        };
        let mut names = files.list(&folder);
        names.sort();
        first.extend(
            names
                .iter()
                .filter(|n| n.ends_with(".so"))
                .filter_map(|n| load(files, &format!("{folder}/{n}")).ok()),
        );
    }
    let own = first.len();
    first.push(loader);
    let (loaded, missing) = search.closure(first);
    for (path, object) in loaded.iter().skip(own) {
        let file = path.rsplit('/').next().unwrap_or(path);
        report.libraries.push(Library {
            name: object.soname.clone().unwrap_or_else(|| file.into()),
            path: Some(path.clone()),
        });
    }
    for library in missing {
        // What the runtime loads by itself may be meant for a desktop.
        let is_extra = loaded[1..own]
            .iter()
            .any(|(path, _)| *path == library.needed_by);
        let verdict = if is_extra {
            Verdict::Fits
        } else {
            Verdict::CannotRun
        };
        let why = if library.why.is_empty() {
            String::new()
        } else {
            format!(" ({})", library.why)
        };
        report.findings.push(
            Finding::new(
                verdict,
                Subject::Library,
                format!(
                    "{}, needed by {}, is missing{why}",
                    library.name, library.needed_by
                ),
            )
            .remedy("add the package that has it to the image"),
        );
        report.libraries.push(Library {
            name: library.name,
            path: None,
        });
    }
    loaded
}

/// Says which code would start other processes.
fn add_starters(files: &[Loaded], reached: &Reached, known: &Known, report: &mut Report) {
    let is_settled = report
        .findings
        .iter()
        .any(|f| f.subject == Subject::Process && f.verdict == Verdict::CannotRun);
    let mut by_file: BTreeMap<usize, (Vec<&str>, Place)> = BTreeMap::new();
    for name in STARTERS {
        if let Some(place) = reached.caller(files, name) {
            let (names, _) = by_file.entry(place.0).or_insert((Vec::new(), place));
            names.push(name);
        }
    }
    for (index, (names, place)) in by_file {
        let verdict = if index == 0 && !known.forks_on_request && !is_settled {
            Verdict::MayFail
        } else {
            Verdict::Fits
        };
        let who = files[index].path.rsplit('/').next().unwrap_or_default();
        let message = format!(
            "{who} can start other processes ({}), which fails with an error",
            names.join(", ")
        );
        let way = reached.way(files, place);
        report
            .findings
            .push(Finding::new(verdict, Subject::Process, message).way(way));
    }
}

fn add_system_calls(files: &[Loaded], reached: &Reached, known: &Known, report: &mut Report) {
    for (number, places) in &reached.numbers {
        let name = syscalls::name(*number);
        if name == "?" {
            continue;
        }
        let (level, note) = match syscalls::find(*number) {
            Some(entry) => (entry.level.name(), entry.note),
            None => ("missing", "returns ENOSYS"),
        };
        let way = places
            .first()
            .map(|place| reached.way(files, *place))
            .unwrap_or_default();
        let fails = syscalls::find(*number).is_none_or(|entry| entry.level == Level::Refused);
        let is_process = matches!(
            name,
            "fork" | "vfork" | "clone" | "clone3" | "execve" | "execveat"
        );
        // A call that the program asks for by name is meant; one that lies somewhere in a library may never be made.
        let asked = reached.symbols.get(name).filter(|place| place.0 == 0);
        if let (true, false, false, Some(place)) = (fails, is_process, TRIED.contains(&name), asked)
        {
            // An interpreter offers every call to its programs.
            let verdict = if known.runtime.is_some() {
                Verdict::Fits
            } else {
                Verdict::MayFail
            };
            report.findings.push(
                Finding::new(
                    verdict,
                    Subject::SystemCall,
                    format!("it calls {name}, which fails here: {note}"),
                )
                .way(reached.way(files, *place)),
            );
        }
        report.system_calls.push(SystemCall {
            name,
            level,
            note,
            way,
        });
    }
    let rank = |call: &SystemCall| match call.level {
        "missing" => 0,
        "refused" => 1,
        "partial" => 2,
        _ => 3,
    };
    report
        .system_calls
        .sort_by_key(|call| (rank(call), call.name));
}
