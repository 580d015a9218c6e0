// SPDX-License-Identifier: Apache-2.0

//! The same way to every platform: a bridge with the host's address, and on it a TAP for a VM or one end of a veth pair
//! whose other end is in the instance's network namespace.
//!
//! Alike for all: the bridge, the subnet, the MTU, and that the host knows every instance's hardware address beforehand, so
//! that no resolution of addresses (a second, when the first question is lost) is part of a first answer. Not alike, because
//! it is what the platforms are: a veth hands packets over in the kernel, a TAP hands them to the VMM's process.
//!
//! Without root there is neither bridge nor namespace: VMs then get their VMM's user-mode network.

mod leftovers;
mod tools;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::{Error, Result};

pub(crate) use leftovers::PREFIX;
pub use leftovers::remove_leftovers;
pub(crate) use tools::find_tool;
use tools::{batch, batch_in, output, run};

/// The lowest and the highest instance of the /24.
const FIRST_GUEST: u8 = 2;
const LAST_GUEST: u8 = 254;

/// What kind of place a platform needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A TAP: VMs.
    Tap,
    /// A network namespace: processes and containers.
    Namespace,
}

/// A place in the network for one instance.
#[derive(Clone, Debug)]
pub enum Link {
    /// A TAP on the bridge.
    Tap {
        /// The interface of the host.
        interface: String,
        /// The bridge's address: the guest's gateway.
        host: Ipv4Addr,
        /// The instance's.
        guest: Ipv4Addr,
        /// Network bits.
        prefix: u8,
        /// The instance's card.
        guest_mac: String,
    },
    /// A network namespace with one end of a veth pair, address and route in place.
    Namespace {
        /// Its name, as of `ip netns`.
        namespace: String,
        /// The bridge's address.
        host: Ipv4Addr,
        /// The instance's.
        guest: Ipv4Addr,
        /// Network bits.
        prefix: u8,
    },
    /// Without rights: user-mode network of the VMM, a port of the host forwarded. Such samples are marked, and not compared
    /// with others.
    User {
        /// On 127.0.0.1.
        host_port: u16,
        /// In the guest.
        port: u16,
    },
    /// None, for programs that need none.
    None,
}

impl Link {
    /// The address at which the host reaches the instance; of the loopback interface where there is no network of its own.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Link::Tap { guest, .. } | Link::Namespace { guest, .. } => (*guest).into(),
            Link::User { .. } | Link::None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Where the host reaches what listens on `port` in the instance.
    #[must_use]
    pub fn reach(&self, port: u16) -> SocketAddr {
        let port = match self {
            Link::User {
                host_port,
                port: inside,
            } if *inside == port => *host_port,
            _ => port,
        };
        (self.address(), port).into()
    }

    /// For the record.
    #[must_use]
    pub fn description(&self) -> &'static str {
        match self {
            Link::Tap { .. } => "TAP on a bridge",
            Link::Namespace { .. } => "veth pair on a bridge",
            Link::User { .. } => "user-mode network of the VMM (no root)",
            Link::None => "none",
        }
    }
}

/// The network of a run. Dropping it removes the bridge.
#[derive(Debug)]
pub struct Network {
    /// `None` without root.
    bridge: Option<Bridge>,
}

#[derive(Debug)]
struct Bridge {
    name: String,
    /// The first three bytes of its addresses.
    subnet: [u8; 3],
    /// Counts up; addresses are used again only when all were.
    next: AtomicU8,
    used: std::sync::Arc<std::sync::Mutex<std::collections::BTreeSet<u8>>>,
}

/// A place in the network, taken. Dropping it removes interfaces and namespace.
#[derive(Debug)]
pub struct Attachment {
    link: Link,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Nothing,
    Interface {
        name: String,
        bridge: String,
        number: u8,
        used: std::sync::Arc<std::sync::Mutex<std::collections::BTreeSet<u8>>>,
        namespace: Option<String>,
    },
}

/// Numbers that make names unique in this process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// `clab`, the process and what makes it unique, within the 15 letters of an interface's name.
fn unique(letter: char) -> String {
    let number = COUNT.fetch_add(1, Ordering::Relaxed) % 1000;
    format!("{PREFIX}{}{letter}{number}", std::process::id())
}

/// The mask of a network prefix, as programs for IPv4 take it.
pub(crate) fn netmask(prefix: u8) -> Ipv4Addr {
    let host_bits = 32_u32.saturating_sub(u32::from(prefix));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(host_bits).unwrap_or(0))
}

/// Whether this process may make interfaces and namespaces.
#[must_use]
pub fn is_privileged() -> bool {
    nix::unistd::geteuid().is_root()
        && Path::new("/dev/net/tun").exists()
        && find_tool("ip").is_some()
}

