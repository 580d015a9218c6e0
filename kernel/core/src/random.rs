// SPDX-License-Identifier: Apache-2.0
//! Random bytes for keys, sequence numbers and applications.

#[cfg(not(target_os = "none"))]
mod hosted {
    use std::hash::{BuildHasher, Hasher, RandomState};

    /// Fills `out` with unpredictable bytes.
    pub fn fill(out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = RandomState::new().build_hasher().finish().to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(not(target_os = "none"))]
pub use hosted::fill;

/// A random 64-bit number.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}
