// SPDX-License-Identifier: Apache-2.0
//! `coracle logs`

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use coracle_vmm::client::Connection;
use coracle_vmm::{Status, Store};

use crate::args::LogsArgs;
use crate::error::Failure;
use crate::folders;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Shows the application's output from the beginning.
pub(crate) fn logs(args: &LogsArgs) -> Result<u8, Failure> {
    let instance = Store::new(&folders::state()?).open(&args.name)?;
    let state = instance.load()?;
    let path = if args.serial {
        instance.serial_log()
    } else {
        instance.console_log()
    };
    let cannot =
        |error: io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));

    // Connected before the first look: what is written until the end of the connection is seen after it.
    let mut connection = match state.status {
        Status::Running if args.follow => Connection::open(&instance).ok(),
        _ => None,
    };
    let mut log = None;
    loop {
        let ended = match &mut connection {
            Some(open) => open.wait_end(Some(Instant::now() + LOOK)).unwrap_or(true),
            None => true,
        };
        if log.is_none() {
            log = match File::open(&path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == ErrorKind::NotFound => None, // nothing was written
                Err(error) => return Err(cannot(error)),
            };
        }
        if let Some(log) = &mut log {
            let mut stdout = io::stdout().lock();
            match io::copy(log, &mut stdout).and_then(|_| stdout.flush()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
                Err(error) => return Err(cannot(error)),
                Ok(()) => {}
            }
        }
        if ended {
            return Ok(0);
        }
    }
}
