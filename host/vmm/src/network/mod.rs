// SPDX-License-Identifier: Apache-2.0
//! How an instance is connected, as written on the command line, and the checks before the start.

mod port;
mod tap;

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use port::{PortForward, Protocol};
pub use tap::Tap;

/// The guest's address on the user-mode network.
pub const USER_GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// The router of the user-mode network.
pub const USER_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The name server of the user-mode network.
pub const USER_DNS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// The hardware address of a guest on the user-mode network, where no other guest can see it.
const USER_MAC: &str = "52:54:00:12:34:56";

/// Most interfaces of a guest besides loopback; the kernel has room for so many.
const INTERFACES_MAX: usize = 7;

/// How the guest is connected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// QEMU's user-mode network: needs no rights; ports of the host are passed on.
    #[default]
    User,
    /// A TAP interface of the host.
    Tap(Tap),
    /// No interface at all.
    None,
}

/// What is wrong with a network or a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A network was not understood.
    #[error(
        "{text}: {what}; use user, none or tap=NAME,ip=ADDRESS/PREFIX|dhcp[,gw=ADDRESS][,ip6=ADDRESS/PREFIX][,gw6=ADDRESS][,mac=MAC]"
    )]
    Network {
        /// As given.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// More than the kernel has room for.
    #[error("--network: {count} interfaces; give at most {INTERFACES_MAX}")]
    TooMany {
        /// How many were asked for.
        count: usize,
    },
    /// Two interfaces with one hardware address.
    #[error(
        "--network: two interfaces with the hardware address {mac}; give user once, and each TAP its own mac="
    )]
    MacTwice {
        /// The address.
        mac: String,
    },
    /// `-p` was not understood.
    #[error("-p {text}: {what}; use [ADDRESS:]HOSTPORT:GUESTPORT[/tcp|/udp]")]
    Port {
        /// As given.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// `-p` without the network that can pass ports on.
    #[error(
        "-p {forward}: ports are passed on by --network user only; with a TAP network reach the guest at its own address"
    )]
    PortWithoutUser {
        /// The first port.
        forward: PortForward,
    },
    /// Another process has the port.
    #[error("-p {forward}: port {} of {} is in use; choose another host port or stop what listens there (ss -lnp)", forward.host, forward.address)]
    PortInUse {
        /// The port.
        forward: PortForward,
    },
    /// The address is somebody else's.
    #[error("-p {forward}: {} is no address of this host; leave it out to listen on all, or take one of: ip -brief address", forward.address)]
    PortElsewhere {
        /// The port.
        forward: PortForward,
    },
    /// The host does not allow listening there.
    #[error(
        "-p {forward}: cannot listen: {source}; ports below 1024 need root, other ports do not"
    )]
    PortDenied {
        /// The port.
        forward: PortForward,
        /// What the host answered.
        source: io::Error,
    },
    /// The same host port twice.
    #[error("-p {forward}: given twice; leave one out")]
    PortTwice {
        /// The port.
        forward: PortForward,
    },
    /// There is no such interface.
    #[error(
        "--network tap={interface}: no such interface; make it: ip tuntap add {interface} mode tap user $USER && ip link set {interface} up"
    )]
    TapMissing {
        /// The name.
        interface: String,
    },
    /// The interface is something else.
    #[error(
        "--network tap={interface}: not a TAP interface; make one: ip tuntap add NAME mode tap user $USER"
    )]
    NotTap {
        /// The name.
        interface: String,
    },
    /// The interface is there and not in use.
    #[error(
        "--network tap={interface}: the interface is down, so the guest could not be reached; as root: ip link set {interface} up"
    )]
    TapDown {
        /// The name.
        interface: String,
    },
    /// Another process has the interface.
    #[error(
        "--network tap={interface}: another guest uses it; stop that one (coracle ps), or make an interface for this one: ip tuntap add NAME mode tap user $USER"
    )]
    TapBusy {
        /// The name.
        interface: String,
    },
    /// The interface belongs to somebody else.
    #[error(
        "--network tap={interface}: no right to use it ({why}); as root: ip tuntap del {interface} mode tap && ip tuntap add {interface} mode tap user $USER"
    )]
    TapDenied {
        /// The name.
        interface: String,
        /// What is in the way.
        why: String,
    },
    /// `/dev/net/tun` cannot be opened.
    #[error(
        "--network tap={interface}: cannot open /dev/net/tun: {source}; as root: modprobe tun && chmod 666 /dev/net/tun"
    )]
    Tun {
        /// The name.
        interface: String,
        /// What the host answered.
        source: io::Error,
    },
}

