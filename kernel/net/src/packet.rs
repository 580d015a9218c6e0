// SPDX-License-Identifier: Apache-2.0
//! Small questions about packet buffers that several protocols ask.

use coracle_core::packet::{Fragment, PacketBuf, TxPacket};

/// Payload that fits the smallest buffers of the packet pool.
const SMALL: usize = 256;

/// Copies a fragment's bytes to `out`, which is as long.
pub(crate) fn copy_fragment(fragment: &Fragment, out: &mut [u8]) {
    match fragment {
        Fragment::Buffer {
            buffer,
            offset,
            len,
        } => out.copy_from_slice(&buffer.data()[*offset..*offset + *len]),
        Fragment::Page { page, offset, .. } => page.read(*offset, out),
    }
}

/// All bytes of a packet in one buffer.
pub(crate) fn contiguous(packet: &TxPacket) -> PacketBuf {
    let mut all = PacketBuf::new(0, packet.len());
    all.append(packet.head.len())
        .copy_from_slice(packet.head.data());
    for fragment in &packet.fragments {
        copy_fragment(fragment, all.append(fragment.len()));
    }
    all
}

/// Memory that a buffer holds, whatever part of it is payload: what limits must count, or a peer that sends single
/// bytes could make the stack hold a thousand times as much.
pub(crate) fn memory_of(buf: &PacketBuf) -> usize {
    buf.headroom() + buf.len() + buf.tailroom()
}

/// Moves a small payload out of a large buffer, which has better uses than to wait in a queue.
pub(crate) fn compact(buf: PacketBuf) -> PacketBuf {
    if buf.len() > SMALL || memory_of(&buf) <= 2 * SMALL {
        return buf;
    }
    let mut small = PacketBuf::new(0, buf.len());
    small.append(buf.len()).copy_from_slice(buf.data());
    small
}
