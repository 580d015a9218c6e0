// SPDX-License-Identifier: Apache-2.0
//! TAP interfaces: how they are written on the command line, and whether this user may use one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::NetworkError;

/// Longest name of an interface, `IFNAMSIZ` without its NUL.
const IFNAME_MAX: usize = 15;

/// Settings of a guest on a TAP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// Name of the interface on the host.
    pub interface: String,
    /// IPv4 address of the guest with the length of its network prefix in bits; `None` asks a DHCP server.
    pub ip: Option<(Ipv4Addr, u8)>,
    /// IPv4 default router.
    pub gateway: Option<Ipv4Addr>,
    /// IPv6 address of the guest with the length of its network prefix in bits, besides the link-local one.
    pub ip6: Option<(Ipv6Addr, u8)>,
    /// IPv6 default router.
    pub gateway6: Option<Ipv6Addr>,
    /// Hardware address of the guest.
    pub mac: String,
}

/// Understands `tap=NAME,ip=ADDRESS/PREFIX|dhcp[,gw=ADDRESS][,ip6=ADDRESS/PREFIX][,gw6=ADDRESS][,mac=MAC]`, or says what
/// is wrong.
pub(super) fn parse(text: &str) -> Result<Tap, String> {
    let (mut interface, mut ip, mut gateway, mut mac) = (None, None, None, None);
    let (mut ip6, mut gateway6) = (None, None);
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} not understood"))?;
        match key {
            "tap" => interface = Some(value),
            "ip" if value == "dhcp" => ip = Some(None),
            "ip" => {
                ip = Some(Some(with_prefix::<Ipv4Addr>(
                    value,
                    32,
                    "IPv4",
                    "10.0.0.2/24",
                )?))
            }
            "gw" => {
                gateway = Some(
                    value
                        .parse()
                        .map_err(|_| format!("{value:?} is no IPv4 address"))?,
                )
            }
            "ip6" => ip6 = Some(with_prefix(value, 128, "IPv6", "fd00::2/64")?),
            "gw6" => {
                gateway6 = Some(
                    value
                        .parse()
                        .map_err(|_| format!("{value:?} is no IPv6 address"))?,
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
    let ip = ip.ok_or("ip=ADDRESS/PREFIX or ip=dhcp is missing")?;
    if ip.is_none() && gateway.is_some() {
        return Err("gw goes with an address; DHCP brings its own".into());
    }
    // Guests on one bridge differ in their address, so a hardware address made from it differs too (02 bit: locally
    // made). A guest without one has an interface of its own on the host.
    let derived = || {
        let [a, b, c, d] = ip.map_or_else(|| from_name(interface), |(ip, _)| ip.octets());
        format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
    };
    Ok(Tap {
        interface: interface.into(),
        ip,
        gateway,
        ip6,
        gateway6,
        mac: mac.unwrap_or_else(derived),
    })
}

/// Four bytes that stay the same for a name.
fn from_name(name: &str) -> [u8; 4] {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
    [a, b, c, d]
}

/// An address with its prefix length of at most `longest` bits.
fn with_prefix<A: FromStr>(
    text: &str,
    longest: u8,
    kind: &str,
    example: &str,
) -> Result<(A, u8), String> {
    let (address, prefix) = text
        .split_once('/')
        .ok_or_else(|| format!("{text:?} needs a prefix, such as {example}"))?;
    let parsed = address
        .parse()
        .map_err(|_| format!("{address:?} is no {kind} address"))?;
    let prefix: u8 = prefix
        .parse()
        .map_err(|_| format!("{prefix:?} is no prefix length"))?;
    if prefix > longest {
        return Err(format!("prefix length {prefix} is over {longest}"));
    }
    Ok((parsed, prefix))
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
    /// Whether the interface is there, is a TAP, may be used by this user, and is used by nobody else.
    pub(super) fn check(&self) -> Result<(), NetworkError> {
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
        match number("owner") {
            _ if uid == 0 => {}
            Some(owner) if owner == uid => {}
            Some(owner) if owner >= 0 => {
                return Err(denied(format!("it belongs to user {owner}, you are {uid}")));
            }
            _ => return Err(denied("it has no owner".into())),
        }
        // The host's driver gives an interface its carrier while a process is attached to it.
        if number("carrier") == Some(1) {
            return Err(NetworkError::TapBusy { interface });
        }
        Ok(())
    }
}
