// SPDX-License-Identifier: Apache-2.0
//! Passes the application's console on in the foreground: its output to standard output and the log, standard input to it;
//! and what the kernel writes on the serial port to standard error, where that was asked for.
//!
//! Both directions have a thread of their own, so that a reader of our output that stops reading stops the application's
//! output only, and not the control channel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

use crate::control::Op;

/// Passes output on until the VMM closes the console; the handle ends with it.
pub(crate) fn output(mut console: UnixStream, mut log: File) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let (mut to_log, mut to_stdout) = (true, true);
        // Unbuffered: what an application writes without a line feed is seen at once.
        let stdout = io::stdout();
        loop {
            let count = match console.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let bytes = &buffer[..count];
            let mut lock = stdout.lock();
            to_stdout = to_stdout && lock.write_all(bytes).and_then(|()| lock.flush()).is_ok();
            if to_log && let Err(error) = log.write_all(bytes) {
                to_log = false; // the application goes on; only its log has a gap
                eprintln!("coracle: the console log ends here: {error}");
            }
        }
    })
}

/// How often input is asked for while a shell keeps this process in the background.
const BACKGROUND_LOOK: Duration = Duration::from_secs(1);

/// Passes standard input on, as long as there is some, and then says so with [`Op::Eof`] on `ended`. The thread ends with
/// the process.
pub(crate) fn input(mut console: UnixStream, mut ended: UnixStream) {
    std::thread::spawn(move || {
        // A read in the background is to fail with EIO instead of stopping the whole process.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTIN);
        let _ = stop.thread_block();
        let mut buffer = [0; 4096];
        let mut bytes = 0;
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if console.write_all(&buffer[..count]).is_err() => return,
                Ok(count) => bytes += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.raw_os_error() == Some(Errno::EIO as i32) && is_background() =>
                {
                    std::thread::sleep(BACKGROUND_LOOK);
                }
                Err(_) => break,
            }
        }
        let _ = ended.write_all(&Op::Eof { bytes }.line());
    });
}

/// Whether standard input is a terminal that another process group has.
fn is_background() -> bool {
    nix::unistd::tcgetpgrp(io::stdin()).is_ok_and(|group| group != nix::unistd::getpgrp())
}

/// How often a growing log is looked at.
const LOG_LOOK: Duration = Duration::from_millis(20);

/// Copies a growing log to standard error.
pub(crate) struct Follower {
    is_complete: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Begins at the start of the log, once it is there.
    pub(crate) fn start(log: &Path) -> Self {
        let log = log.to_owned();
        let is_complete = Arc::new(AtomicBool::new(false));
        let seen = is_complete.clone();
        let thread = std::thread::spawn(move || {
            let mut file = None;
            loop {
                // Before the last look: what was written until then is seen by it.
                let is_last = seen.load(Ordering::Acquire);
                if file.is_none() {
                    file = File::open(&log).ok();
                }
                let copied = file
                    .as_mut()
                    .map_or(Ok(0), |file| io::copy(file, &mut io::stderr()));
                if is_last || copied.is_err() {
                    return;
                }
                std::thread::sleep(LOG_LOOK);
            }
        });
        Self {
            is_complete,
            thread,
        }
    }

    /// Copies the rest of the log, to which nobody writes any more.
    pub(crate) fn finish(self) {
        self.is_complete.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}
