// SPDX-License-Identifier: Apache-2.0
//! Below IP: interfaces, who the neighbours are, and the queue behind a full transmit ring.

mod interface;
mod neighbour;
mod packet_socket;
mod resolve;

pub(crate) use interface::{Interface, Path};
pub(crate) use neighbour::{NeighbourTable, Resolution};
pub use packet_socket::LinkAddress;
pub(crate) use packet_socket::PacketSocket;
