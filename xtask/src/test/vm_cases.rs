// SPDX-License-Identifier: Apache-2.0

//! What the VM tests run: each case is a line.

/// Memory of a guest unless the case says otherwise, MiB.
const MEMORY_MIB: u32 = 128;

/// A program that ends, and how it must end.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) machine: &'static str,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
    /// The exit code of `coracle run`.
    pub(crate) code: i32,
    /// `reason` in `coracle inspect`.
    pub(crate) reason: &'static str,
    /// Must be in the output, in the exit's detail or in the report of the crash.
    pub(crate) says: &'static [&'static str],
}

/// A case on microvm with one vCPU.
const fn case(
    name: &'static str,
    command: (&'static str, &'static [&'static str]),
    code: i32,
    reason: &'static str,
    says: &'static [&'static str],
) -> Case {
    let (program, args) = command;
    Case {
        name,
        program,
        args,
        machine: "microvm",
        vcpus: 1,
        memory_mib: MEMORY_MIB,
        code,
        reason,
        says,
    }
}

/// A program that checks itself, on a machine of some kind.
const fn healthy(
    name: &'static str,
    program: &'static str,
    machine: &'static str,
    vcpus: u32,
    says: &'static [&'static str],
) -> Case {
    Case {
        name,
        program,
        args: &[],
        machine,
        vcpus,
        memory_mib: MEMORY_MIB,
        code: 0,
        reason: "exit",
        says,
    }
}

/// The same with little memory, for programs that use it up.
const fn small(case: Case) -> Case {
    Case {
        memory_mib: 32,
        ..case
    }
}

