// SPDX-License-Identifier: Apache-2.0
//! Which socket has which name: abstract names, and files by device and inode number.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use coracle_abi::convert::low_u32;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, Result};

use super::UnixSocket;
use crate::socket::UnixAddress;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Abstract(Vec<u8>),
    Node(u64, u64),
}

impl Name {
    /// `None` for an unnamed address; `ENOENT` for a path nobody has resolved.
    pub(super) fn of(address: &UnixAddress) -> Result<Option<Self>> {
        match address {
            UnixAddress::Unnamed => Ok(None),
            UnixAddress::Abstract(name) => Ok(Some(Self::Abstract(name.clone()))),
            UnixAddress::Path {
                node: Some((device, inode)),
                ..
            } => Ok(Some(Self::Node(*device, *inode))),
            UnixAddress::Path { node: None, .. } => Err(Errno::ENOENT),
        }
    }
}

/// The names in use. The lock is a leaf.
#[derive(Default)]
pub(crate) struct UnixNames {
    names: SpinLock<BTreeMap<Name, Weak<UnixSocket>>>,
}

impl UnixNames {
    /// Gives a name to a socket. `EADDRINUSE` if another one has it.
    #[cold]
    pub(super) fn bind(&self, name: Name, socket: &Arc<UnixSocket>) -> Result<()> {
        let mut names = self.names.lock();
        if names.get(&name).is_some_and(|s| s.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        names.insert(name, Arc::downgrade(socket));
        Ok(())
    }

    /// Gives a free abstract name of five hexadecimal digits, as `bind` without a name does.
    #[cold]
    pub(super) fn bind_any(&self, socket: &Arc<UnixSocket>) -> Result<Vec<u8>> {
        let first = low_u32(coracle_core::random::u64());
        for n in 0..0x10_0000u32 {
            let name = alloc::format!("{:05x}", first.wrapping_add(n) & 0xf_ffff).into_bytes();
            if self.bind(Name::Abstract(name.clone()), socket).is_ok() {
                return Ok(name);
            }
        }
        Err(Errno::ENOSPC)
    }

    pub(super) fn find(&self, name: &Name) -> Option<Arc<UnixSocket>> {
        self.names.lock().get(name)?.upgrade()
    }

    pub(super) fn forget(&self, name: &Name) {
        let removed = self.names.lock().remove(name);
        drop(removed);
    }
}
