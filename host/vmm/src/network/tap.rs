// SPDX-License-Identifier: Apache-2.0
//! TAP interfaces: how they are written on the command line, and whether this user may use one.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::NetworkError;

/// Longest name of an interface, `IFNAMSIZ` without its NUL.
const IFNAME_MAX: usize = 15;

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

/// Understands `tap=NAME,ip=ADDRESS/PREFIX[,gw=ADDRESS][,mac=MAC]`, or says what is wrong.
pub(super) fn parse(text: &str) -> Result<Tap, String> {
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