impl Network {
    /// Makes the bridge, with a /24 that nothing on this host uses. Without root there is none, and no error.
    ///
    /// # Errors
    /// [`Error::Host`] when the host refuses.
    pub fn create() -> Result<Network> {
        if !is_privileged() {
            return Ok(Network::user_mode());
        }
        let _lock = leftovers::lock()?;
        let subnet = free_subnet()?;
        let [a, b, c] = subnet;
        let name = unique('b');
        // An address of its own: a bridge without one takes the lowest of its ports', which changes as they come and go.
        let mac = format!("02:c1:{a:02x}:{b:02x}:{c:02x}:01");
        run(
            "ip",
            &[
                "link",
                "add",
                &name,
                "address",
                &mac,
                "type",
                "bridge",
                "stp_state",
                "0",
                "mcast_snooping",
                "0",
            ],
        )?;
        // From here on it is removed whatever happens.
        let network = Network {
            bridge: Some(Bridge {
                name: name.clone(),
                subnet,
                next: AtomicU8::new(FIRST_GUEST),
                used: std::sync::Arc::default(),
            }),
        };
        batch(&[
            format!("address add {a}.{b}.{c}.1/24 dev {name}"),
            format!("link set {name} up"),
        ])?;
        Ok(network)
    }

    /// The network of those without root, also for root: no bridge, and ports that the VMM passes on.
    #[must_use]
    pub fn user_mode() -> Network {
        Network { bridge: None }
    }

    /// For the record.
    #[must_use]
    pub fn description(&self) -> &'static str {
        match self.bridge {
            Some(_) => "a bridge, with a TAP for each VM and a veth pair for each namespace",
            None => "user-mode network of the VMM (no root)",
        }
    }

    /// Whether instances have addresses of their own.
    #[must_use]
    pub fn is_bridged(&self) -> bool {
        self.bridge.is_some()
    }

    /// A place for one instance. `port`: what the service listens on, for a host without rights.
    ///
    /// # Errors
    /// [`Error::Host`] when the host refuses, when the subnet is full, or when a namespace is wanted without root.
    pub fn attach(&self, wanted: Wanted, port: Option<u16>) -> Result<Attachment> {
        match (&self.bridge, wanted) {
            (Some(bridge), Wanted::Tap) => bridge.tap(),
            (Some(bridge), Wanted::Namespace) => bridge.namespace(),
            (None, Wanted::Tap) => Ok(Attachment {
                link: match port {
                    Some(port) => Link::User {
                        host_port: free_port()?,
                        port,
                    },
                    None => Link::None,
                },
                held: Held::Nothing,
            }),
            (None, Wanted::Namespace) => Err(Error::Host(
                "processes and containers need a network namespace, and that needs root: run the lab as root, or leave these \
                 platforms out (--platforms linux-vm,unikernel)"
                    .into(),
            )),
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(bridge) = &self.bridge
            && let Err(error) = run("ip", &["link", "delete", &bridge.name])
        {
            eprintln!("coracle lab: could not remove the bridge: {error}");
        }
    }
}

impl Attachment {
    /// Where it is.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }
}

