// SPDX-License-Identifier: Apache-2.0
//! Unix sockets (`unix(7)`): streams, datagrams and packets within the machine, with open files as attachments.

mod channel;
mod names;
mod socket;

pub(crate) use names::UnixNames;
pub(crate) use socket::{UnixKind, UnixReceived, UnixSocket};
