// SPDX-License-Identifier: Apache-2.0
//! Sockets as the system-call layer sees them: one file type for all families.

pub mod address;
mod file;
mod ioctl;
mod ip_options;
pub mod linux;
mod options;
mod packet_control;
mod tcp_options;

pub use address::{EncodedAddress, SocketAddress, UnixAddress};
pub(crate) use ioctl::flags_of;

pub use file::{ControlMessage, PagePart, Received, SendRequest, SocketFile};

use coracle_core::{Errno, Result};

/// Which directions `shutdown(2)` closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Receiving.
    pub read: bool,
    /// Sending.
    pub write: bool,
}

impl Shutdown {
    /// From the argument of `shutdown(2)`: 0 `SHUT_RD`, 1 `SHUT_WR`, 2 `SHUT_RDWR`; `EINVAL` otherwise.
    pub fn parse(how: u32) -> Result<Self> {
        match how {
            0..=2 => Ok(Self {
                read: how != 1,
                write: how != 0,
            }),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Identity of the application, for `SO_PEERCRED` and `SCM_CREDENTIALS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Process.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
