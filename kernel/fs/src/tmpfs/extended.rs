// SPDX-License-Identifier: Apache-2.0
//! Extended attributes (xattr(7)) of nodes in memory. They are kept with the other attributes; a node of the lower layer
//! shows what is below until the first change, which takes a copy of all of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use coracle_core::time;

use super::node::Node;
use crate::vfs::{Kind, SetExtended, check_extended_name};
use crate::{Errno, Result};

/// Names and values.
pub(super) type Extended = BTreeMap<Vec<u8>, Vec<u8>>;

/// The most that names and values of one node take, bytes: they are in the kernel's memory (ext4 keeps 4 KiB).
const MAX_BYTES: usize = 128 * 1024;

impl Node {
    /// Whether the node's kind may have the attribute at all (xattr(7)): `user.` is for files and directories.
    fn may_have(&self, name: &[u8]) -> bool {
        !name.starts_with(b"user.") || matches!(self.kind, Kind::File | Kind::Directory)
    }

    pub(super) fn get_extended(&self, name: &[u8]) -> Result<Vec<u8>> {
        check_extended_name(name)?;
        if !self.may_have(name) {
            return Err(Errno::ENODATA);
        }
        if let Some(own) = &self.attributes.lock().extended {
            return own.get(name).cloned().ok_or(Errno::ENODATA);
        }
        match self.below() {
            None => Err(Errno::ENODATA),
            Some(below) => below.extended(name).map_err(|error| match error {
                Errno::EOPNOTSUPP => Errno::ENODATA,
                other => other,
            }),
        }
    }

    pub(super) fn list_extended(&self) -> Result<Vec<Vec<u8>>> {
        if let Some(own) = &self.attributes.lock().extended {
            return Ok(own.keys().cloned().collect());
        }
        self.below()
            .map_or(Ok(Vec::new()), |below| below.extended_names())
    }

    pub(super) fn change_extended(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetExtended,
    ) -> Result<()> {
        check_extended_name(name)?;
        if !self.may_have(name) {
            return Err(Errno::EPERM);
        }
        let from_below = self.copy_of_below()?;
        let mut attributes = self.attributes.lock();
        let is_there = attributes
            .extended
            .as_ref()
            .unwrap_or(&from_below)
            .contains_key(name);
        match (value, how) {
            (Some(_), SetExtended::Create) if is_there => return Err(Errno::EEXIST),
            (Some(_), SetExtended::Replace) | (None, _) if !is_there => return Err(Errno::ENODATA),
            _ => {}
        }
        let own = attributes.extended.get_or_insert(from_below);
        if let Some(value) = value {
            let others = own.iter().filter(|(there, _)| *there != name);
            let used: usize = others.map(|(name, value)| name.len() + value.len()).sum();
            if used + name.len() + value.len() > MAX_BYTES {
                return Err(Errno::ENOSPC);
            }
            own.insert(name.to_vec(), value.to_vec());
        } else {
            own.remove(name);
        }
        attributes.changed_ns = time::wall();
        drop(attributes);
        self.keep();
        Ok(())
    }

    /// All that the lower layer has; empty without one, or when it was copied before.
    fn copy_of_below(&self) -> Result<Extended> {
        let mut copy = Extended::new();
        if self.attributes.lock().extended.is_none()
            && let Some(below) = self.below()
        {
            for name in below.extended_names()? {
                let value = below.extended(&name)?;
                copy.insert(name, value);
            }
        }
        Ok(copy)
    }
}
