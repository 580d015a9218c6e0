// SPDX-License-Identifier: Apache-2.0

//! The networks the compared machines are attached to. As root each gets a TAP interface with a subnet of its own,
//! without a bridge, whose link state would add its own delay to a boot. Without root both get QEMU's user-mode network.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::sh;

/// One guest's attachment to the host. A TAP interface is removed when this is dropped.
pub(crate) enum Link {
    /// A TAP interface; host and guest have an address in one /24.
    Tap {
        interface: String,
        host: Ipv4Addr,
        guest: Ipv4Addr,
        guest_mac: String,
        /// The port the service listens on.
        port: u16,
    },
    /// QEMU's user-mode network: `host_port` of the host's loopback address is forwarded to the service's `port`.
    User { host_port: u16, port: u16 },
}

impl Link {
    /// Where the host reaches the service.
    pub(crate) fn service(&self) -> SocketAddr {
        match self {
            Link::Tap { guest, port, .. } => (*guest, *port).into(),
            Link::User { host_port, .. } => (Ipv4Addr::LOCALHOST, *host_port).into(),
        }
    }

    /// A short description for reports.
    pub(crate) fn description(&self) -> &'static str {
        match self {
            Link::Tap { .. } => "tap",
            Link::User { .. } => "user-mode (no root)",
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Link::Tap { interface, .. } = self
            && let Err(error) = ip(&["link", "delete", interface])
        {
            eprintln!("xtask: could not remove the interface {interface}: {error:#}");
        }
    }
}

/// One link of a kind for each of `names`, which are a letter or two long, to a service on `port`.
pub(crate) fn links<const N: usize>(names: [&str; N], port: u16) -> Result<[Link; N]> {
    let may_tap = rustix::process::geteuid().is_root()
        && Path::new("/dev/net/tun").exists()
        && sh::installed("ip");
    let mut links = Vec::with_capacity(N);
    for name in names {
        links.push(if may_tap {
            tap(name, port)?
        } else {
            Link::User {
                host_port: free_port()?,
                port,
            }
        });
    }
    links
        .try_into()
        .map_err(|_| anyhow::anyhow!("one link for each name"))
}

fn tap(name: &str, port: u16) -> Result<Link> {
    // An interface name has at most 15 characters.
    let interface = format!("cor{}{name}", std::process::id());
    let subnet = free_subnet()?;
    let host = Ipv4Addr::new(subnet[0], subnet[1], subnet[2], 1);
    let guest = Ipv4Addr::new(subnet[0], subnet[1], subnet[2], 2);
    let guest_mac = format!(
        "02:00:{:02x}:{:02x}:{:02x}:02",
        subnet[0], subnet[1], subnet[2]
    );
    ip(&["tuntap", "add", "dev", &interface, "mode", "tap"])?;
    // From here on the interface is removed whatever happens.
    let link = Link::Tap {
        interface: interface.clone(),
        host,
        guest,
        guest_mac: guest_mac.clone(),
        port,
    };
    ip(&["address", "add", &format!("{host}/24"), "dev", &interface])?;
    ip(&["link", "set", &interface, "up"])?;
    // The host knows the guest's hardware address beforehand. It repeats an unanswered ARP question after a second,
    // which would round boot times up to seconds.
    ip(&[
        "neigh",
        "replace",
        &guest.to_string(),
        "lladdr",
        &guest_mac,
        "dev",
        &interface,
        "nud",
        "permanent",
    ])?;
    Ok(link)
}

/// The first three bytes of a /24 in 10/8 that no route or address of this machine touches.
fn free_subnet() -> Result<[u8; 3]> {
    let used = sh::output(&mut sh::cmd("ip", ["-4", "-o", "address"]))?
        + &sh::output(&mut sh::cmd("ip", ["-4", "route", "show", "table", "all"]))?;
    // Routes wider than a /16 in 10/8 are rare and leave no free second byte; a more specific route of ours wins.
    for second in 193..=250 {
        for third in 0..=250 {
            if !used.contains(&format!("10.{second}.{third}.")) {
                return Ok([10, second, third]);
            }
        }
    }
    bail!("no free subnet between 10.193.0.0/24 and 10.250.250.0/24");
}

/// A TCP port of the loopback address that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

fn ip(args: &[&str]) -> Result<()> {
    // Not `sh::output`: the removal must work after Ctrl-C.
    let result = sh::cmd("ip", args).output().context("start ip")?;
    if !result.status.success() {
        bail!(
            "`ip {}`: {}",
            args.join(" "),
            String::from_utf8_lossy(&result.stderr).trim()
        );
    }
    Ok(())
}