impl Network {
    /// The hardware address the guest gets; `None` without a network.
    #[must_use]
    pub fn mac(&self) -> Option<&str> {
        match self {
            Self::User => Some(USER_MAC),
            Self::Tap(tap) => Some(&tap.mac),
            Self::None => None,
        }
    }
}

/// Looks for everything that would fail at the start: ports in use, a TAP interface that is missing or not ours, two
/// interfaces with one address.
///
/// # Errors
/// One variant of [`NetworkError`] for each.
pub fn check(networks: &[Network], ports: &[PortForward]) -> Result<(), NetworkError> {
    if let (false, Some(&forward)) = (networks.contains(&Network::User), ports.first()) {
        return Err(NetworkError::PortWithoutUser { forward });
    }
    for (at, forward) in ports.iter().enumerate() {
        let same =
            |other: &PortForward| other.host == forward.host && other.protocol == forward.protocol;
        if ports[..at].iter().any(same) {
            return Err(NetworkError::PortTwice { forward: *forward });
        }
        forward.check()?;
    }
    if networks.len() > INTERFACES_MAX {
        return Err(NetworkError::TooMany {
            count: networks.len(),
        });
    }
    for (at, network) in networks.iter().enumerate() {
        if let Some(mac) = network.mac()
            && networks[..at].iter().any(|other| other.mac() == Some(mac))
        {
            return Err(NetworkError::MacTwice { mac: mac.into() });
        }
        if let Network::Tap(tap) = network {
            tap.check()?;
        }
    }
    Ok(())
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        match text {
            "user" => Ok(Self::User),
            "none" => Ok(Self::None),
            _ => tap::parse(text)
                .map(Self::Tap)
                .map_err(|what| NetworkError::Network {
                    text: text.into(),
                    what,
                }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::None => f.write_str("none"),
            Self::Tap(tap) => {
                write!(f, "tap={}", tap.interface)?;
                match tap.ip {
                    Some((ip, prefix)) => write!(f, ",ip={ip}/{prefix}")?,
                    None => write!(f, ",ip=dhcp")?,
                }
                if let Some(gateway) = tap.gateway {
                    write!(f, ",gw={gateway}")?;
                }
                if let Some((ip, prefix)) = tap.ip6 {
                    write!(f, ",ip6={ip}/{prefix}")?;
                }
                if let Some(gateway) = tap.gateway6 {
                    write!(f, ",gw6={gateway}")?;
                }
                write!(f, ",mac={}", tap.mac)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_written_as_they_are_read() {
        for text in [
            "user",
            "none",
            "tap=tap0,ip=10.0.0.2/24,gw=10.0.0.1,mac=52:54:00:00:00:01",
            "tap=tap0,ip=dhcp,mac=52:54:00:00:00:01",
            "tap=tap0,ip=10.0.0.2/24,ip6=fd00::2/64,gw6=fd00::1,mac=52:54:00:00:00:01",
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_guest_on_a_tap_has_an_address_of_its_own() {
        let mac = |ip: &str| {
            let network: Network = format!("tap=t,ip={ip}/24").parse().unwrap();
            network.mac().unwrap().to_owned()
        };
        assert_eq!(mac("10.0.0.2"), "52:54:0a:00:00:02");
        assert_ne!(mac("10.0.0.2"), mac("10.0.0.3"));
        assert!(
            "tap=t,ip=10.0.0.2/24,mac=53:54:00:00:00:01"
                .parse::<Network>()
                .is_err(),
            "multicast"
        );
    }

    #[test]
    fn ports_need_the_user_network_and_a_free_port() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let forward: PortForward = format!("127.0.0.1:{port}:80").parse().unwrap();
        assert!(matches!(
            check(&[Network::User], &[forward]),
            Err(NetworkError::PortInUse { .. })
        ));
        assert!(matches!(
            check(&[], &[forward]),
            Err(NetworkError::PortWithoutUser { .. })
        ));
        drop(socket);
        check(&[Network::User], &[forward]).unwrap();
        assert!(matches!(
            check(&[Network::User], &[forward, forward]),
            Err(NetworkError::PortTwice { .. })
        ));
        assert!(matches!(
            check(&[Network::User, Network::User], &[]),
            Err(NetworkError::MacTwice { .. })
        ));
    }
}
