// SPDX-License-Identifier: Apache-2.0
//! The table of open file descriptors.
//!
//! POSIX wants the lowest free number each time, so the table keeps a bitmap beside the entries. Everything that
//! leaves the table is returned to the caller, so that the last reference to a file can be dropped after the table's
//! lock is released.

use crate::bitset::BitSet;
use alloc::vec::Vec;
use coracle_abi::Errno;
use core::fmt;
use core::ops::RangeInclusive;

/// Why a descriptor operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdError {
    /// The number is not open, or not allowed by the limit: `EBADF`.
    BadFd,
    /// No free number below the limit: `EMFILE`.
    TooMany,
    /// No memory for a table that large: `ENOMEM`.
    NoMemory,
}

impl fmt::Display for FdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadFd => "not an open file descriptor",
            Self::TooMany => "too many open files",
            Self::NoMemory => "no memory for the table of descriptors",
        })
    }
}

impl From<FdError> for Errno {
    fn from(error: FdError) -> Self {
        match error {
            FdError::BadFd => Self::EBADF,
            FdError::TooMany => Self::EMFILE,
            FdError::NoMemory => Self::ENOMEM,
        }
    }
}

/// Open files by number. `T` is a reference to the open file description, shared by duplicates.
#[derive(Debug, Clone)]
pub struct FdTable<T> {
    entries: Vec<Option<T>>,
    used: BitSet,
    close_on_exec: BitSet,
    open: u32,
    limit: u32,
}

