// SPDX-License-Identifier: Apache-2.0
//! Addresses of sockets: to and from the application, and paths as names of Unix sockets.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u32, u64_from, usize_from_u32};
use coracle_abi::raw::general as g;
use coracle_core::user::{self, User};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{Follow, NewKind, Place};
use coracle_net::socket::linux::{AF_INET, AF_INET6, AF_UNSPEC};
use coracle_net::{SocketAddress, SocketFile, UnixAddress};

use crate::process::process;

/// Size of `struct sockaddr_storage`, the longest address.
const LONGEST: usize = 128;

/// The name of a Unix socket that has none.
pub(super) const UNNAMED: SocketAddress = SocketAddress::Unix(UnixAddress::Unnamed);

/// Reads an address of `len` bytes for a socket. `EINVAL` if it is too long or too short, `EFAULT`; `EAFNOSUPPORT` if it
/// is of another family.
pub(super) fn read(file: &SocketFile, at: User, len: usize) -> Result<SocketAddress> {
    // The length is an `int`.
    let len = usize_from_u32(low_u32(u64_from(len)));
    if len > LONGEST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; LONGEST];
    user::read_all(&mut bytes[..len], at.0)?;
    let bytes = &bytes[..len];
    // The length must suit the socket's family before the address's own counts.
    let (own, least) = match file.local_address()? {
        SocketAddress::V4(_) => (AF_INET, 16),
        SocketAddress::V6(_) => (AF_INET6, 24),
        _ => return SocketAddress::parse(bytes),
    };
    match bytes.first_chunk().map(|f| u16::from_ne_bytes(*f)) {
        Some(AF_UNSPEC) => SocketAddress::parse(bytes),
        _ if len < least => Err(Errno::EINVAL),
        Some(family) if family == own => SocketAddress::parse(bytes),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Writes as much of an address as the length at `len` allows, and its whole length there. `EINVAL` for a negative
/// length, `EFAULT`.
pub(super) fn write(address: &SocketAddress, at: User, len: User) -> Result<()> {
    write_bytes(address.encode().as_slice(), at, len)
}

/// As [`write`], for bytes.
pub(super) fn write_bytes(bytes: &[u8], at: User, len: User) -> Result<()> {
    let room: i32 = len.read()?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    user::write_all(at.0, &bytes[..bytes.len().min(room)])?;
    len.write(u32::try_from(bytes.len()).map_err(|_| Errno::EINVAL)?)
}

/// Whether a socket is of the family `AF_UNIX`.
pub(super) fn is_unix(file: &SocketFile) -> Result<bool> {
    Ok(matches!(file.local_address()?, SocketAddress::Unix(_)))
}

/// Whether an address is a name in the file system.
pub(super) fn is_path(address: &SocketAddress) -> bool {
    matches!(address, SocketAddress::Unix(UnixAddress::Path { .. }))
}

fn base(path: &[u8]) -> Place {
    if path.first() == Some(&b'/') {
        process().vfs.root().clone()
    } else {
        process().working_directory()
    }
}

/// The file made for a name, until the socket has it.
pub(super) struct CreatedPath(Vec<u8>);

impl CreatedPath {
    /// Removes the file again.
    pub(super) fn undo(self) {
        // Whoever removed or replaced the file meanwhile was allowed to.
        let _ = process().vfs.unlink(&base(&self.0), &self.0);
    }
}

/// Makes the file for the path in `address` and fills in which one it is. `EADDRINUSE` if there is one.
pub(super) fn create_path(address: &mut SocketAddress) -> Result<CreatedPath> {
    let path = address.unix_path().ok_or(Errno::EINVAL)?.to_vec();
    let new = process().new_node(NewKind::Socket, 0o777);
    let place = match process().vfs.create(&base(&path), &path, &new) {
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        result => result,
    }?;
    let created = CreatedPath(path);
    let metadata = place.inode.metadata()?;
    address.set_unix_node(metadata.device, metadata.inode);
    Ok(created)
}

/// Fills in which file the path in `address` means, if it is one. `ENOENT`; `ECONNREFUSED` if it is no socket.
pub(super) fn find_path(address: &mut SocketAddress) -> Result<()> {
    let Some(path) = address.unix_path() else {
        return Ok(());
    };
    let place = process().vfs.resolve(&base(path), path, Follow::Yes)?;
    let metadata = place.inode.metadata()?;
    if metadata.mode & g::S_IFMT != g::S_IFSOCK {
        return Err(Errno::ECONNREFUSED);
    }
    address.set_unix_node(metadata.device, metadata.inode);
    Ok(())
}
