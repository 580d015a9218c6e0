// SPDX-License-Identifier: Apache-2.0
//! Extended attributes. Behind the inode lie a header, the numbers of attributes that several inodes share, and those that
//! are the inode's own.

use alloc::vec;
use alloc::vec::Vec;

use coracle_abi::convert::{u64_from, usize_from};

use super::Wait;
use super::format::{ATTRIBUTE, ATTRIBUTES_HEADER, Attribute, shared_count, shared_id};
use super::node::Node;
use crate::vfs::check_extended_name;
use crate::{Errno, Result};

/// Bytes of the number of a shared attribute; such attributes begin at multiples of it.
const SHARED: u64 = 4;

/// An attribute of a kind that is answered, and where its value lies.
struct Found {
    name: Vec<u8>,
    value_at: u64,
    value_len: u64,
}

impl Node {
    /// The value of an attribute. `ENODATA`, `EOPNOTSUPP` for access control lists.
    pub(super) fn attribute(&self, wanted: &[u8]) -> Result<Vec<u8>> {
        check_extended_name(wanted)?;
        let all = self.attributes()?;
        let found = all.iter().find(|found| found.name == wanted);
        let found = found.ok_or(Errno::ENODATA)?;
        let mut value = vec![0; usize_from(found.value_len)];
        self.volume.copy(found.value_at, &mut value, Wait::Yes)?;
        Ok(value)
    }

    /// The names of all attributes but access control lists.
    pub(super) fn attribute_names(&self) -> Result<Vec<Vec<u8>>> {
        let all = self.attributes()?;
        Ok(all.into_iter().map(|found| found.name).collect())
    }

    /// `EUCLEAN` if they make no sense.
    fn attributes(&self) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let (start, len) = self.facts.attributes;
        if len == 0 {
            return Ok(all);
        }
        let mut header = [0; ATTRIBUTES_HEADER];
        self.volume.copy(start, &mut header, Wait::Yes)?;
        let shared_at = start + u64_from(ATTRIBUTES_HEADER);
        let own_at = shared_at + SHARED * shared_count(&header);
        let end = start + len;
        if own_at > end {
            return Err(Errno::EUCLEAN);
        }
        for at in (shared_at..own_at).step_by(usize_from(SHARED)) {
            let mut number = [0; 4];
            self.volume.copy(at, &mut number, Wait::Yes)?;
            let offset = SHARED * u64::from(shared_id(&number));
            self.add_attribute(self.volume.superblock.attributes_at + offset, &mut all)?;
        }
        let mut at = own_at;
        while at + u64_from(ATTRIBUTE) <= end {
            at = self.add_attribute(at, &mut all)?;
            if at > end {
                return Err(Errno::EUCLEAN);
            }
        }
        Ok(all)
    }

    /// Adds the attribute that begins at a byte of the device; the first byte behind it.
    fn add_attribute(&self, at: u64, all: &mut Vec<Found>) -> Result<u64> {
        let mut fixed = [0; ATTRIBUTE];
        self.volume.copy(at, &mut fixed, Wait::Yes)?;
        let attribute = Attribute::parse(&fixed)?;
        let mut name = attribute.prefix.to_vec();
        let prefix_len = name.len();
        name.resize(prefix_len + usize_from(attribute.name_len), 0);
        let name_at = at + u64_from(ATTRIBUTE);
        self.volume
            .copy(name_at, &mut name[prefix_len..], Wait::Yes)?;
        // A name with a NUL in it would be two in a list.
        if name.contains(&0) {
            return Err(Errno::EUCLEAN);
        }
        if check_extended_name(&name).is_ok() {
            all.push(Found {
                name,
                value_at: name_at + attribute.name_len,
                value_len: attribute.value_len,
            });
        }
        Ok(at + attribute.total_len())
    }
}
