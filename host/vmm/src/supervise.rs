// SPDX-License-Identifier: Apache-2.0
//! Starts the VMM of an instance and watches it until the end.
//!
//! One loop waits for signals, for lines of the guest and for lines of other `coracle` processes. Those connect to
//! `control.sock` and write ops of decision 0002; what the guest says goes to all of them. A connection stays open until
//! the state says how the instance ended, so `wait` is a read until end of file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::command::Endpoint;
use crate::console::{self, Follower};
use crate::control::{Event, Lines, Op, Show};
use crate::disks::Lengths;
use crate::instance::{Exit, Instance, Reason, State, Status, StoreError, now_s};
use crate::process::ProcessId;
use crate::report;
use crate::spawn::{self, Started};

/// How long the VMM may take to end after the guest said it did.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Where the application's console goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Standard input and output of this process, and the log.
    Foreground,
    /// The log only.
    Detached,
}

/// Why an instance could not be started. Nothing runs then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its folder could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The VMM could not be executed.
    #[error("cannot start {}: {source}", qemu.display())]
    Spawn {
        /// The VMM.
        qemu: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// The VMM refused its command line.
    #[error("QEMU did not start: {message}")]
    Refused {
        /// Its last words.
        message: String,
    },
    /// The host refused something the watching needs.
    #[error("cannot watch the VMM: {0}")]
    Watch(#[from] io::Error),
}

/// Starts the instance and returns when it has ended and `state` says how. `booted` is called when the guest's kernel
/// has started the program.
///
/// Call it from the main thread, before others are started: signals are blocked to be read here, and the VMM dies with
/// the calling thread.
///
/// # Errors
/// [`StartError`] when there was no guest; the caller removes the folder then.
pub fn supervise(
    instance: &Instance,
    state: &mut State,
    mode: Mode,
    booted: &mut dyn FnMut(),
) -> Result<Exit, StartError> {
    let signals = signals()?;
    let listener = listen(&instance.control_socket())?;
    let disks = Lengths::new(&state.spec.disks)?;
    let started = start(instance, state, mode)?;
    // Who wants to see more of the kernel than its errors wants to see it now.
    let follower = (mode == Mode::Foreground && state.spec.log_level.is_some())
        .then(|| Follower::start(&instance.serial_log()));
    let mut watch = Watch {
        instance,
        state,
        booted: Some(booted),
        mode,
        child: started.child,
        control: Some(started.control),
        lines: Lines::default(),
        clients: Vec::new(),
        disks,
        interrupted: false,
        killed: false,
        exit: None,
        deadline: None,
    };
    let mut output = None;
    let status = match watch.first_save(started.console, &mut output) {
        Ok(()) => watch.run(&signals, &listener)?,
        Err(error) => {
            let _ = watch.child.kill();
            let _ = watch.child.wait();
            return Err(error);
        }
    };
    if let Some(output) = output {
        let _ = output.join();
    }
    if let Some(follower) = follower {
        follower.finish();
    }
    watch.finish(status)
}

/// Blocks the signals this process passes on, and gives the descriptor they are read from.
fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGCHLD,
    ] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

fn listen(path: &Path) -> Result<UnixListener, StoreError> {
    let bound = bind_short(path).and_then(|listener| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|source| StoreError::Io {
        path: path.into(),
        source,
    })
}

/// The path of a socket through a descriptor of its folder: `sockaddr_un` holds 108 bytes, folders can be deeper.
pub(crate) fn short_path(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((dir, short))
}

fn bind_short(path: &Path) -> io::Result<UnixListener> {
    let (_dir, short) = short_path(path)?;
    UnixListener::bind(short)
}

fn start(instance: &Instance, state: &State, mode: Mode) -> Result<Started, StartError> {
    let messages = open_log(&instance.vmm_log())?;
    let console = (mode == Mode::Detached).then(|| Endpoint::File(instance.console_log()));
    let serial = Endpoint::File(instance.serial_log());
    spawn::spawn(&state.spec, console, serial, messages).map_err(|source| StartError::Spawn {
        qemu: state.spec.qemu.clone(),
        source,
    })
}

