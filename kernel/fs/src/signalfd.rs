// SPDX-License-Identifier: Apache-2.0
//! Signals as records to read: signalfd(2).

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_core::file::{File, Metadata};
use coracle_core::io::IoDst;
use coracle_core::poll::PollSource;

use crate::{Errno, PollEvents, Result};

/// Size of `struct signalfd_siginfo` in bytes.
pub const RECORD_SIZE: usize = 128;

/// Where signals come from. Sets have bit `n - 1` for signal `n`.
pub trait SignalSource: Send + Sync {
    /// Notified when a signal arrives.
    fn poll_source(&self) -> &PollSource;

    /// Signals that the calling thread could take.
    fn pending(&self) -> u64;

    /// Takes one pending signal of `mask`, as a `struct signalfd_siginfo`.
    fn take(&self, mask: u64) -> Option<[u8; RECORD_SIZE]>;
}

/// A descriptor that gives the signals of a set.
pub struct SignalFd {
    source: Arc<dyn SignalSource>,
    mask: AtomicU64,
}

impl SignalFd {
    /// Reads the signals in `mask`.
    #[must_use]
    pub fn new(source: Arc<dyn SignalSource>, mask: u64) -> Arc<Self> {
        Arc::new(Self {
            source,
            mask: AtomicU64::new(mask),
        })
    }

    /// Replaces the set.
    pub fn set_mask(&self, mask: u64) {
        self.mask.store(mask, Ordering::SeqCst);
        self.source.poll_source().notify(PollEvents::IN);
    }
}

impl File for SignalFd {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        if dst.remaining() < RECORD_SIZE {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        while dst.remaining() >= RECORD_SIZE {
            let Some(record) = self.source.take(self.mask.load(Ordering::SeqCst)) else {
                break;
            };
            // A signal that cannot be stored is lost, as on Linux.
            if dst.write(&record)? < RECORD_SIZE {
                return Err(Errno::EFAULT);
            }
            done += RECORD_SIZE;
        }
        if done == 0 {
            Err(Errno::EAGAIN)
        } else {
            Ok(done)
        }
    }

    fn poll(&self) -> PollEvents {
        if self.source.pending() & self.mask.load(Ordering::SeqCst) != 0 {
            PollEvents::IN | PollEvents::RDNORM
        } else {
            PollEvents::empty()
        }
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(self.source.poll_source())
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(crate::anonymous::metadata())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_core::sync::SpinLock;

    #[derive(Default)]
    struct Fake {
        source: PollSource,
        waiting: SpinLock<u64>,
    }

    impl SignalSource for Fake {
        fn poll_source(&self) -> &PollSource {
            &self.source
        }
        fn pending(&self) -> u64 {
            *self.waiting.lock()
        }
        fn take(&self, mask: u64) -> Option<[u8; RECORD_SIZE]> {
            let mut waiting = self.waiting.lock();
            let signal = (*waiting & mask).checked_ilog2()?;
            *waiting &= !(1 << signal);
            Some([u8::try_from(signal + 1).unwrap(); RECORD_SIZE])
        }
    }

    #[test]
    fn only_signals_of_the_set_are_read() {
        let fake = Arc::new(Fake::default());
        let file = SignalFd::new(fake.clone(), 0b110);
        let mut out = [0; 3 * RECORD_SIZE];
        assert_eq!(file.read(&mut IoDst::kernel(&mut out)), Err(Errno::EAGAIN));
        *fake.waiting.lock() = 0b111;
        assert!(file.poll().contains(PollEvents::IN));
        assert_eq!(
            file.read(&mut IoDst::kernel(&mut out[..127])),
            Err(Errno::EINVAL)
        );
        assert_eq!(file.read(&mut IoDst::kernel(&mut out)), Ok(2 * RECORD_SIZE));
        assert_eq!((out[0], out[RECORD_SIZE]), (3, 2));
        assert_eq!(file.poll(), PollEvents::empty());
        file.set_mask(1);
        assert_eq!(file.read(&mut IoDst::kernel(&mut out)), Ok(RECORD_SIZE));
    }
}
