// SPDX-License-Identifier: Apache-2.0
//! Socket addresses: the bytes of `struct sockaddr` and what they mean (`ip(7)`, `ipv6(7)`, `unix(7)`, `netlink(7)`).

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use coracle_core::{Errno, Result};

use super::linux::{AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, AF_UNSPEC};
use crate::address::{Address, Endpoint};
use crate::link::LinkAddress;

/// The longest `struct sockaddr` that [`SocketAddress::encode`] makes: `sockaddr_un` with a final NUL.
pub const MAX_ADDRESS: usize = 111;
/// Bytes of `sun_path`.
const UNIX_PATH: usize = 108;

/// Address of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnixAddress {
    /// Not bound.
    Unnamed,
    /// A name in the abstract namespace, without its leading NUL.
    Abstract(Vec<u8>),
    /// A name in the file system. `node` is the file's device and inode number, filled in by the caller that has
    /// resolved (or, for `bind`, created) it: see [`SocketAddress::unix_path`].
    Path {
        /// The path as the application gave it, without a final NUL.
        path: Vec<u8>,
        /// Device and inode number.
        node: Option<(u64, u64)>,
    },
}

/// Address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    /// `AF_UNSPEC`: dissolves an association in `connect`.
    Unspecified,
    /// `AF_INET`.
    V4(SocketAddrV4),
    /// `AF_INET6`.
    V6(SocketAddrV6),
    /// `AF_UNIX`.
    Unix(UnixAddress),
    /// `AF_NETLINK`.
    Netlink {
        /// Port number; 0 is the kernel.
        pid: u32,
        /// Multicast groups.
        groups: u32,
    },
    /// `AF_PACKET`.
    Link(LinkAddress),
}

/// The bytes of a `struct sockaddr`.
#[derive(Clone, Copy, Debug)]
pub struct EncodedAddress {
    bytes: [u8; MAX_ADDRESS],
    len: usize,
}

