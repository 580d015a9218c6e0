// SPDX-License-Identifier: Apache-2.0
//! Random bytes for keys, sequence numbers and applications.

#[cfg(not(target_os = "none"))]
mod hosted {
    use std::hash::{BuildHasher, Hasher, RandomState};

    /// Adds nothing: the host's generator needs no help.
    pub fn add_entropy(_bytes: &[u8]) {}

    /// Fills `out` with unpredictable bytes.
    pub fn fill(out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = RandomState::new().build_hasher().finish().to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(not(target_os = "none"))]
pub use hosted::{add_entropy, fill};

#[cfg(target_os = "none")]
mod machine {
    use coracle_arch::{clock, cpu};
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use crate::sync::SpinLock;

    struct Pool {
        generator: Option<ChaCha20Rng>,
        /// Collected before the generator exists, and mixed into each new key.
        seed: [u8; 32],
        /// Bytes given out under this key.
        given: usize,
    }

    static POOL: SpinLock<Pool> = SpinLock::new(Pool {
        generator: None,
        seed: [0; 32],
        given: 0,
    });

    /// Bytes after which the key is replaced.
    const KEY_LIFE: usize = 1 << 20;

    impl Pool {
        fn mix(&mut self, bytes: &[u8]) {
            // The generator itself is the mixing function: the new key depends on all bits of the old state and of
            // what is added, and the old key cannot be found from the new one.
            for chunk in bytes.chunks(32) {
                for (s, b) in self.seed.iter_mut().zip(chunk) {
                    *s ^= b;
                }
                let mut mixer = ChaCha20Rng::from_seed(self.seed);
                mixer.fill_bytes(&mut self.seed);
            }
            self.generator = None;
        }

        fn fill(&mut self, out: &mut [u8]) {
            if self.generator.is_none() || self.given > KEY_LIFE {
                let words = [
                    clock::tsc(),
                    cpu::hardware_random().unwrap_or(0),
                    cpu::hardware_random().unwrap_or(0),
                ];
                for word in words {
                    self.mix(&word.to_le_bytes());
                }
                if !cpu::features().rdrand {
                    // What is left is how long each of these steps takes.
                    (0..64).for_each(|_| self.mix(&clock::tsc().to_le_bytes()));
                }
                let mut key = ChaCha20Rng::from_seed(self.seed);
                key.fill_bytes(&mut self.seed);
                let mut seed = [0; 32];
                key.fill_bytes(&mut seed);
                self.generator = Some(ChaCha20Rng::from_seed(seed));
                self.given = 0;
            }
            if let Some(generator) = &mut self.generator {
                generator.fill_bytes(out);
                self.given += out.len();
            }
        }
    }

    /// Adds unpredictable bytes: from a virtio device, or from an application that writes to `/dev/random`.
    pub fn add_entropy(bytes: &[u8]) {
        POOL.lock().mix(bytes);
    }

    /// Fills `out` with unpredictable bytes (ChaCha20, keyed from everything that was added, RDRAND and the TSC).
    pub fn fill(out: &mut [u8]) {
        for chunk in out.chunks_mut(4096) {
            POOL.lock().fill(chunk);
        }
    }
}

#[cfg(target_os = "none")]
pub use machine::{add_entropy, fill};

/// A random 64-bit number.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}
