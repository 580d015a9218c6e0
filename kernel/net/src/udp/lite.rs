// SPDX-License-Identifier: Apache-2.0
//! UDP-Lite (RFC 3828): a datagram whose checksum may cover only its beginning, for those who would rather have damaged
//! data than none.

use coracle_core::packet::PacketBuf;

use super::UdpOptions;
use crate::address::{Address, Endpoint};
use crate::ip::IpMeta;
use crate::link::Path;
use crate::stack::NetStack;
use crate::wire::checksum::Sum;
use crate::wire::protocol::UDP_LITE;
use crate::wire::udp::{self, UdpLite};

/// What of a received datagram the checksum covered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Covered {
    /// Bytes of header and payload.
    pub(super) bytes: usize,
    /// That is all of it.
    pub(super) all: bool,
}

impl UdpOptions {
    /// Whether a datagram with that coverage is taken.
    pub(super) fn takes(&self, covered: Covered) -> bool {
        match self.receive_coverage {
            None => true,
            Some(0) => covered.all,
            Some(least) => covered.all || covered.bytes >= usize::from(least),
        }
    }

    /// The coverage field of a datagram of `len` bytes with its header.
    fn coverage(&self, len: usize) -> usize {
        match self.send_coverage {
            Some(part) if usize::from(part) < len => part.into(),
            _ => len,
        }
    }
}

/// Puts the header before the payload, with its checksum. `ports` are source and destination.
pub(super) fn put_header(
    head: &mut PacketBuf,
    ports: [u16; 2],
    options: &UdpOptions,
    path: &Path,
    destination: Address,
) {
    let len = udp::HEADER + head.len();
    let coverage = options.coverage(len);
    UdpLite {
        source: ports[0],
        destination: ports[1],
        coverage,
    }
    .emit(head.prepend(udp::HEADER));
    if path.interface.is_loopback() {
        return; // nothing is damaged there, and nobody looks
    }
    // No card knows this protocol, so it is computed here. The pseudo header has the length of the whole datagram.
    let covered = if coverage == 0 { len } else { coverage };
    let sum = Sum::pseudo(path.source, destination, UDP_LITE, len).add(&head.data()[..covered]);
    let bytes = match sum.finish() {
        [0, 0] => [0xff, 0xff], // zero is not allowed
        bytes => bytes,
    };
    head.data_mut()[udp::CHECKSUM..udp::CHECKSUM + 2].copy_from_slice(&bytes);
}

impl NetStack {
    /// A UDP-Lite packet has arrived.
    pub(crate) fn input_udp_lite(&self, meta: &IpMeta<'_>, buf: PacketBuf, now: u64) {
        let len = buf.len();
        let Some(header) = UdpLite::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !meta.checksum_valid {
            let data = buf.data();
            let sum = Sum::pseudo(meta.source, meta.destination, UDP_LITE, len);
            let missing = data[udp::CHECKSUM..udp::HEADER] == [0, 0];
            if missing || !sum.add(&data[..header.coverage]).is_valid() {
                self.counters.drop_checksum.bump();
                return;
            }
        }
        let covered = Covered {
            bytes: header.coverage,
            all: header.coverage == len,
        };
        let local = Endpoint::new(meta.destination, header.destination);
        let remote = Endpoint::new(meta.source, header.source);
        self.input_datagram(meta, buf, [local, remote], Some(covered), now);
    }
}
