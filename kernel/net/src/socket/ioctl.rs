// SPDX-License-Identifier: Apache-2.0
//! `ioctl(2)` on sockets: how much waits, and what interfaces there are (`netdevice(7)`, `tcp(7)`).

use alloc::vec::Vec;

use coracle_core::user::{UserOut, read_all, write_all};
use coracle_core::{Errno, Result};

use super::file::{Kind, SocketFile};
use super::linux::AF_INET;
use crate::link::Interface;

const FIONREAD: u32 = 0x541b;
const TIOCOUTQ: u32 = 0x5411;
const SIOCATMARK: u32 = 0x8905;
const SIOCOUTQNSD: u32 = 0x894b;
const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;

/// `struct ifreq`: a name of 16 bytes and a union of 24.
const IFREQ: usize = 40;
const NAME: usize = 16;

/// `IFF_*` flags (netdevice(7)).
const IFF_UP: u32 = 0x1;
const IFF_BROADCAST: u32 = 0x2;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_RUNNING: u32 = 0x40;
const IFF_MULTICAST: u32 = 0x1000;

/// The flags Linux would show.
pub(crate) fn flags_of(interface: &Interface) -> u32 {
    if interface.is_loopback() {
        IFF_UP | IFF_LOOPBACK | IFF_RUNNING
    } else {
        IFF_UP | IFF_BROADCAST | IFF_RUNNING | IFF_MULTICAST
    }
}

fn number(value: usize) -> Result<i32> {
    i32::try_from(value).map_err(|_| Errno::EOVERFLOW)
}

impl SocketFile {
    #[cold]
    pub(super) fn socket_ioctl(&self, command: u32, argument: usize) -> Result<usize> {
        let out = UserOut::<i32>::new(argument);
        match command {
            FIONREAD => {
                let count = match &self.kind {
                    Kind::Tcp(socket) if socket.is_listening() => return Err(Errno::EINVAL),
                    Kind::Tcp(socket) => socket.readable_bytes(),
                    Kind::Udp(socket) => socket.readable_bytes(),
                    Kind::Unix(socket) if socket.is_listening() => return Err(Errno::EINVAL),
                    Kind::Unix(socket) => socket.readable_bytes(),
                    Kind::Netlink(socket) => socket.readable_bytes(),
                    Kind::Raw(socket) => socket.readable_bytes(),
                    Kind::Packet(socket) => socket.readable_bytes(),
                };
                out.write(number(count)?)?;
            }
            TIOCOUTQ | SIOCOUTQNSD => {
                let (queued, unsent) = match &self.kind {
                    Kind::Tcp(socket) if socket.is_listening() => return Err(Errno::EINVAL),
                    Kind::Tcp(socket) => socket.queued_bytes(),
                    _ => (0, 0),
                };
                out.write(number(if command == TIOCOUTQ { queued } else { unsent })?)?;
            }
            SIOCATMARK => out.write(0)?, // there is never urgent data
            SIOCGIFCONF => self.list_interfaces(argument)?,
            SIOCGIFNAME..=SIOCGIFTXQLEN => self.describe_interface(command, argument)?,
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }

    /// `SIOCGIFCONF`: the interfaces with IPv4 addresses. With a null buffer only the size is told.
    fn list_interfaces(&self, argument: usize) -> Result<()> {
        let mut request = [0; 16]; // struct ifconf: int, padding, pointer
        read_all(&mut request, argument)?;
        let room = i32::from_ne_bytes([request[0], request[1], request[2], request[3]]);
        let mut pointer = [0; 8];
        pointer.copy_from_slice(&request[8..]);
        let buffer = usize::from_ne_bytes(pointer);
        let mut list = Vec::new();
        for interface in self.stack.interfaces() {
            let first = interface
                .addresses
                .lock()
                .iter()
                .find_map(|p| p.address.v4());
            if let Some(address) = first {
                let mut entry = [0; IFREQ];
                put_name(&mut entry, &interface.name);
                put_address(&mut entry, address.octets());
                list.extend_from_slice(&entry);
            }
        }
        if buffer != 0 {
            let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
            list.truncate(room / IFREQ * IFREQ);
            write_all(buffer, &list)?;
        }
        write_all(argument, &number(list.len())?.to_ne_bytes())
    }

    fn describe_interface(&self, command: u32, argument: usize) -> Result<()> {
        let mut request = [0; IFREQ];
        read_all(&mut request, argument)?;
        let interface = if command == SIOCGIFNAME {
            let index = i32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
            let place = usize::try_from(index).ok().and_then(|i| i.checked_sub(1));
            place.and_then(|i| self.stack.interface(i))
        } else {
            let name = &request[..NAME];
            let end = name.iter().position(|b| *b == 0).unwrap_or(NAME);
            self.stack
                .interfaces()
                .find(|i| i.name.as_bytes() == &request[..end])
        };
        let interface = interface.ok_or(Errno::ENODEV)?;
        let v4 = interface
            .addresses
            .lock()
            .iter()
            .find(|p| p.address.is_v4())
            .copied();
        let address =
            |a: Option<core::net::Ipv4Addr>| a.map(|a| a.octets()).ok_or(Errno::EADDRNOTAVAIL);
        let mut put = |bytes: &[u8]| request[NAME..NAME + bytes.len()].copy_from_slice(bytes);
        match command {
            SIOCGIFNAME => put_name(&mut request, &interface.name),
            SIOCGIFFLAGS => put(&flags_of(interface).to_ne_bytes()[..2]),
            SIOCGIFADDR => {
                let a = address(v4.and_then(|p| p.address.v4()))?;
                put_address(&mut request, a);
            }
            SIOCGIFNETMASK => {
                let a = address(v4.map(|p| p.netmask()))?;
                put_address(&mut request, a);
            }
            SIOCGIFBRDADDR => {
                let broadcast = v4.and_then(crate::address::Prefix::broadcast);
                let a = address(broadcast.and_then(crate::address::Address::v4))?;
                put_address(&mut request, a);
            }
            SIOCGIFMTU => put(&number(interface.mtu)?.to_ne_bytes()),
            SIOCGIFMETRIC => put(&0i32.to_ne_bytes()),
            SIOCGIFINDEX => put(&number(interface.index + 1)?.to_ne_bytes()),
            SIOCGIFTXQLEN => put(&1000i32.to_ne_bytes()),
            SIOCGIFHWADDR => {
                let kind: u16 = if interface.is_loopback() { 772 } else { 1 }; // ARPHRD_*
                put(&kind.to_ne_bytes());
                request[NAME + 2..NAME + 8].copy_from_slice(&interface.mac);
            }
            _ => return Err(Errno::ENOTTY),
        }
        write_all(argument, &request)
    }
}

fn put_name(request: &mut [u8; IFREQ], name: &str) {
    let name = &name.as_bytes()[..name.len().min(NAME - 1)];
    request[..NAME].fill(0);
    request[..name.len()].copy_from_slice(name);
}

fn put_address(request: &mut [u8; IFREQ], address: [u8; 4]) {
    request[NAME..].fill(0);
    request[NAME..NAME + 2].copy_from_slice(&AF_INET.to_ne_bytes());
    request[NAME + 4..NAME + 8].copy_from_slice(&address);
}
