// SPDX-License-Identifier: Apache-2.0
//! Extended attributes behind an inode.

use crate::tree::Xattrs;

/// Prefixes that are recorded as a number. Names with none of them are not recorded: Linux would not answer them.
const PREFIXES: [(u8, &[u8]); 5] = [
    (1, b"user."),
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (4, b"trusted."),
    (6, b"security."),
];

/// Bytes of the header (`erofs_xattr_ibody_header`).
const HEADER: usize = 12;

/// The bytes behind an inode with these attributes, a multiple of four; none if there is nothing to record.
pub(super) fn encode(xattrs: &Xattrs) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    for (name, value) in xattrs {
        let Some((index, rest)) = split(name) else {
            continue;
        };
        // The tree takes neither longer names nor longer values.
        let (Ok(name_len), Ok(value_len)) = (u8::try_from(rest.len()), u16::try_from(value.len()))
        else {
            continue;
        };
        bytes.extend([name_len, index]);
        bytes.extend(value_len.to_le_bytes());
        bytes.extend(rest);
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    if bytes.len() == HEADER {
        bytes.clear();
    }
    bytes
}

/// The field of the inode (`i_xattr_icount`) for that many bytes.
pub(super) fn count(bytes: usize) -> u16 {
    let units = bytes.saturating_sub(HEADER - 4) / 4;
    u16::try_from(units).expect("the tree takes at most 128 KiB of attributes")
}

fn split(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES
        .iter()
        .find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)))
        .filter(|(index, rest)| matches!(index, 2 | 3) == rest.is_empty())
}