impl EncodedAddress {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl SocketAddress {
    /// From the bytes an application passed. `EINVAL` if they are too few or too many for their family,
    /// `EAFNOSUPPORT` for an unknown one.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let family: &[u8; 2] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
        match u16::from_ne_bytes(*family) {
            AF_UNSPEC => Ok(Self::Unspecified),
            AF_INET => {
                let b: &[u8; 16] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                let port = u16::from_be_bytes([b[2], b[3]]);
                let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
                Ok(Self::V4(SocketAddrV4::new(ip, port)))
            }
            AF_INET6 => {
                // Linux takes the old form without scope (RFC 2133) too.
                let b: &[u8; 24] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                let mut octets = [0; 16];
                octets.copy_from_slice(&b[8..24]);
                let word = |at: usize| {
                    let four = bytes.get(at..at + 4).and_then(<[u8]>::first_chunk::<4>);
                    four.map_or(0, |w| u32::from_ne_bytes(*w))
                };
                let port = u16::from_be_bytes([b[2], b[3]]);
                let ip = Ipv6Addr::from(octets);
                Ok(Self::V6(SocketAddrV6::new(ip, port, word(4), word(24))))
            }
            AF_UNIX => Self::parse_unix(&bytes[2..]),
            AF_NETLINK => {
                let b: &[u8; 12] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                Ok(Self::Netlink {
                    pid: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
                    groups: u32::from_ne_bytes([b[8], b[9], b[10], b[11]]),
                })
            }
            AF_PACKET => {
                let b: &[u8; 20] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                let mut address = [0; 8];
                address.copy_from_slice(&b[12..]);
                Ok(Self::Link(LinkAddress {
                    protocol: u16::from_be_bytes([b[2], b[3]]),
                    interface: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
                    hardware: u16::from_ne_bytes([b[8], b[9]]),
                    packet_type: b[10],
                    len: b[11],
                    address,
                }))
            }
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    fn parse_unix(path: &[u8]) -> Result<Self> {
        if path.len() > UNIX_PATH {
            return Err(Errno::EINVAL);
        }
        Ok(Self::Unix(match path {
            [] => UnixAddress::Unnamed,
            [0, name @ ..] => UnixAddress::Abstract(name.to_vec()),
            _ => {
                let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
                UnixAddress::Path {
                    path: path[..end].to_vec(),
                    node: None,
                }
            }
        }))
    }

    /// The path in the file system that the caller has to resolve (or, for `bind`, to create as a socket file) before
    /// the address is used, if it is one.
    #[must_use]
    pub fn unix_path(&self) -> Option<&[u8]> {
        match self {
            Self::Unix(UnixAddress::Path { path, .. }) => Some(path),
            _ => None,
        }
    }

    /// Notes which file the path leads to.
    pub fn set_unix_node(&mut self, device: u64, inode: u64) {
        if let Self::Unix(UnixAddress::Path { node, .. }) = self {
            *node = Some((device, inode));
        }
    }

    /// As the bytes of `struct sockaddr`.
    #[must_use]
    pub fn encode(&self) -> EncodedAddress {
        let mut out = EncodedAddress {
            bytes: [0; MAX_ADDRESS],
            len: 0,
        };
        let mut put = |bytes: &[u8]| {
            out.bytes[out.len..out.len + bytes.len()].copy_from_slice(bytes);
            out.len += bytes.len();
        };
        match self {
            Self::Unspecified => put(&AF_UNSPEC.to_ne_bytes()),
            Self::V4(v4) => {
                put(&AF_INET.to_ne_bytes());
                put(&v4.port().to_be_bytes());
                put(&v4.ip().octets());
                put(&[0; 8]);
            }
            Self::V6(v6) => {
                put(&AF_INET6.to_ne_bytes());
                put(&v6.port().to_be_bytes());
                put(&v6.flowinfo().to_ne_bytes());
                put(&v6.ip().octets());
                put(&v6.scope_id().to_ne_bytes());
            }
            Self::Unix(unix) => {
                put(&AF_UNIX.to_ne_bytes());
                match unix {
                    UnixAddress::Unnamed => {}
                    UnixAddress::Abstract(name) => {
                        put(&[0]);
                        put(&name[..name.len().min(UNIX_PATH - 1)]);
                    }
                    UnixAddress::Path { path, .. } => {
                        put(&path[..path.len().min(UNIX_PATH)]);
                        put(&[0]);
                    }
                }
            }
            Self::Netlink { pid, groups } => {
                put(&AF_NETLINK.to_ne_bytes());
                put(&[0; 2]);
                put(&pid.to_ne_bytes());
                put(&groups.to_ne_bytes());
            }
            Self::Link(link) => {
                put(&AF_PACKET.to_ne_bytes());
                put(&link.protocol.to_be_bytes());
                put(&link.interface.to_ne_bytes());
                put(&link.hardware.to_ne_bytes());
                put(&[link.packet_type, link.len]);
                put(&link.address);
            }
        }
        out
    }

    /// The endpoint for a socket of family `AF_INET6` (`v6`) or `AF_INET`. `EAFNOSUPPORT` if the families differ.
    pub(crate) fn endpoint(&self, v6: bool) -> Result<Endpoint> {
        match self {
            Self::V4(a) if !v6 => Ok(Endpoint::new(Address::from_v4(*a.ip()), a.port())),
            Self::V6(a) if v6 => Ok(Endpoint::new(Address::from_v6(*a.ip()), a.port())),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// The address for a packet socket. `EINVAL` for another family.
    pub(crate) fn link(&self) -> Result<&LinkAddress> {
        match self {
            Self::Link(link) => Ok(link),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The address for a Unix socket. `EINVAL` for another family.
    pub(crate) fn unix(&self) -> Result<&UnixAddress> {
        match self {
            Self::Unix(unix) => Ok(unix),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Whether a name was chosen.
    pub(crate) fn is_bound(&self) -> bool {
        match self {
            Self::V4(a) => a.port() != 0,
            Self::V6(a) => a.port() != 0,
            _ => false,
        }
    }

    /// How a socket of that family names an endpoint: IPv4 addresses appear mapped on an IPv6 socket.
    pub(crate) fn from_endpoint(endpoint: Endpoint, v6: bool) -> Self {
        match endpoint.address.v4() {
            Some(v4) if !v6 => Self::V4(SocketAddrV4::new(v4, endpoint.port)),
            _ => Self::V6(SocketAddrV6::new(
                endpoint.address.v6(),
                endpoint.port,
                0,
                0,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert_eq;

    #[test]
    fn addresses_survive_the_round_trip() {
        let samples = [
            SocketAddress::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, 15), 8080)),
            SocketAddress::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 2)),
            SocketAddress::Unix(UnixAddress::Unnamed),
            SocketAddress::Unix(UnixAddress::Abstract(b"bus".to_vec())),
            SocketAddress::Unix(UnixAddress::Path {
                path: b"/run/a.sock".to_vec(),
                node: None,
            }),
            SocketAddress::Netlink { pid: 7, groups: 1 },
            SocketAddress::Link(LinkAddress {
                protocol: 0x0806,
                interface: 2,
                hardware: 1,
                packet_type: 4,
                len: 6,
                address: [1, 2, 3, 4, 5, 6, 0, 0],
            }),
        ];
        for sample in samples {
            let encoded = sample.encode();
            assert_eq!(SocketAddress::parse(encoded.as_slice()), Ok(sample));
        }
    }

    #[test]
    fn errors_are_those_of_linux() {
        assert_eq!(SocketAddress::parse(&[]), Err(Errno::EINVAL));
        assert_eq!(SocketAddress::parse(&[2, 0, 0, 80]), Err(Errno::EINVAL));
        assert_eq!(SocketAddress::parse(&[99, 0]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(SocketAddress::parse(&[1; 200]), Err(Errno::EAFNOSUPPORT));
        let mut long = vec![1, 0];
        long.extend([b'a'; 109]);
        assert_eq!(SocketAddress::parse(&long), Err(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..130)) {
            if let Ok(address) = SocketAddress::parse(&bytes) {
                let again = SocketAddress::parse(address.encode().as_slice());
                prop_assert_eq!(again, Ok(address));
            }
        }
    }
}
