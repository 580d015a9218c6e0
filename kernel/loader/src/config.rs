// SPDX-License-Identifier: Apache-2.0
//! `config.json`: the OCI runtime configuration with our `coracle` key (decision 0001).
//!
//! The document is walked by hand instead of being deserialised, because an error must name the key: a person wrote or
//! generated this file and the kernel's one line about it is all they see. Unknown keys are ignored, as the OCI
//! specification asks.

mod mounts;
mod node;
#[cfg(test)]
mod tests;

pub use mounts::{MountConfig, MountKind};
pub use node::ConfigError;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use node::Node;

/// Host name if the configuration has none.
const DEFAULT_HOSTNAME: &str = "coracle";
/// Linux's limit for a host name (`__NEW_UTS_LEN`).
const HOSTNAME_MAX: usize = 64;

/// How to start the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootConfig {
    /// Arguments; the first is the program's path or name. At least one, none contains a NUL.
    pub args: Vec<String>,
    /// Environment, each `NAME=value`.
    pub env: Vec<String>,
    /// Working directory, absolute.
    pub cwd: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Host name.
    pub hostname: String,
    /// Whether the root file system is mounted read-only.
    pub read_only: bool,
    /// The disk that holds the root; without it the root is in the bundle.
    pub root_disk: Option<RootDisk>,
    /// What else is mounted, in order.
    pub mounts: Vec<MountConfig>,
    /// Resource limits: name such as `RLIMIT_NOFILE`, soft limit, hard limit.
    pub rlimits: Vec<(String, u64, u64)>,
    /// One for each network interface to be configured, in order.
    pub network: Vec<NetworkConfig>,
    /// Whether system calls are logged.
    pub trace: bool,
    /// The wall clock of the host shortly before the start, nanoseconds since 1970.
    pub started_ns: Option<u64>,
}

/// A disk with a root file system (decision 0011).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootDisk {
    /// Its number among the disks, from 0.
    pub device: u32,
}

/// Addresses of one network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Which interface; without it, the one at this place in the list.
    pub mac: Option<[u8; 6]>,
    /// Address and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv4 default route.
    pub gateway: Option<Ipv4Addr>,
    /// Address and prefix length.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// IPv6 default route.
    pub gateway6: Option<Ipv6Addr>,
    /// Whether to ask for an IPv4 lease; `ipv4` is ignored then.
    pub dhcp: bool,
    /// Name servers.
    pub dns: Vec<IpAddr>,
}

/// Reads the configuration.
///
/// # Errors
/// [`ConfigError`], which names the key.
pub fn parse(json: &[u8]) -> Result<BootConfig, ConfigError> {
    let document = serde_json::from_slice(json)
        .map_err(|error| ConfigError::new("", format!("not JSON: {error}")))?;
    let root = Node::root(&document);
    root.object()?;
    let process = root.required("process")?;
    let args = process.required("args")?.list(c_string)?;
    if args.first().is_none_or(String::is_empty) {
        return Err(process
            .required("args")?
            .error("the program to run is missing"));
    }
    let user = process.optional("user")?;
    let number = |key: &str| match &user {
        Some(user) => user.optional(key)?.map_or(Ok(0), |id| id.u32()),
        None => Ok(0),
    };
    let coracle = root.optional("coracle")?;
    let (mut network, mut trace, mut started_ns) = (Vec::new(), false, None);
    if let Some(coracle) = coracle {
        network = list_or_empty(&coracle, "network", network_config)?;
        trace = flag(&coracle, "trace")?;
        let started = coracle.optional("startedNs")?;
        started_ns = started.map(|time| time.u64()).transpose()?;
    }
    Ok(BootConfig {
        args,
        env: list_or_empty(&process, "env", environment_string)?,
        cwd: process
            .optional("cwd")?
            .map_or(Ok("/".into()), |cwd| absolute_path(&cwd))?,
        uid: number("uid")?,
        gid: number("gid")?,
        hostname: root
            .optional("hostname")?
            .map_or(Ok(DEFAULT_HOSTNAME.into()), |name| hostname(&name))?,
        read_only: root
            .optional("root")?
            .map_or(Ok(false), |root| flag(&root, "readonly"))?,
        root_disk: match root.optional("root")? {
            Some(root) => root
                .optional("source")?
                .map(|at| root_disk(&at))
                .transpose()?,
            None => None,
        },
        mounts: list_or_empty(&root, "mounts", mounts::mount)?,
        rlimits: list_or_empty(&process, "rlimits", rlimit)?,
        network,
        trace,
        started_ns,
    })
}

