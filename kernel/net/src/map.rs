// SPDX-License-Identifier: Apache-2.0
//! A hash table whose keys are chosen by strangers.
//!
//! Open addressing with linear probing and no tombstones: a look-up touches one or two neighbouring slots however many
//! connections come and go. The hash is keyed with a secret, so nobody outside can aim at one slot.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u32, usize_from_u32};

use crate::address::{Address, Flow};

/// Secret numbers behind all hashes of one stack.
#[derive(Clone, Copy)]
pub(crate) struct HashKey([u64; 3]);

impl HashKey {
    pub(crate) fn random() -> Self {
        use coracle_core::random;
        Self([random::u64() | 1, random::u64(), random::u64()])
    }

    #[inline]
    fn mix(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "both halves of the product are folded"
        )]
        let (low, high) = (product as u64, (product >> 64) as u64);
        low ^ high
    }

    /// Hash of a conversation.
    #[inline]
    pub(crate) fn flow(&self, flow: &Flow) -> u32 {
        let (lh, ll) = flow.local.address.halves();
        let (rh, rl) = flow.remote.address.halves();
        let ports = u64::from(flow.local.port) << 16 | u64::from(flow.remote.port);
        let first = Self::mix(rl ^ self.0[1], ll ^ ports.rotate_left(32) ^ self.0[0]);
        let hash = Self::mix(first ^ rh ^ ports, self.0[2] ^ lh);
        low_u32(hash ^ hash >> 32)
    }

    /// Hash of an address.
    #[inline]
    pub(crate) fn address(&self, address: Address) -> u32 {
        let (high, low) = address.halves();
        let hash = Self::mix(low ^ self.0[1], high ^ self.0[0]);
        low_u32(hash ^ hash >> 32)
    }

    /// Hash of a number.
    #[inline]
    pub(crate) fn number(&self, number: u64) -> u32 {
        let hash = Self::mix(number ^ self.0[1], self.0[0]);
        low_u32(hash ^ hash >> 32)
    }
}

struct Slot<K, V> {
    hash: u32,
    key: K,
    value: V,
}

/// Keys and values, found by hash. The caller computes the hash, always with the same [`HashKey`].
pub(crate) struct HashMap<K, V> {
    slots: Vec<Option<Slot<K, V>>>,
    len: usize,
}

impl<K, V> Default for HashMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> HashMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.iter().flatten().map(|s| (&s.key, &s.value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.slots
            .iter_mut()
            .flatten()
            .map(|s| (&s.key, &mut s.value))
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn find(&self, hash: u32, same: impl Fn(&K) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.mask();
        let mut at = usize_from_u32(hash) & mask;
        loop {
            match &self.slots[at] {
                None => return None,
                Some(slot) if slot.hash == hash && same(&slot.key) => return Some(at),
                Some(_) => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let capacity = (self.slots.len() * 2).max(8);
        let mut slots: Vec<Option<Slot<K, V>>> = Vec::new();
        slots.resize_with(capacity, || None);
        let old = core::mem::replace(&mut self.slots, slots);
        for slot in old.into_iter().flatten() {
            self.place(slot);
        }
    }

    fn place(&mut self, slot: Slot<K, V>) {
        let mask = self.mask();
        let mut at = usize_from_u32(slot.hash) & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some(slot);
    }

    fn take(&mut self, mut hole: usize) -> Option<V> {
        let taken = self.slots[hole].take()?;
        self.len -= 1;
        // Move later entries of the run back, so that no look-up stops at the hole too early.
        let mask = self.mask();
        let mut at = (hole + 1) & mask;
        while let Some(slot) = &self.slots[at] {
            let home = usize_from_u32(slot.hash) & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at].take();
                hole = at;
            }
            at = (at + 1) & mask;
        }
        Some(taken.value)
    }
}

impl<K: PartialEq, V> HashMap<K, V> {
    #[inline]
    pub(crate) fn get(&self, hash: u32, key: &K) -> Option<&V> {
        let at = self.find(hash, |k| k == key)?;
        self.slots[at].as_ref().map(|s| &s.value)
    }

    pub(crate) fn get_mut(&mut self, hash: u32, key: &K) -> Option<&mut V> {
        let at = self.find(hash, |k| k == key)?;
        self.slots[at].as_mut().map(|s| &mut s.value)
    }

    /// Adds or replaces; returns the replaced value.
    pub(crate) fn insert(&mut self, hash: u32, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(hash, &key) {
            return Some(core::mem::replace(old, value));
        }
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.place(Slot { hash, key, value });
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, hash: u32, key: &K) -> Option<V> {
        let at = self.find(hash, |k| k == key)?;
        self.take(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert_eq;

    proptest! {
        #[test]
        fn behaves_like_the_standard_map(ops in proptest::collection::vec((any::<bool>(), 0..40u32), 1..300)) {
            let mut map = HashMap::new();
            let mut model = std::collections::HashMap::new();
            for (n, (insert, key)) in ops.into_iter().enumerate() {
                // Hashes collide on purpose: long runs are where removal goes wrong.
                let hash = key / 5;
                if insert {
                    prop_assert_eq!(map.insert(hash, key, n), model.insert(key, n));
                } else {
                    prop_assert_eq!(map.remove(hash, &key), model.remove(&key));
                }
                prop_assert_eq!(map.len(), model.len());
                for key in 0..40 {
                    prop_assert_eq!(map.get(key / 5, &key), model.get(&key));
                }
            }
            prop_assert_eq!(map.iter().count(), model.len());
        }
    }
}
