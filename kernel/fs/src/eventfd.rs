// SPDX-License-Identifier: Apache-2.0
//! Event counters: eventfd(2).

use alloc::sync::Arc;
use core::any::Any;

use coracle_core::file::{File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::{Errno, PollEvents, Result};

/// The largest value of the counter.
const MAX: u64 = u64::MAX - 1;

/// A counter that can be waited for.
pub struct EventFd {
    count: SpinLock<u64>,
    semaphore: bool,
    source: PollSource,
}

impl EventFd {
    /// A counter that starts at `initial`. As a `semaphore` each read takes one, else all.
    #[must_use]
    pub fn new(initial: u64, semaphore: bool) -> Arc<Self> {
        Arc::new(Self {
            count: SpinLock::new(initial),
            semaphore,
            source: PollSource::new(),
        })
    }

    /// Adds `value`; `EINVAL` for the value no counter can have, `EAGAIN` if the sum would be too large.
    pub fn add(&self, value: u64) -> Result<()> {
        if value > MAX {
            return Err(Errno::EINVAL);
        }
        let mut count = self.count.lock();
        *count = count
            .checked_add(value)
            .filter(|sum| *sum <= MAX)
            .ok_or(Errno::EAGAIN)?;
        drop(count);
        self.source.notify(PollEvents::IN | PollEvents::RDNORM);
        Ok(())
    }
}

impl File for EventFd {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        if dst.remaining() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let mut count = self.count.lock();
        if *count == 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = if self.semaphore { 1 } else { *count };
        let written = dst.write(&taken.to_ne_bytes())?;
        if written < size_of::<u64>() {
            return Err(Errno::EFAULT);
        }
        *count -= taken;
        drop(count);
        self.source.notify(PollEvents::OUT | PollEvents::WRNORM);
        Ok(written)
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        if src.remaining() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let before = src.done();
        let mut bytes = [0; size_of::<u64>()];
        if src.read(&mut bytes)? < bytes.len() {
            src.rewind(before);
            return Err(Errno::EFAULT);
        }
        self.add(u64::from_ne_bytes(bytes))
            .inspect_err(|_| src.rewind(before))?;
        Ok(bytes.len())
    }

    fn poll(&self) -> PollEvents {
        let count = *self.count.lock();
        let mut events = PollEvents::empty();
        if count > 0 {
            events |= PollEvents::IN | PollEvents::RDNORM;
        }
        if count < MAX {
            events |= PollEvents::OUT | PollEvents::WRNORM;
        }
        events
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(&self.source)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(crate::anonymous::metadata())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &EventFd) -> Result<u64> {
        let mut out = [0; 8];
        file.read(&mut IoDst::kernel(&mut out))?;
        Ok(u64::from_ne_bytes(out))
    }

    fn write(file: &EventFd, value: u64) -> Result<usize> {
        file.write(&mut IoSrc::kernel(&value.to_ne_bytes()))
    }

    #[test]
    fn counts_as_in_the_manual_page() {
        let file = EventFd::new(0, false);
        assert_eq!(read(&file), Err(Errno::EAGAIN));
        assert_eq!(file.poll() & PollEvents::IN, PollEvents::empty());
        assert_eq!(write(&file, 3), Ok(8));
        assert_eq!(write(&file, 4), Ok(8));
        assert!(file.poll().contains(PollEvents::IN | PollEvents::OUT));
        assert_eq!(read(&file), Ok(7));
        assert_eq!(write(&file, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(write(&file, MAX), Ok(8));
        assert!(!file.poll().contains(PollEvents::OUT));
        assert_eq!(write(&file, 1), Err(Errno::EAGAIN));
        assert_eq!(write(&file, 0), Ok(8));
        assert_eq!(read(&file), Ok(MAX));
        let mut short = [0; 7];
        assert_eq!(
            file.read(&mut IoDst::kernel(&mut short)),
            Err(Errno::EINVAL)
        );
        assert_eq!(file.write(&mut IoSrc::kernel(&short)), Err(Errno::EINVAL));
    }

    #[test]
    fn a_semaphore_gives_one_at_a_time() {
        let file = EventFd::new(2, true);
        assert_eq!((read(&file), read(&file)), (Ok(1), Ok(1)));
        assert_eq!(read(&file), Err(Errno::EAGAIN));
    }
}