/// Programs that end.
pub(crate) const CASES: [Case; 45] = [
    case("exit code", ("crash", &["exit", "3"]), 3, "exit", &[]),
    case(
        "exit code from a thread",
        ("crash", &["exit-thread", "5"]),
        5,
        "exit",
        &[],
    ),
    case(
        "both outputs",
        ("crash", &["output", "7"]),
        7,
        "exit",
        &["to standard output", "to standard error"],
    ),
    case(
        "null pointer",
        ("crash", &["null"]),
        139,
        "signal",
        &["SIGSEGV"],
    ),
    case(
        "fault names the function",
        ("crash", &["function"]),
        139,
        "signal",
        &[
            "SIGSEGV for address 0xdead0010",
            " function_that_crashes+0x",
            "perhaps from 0x",
            " caller_of_function_that_crashes+0x",
            "  rdi   00000000dead0000",
            "  mprotect = 0",
        ],
    ),
    case(
        "fault in a program with frame pointers that lies anywhere",
        ("crash_pie", &["function"]),
        139,
        "signal",
        &[
            " function_that_crashes+0x",
            "\"  from 0x",
            " caller_of_function_that_crashes+0x",
            " main+0x",
            "(/crash_pie+0x",
        ],
    ),
    case(
        "fault in a thread",
        ("crash", &["thread"]),
        139,
        "signal",
        &["SIGSEGV"],
    ),
    case("abort", ("crash", &["abort"]), 134, "signal", &["SIGABRT"]),
    case(
        "start script that ends in exec",
        ("start.root", &["/start.sh", "failing", "7"]),
        7,
        "exit",
        &["script: hello, 2 arguments", "failing 7"],
    ),
    case(
        "start script that needs a child",
        ("start.root", &["/helper.sh"]),
        2,
        "exit",
        &["Cannot fork"],
    ),
    case(
        "script whose interpreter only the guest can look for",
        ("start.root", &["/missing.sh"]),
        127,
        "exec",
        &["its interpreter bin/no-such-interpreter is not in the root file system"],
    ),
    case(
        "fault in a shared library",
        ("start.root", &["/bin/failing", "write", "worker"]),
        139,
        "signal",
        &[
            "thread 1 (worker): SIGSEGV for address 0xdead0010",
            " library_writes_to+0x0 (/lib/libfault.so+0x",
            " main+0x",
            "(/bin/failing+0x",
            "  rdi   00000000dead0010",
            "  prctl = 0",
        ],
    ),
    case(
        "stack overflow in a shared library",
        ("start.root", &["/bin/failing", "recurse"]),
        139,
        "signal",
        &[
            "the stack is full",
            " library_recurses+0x",
            "(/lib/libfault.so+0x",
        ],
    ),
    case(
        "abort called by a shared library",
        ("start.root", &["/bin/failing", "abort"]),
        134,
        "signal",
        &["SIGABRT", " library_aborts+0x", " abort+0x", "libc.so.6+0x"],
    ),
    case(
        "raised signal",
        ("crash", &["raise", "10"]),
        138,
        "signal",
        &["SIGUSR1"],
    ),
    case(
        "stack overflow",
        ("crash", &["stack"]),
        139,
        "signal",
        &["SIGSEGV", "the stack is full", " recursion+0x"],
    ),
    case(
        "illegal instruction",
        ("crash", &["illegal"]),
        132,
        "signal",
        &["SIGILL"],
    ),
    case(
        "division by zero",
        ("crash", &["divide"]),
        136,
        "signal",
        &["SIGFPE"],
    ),
    case(
        "out of memory",
        ("crash", &["oom"]),
        137,
        "out-of-memory",
        &["memory"],
    ),
    small(case(
        "sockets without end",
        ("exhaust", &["socket"]),
        0,
        "exit",
        &["refused: ENFILE"],
    )),
    small(case(
        "watched events without end",
        ("exhaust", &["event"]),
        0,
        "exit",
        &["refused: ENFILE"],
    )),
    small(case(
        "full pipes without end",
        ("exhaust", &["pipe"]),
        0,
        "exit",
        &["refused: ENFILE"],
    )),
    small(case(
        "full socket pairs without end",
        ("exhaust", &["pair"]),
        0,
        "exit",
        &["refused: ENFILE"],
    )),
    small(case(
        "full TCP connections without end",
        ("exhaust", &["tcp"]),
        0,
        "exit",
        &["refused: ENFILE"],
    )),
    small(case(
        "threads without end",
        ("exhaust", &["thread"]),
        0,
        "exit",
        &["refused: EAGAIN"],
    )),
    small(case(
        "mappings without end",
        ("exhaust", &["mapping"]),
        0,
        "exit",
        &["refused: ENOMEM"],
    )),
    small(case(
        "file content without end",
        ("exhaust", &["file"]),
        0,
        "exit",
        &["refused: ENOSPC"],
    )),
    small(case(
        "populated mappings without end",
        ("exhaust", &["populate"]),
        137,
        "out-of-memory",
        &["give it more with -m"],
    )),
    small(case(
        "buffers to read into without end",
        ("exhaust", &["read"]),
        137,
        "out-of-memory",
        &["give it more with -m"],
    )),
    case(
        "unknown system call",
        ("crash", &["unknown-call"]),
        0,
        "exit",
        &["ENOSYS"],
    ),
    Case {
        memory_mib: 8,
        ..case("8 MiB of memory", ("crash", &["exit", "0"]), 0, "exit", &[])
    },
    Case {
        memory_mib: 5120,
        ..case("5 GiB of memory", ("crash", &["exit", "0"]), 0, "exit", &[])
    },
    Case {
        machine: "q35",
        ..case(
            "exit code on q35",
            ("crash", &["exit", "3"]),
            3,
            "exit",
            &[],
        )
    },
    Case {
        vcpus: 8,
        ..case(
            "fault with 8 vCPUs",
            ("crash", &["thread"]),
            139,
            "signal",
            &["SIGSEGV"],
        )
    },
    healthy("C threads", "threaded", "microvm", 1, &["threaded: ok"]),
    healthy(
        "C threads, 2 vCPUs",
        "threaded",
        "microvm",
        2,
        &["threaded: ok"],
    ),
    healthy(
        "C threads, 8 vCPUs",
        "threaded",
        "microvm",
        8,
        &["threaded: ok"],
    ),
    healthy(
        "C threads, q35, 2 vCPUs",
        "threaded",
        "q35",
        2,
        &["threaded: ok"],
    ),
    healthy(
        "signals",
        "signal_heavy",
        "microvm",
        1,
        &["signal_heavy: ok"],
    ),
    healthy(
        "signals, 2 vCPUs",
        "signal_heavy",
        "microvm",
        2,
        &["signal_heavy: ok"],
    ),
    healthy(
        "signals, 8 vCPUs",
        "signal_heavy",
        "microvm",
        8,
        &["signal_heavy: ok"],
    ),
    healthy("Go", "go_threaded", "microvm", 1, &["go_threaded: ok"]),
    healthy(
        "Go, 2 vCPUs",
        "go_threaded",
        "microvm",
        2,
        &["go_threaded: ok"],
    ),
    healthy(
        "Go, 8 vCPUs",
        "go_threaded",
        "microvm",
        8,
        &["go_threaded: ok"],
    ),
    healthy(
        "Go, q35, 2 vCPUs",
        "go_threaded",
        "q35",
        2,
        &["go_threaded: ok"],
    ),
];

/// An HTTP server that is asked from outside.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    /// What to ask for; the port is 8080.
    pub(crate) path: &'static str,
    pub(crate) machine: &'static str,
    pub(crate) vcpus: u32,
}

/// A server on microvm with one vCPU.
const fn server(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    path: &'static str,
) -> Server {
    Server {
        name,
        program,
        args,
        path,
        machine: "microvm",
        vcpus: 1,
    }
}

/// Servers in Go, C and Rust.
pub(crate) const SERVERS: [Server; 6] = [
    server("Go server", "todo-go", &[], "/todos"),
    Server {
        machine: "q35",
        vcpus: 2,
        ..server("Go server, q35, 2 vCPUs", "todo-go", &[], "/todos")
    },
    server("C epoll server", "http_epoll", &["8080"], "/"),
    Server {
        vcpus: 2,
        ..server(
            "C epoll server, 2 vCPUs",
            "http_epoll",
            &["8080", "2"],
            "/bytes/100000",
        )
    },
    Server {
        vcpus: 2,
        ..server(
            "C server while all CPUs compute",
            "busy_server",
            &["8080", "3"],
            "/",
        )
    },
    server("Rust tokio server", "tokio_http", &["8080"], "/"),
];

#[cfg(test)]
mod tests {
    use super::{CASES, SERVERS};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = CASES
            .iter()
            .map(|case| case.name)
            .chain(SERVERS.iter().map(|server| server.name))
            .collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }
}
