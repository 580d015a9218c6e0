// SPDX-License-Identifier: Apache-2.0
//! Pending signals in the order in which they are taken: by number, and real-time signals of one number first in,
//! first out.

use alloc::vec::Vec;

use coracle_abi::convert::low_u32;
use coracle_abi::signal::{SI_TIMER, SigInfo, Signal, SignalSet};

use crate::{Errno, Result};

/// Most queued signals (`RLIMIT_SIGPENDING`).
const LIMIT: usize = 1024;

#[derive(Default)]
pub(super) struct Queue {
    set: SignalSet,
    list: Vec<(Signal, SigInfo)>,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            set: SignalSet::EMPTY,
            list: Vec::new(),
        }
    }

    /// Signals that are pending.
    pub(super) fn set(&self) -> SignalSet {
        self.set
    }

    /// How many are queued.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a signal. A standard signal that is pending already is not added again.
    pub(super) fn push(&mut self, signal: Signal, info: SigInfo) -> Result<()> {
        if !signal.is_real_time() && self.set.contains(signal) {
            return Ok(());
        }
        if signal.is_real_time() && self.list.len() >= LIMIT {
            return Err(Errno::EAGAIN);
        }
        self.set = self.set.union(SignalSet::of(signal));
        self.list.push((signal, info));
        Ok(())
    }

    /// Takes the first of `wanted`.
    pub(super) fn take(&mut self, wanted: SignalSet) -> Option<SigInfo> {
        let signal = self.set.intersection(wanted).first()?;
        let at = self.list.iter().position(|(s, _)| *s == signal)?;
        let (_, info) = self.list.remove(at);
        if !self.list.iter().any(|(s, _)| *s == signal) {
            self.set = self.set.without(SignalSet::of(signal));
        }
        Some(info)
    }

    /// Whether the signal of POSIX timer `id` is among them.
    pub(super) fn has_timer(&self, id: u32) -> bool {
        self.list
            .iter()
            .any(|(_, info)| info.code == SI_TIMER && low_u32(info.fields[0]) == id)
    }

    /// Drops the signals of POSIX timers.
    pub(super) fn remove_timers(&mut self) {
        self.list.retain(|(_, info)| info.code != SI_TIMER);
        self.set = self
            .list
            .iter()
            .fold(SignalSet::EMPTY, |set, (s, _)| set.union(SignalSet::of(*s)));
    }

    /// Drops all of `unwanted`.
    pub(super) fn remove(&mut self, unwanted: SignalSet) {
        self.list.retain(|(s, _)| !unwanted.contains(*s));
        self.set = self.set.without(unwanted);
    }
}
