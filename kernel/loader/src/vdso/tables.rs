// SPDX-License-Identifier: Apache-2.0
//! Pieces that any ELF writer needs: a byte writer, a string table, the two hash functions.

use alloc::vec::Vec;

/// Appends little-endian fields.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// A writer that begins behind `reserved` zero bytes.
    pub(super) fn new(reserved: usize) -> Self {
        Self(alloc::vec![0; reserved])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    /// Fills with zeros up to a multiple of `align`.
    pub(super) fn align(&mut self, align: u64) {
        while !(self.0.len() as u64).is_multiple_of(align) {
            self.0.push(0);
        }
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// An `Elf64_Phdr` whose addresses equal the offset.
    pub(super) fn program_header(&mut self, kind: u32, flags: u32, at: u64, len: u64, align: u64) {
        self.u32(kind);
        self.u32(flags);
        // Offset, virtual and physical address; size in the file and in memory.
        [at, at, at, len, len, align]
            .into_iter()
            .for_each(|value| self.u64(value));
    }
}

/// NUL-terminated strings one behind the other; offset 0 is the empty one.
pub(super) struct StringTable(Vec<u8>);

impl StringTable {
    pub(super) fn new() -> Self {
        Self(alloc::vec![0])
    }

    /// Adds a string and returns its offset.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        let at = u32::try_from(self.0.len()).expect("names of a few functions are far below 4 GiB");
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The hash of `DT_HASH` and of version names (System V gABI, "Hash Table").
pub(super) fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

/// The hash of `DT_GNU_HASH`: Bernstein's, times 33.
pub(super) fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}