fn open_log(path: &Path) -> Result<File, StoreError> {
    let opened = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    opened.map_err(|source| StoreError::Io {
        path: path.into(),
        source,
    })
}

/// How lines of the guest begin of which there can be very many.
const TRACE_LINES: [&[u8]; 2] = [b"{\"event\":\"call\"", b"{\"event\":\"dropped\""];

/// Another `coracle` process, or our own thread that passes standard input on.
struct Client {
    stream: UnixStream,
    lines: Lines,
    /// Whether it wants to know what the guest says.
    listens: bool,
    /// Whether it traces.
    traces: bool,
    /// Lines of the trace that it did not read in time.
    dropped: u64,
}

impl Client {
    fn new(stream: UnixStream, listens: bool) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            listens,
            traces: false,
            dropped: 0,
        }
    }

    /// Passes a line of the guest on. Returns whether the client is still there. One that does not read its lines loses
    /// its connection; lines of the trace are dropped before that, since a guest can make them faster than anybody reads.
    fn tell(&mut self, line: &[u8], is_trace: bool) -> bool {
        if !self.listens || is_trace && !self.traces {
            return true;
        }
        if is_trace {
            if !self.has_room() {
                self.dropped += 1;
                return true;
            }
            let lines = std::mem::take(&mut self.dropped);
            if lines > 0 && self.say(&Event::Dropped { lines }).is_err() {
                return false;
            }
        }
        self.stream.write_all(line).is_ok()
    }

    fn say(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Whether a line fits: the host calls a socket writable while most of its buffer is free.
    fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLOUT)];
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
    }
}

struct Watch<'a> {
    instance: &'a Instance,
    state: &'a mut State,
    booted: Option<&'a mut dyn FnMut()>,
    mode: Mode,
    child: Child,
    control: Option<UnixStream>,
    lines: Lines,
    clients: Vec<Client>,
    disks: Lengths,
    interrupted: bool,
    killed: bool,
    exit: Option<Exit>,
    deadline: Option<Instant>,
}

