// SPDX-License-Identifier: Apache-2.0
//! The end of the application, and why.

use alloc::string::String;

use coracle_abi::signal::{SigInfo, Signal};
use coracle_arch::TrapFrame;

use crate::sync::Once;

/// Why the application ended.
#[expect(
    clippy::large_enum_variant,
    reason = "made once, when memory may be exhausted: no box"
)]
pub enum ExitReason {
    /// It called `exit_group` with this status (0 to 255).
    Exit(u8),
    /// A signal whose default action is to end it, with the registers at that moment.
    Signal {
        /// The signal.
        signal: Signal,
        /// What the signal says about itself.
        info: SigInfo,
        /// Registers of the thread that took it.
        frame: TrapFrame,
    },
    /// No memory was left.
    OutOfMemory,
    /// The program could not be started: exit status and a line that says why.
    Exec(u8, String),
}

static HANDLER: Once<fn(ExitReason) -> !> = Once::new();

/// Sets who reports the end and stops the machine.
pub fn set_handler(handler: fn(ExitReason) -> !) {
    let _ = HANDLER.set(handler);
}

/// Ends the application.
pub fn end_process(reason: ExitReason) -> ! {
    match HANDLER.get() {
        Some(handler) => handler(reason),
        None => panic!("the application ended before the kernel was ready for it"),
    }
}
