// SPDX-License-Identifier: Apache-2.0
//! Where files and signals meet: `SIGPIPE`, signal masks for the length of a wait, signalfd(2).

use alloc::sync::Arc;

use coracle_abi::convert::low_u32;
use coracle_abi::signal::{SI_USER, SigInfo, Signal, SignalSet};
use coracle_core::poll::PollSource;
use coracle_core::user::{User, UserIn};
use coracle_core::{Errno, Result, signal, thread};
use coracle_fs::signalfd::{RECORD_SIZE, SignalSource};

use crate::process::process;

/// Sends `SIGPIPE` to the calling thread: it wrote to something nobody reads (pipe(7)).
pub(crate) fn broken_pipe() {
    let (uid, _) = process().owner();
    let info = SigInfo::from_process(Signal::SIGPIPE, SI_USER, thread::FIRST_TID, uid);
    // Standard signals are never refused for lack of room.
    let _ = signal::send_to_thread(thread::current(), info);
}

/// The mask that `ppoll`, `pselect` and `epoll_pwait` take; perhaps none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MaskArgument(Option<SignalSet>);

impl MaskArgument {
    /// Reads the mask; `EINVAL` if its size is not that of the kernel's set.
    pub(crate) fn read(mask: User, size: usize) -> Result<Self> {
        let Some(mask) = UserIn::<u64>::new(mask.0).optional() else {
            return Ok(Self(None));
        };
        if size != size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        Ok(Self(Some(SignalSet(mask.read()?))))
    }
}

/// Runs `call` with another signal mask. After `EINTR` the old mask comes back when the handler has run.
pub(crate) fn with_mask(mask: MaskArgument, call: impl FnOnce() -> Result<usize>) -> Result<usize> {
    let Some(mask) = mask.0 else { return call() };
    signal::set_temporary_mask(mask);
    let result = call();
    if result != Err(Errno::EINTR) {
        signal::restore_mask();
    }
    result
}

/// The signals that can be read by the calling thread.
struct Pending;

impl SignalSource for Pending {
    fn poll_source(&self) -> &PollSource {
        signal::arrival()
    }

    fn pending(&self) -> u64 {
        signal::pending().0
    }

    fn take(&self, mask: u64) -> Option<[u8; RECORD_SIZE]> {
        signal::take(SignalSet(mask)).map(|info| record(&info))
    }
}

/// Where signalfd(2) takes its signals from.
pub(crate) fn source() -> Arc<dyn SignalSource> {
    Arc::new(Pending)
}

/// `struct signalfd_siginfo`. The words behind the code depend on who sent the signal.
fn record(info: &SigInfo) -> [u8; RECORD_SIZE] {
    let mut out = [0; RECORD_SIZE];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &info.signo.to_ne_bytes());
    put(4, &info.errno.to_ne_bytes());
    put(8, &info.code.to_ne_bytes());
    let (low, high) = (low_u32(info.fields[0]), low_u32(info.fields[0] >> 32));
    let value = info.fields[1];
    if info.code == coracle_abi::signal::SI_TIMER {
        put(24, &low.to_ne_bytes()); // ssi_tid, the timer's number
        put(32, &high.to_ne_bytes()); // ssi_overrun
    } else {
        put(12, &low.to_ne_bytes()); // ssi_pid
        put(16, &high.to_ne_bytes()); // ssi_uid
    }
    put(44, &low_u32(value).to_ne_bytes()); // ssi_int
    put(48, &value.to_ne_bytes()); // ssi_ptr
    out
}
