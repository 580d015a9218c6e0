// SPDX-License-Identifier: Apache-2.0
//! The three files in `/etc` that a container runtime writes: name, hosts and name servers. An image that brings its
//! own keeps them.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::net::IpAddr;

use coracle_core::io::IoSrc;

use crate::vfs::{Follow, Inode, Kind, NewKind, NewNode, Vfs};
use crate::{Errno, Result};

/// Adds `/etc/hostname`, `/etc/hosts` and `/etc/resolv.conf` where the image has none, also to a read-only root.
/// Without an address the host name is 127.0.1.1, as on Debian, so that a program finds its own name; without name
/// servers there is no `resolv.conf`.
pub fn add_missing(
    vfs: &Vfs,
    host_name: &str,
    addresses: &[IpAddr],
    name_servers: &[IpAddr],
) -> Result<()> {
    let mut hosts = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n");
    if !host_name.is_empty() {
        add(vfs, b"hostname", &format!("{host_name}\n"))?;
        let own = [IpAddr::from([127, 0, 1, 1])];
        let addresses = if addresses.is_empty() {
            &own
        } else {
            addresses
        };
        for address in addresses {
            let _ = writeln!(hosts, "{address}\t{host_name}");
        }
    }
    add(vfs, b"hosts", &hosts)?;
    let mut servers = String::new();
    for server in name_servers {
        let _ = writeln!(servers, "nameserver {server}");
    }
    if servers.is_empty() {
        Ok(())
    } else {
        add(vfs, b"resolv.conf", &servers)
    }
}

fn node(kind: NewKind<'_>, mode: u32) -> NewNode<'_> {
    NewNode {
        kind,
        mode,
        uid: 0,
        gid: 0,
    }
}

fn add(vfs: &Vfs, name: &[u8], text: &str) -> Result<()> {
    let etc = match vfs.resolve(vfs.root(), b"/etc", Follow::Yes) {
        Ok(place) => place.inode,
        Err(Errno::ENOENT) => {
            let root = &vfs.root().inode;
            root.create(b"etc", &node(NewKind::Directory, 0o755))?
        }
        Err(error) => return Err(error),
    };
    if etc.kind() != Kind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let file = match etc.create(name, &node(NewKind::File, 0o644)) {
        Ok(inode) => Inode::open(inode, 0)?,
        Err(Errno::EEXIST) => return Ok(()),
        Err(error) => return Err(error),
    };
    file.write_at(0, false, &mut IoSrc::kernel(text.as_bytes()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmpfs::TmpFs;
    use crate::vfs::{MountOptions, OpenRequest};
    use coracle_core::io::IoDst;

    #[test]
    fn only_what_is_missing_is_written() {
        let vfs = Vfs::new(TmpFs::new(1 << 20, 0o755), MountOptions { read_only: true });
        vfs.root()
            .inode
            .create(b"etc", &node(NewKind::Directory, 0o755))
            .unwrap();
        let etc = vfs.resolve(vfs.root(), b"/etc", Follow::Yes).unwrap().inode;
        etc.create(b"hostname", &node(NewKind::File, 0o644))
            .unwrap();
        let (ip, dns) = ("10.0.2.15".parse().unwrap(), "10.0.2.3".parse().unwrap());
        add_missing(&vfs, "boat", &[ip], &[dns]).unwrap();
        let read = |path: &str| {
            let open = vfs
                .open(vfs.root(), path.as_bytes(), &OpenRequest::new(0))
                .unwrap();
            let mut out = [0; 99];
            let n = open.read(&mut IoDst::kernel(&mut out)).unwrap();
            String::from_utf8(out[..n].to_vec()).unwrap()
        };
        assert_eq!(read("/etc/hostname"), "");
        assert!(read("/etc/hosts").ends_with("ip6-localhost\n10.0.2.15\tboat\n"));
        assert_eq!(read("/etc/resolv.conf"), "nameserver 10.0.2.3\n");
    }

    #[test]
    fn without_a_network_the_own_name_is_known() {
        let vfs = Vfs::new(TmpFs::new(1 << 20, 0o755), MountOptions::default());
        add_missing(&vfs, "boat", &[], &[]).unwrap();
        let open = vfs
            .open(vfs.root(), b"/etc/hosts", &OpenRequest::new(0))
            .unwrap();
        let mut out = [0; 99];
        let n = open.read(&mut IoDst::kernel(&mut out)).unwrap();
        assert!(out[..n].ends_with(b"\n127.0.1.1\tboat\n"));
    }
}
