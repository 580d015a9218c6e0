// SPDX-License-Identifier: Apache-2.0
//! Ports of the host that lead into the guest.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::NetworkError;

/// A port of the host that leads into the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForward {
    /// Address of the host to listen on.
    pub address: Ipv4Addr,
    /// Port of the host.
    pub host: u16,
    /// Port in the guest.
    pub guest: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

/// Transport of a [`PortForward`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl PortForward {
    /// Tries whether this user can listen on the host port and nobody else does.
    pub(super) fn check(self) -> Result<(), NetworkError> {
        let address = SocketAddr::new(IpAddr::V4(self.address), self.host);
        let bound = match self.protocol {
            Protocol::Tcp => TcpListener::bind(address).map(drop),
            Protocol::Udp => UdpSocket::bind(address).map(drop),
        };
        bound.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => NetworkError::PortInUse { forward: self },
            io::ErrorKind::AddrNotAvailable => NetworkError::PortElsewhere { forward: self },
            _ => NetworkError::PortDenied {
                forward: self,
                source,
            },
        })
    }
}

impl FromStr for PortForward {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = |what: String| NetworkError::Port {
            text: text.into(),
            what,
        };
        let (ports, protocol) = match text.rsplit_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(error(format!("{other:?} is neither tcp nor udp"))),
        };
        let parts: Vec<&str> = ports.split(':').collect();
        let (address, host, guest) = match parts[..] {
            [host, guest] => (Ipv4Addr::UNSPECIFIED, host, guest),
            [address, host, guest] => {
                let parsed = address.parse();
                (
                    parsed.map_err(|_| error(format!("{address:?} is no IPv4 address")))?,
                    host,
                    guest,
                )
            }
            _ => return Err(error("a host port and a guest port are needed".into())),
        };
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(error(format!("{text:?} is no port (1 to 65535)"))),
        };
        Ok(Self {
            address,
            host: port(host)?,
            guest: port(guest)?,
            protocol,
        })
    }
}

impl fmt::Display for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.address.is_unspecified() {
            write!(f, "{}:", self.address)?;
        }
        write!(f, "{}:{}/{}", self.host, self.guest, self.protocol)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_written_as_they_are_read() {
        for (text, shown) in [
            ("8080:80", "8080:80/tcp"),
            ("8080:80/tcp", "8080:80/tcp"),
            ("53:5353/udp", "53:5353/udp"),
            ("127.0.0.1:1:65535", "127.0.0.1:1:65535/tcp"),
        ] {
            assert_eq!(text.parse::<PortForward>().unwrap().to_string(), shown);
        }
        for wrong in [
            "", "80", ":80", "80:", "0:1", "1:0", "65536:1", "1:2:3", "x:1:2", "1:1/icmp", "1:1/",
        ] {
            assert!(wrong.parse::<PortForward>().is_err(), "{wrong}");
        }
    }
}
