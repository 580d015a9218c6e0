// SPDX-License-Identifier: Apache-2.0
//! Advisory locks: flock(2), and the record locks of fcntl(2).
//!
//! There is one process, so record locks of the process (`F_SETLK`) meet only those of open file descriptions
//! (`F_OFD_SETLK`). Locks of flock(2) and record locks do not see each other, as on Linux.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::{Errno, PollEvents, Result};

/// A file, by its `File::content_id`: the locks on a file end before its last descriptor is gone.
pub type FileId = usize;

/// The two families that do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// flock(2)
    Whole,
    /// fcntl(2)
    Records,
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process (`F_SETLK`).
    Process,
    /// An open file description, by a number of its own.
    Description(usize),
}

/// What a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writers.
    Shared,
    /// Everybody.
    Exclusive,
}

/// A lock on the bytes of a range; `u64::MAX` means without end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who holds it.
    pub owner: Owner,
    /// What it excludes.
    pub mode: Mode,
    /// First byte and the byte behind the last one.
    pub range: Range<u64>,
}

impl Lock {
    fn excludes(&self, other: &Self) -> bool {
        self.owner != other.owner
            && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

type Table = BTreeMap<(Family, FileId), Vec<Lock>>;

static TABLE: SpinLock<Table> = SpinLock::new(BTreeMap::new());

/// How many files have locks: closing a file looks at the table only if there are any.
static LOCKED_FILES: AtomicUsize = AtomicUsize::new(0);

/// Notified when a lock is given up.
static RELEASED: PollSource = PollSource::new();

/// What to wait on for a lock that another owner holds.
#[must_use]
pub fn released() -> &'static PollSource {
    &RELEASED
}

/// Takes a lock, replacing what the owner held in the range. `EAGAIN` if another owner's lock excludes it.
pub fn acquire(family: Family, file: FileId, lock: Lock) -> Result<()> {
    let mut table = TABLE.lock();
    let locks = table.entry((family, file)).or_default();
    if locks.iter().any(|held| held.excludes(&lock)) {
        return Err(Errno::EAGAIN);
    }
    // Replacing an exclusive lock by a shared one may let others in.
    let eased = cut(locks, lock.owner, &lock.range) && lock.mode == Mode::Shared;
    locks.push(lock);
    LOCKED_FILES.store(table.len(), Ordering::Relaxed);
    drop(table);
    if eased {
        RELEASED.notify(PollEvents::IN);
    }
    Ok(())
}

/// Gives up what the owner holds in the range.
pub fn release(family: Family, file: FileId, owner: Owner, range: &Range<u64>) {
    let mut table = TABLE.lock();
    let Some(locks) = table.get_mut(&(family, file)) else {
        return;
    };
    let released = cut(locks, owner, range);
    if locks.is_empty() {
        table.remove(&(family, file));
    }
    LOCKED_FILES.store(table.len(), Ordering::Relaxed);
    drop(table);
    if released {
        RELEASED.notify(PollEvents::IN);
    }
}

/// The first lock that excludes the given one.
#[must_use]
pub fn conflict(family: Family, file: FileId, lock: &Lock) -> Option<Lock> {
    let table = TABLE.lock();
    let locks = table.get(&(family, file))?;
    locks.iter().find(|held| held.excludes(lock)).cloned()
}

/// An open file description is closed: its locks end, and so do the process's locks on the file.
pub(crate) fn on_close(file: FileId, description: usize) {
    if LOCKED_FILES.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (family, owner) in [
        (Family::Whole, Owner::Description(description)),
        (Family::Records, Owner::Description(description)),
        (Family::Records, Owner::Process),
    ] {
        release(family, file, owner, &(0..u64::MAX));
    }
}

/// Takes `range` out of the owner's locks; returns whether there was something.
fn cut(locks: &mut Vec<Lock>, owner: Owner, range: &Range<u64>) -> bool {
    let mut rest = Vec::new();
    let before = locks.len();
    locks.retain(|held| {
        if held.owner != owner || held.range.end <= range.start || range.end <= held.range.start {
            return true;
        }
        for part in [held.range.start..range.start, range.end..held.range.end] {
            if part.start < part.end {
                rest.push(Lock {
                    range: part,
                    ..held.clone()
                });
            }
        }
        false
    });
    let found = locks.len() != before;
    locks.extend(rest);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: usize, mode: Mode, range: Range<u64>) -> Lock {
        Lock {
            owner: Owner::Description(owner),
            mode,
            range,
        }
    }

    #[test]
    fn ranges_exclude_split_and_join() {
        let file = 1;
        let set = |l| acquire(Family::Records, file, l);
        let (shared, exclusive) = (Mode::Shared, Mode::Exclusive);
        assert_eq!(set(lock(1, exclusive, 0..100)), Ok(()));
        assert_eq!(set(lock(2, shared, 99..100)), Err(Errno::EAGAIN));
        assert_eq!(set(lock(2, shared, 100..u64::MAX)), Ok(()));
        assert_eq!(
            acquire(Family::Whole, file, lock(2, exclusive, 0..u64::MAX)),
            Ok(())
        );
        release(Family::Records, file, Owner::Description(1), &(40..60));
        assert_eq!(set(lock(2, exclusive, 40..60)), Ok(()));
        assert_eq!(set(lock(2, exclusive, 39..60)), Err(Errno::EAGAIN));
        let found = conflict(Family::Records, file, &lock(3, shared, 50..200)).unwrap();
        assert!(found == lock(2, exclusive, 40..60) || found == lock(1, exclusive, 60..100));
        assert_eq!(set(lock(1, shared, 0..40)), Ok(()));
        assert_eq!(set(lock(3, shared, 0..40)), Ok(()));
        on_close(file, 1);
        on_close(file, 2);
        on_close(file, 3);
        assert!(!TABLE.lock().keys().any(|(_, id)| *id == file));
    }
}
