// SPDX-License-Identifier: Apache-2.0
//! How an instance is connected, as written on the command line, and the checks before the start.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The guest's address on the user-mode network.
pub const USER_GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// The router of the user-mode network.
pub const USER_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The name server of the user-mode network.
pub const USER_DNS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// The hardware address of a guest on the user-mode network, where no other guest can see it.
const USER_MAC: &str = "52:54:00:12:34:56";
/// Longest name of an interface, `IFNAMSIZ` without its NUL.
const IFNAME_MAX: usize = 15;

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

/// Settings of a guest on a TAP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// Name of the interface on the host.
    pub interface: String,
    /// Address of the guest.
    pub ip: Ipv4Addr,
    /// Length of its network prefix, bits.
    pub prefix: u8,
    /// Default router.
    pub gateway: Option<Ipv4Addr>,
    /// Hardware address of the guest.
    pub mac: String,
}

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

/// What is wrong with a network or a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A network was not understood.
    #[error("{text}: {what}; use user, none or tap=NAME,ip=ADDRESS/PREFIX[,gw=ADDRESS][,mac=MAC]")]
    Network {
        /// As given.
        text: String,
        /// What is wrong with it.
        what: String,
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

    /// Looks for everything that would fail at the start: ports in use, a TAP interface that is missing or not ours.
    ///
    /// # Errors
    /// One variant of [`NetworkError`] for each.
    pub fn check(&self, ports: &[PortForward]) -> Result<(), NetworkError> {
        if let (false, Some(&forward)) = (matches!(self, Self::User), ports.first()) {
            return Err(NetworkError::PortWithoutUser { forward });
        }
        for (at, forward) in ports.iter().enumerate() {
            let same = |other: &PortForward| {
                other.host == forward.host && other.protocol == forward.protocol
            };
            if ports[..at].iter().any(same) {
                return Err(NetworkError::PortTwice { forward: *forward });
            }
            forward.check()?;
        }
        match self {
            Self::Tap(tap) => tap.check(),
            Self::User | Self::None => Ok(()),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        match text {
            "user" => Ok(Self::User),
            "none" => Ok(Self::None),
            _ => parse_tap(text)
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
                write!(f, "tap={},ip={}/{}", tap.interface, tap.ip, tap.prefix)?;
                if let Some(gateway) = tap.gateway {
                    write!(f, ",gw={gateway}")?;
                }
                write!(f, ",mac={}", tap.mac)
            }
        }
    }
}

fn parse_tap(text: &str) -> Result<Tap, String> {
    let (mut interface, mut ip, mut gateway, mut mac) = (None, None, None, None);
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} not understood"))?;
        match key {
            "tap" => interface = Some(value),
            "ip" => {
                let (address, prefix) = value
                    .split_once('/')
                    .ok_or("ip needs a prefix, such as 10.0.0.2/24")?;
                let address: Ipv4Addr = address
                    .parse()
                    .map_err(|_| format!("{address:?} is no IPv4 address"))?;
                let prefix: u8 = prefix
                    .parse()
                    .map_err(|_| format!("{prefix:?} is no prefix length"))?;
                if prefix > 32 {
                    return Err(format!("prefix length {prefix} is over 32"));
                }
                ip = Some((address, prefix));
            }
            "gw" => {
                gateway = Some(
                    value
                        .parse()
                        .map_err(|_| format!("{value:?} is no IPv4 address"))?,
                )
            }
            "mac" => mac = Some(parse_mac(value)?),
            _ => return Err(format!("{key:?} not understood")),
        }
    }
    let interface = interface.ok_or("it is none of the three")?;
    let valid = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | ',');
    if interface.is_empty() || interface.len() > IFNAME_MAX || !interface.chars().all(valid) {
        return Err(format!("{interface:?} is no name of an interface"));
    }
    let (ip, prefix) = ip.ok_or("ip=ADDRESS/PREFIX is missing")?;
    // Guests on one bridge differ in their address, so an address made from it differs too (02 bit: locally made).
    let derived = || {
        let [a, b, c, d] = ip.octets();
        format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
    };
    Ok(Tap {
        interface: interface.into(),
        ip,
        prefix,
        gateway,
        mac: mac.unwrap_or_else(derived),
    })
}

fn parse_mac(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let octet = |part: &&str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    if parts.len() != 6 || !parts.iter().all(octet) {
        return Err(format!("{text:?} is no MAC address"));
    }
    if u8::from_str_radix(parts[0], 16).is_ok_and(|first| first & 1 == 1) {
        return Err(format!("{text:?} is a multicast address"));
    }
    Ok(text.to_ascii_lowercase())
}

impl Tap {
    /// Whether the interface is there, is a TAP and may be used by this user.
    fn check(&self) -> Result<(), NetworkError> {
        let interface = self.interface.clone();
        let sys = Path::new("/sys/class/net").join(&interface);
        if !sys.exists() {
            return Err(NetworkError::TapMissing { interface });
        }
        let number = |file: &str| {
            let text = std::fs::read_to_string(sys.join(file)).ok()?;
            let text = text.trim();
            match text.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        // IFF_TAP, linux/if_tun.h
        if number("tun_flags").is_none_or(|flags| flags & 2 == 0) {
            return Err(NetworkError::NotTap { interface });
        }
        // IFF_UP, linux/if.h
        if number("flags").is_some_and(|flags| flags & 1 == 0) {
            return Err(NetworkError::TapDown { interface });
        }
        if let Err(source) = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
        {
            return Err(NetworkError::Tun { interface, source });
        }
        let uid = i64::from(nix::unistd::geteuid().as_raw());
        let denied = |why: String| NetworkError::TapDenied {
            interface: interface.clone(),
            why,
        };
        if uid == 0 {
            return Ok(());
        }
        match number("owner") {
            Some(owner) if owner == uid => Ok(()),
            Some(owner) if owner >= 0 => {
                Err(denied(format!("it belongs to user {owner}, you are {uid}")))
            }
            _ => Err(denied("it has no owner".into())),
        }
    }
}

impl PortForward {
    /// Tries whether the host port is free.
    fn check(self) -> Result<(), NetworkError> {
        let address = SocketAddr::new(IpAddr::V4(self.address), self.host);
        let bound = match self.protocol {
            Protocol::Tcp => TcpListener::bind(address).map(drop),
            Protocol::Udp => UdpSocket::bind(address).map(drop),
        };
        bound.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => NetworkError::PortInUse { forward: self },
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