impl Watch<'_> {
    /// Records that the VMM runs, and connects the console.
    fn first_save(
        &mut self,
        console: Option<UnixStream>,
        output: &mut Option<JoinHandle<()>>,
    ) -> Result<(), StartError> {
        self.state.status = Status::Running;
        self.state.started_s = Some(now_s());
        self.state.monitor = ProcessId::current();
        self.state.vmm = i32::try_from(self.child.id()).ok().and_then(ProcessId::of);
        self.instance.save(self.state)?;
        if let Some(control) = &self.control {
            control.set_nonblocking(true)?;
        }
        let Some(console) = console else {
            // Nobody types to a detached instance.
            self.tell_guest(Op::Eof { bytes: 0 });
            return Ok(());
        };
        let log = open_log(&self.instance.console_log())?;
        let (stream, ended) = UnixStream::pair()?;
        stream.set_nonblocking(true)?;
        self.clients.push(Client::new(stream, false));
        console::input(console.try_clone()?, ended);
        *output = Some(console::output(console, log));
        Ok(())
    }

    fn run(&mut self, signals: &SignalFd, listener: &UnixListener) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                // What the guest said last is still in the socket.
                self.read_guest();
                if let Some(detail) = self.disks.check_now() {
                    // Whatever the guest said at its end, it may have read zeros for data.
                    self.exit = Some(Exit::vmm(&detail));
                }
                return Ok(status);
            }
            if let Some(detail) = self.disks.check() {
                self.exit = Some(Exit::vmm(&detail));
                self.child.kill()?;
            }
            if self.deadline.is_some_and(|at| at <= Instant::now()) {
                self.deadline = None;
                self.child.kill()?;
            }
            let ready = self.wait(signals, listener)?;
            if ready[0] {
                while let Ok(Some(info)) = signals.read_signal() {
                    if let Some(signal) = i32::try_from(info.ssi_signo)
                        .ok()
                        .and_then(|n| Signal::try_from(n).ok())
                    {
                        self.on_signal(signal)?;
                    }
                }
            }
            if ready[1]
                && let Ok((stream, _)) = listener.accept()
                && stream.set_nonblocking(true).is_ok()
            {
                self.clients.push(Client::new(stream, true));
            }
            if ready[2] {
                self.read_guest();
            }
            self.read_clients(&ready[3..])?;
        }
    }

    /// Sleeps until something happens; answers for signals, listener, guest and each client whether it was that.
    fn wait(&self, signals: &SignalFd, listener: &UnixListener) -> io::Result<Vec<bool>> {
        let mut fds = vec![watched(signals.as_fd()), watched(listener.as_fd())];
        // Without its socket the guest cannot say more; the listener stands in, to keep the places.
        fds.push(watched(
            self.control.as_ref().map_or(listener.as_fd(), AsFd::as_fd),
        ));
        fds.extend(
            self.clients
                .iter()
                .map(|client| watched(client.stream.as_fd())),
        );
        let next = self.deadline.into_iter().chain(self.disks.next()).min();
        let timeout = next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds.iter().map(|fd| fd.any().unwrap_or(false)).collect())
    }

    fn on_signal(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            Signal::SIGCHLD => Ok(()), // the loop looks at the child anyway
            Signal::SIGINT if self.interrupted => self.kill(),
            _ => {
                self.interrupted |= signal == Signal::SIGINT;
                let number = u8::try_from(signal as i32).expect("signals are below 65");
                self.tell_guest(Op::Signal { number });
                Ok(())
            }
        }
    }

    fn kill(&mut self) -> io::Result<()> {
        self.killed = true;
        self.child.kill()
    }

    fn tell_guest(&mut self, op: Op) {
        // A guest that does not read is ended by the grace period of whoever asked.
        if let Some(control) = &mut self.control {
            let _ = control.write_all(&op.line());
        }
    }

    fn read_guest(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(control) = &mut self.control {
            match control.read(&mut buffer) {
                Ok(0) => self.control = None,
                Ok(count) => {
                    for line in self.lines.feed(&buffer[..count]) {
                        self.on_guest_line(&line);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.control = None,
            }
        }
    }

    fn on_guest_line(&mut self, line: &[u8]) {
        let mut message = line.to_vec();
        message.push(b'\n');
        let is_trace = TRACE_LINES.iter().any(|start| line.starts_with(start));
        self.clients
            .retain_mut(|client| client.tell(&message, is_trace));
        match serde_json::from_slice(line) {
            Ok(Event::Booted { t_ns, laps, .. }) => {
                self.state.boot_ns = Some(t_ns);
                self.state.boot_laps = laps;
                // The guest has them; a full disk must not end a guest that runs.
                self.instance.remove_boot_files();
                let _ = self.instance.save(self.state);
                if let Some(booted) = self.booted.take() {
                    booted();
                }
            }
            Ok(Event::Exit {
                reason,
                code,
                signal,
                detail,
                ..
            }) if self.exit.is_none() => {
                self.exit = Some(exit(&reason, code, signal, detail));
                self.deadline = Some(Instant::now() + END_LIMIT);
            }
            Ok(Event::Warning { text, .. }) if self.mode == Mode::Foreground => {
                eprintln!("coracle: {}: {text}", self.instance.name);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn read_clients(&mut self, ready: &[bool]) -> io::Result<()> {
        let mut ops = Vec::new();
        let mut at = 0;
        let was_traced = self.clients.iter().any(|client| client.traces);
        self.clients.retain_mut(|client| {
            at += 1;
            // A client that came in this round is looked at in the next.
            if !ready.get(at - 1).copied().unwrap_or(false) {
                return true;
            }
            let mut buffer = [0; 1024];
            match client.stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(count) => {
                    let lines = client.lines.feed(&buffer[..count]);
                    for line in lines {
                        match serde_json::from_slice(&line) {
                            Ok(Op::Trace { .. }) if was_traced && !client.traces => {
                                let _ = client.say(&Event::Busy);
                            }
                            Ok(op) => {
                                if let Op::Trace { show } = op {
                                    client.traces = show != Show::Nothing;
                                }
                                ops.push(op);
                            }
                            Err(_) => {}
                        }
                    }
                    true
                }
                Err(error) => matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ),
            }
        });
        for op in ops {
            match op {
                Op::Kill => self.kill()?,
                Op::Signal { .. } | Op::Counters | Op::Eof { .. } | Op::Trace { .. } => {
                    self.tell_guest(op);
                }
            }
        }
        if was_traced && !self.clients.iter().any(|client| client.traces) {
            // Also when who traced went away without a word.
            self.tell_guest(Op::Trace {
                show: Show::Nothing,
            });
        }
        Ok(())
    }

    /// Records how the instance ended, and lets go of the clients.
    fn finish(mut self, status: ExitStatus) -> Result<Exit, StartError> {
        let booted = self.state.boot_ns.is_some();
        let mut exit = match self.exit.take() {
            Some(exit) => exit,
            None if self.killed => Exit::killed(),
            None => {
                let message = last_words(&self.instance.vmm_log());
                if !booted && status.code().is_some_and(|code| code != 0) {
                    let message = message
                        .unwrap_or_else(|| format!("it ended with {status} and said nothing"));
                    return Err(StartError::Refused { message });
                }
                Exit::vmm(&vmm_detail(status, booted, message))
            }
        };
        if let (Reason::OutOfMemory, Some(detail)) = (exit.reason, &mut exit.detail) {
            // How much would do nobody knows; the double is the next to try.
            let mib = self.state.spec.memory_bytes >> 20;
            *detail += &format!(" (it had -m {mib}M; try -m {}M)", 2 * mib);
        }
        if matches!(exit.reason, Reason::Panic | Reason::Signal) {
            exit.report = report::read(&self.instance.serial_log(), &self.state.spec.kernel);
        }
        self.state.status = Status::Exited;
        self.state.finished_s = Some(now_s());
        self.state.exit = Some(exit.clone());
        self.instance.remove_boot_files();
        let saved = self.instance.save(self.state);
        let _ = fs::remove_file(self.instance.control_socket());
        let removed = if self.state.remove {
            self.state.remove_volumes();
            self.instance.remove()
        } else {
            saved
        };
        let ended = Event::Ended { exit: exit.clone() };
        if let Ok(mut line) = serde_json::to_vec(&ended) {
            line.push(b'\n');
            for client in &mut self.clients {
                let _ = client.stream.write_all(&line);
            }
        }
        removed?;
        Ok(exit)
    }
}

fn watched(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::POLLIN)
}

fn exit(reason: &str, code: u8, signal: Option<u8>, detail: Option<String>) -> Exit {
    let reason = match reason {
        "signal" => Reason::Signal,
        "out-of-memory" => Reason::OutOfMemory,
        "panic" => Reason::Panic,
        "exec" => Reason::Exec,
        _ => Reason::Exit,
    };
    Exit {
        reason,
        code,
        signal,
        detail: detail.as_deref().map(report::readable),
        report: Vec::new(),
    }
}

/// In words how a VMM ended that should not have.
fn vmm_detail(status: ExitStatus, booted: bool, message: Option<String>) -> String {
    let mut detail = match status.signal() {
        Some(signal) => {
            let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
            format!("the VMM was killed from outside by signal {signal} ({name})")
        }
        None if booted => format!("the guest reset itself without saying why ({status})"),
        None => {
            "the guest reset itself before the kernel was up; serial.log may say why".to_owned()
        }
    };
    if let Some(message) = message {
        detail += ": ";
        detail += &message;
    }
    detail
}

/// The last line QEMU wrote, without its name in front.
fn last_words(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let last = text
        .lines()
        .rfind(|line| !line.trim().is_empty() && !line.contains("warning:"))?;
    let words = last
        .split_once("qemu-system-x86_64: ")
        .map_or(last, |(_, words)| words);
    Some(words.trim().to_owned())
}
