// SPDX-License-Identifier: Apache-2.0
//! TCP (RFC 9293).
//!
//! One table finds the connection of a segment; from there on only that connection's lock is held. A segment of an
//! established connection costs one look-up, one lock and no allocation; acknowledgements travel with data where the
//! application answers in time. Half-open and TIME-WAIT connections are small table entries without a socket.

mod buffers;
mod congestion;
mod info;
mod input;
mod listener;
mod options;
mod output;
mod receive_queue;
mod recovery;
mod rtt;
mod send_queue;
mod seq;
mod socket;
mod stream;
mod table;
mod tcb;
mod timer;

pub(crate) use options::TcpOptions;
pub(crate) use socket::TcpSocket;
pub(crate) use table::TcpTables;