impl<T: Clone> FdTable<T> {
    /// An empty table for numbers below `limit` (`RLIMIT_NOFILE`).
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            entries: Vec::new(),
            used: BitSet::new(),
            close_on_exec: BitSet::new(),
            open: 0,
            limit,
        }
    }

    /// The limit: new descriptors are below it.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes the limit. Open descriptors above it stay open, as on Linux.
    pub const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// How many descriptors are open.
    #[must_use]
    pub const fn open_count(&self) -> u32 {
        self.open
    }

    /// The file open as `fd`.
    ///
    /// # Errors
    /// [`FdError::BadFd`]
    pub fn get(&self, fd: u32) -> Result<&T, FdError> {
        self.entries
            .get(fd as usize)
            .and_then(Option::as_ref)
            .ok_or(FdError::BadFd)
    }

    /// Puts `file` at the lowest free number that is at least `min`.
    ///
    /// # Errors
    /// [`FdError::TooMany`] if that number would not be below the limit, [`FdError::NoMemory`].
    pub fn insert(&mut self, file: T, min: u32, close_on_exec: bool) -> Result<u32, FdError> {
        let found =
            u32::try_from(self.used.first_absent(min as usize)).map_err(|_| FdError::TooMany)?;
        if found >= self.limit {
            return Err(FdError::TooMany);
        }
        self.put(found, file, close_on_exec)?;
        Ok(found)
    }

    /// Puts `file` at exactly `fd` and returns what was open there, as `dup2(2)` does.
    ///
    /// # Errors
    /// [`FdError::BadFd`] if `fd` is not below the limit, [`FdError::NoMemory`].
    pub fn insert_at(
        &mut self,
        fd: u32,
        file: T,
        close_on_exec: bool,
    ) -> Result<Option<T>, FdError> {
        if fd >= self.limit {
            return Err(FdError::BadFd);
        }
        self.put(fd, file, close_on_exec)
    }

    /// Closes `fd` and returns the file.
    ///
    /// # Errors
    /// [`FdError::BadFd`]
    pub fn remove(&mut self, fd: u32) -> Result<T, FdError> {
        let file = self
            .entries
            .get_mut(fd as usize)
            .and_then(Option::take)
            .ok_or(FdError::BadFd)?;
        self.used.remove(fd as usize);
        self.close_on_exec.remove(fd as usize);
        self.open -= 1;
        Ok(file)
    }

    /// Closes the lowest open descriptor of `range` and returns it with its file. One at a time, so that closing many
    /// needs no memory.
    pub fn remove_first(&mut self, range: RangeInclusive<u32>) -> Option<(u32, T)> {
        let fd = self
            .next_open(*range.start())
            .filter(|fd| range.contains(fd))?;
        Some((fd, self.remove(fd).ok()?))
    }

    /// Marks every open descriptor of `first..=last` to be closed by `execve` (`CLOSE_RANGE_CLOEXEC`).
    pub fn set_close_on_exec_range(&mut self, first: u32, last: u32) {
        let mut from = first;
        while let Some(fd) = self.next_open(from).filter(|fd| *fd <= last) {
            self.close_on_exec.insert(fd as usize);
            from = fd + 1;
        }
    }

    /// Whether `fd` is closed by `execve` (`FD_CLOEXEC`).
    ///
    /// # Errors
    /// [`FdError::BadFd`]
    pub fn close_on_exec(&self, fd: u32) -> Result<bool, FdError> {
        self.get(fd)?;
        Ok(self.close_on_exec.contains(fd as usize))
    }

    /// Sets or clears `FD_CLOEXEC`.
    ///
    /// # Errors
    /// [`FdError::BadFd`]
    pub fn set_close_on_exec(&mut self, fd: u32, close: bool) -> Result<(), FdError> {
        self.get(fd)?;
        if close {
            self.close_on_exec.insert(fd as usize);
        } else {
            self.close_on_exec.remove(fd as usize);
        }
        Ok(())
    }

    /// Closes the lowest descriptor that `execve` closes and returns its file. One at a time, as
    /// [`FdTable::remove_first`].
    pub fn remove_first_close_on_exec(&mut self) -> Option<T> {
        let fd = self.close_on_exec.first_present(0)?;
        self.remove(u32::try_from(fd).ok()?).ok()
    }

    /// The lowest open descriptor at or above `from`: reading `/proc/self/fd` continues where it stopped.
    #[must_use]
    pub fn next_open(&self, from: u32) -> Option<u32> {
        self.used
            .first_present(from as usize)
            .and_then(|fd| u32::try_from(fd).ok())
    }

    /// All open descriptors in rising order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..)
            .zip(&self.entries)
            .filter_map(|(fd, file)| file.as_ref().map(|file| (fd, file)))
    }

    /// Fills a slot whatever it held.
    fn put(&mut self, fd: u32, file: T, close_on_exec: bool) -> Result<Option<T>, FdError> {
        let at = fd as usize;
        let len = self.entries.len();
        if at >= len {
            self.entries
                .try_reserve(at + 1 - len)
                .map_err(|_| FdError::NoMemory)?;
            self.entries.resize(at + 1, None);
        }
        self.used.insert(at);
        if close_on_exec {
            self.close_on_exec.insert(at);
        } else {
            self.close_on_exec.remove(at);
        }
        let old = self.entries[at].replace(file);
        if old.is_none() {
            self.open += 1;
        }
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::{FdError, FdTable};
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use proptest::prop_assert_eq;
    use std::collections::BTreeMap;

    #[test]
    fn the_lowest_free_number_is_used() {
        let mut table = FdTable::new(8);
        for fd in 0..8 {
            assert_eq!(table.insert(fd * 10, 0, false), Ok(fd));
        }
        assert_eq!(table.insert(99, 0, false), Err(FdError::TooMany));
        assert_eq!(table.remove(3), Ok(30));
        assert_eq!(table.remove(3), Err(FdError::BadFd));
        assert_eq!(table.insert(99, 4, false), Err(FdError::TooMany));
        assert_eq!(table.insert(99, 0, false), Ok(3));
        assert_eq!(table.open_count(), 8);
    }

    #[test]
    fn duplicates_respect_the_limit_but_old_ones_survive_it() {
        let mut table = FdTable::new(1024);
        assert_eq!(table.insert_at(1000, 'a', false), Ok(None));
        assert_eq!(table.insert_at(1000, 'b', true), Ok(Some('a')));
        assert_eq!(table.insert_at(1024, 'c', false), Err(FdError::BadFd));
        assert_eq!(table.insert_at(u32::MAX, 'c', false), Err(FdError::BadFd));
        table.set_limit(16);
        assert_eq!(table.get(1000), Ok(&'b'));
        assert_eq!(table.insert('d', 16, false), Err(FdError::TooMany));
        assert_eq!(table.close_on_exec(1000), Ok(true));
        table.set_close_on_exec(1000, false).unwrap();
        assert_eq!(table.close_on_exec(1000), Ok(false));
        assert_eq!(table.set_close_on_exec(1, true), Err(FdError::BadFd));
        assert_eq!(table.get(u32::MAX), Err(FdError::BadFd));
    }

    #[test]
    fn exec_closes_what_is_marked_and_reuse_clears_the_mark() {
        let mut table = FdTable::new(64);
        for fd in 0..6u32 {
            table.insert(fd, 0, fd % 2 == 1).unwrap();
        }
        table.remove(5).unwrap();
        table.insert(50, 5, false).unwrap();
        table.set_close_on_exec_range(4, u32::MAX);
        let closed = core::iter::from_fn(|| table.remove_first_close_on_exec());
        assert_eq!(closed.collect::<Vec<_>>(), [1, 3, 4, 50]);
        assert_eq!(table.iter().map(|(fd, _)| fd).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(table.remove_first(1..=1), None);
        assert_eq!(table.remove_first(1..=u32::MAX), Some((2, 2)));
        assert_eq!(table.remove_first(1..=u32::MAX), None);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(u32),
        InsertAt(u32),
        Remove(u32),
        CloseRange(u32, u32),
    }

    proptest! {
        #[test]
        fn behaves_like_a_tree_map(ops in proptest::collection::vec(prop_oneof![
            4 => (0..100u32).prop_map(Op::Insert),
            1 => (0..100u32).prop_map(Op::InsertAt),
            3 => (0..100u32).prop_map(Op::Remove),
            1 => any::<(u8, u8)>().prop_map(|(a, b)| Op::CloseRange(a.into(), b.into())),
        ], 1..200)) {
            let mut table = FdTable::new(80);
            let mut model = BTreeMap::new();
            for (serial, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Insert(min) => {
                        let free = (min..80).find(|fd| !model.contains_key(fd));
                        prop_assert_eq!(table.insert(serial, min, false), free.ok_or(FdError::TooMany));
                        free.map(|fd| model.insert(fd, serial));
                    }
                    Op::InsertAt(fd) => {
                        let expected = if fd < 80 { Ok(model.insert(fd, serial)) } else { Err(FdError::BadFd) };
                        prop_assert_eq!(table.insert_at(fd, serial, false), expected);
                    }
                    Op::Remove(fd) => prop_assert_eq!(table.remove(fd), model.remove(&fd).ok_or(FdError::BadFd)),
                    Op::CloseRange(first, last) => {
                        let gone: Vec<_> = model.iter().filter(|(fd, _)| (first..=last).contains(*fd))
                            .map(|(_, v)| *v).collect();
                        model.retain(|fd, _| !(first..=last).contains(fd));
                        let closed: Vec<_> = core::iter::from_fn(|| table.remove_first(first..=last))
                            .map(|(_, file)| file).collect();
                        prop_assert_eq!(closed, gone);
                    }
                }
                prop_assert_eq!(table.open_count() as usize, model.len());
                prop_assert_eq!(table.iter().map(|(fd, v)| (fd, *v)).collect::<BTreeMap<_, _>>(), model.clone());
            }
        }
    }
}
