// SPDX-License-Identifier: Apache-2.0
//! The header in front of each frame, `struct virtio_net_hdr` (virtio 1.2, 5.1.6).

use coracle_core::packet::TxPacket;

/// Length in bytes, with `num_buffers`, which is always there since version 1.
pub(super) const LEN: usize = 12;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is still to be filled in.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the device has checked the checksum.
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// The header for a frame to send (5.1.6.2).
pub(super) fn for_packet(packet: &TxPacket) -> [u8; LEN] {
    let mut header = [0; LEN];
    if let Some(checksum) = packet.checksum {
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&checksum.start.to_le_bytes());
        header[8..10].copy_from_slice(&checksum.offset.to_le_bytes());
    }
    header[1] = GSO_NONE;
    if let Some(segmentation) = packet.segmentation {
        header[1] = if segmentation.ipv6 {
            GSO_TCPV6
        } else {
            GSO_TCPV4
        };
        header[2..4].copy_from_slice(&segmentation.header_len.to_le_bytes());
        header[4..6].copy_from_slice(&segmentation.mss.to_le_bytes());
    }
    header
}

/// Whether the device vouches for the checksum of a received frame (5.1.6.4). A checksum that is still to be filled in
/// belongs to a frame that never left the host.
pub(super) fn checksum_valid(header: &[u8]) -> bool {
    header
        .first()
        .is_some_and(|flags| flags & (NEEDS_CSUM | DATA_VALID) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_core::packet::{ChecksumOffload, PacketBuf, Segmentation};

    #[test]
    fn fields_lie_where_the_specification_says() {
        let mut packet = TxPacket::new(PacketBuf::new(0, 64));
        assert_eq!(for_packet(&packet), [0; LEN]);
        packet.checksum = Some(ChecksumOffload {
            start: 0x1234,
            offset: 16,
        });
        packet.segmentation = Some(Segmentation {
            mss: 1460,
            header_len: 54,
            ipv6: true,
        });
        assert_eq!(
            for_packet(&packet),
            [1, 4, 54, 0, 0xb4, 0x05, 0x34, 0x12, 16, 0, 0, 0]
        );
    }
}