fn root_disk(node: &Node<'_>) -> Result<RootDisk, ConfigError> {
    let kind = node.required("type")?;
    if kind.str()? != "erofs" {
        return Err(kind.error("is not a kind of root file system that is known (erofs)"));
    }
    Ok(RootDisk {
        device: node.required("device")?.u32()?,
    })
}

fn list_or_empty<T>(
    parent: &Node<'_>,
    key: &str,
    item: impl Fn(&Node<'_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    parent
        .optional(key)?
        .map_or(Ok(Vec::new()), |list| list.list(item))
}

fn flag(parent: &Node<'_>, key: &str) -> Result<bool, ConfigError> {
    parent.optional(key)?.map_or(Ok(false), |flag| flag.bool())
}

/// A string that C can represent.
fn c_string(node: &Node<'_>) -> Result<String, ConfigError> {
    let text = node.str()?;
    if text.contains('\0') {
        return Err(node.error("contains a NUL character"));
    }
    Ok(text.into())
}

fn environment_string(node: &Node<'_>) -> Result<String, ConfigError> {
    let text = c_string(node)?;
    if text.find('=').is_none_or(|at| at == 0) {
        return Err(node.error("is not of the form NAME=value"));
    }
    Ok(text)
}

fn absolute_path(node: &Node<'_>) -> Result<String, ConfigError> {
    let text = c_string(node)?;
    if !text.starts_with('/') {
        return Err(node.error("is not an absolute path"));
    }
    Ok(text)
}

fn hostname(node: &Node<'_>) -> Result<String, ConfigError> {
    let text = c_string(node)?;
    if text.is_empty() || text.len() > HOSTNAME_MAX {
        return Err(node.error("is empty or longer than 64 bytes"));
    }
    Ok(text)
}

fn rlimit(node: &Node<'_>) -> Result<(String, u64, u64), ConfigError> {
    let name = node.required("type")?;
    if !name.str()?.starts_with("RLIMIT_") {
        return Err(name.error("is not the name of a resource limit (RLIMIT_...)"));
    }
    let (soft, hard) = (node.required("soft")?.u64()?, node.required("hard")?.u64()?);
    if soft > hard {
        return Err(node.error("has a soft limit above the hard limit"));
    }
    Ok((name.str()?.into(), soft, hard))
}

fn network_config(node: &Node<'_>) -> Result<NetworkConfig, ConfigError> {
    Ok(NetworkConfig {
        mac: node
            .optional("mac")?
            .map(|mac| parse_mac(&mac))
            .transpose()?,
        ipv4: node
            .optional("ipv4")?
            .map(|cidr| address_and_prefix(&cidr, 32))
            .transpose()?,
        gateway: node
            .optional("gateway")?
            .map(|at| address(&at))
            .transpose()?,
        ipv6: node
            .optional("ipv6")?
            .map(|cidr| address_and_prefix(&cidr, 128))
            .transpose()?,
        gateway6: node
            .optional("gateway6")?
            .map(|at| address(&at))
            .transpose()?,
        dhcp: flag(node, "dhcp")?,
        dns: list_or_empty(node, "dns", address)?,
    })
}

fn parse_mac(node: &Node<'_>) -> Result<[u8; 6], ConfigError> {
    let wrong = || node.error("is not a MAC address such as 52:54:00:12:34:56");
    let mut mac = [0; 6];
    let mut parts = node.str()?.split(':');
    for byte in &mut mac {
        let part = parts
            .next()
            .filter(|p| p.len() == 2 && p.bytes().all(|c| c.is_ascii_hexdigit()))
            .ok_or_else(wrong)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() || mac[0] & 1 != 0 {
        return Err(wrong());
    }
    Ok(mac)
}

fn address<A: FromStr>(node: &Node<'_>) -> Result<A, ConfigError> {
    node.str()?
        .parse()
        .map_err(|_| node.error("is not an address of the expected kind"))
}

fn address_and_prefix<A: FromStr>(node: &Node<'_>, bits: u8) -> Result<(A, u8), ConfigError> {
    let wrong = || {
        node.error(format!(
            "is not ADDRESS/PREFIX with a prefix of at most {bits}"
        ))
    };
    let (address, prefix) = node.str()?.split_once('/').ok_or_else(wrong)?;
    // `parse` would take a sign.
    let digits = !prefix.is_empty() && prefix.bytes().all(|c| c.is_ascii_digit());
    let prefix = prefix
        .parse()
        .ok()
        .filter(|p| digits && *p <= bits)
        .ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, prefix))
}
