// SPDX-License-Identifier: Apache-2.0
//! Passes the application's console on in the foreground: its output to standard output and the log, standard input to it.
//!
//! Both directions have a thread of their own, so that a reader of our output that stops reading stops the application's
//! output only, and not the control channel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

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

/// Passes standard input on, as long as there is some. The thread ends with the process.
pub(crate) fn input(mut console: UnixStream) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) if console.write_all(&buffer[..count]).is_err() => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
}