impl Bridge {
    /// Takes an address.
    fn number(&self) -> Result<u8> {
        let mut used = self
            .used
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for _ in FIRST_GUEST..=LAST_GUEST {
            let number = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| {
                    Some(if number >= LAST_GUEST {
                        FIRST_GUEST
                    } else {
                        number + 1
                    })
                })
                .unwrap_or(FIRST_GUEST);
            if used.insert(number) {
                return Ok(number);
            }
        }
        Err(Error::Host(format!(
            "all {} addresses of the lab's network are taken; start fewer instances at a time",
            LAST_GUEST - FIRST_GUEST + 1
        )))
    }

    fn addresses(&self, number: u8) -> (Ipv4Addr, Ipv4Addr, String) {
        let [a, b, c] = self.subnet;
        (
            Ipv4Addr::new(a, b, c, 1),
            Ipv4Addr::new(a, b, c, number),
            format!("02:c0:{a:02x}:{b:02x}:{c:02x}:{number:02x}"),
        )
    }

    /// What [`Attachment`] removes, with the number it gives back.
    fn held(&self, name: &str, number: u8, namespace: Option<&str>) -> Held {
        Held::Interface {
            name: name.into(),
            bridge: self.name.clone(),
            number,
            used: self.used.clone(),
            namespace: namespace.map(str::to_owned),
        }
    }

    /// The host knows where an address is without asking: its neighbour table, and the bridge's forwarding table.
    fn known(&self, port: &str, guest: Ipv4Addr, mac: &str) -> Result<()> {
        batch(&[format!(
            "neigh replace {guest} lladdr {mac} dev {} nud permanent",
            self.name
        )])?;
        run(
            "bridge",
            &["fdb", "replace", mac, "dev", port, "master", "static"],
        )
    }

    fn tap(&self) -> Result<Attachment> {
        let number = self.number()?;
        let (host, guest, guest_mac) = self.addresses(number);
        let interface = unique('t');
        let attachment = Attachment {
            link: Link::Tap {
                interface: interface.clone(),
                host,
                guest,
                prefix: 24,
                guest_mac: guest_mac.clone(),
            },
            held: self.held(&interface, number, None),
        };
        batch(&[
            format!("tuntap add dev {interface} mode tap"),
            format!("link set {interface} master {} up", self.name),
        ])?;
        self.known(&interface, guest, &guest_mac)?;
        Ok(attachment)
    }

    fn namespace(&self) -> Result<Attachment> {
        let number = self.number()?;
        let (host, guest, mac) = self.addresses(number);
        let (interface, namespace) = (unique('v'), unique('n'));
        let attachment = Attachment {
            link: Link::Namespace {
                namespace: namespace.clone(),
                host,
                guest,
                prefix: 24,
            },
            held: self.held(&interface, number, Some(&namespace)),
        };
        run("ip", &["netns", "add", &namespace])?;
        batch(&[
            format!(
                "link add {interface} type veth peer name eth0 address {mac} netns {namespace}"
            ),
            format!("link set {interface} master {} up", self.name),
        ])?;
        self.known(&interface, guest, &mac)?;
        batch_in(
            &namespace,
            &[
                "link set lo up".to_owned(),
                format!("address add {guest}/24 dev eth0"),
                "link set eth0 up".to_owned(),
                format!("route add default via {host}"),
            ],
        )?;
        Ok(attachment)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let Held::Interface {
            name,
            bridge,
            number,
            used,
            namespace,
        } = &self.held
        else {
            return;
        };
        // What was never made, because an earlier step failed, cannot be removed and need not.
        let exists = |name: &str| Path::new("/sys/class/net").join(name).exists();
        let mut failed = Vec::new();
        if exists(name) {
            failed.push(run("ip", &["link", "delete", name]));
        }
        if let Some(namespace) = namespace
            && Path::new(leftovers::NAMESPACES).join(namespace).exists()
        {
            failed.push(run("ip", &["netns", "delete", namespace]));
        }
        if exists(bridge) {
            // An entry that was not made yet is no loss.
            let address = self.link.address().to_string();
            drop(run("ip", &["neigh", "delete", &address, "dev", bridge]));
        }
        for error in failed.into_iter().filter_map(Result::err) {
            eprintln!("coracle lab: {error}");
        }
        used.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(number);
    }
}

/// The first three bytes of a /24 in 10/8 that no route or address of this machine touches. Bridges of other runs have
/// addresses, so two runs do not meet.
fn free_subnet() -> Result<[u8; 3]> {
    let used = output("ip", &["-4", "-o", "address"])?
        + &output("ip", &["-4", "route", "show", "table", "all"])?;
    // Routes wider than a /16 in 10/8 are rare and leave no free second byte; a more specific route of ours wins.
    for second in 193..=250 {
        for third in 0..=250 {
            if !used.contains(&format!("10.{second}.{third}.")) {
                return Ok([10, second, third]);
            }
        }
    }
    Err(Error::Host(
        "no free subnet between 10.193.0.0/24 and 10.250.250.0/24; free one (ip route)".into(),
    ))
}

/// A TCP port of the loopback address that was free a moment ago.
fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|socket| socket.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::Host(format!("no free port of 127.0.0.1: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{Link, netmask, unique};

    #[test]
    fn names_fit_an_interface_even_with_the_largest_pid() {
        // /proc/sys/kernel/pid_max is at most 4194304.
        let name = unique('t');
        let longest = name.len() - std::process::id().to_string().len() + 7;
        assert!(longest <= 15, "{name}");
    }

    #[test]
    fn masks_have_as_many_bits_as_the_prefix() {
        assert_eq!(netmask(24).to_string(), "255.255.255.0");
        assert_eq!(netmask(32).to_string(), "255.255.255.255");
        assert_eq!(netmask(0).to_string(), "0.0.0.0");
    }

    #[test]
    fn a_forwarded_port_is_reached_on_the_host() {
        let link = Link::User {
            host_port: 4000,
            port: 80,
        };
        assert_eq!(link.reach(80).to_string(), "127.0.0.1:4000");
        assert_eq!(link.reach(81).to_string(), "127.0.0.1:81");
    }
}
