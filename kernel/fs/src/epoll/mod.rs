// SPDX-License-Identifier: Apache-2.0
//! Event polling: epoll(7).
//!
//! Each watched file has an [`Item`](item::Item) attached to its poll source. A notification puts the item on the
//! ready list, once, and wakes who waits; waiting takes items off the list and asks their files. So the cost of a wait
//! follows the number of ready files, not of watched ones. Nothing is allocated on that path: the ready list has room
//! for all items from the moment they are added.
//!
//! An item knows its file weakly. When the last descriptor of the file is closed, the item dies with the next look at
//! it, or when its descriptor number is added again.

mod item;

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;

use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata, OpenFile};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::{Errno, PollEvents, Result};
use item::{Item, Ready, Settings};

/// How many epoll instances can watch one another in a row (epoll_ctl(2), `ELOOP`).
const MAX_NESTING: u32 = 5;

/// Items taken off the ready list at a time.
const BATCH: usize = 16;

/// One reported event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What is ready.
    pub events: PollEvents,
    /// The application's value.
    pub data: u64,
}

/// What to watch a file for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Events and behaviour: `EPOLLIN` ..., `EPOLLET`, `EPOLLONESHOT`, `EPOLLEXCLUSIVE`.
    pub flags: u32,
    /// The application's value, handed back with each event.
    pub data: u64,
}

/// An epoll instance.
pub struct Epoll {
    me: Weak<Epoll>,
    ready: Arc<Ready>,
    items: SpinLock<BTreeMap<Key, Arc<Item>>>,
    /// The instances that watch this one; added under [`NESTING`].
    watchers: SpinLock<Vec<Weak<Epoll>>>,
}

/// Descriptor number and address of the open file description: a duplicate is another key (epoll(7), question 1).
type Key = (u32, usize);

/// Held while an epoll instance is added to another, so that two additions cannot make a loop together.
static NESTING: SpinLock<()> = SpinLock::new(());

fn key(fd: u32, open: &Arc<OpenFile>) -> Key {
    (fd, Arc::as_ptr(open).addr())
}

impl Epoll {
    /// An instance that watches nothing.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            ready: Arc::new(Ready::default()),
            items: SpinLock::new(BTreeMap::new()),
            watchers: SpinLock::new(Vec::new()),
        })
    }

    /// `EPOLL_CTL_ADD`. `EEXIST` if the pair is watched, `EPERM` if the file cannot be waited for, `ELOOP` if
    /// instances would watch each other, `EINVAL` for oneself and for wrong flags of `EPOLLEXCLUSIVE`.
    pub fn add(&self, fd: u32, open: &Arc<OpenFile>, interest: Interest) -> Result<()> {
        let source = open.file().poll_source().ok_or(Errno::EPERM)?;
        let exclusive = interest.flags & g::EPOLLEXCLUSIVE != 0;
        if exclusive && interest.flags & !EXCLUSIVE_ALLOWED != 0 {
            return Err(Errno::EINVAL);
        }
        let mut nesting = None;
        if let Some(other) = open.downcast::<Epoll>() {
            if core::ptr::eq(other, self) || exclusive {
                return Err(Errno::EINVAL);
            }
            nesting = Some(NESTING.lock());
            if other.depth(self, MAX_NESTING)? + self.height() > MAX_NESTING {
                return Err(Errno::ELOOP);
            }
        }
        let item = Item::new(fd, open, &self.ready, interest);
        let mut buried = Vec::new();
        let mut items = self.items.lock();
        self.bury(&mut items, fd, &mut buried);
        if items.contains_key(&key(fd, open)) {
            return Err(Errno::EEXIST);
        }
        items.insert(key(fd, open), item.clone());
        if let Some(other) = open.downcast::<Epoll>() {
            other.watchers.lock().push(self.me.clone());
        }
        self.ready.reserve(items.len());
        item.attach(source, exclusive);
        item.queue_if_ready(open.file().poll());
        drop(items);
        drop(nesting);
        drop(buried);
        Ok(())
    }

    /// `EPOLL_CTL_MOD`; arms a one-shot item again. `ENOENT` if the pair is not watched.
    pub fn modify(&self, fd: u32, open: &Arc<OpenFile>, interest: Interest) -> Result<()> {
        if interest.flags & g::EPOLLEXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        let source = open.file().poll_source().ok_or(Errno::EPERM)?;
        let items = self.items.lock();
        let item = items.get(&key(fd, open)).ok_or(Errno::ENOENT)?;
        if item.settings().flags & g::EPOLLEXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        item.change(source, interest);
        item.queue_if_ready(open.file().poll());
        Ok(())
    }

    /// `EPOLL_CTL_DEL`. `ENOENT` if the pair is not watched.
    pub fn remove(&self, fd: u32, open: &Arc<OpenFile>) -> Result<()> {
        let mut items = self.items.lock();
        let item = items.remove(&key(fd, open)).ok_or(Errno::ENOENT)?;
        if let Some(source) = open.file().poll_source() {
            item.detach(source);
        }
        item.kill();
        drop(items);
        drop(item);
        if let Some(other) = open.downcast::<Epoll>() {
            let mut watchers = other.watchers.lock();
            if let Some(at) = watchers.iter().position(|w| w.ptr_eq(&self.me)) {
                watchers.swap_remove(at);
            }
        }
        Ok(())
    }

    /// `epoll_wait(2)` without waiting: hands at most `max` events to `sink` and returns how many it took. An event
    /// that it refuses (`false`) stays to be reported, and nothing more is handed over. No lock is held meanwhile.
    pub fn wait(&self, max: usize, mut sink: impl FnMut(Event) -> bool) -> usize {
        let mut reported = 0;
        let mut refused = false;
        // Level-triggered items go back to the list behind these, to be looked at by the next wait.
        let mut left = self.ready.len();
        let mut requeued = false;
        while left > 0 && reported < max && !refused {
            let mut batch: [Option<Arc<Item>>; BATCH] = [const { None }; BATCH];
            let taken = self
                .ready
                .take(&mut batch[..left.min(BATCH).min(max - reported)]);
            if taken == 0 {
                break;
            }
            left -= taken;
            for slot in &mut batch[..taken] {
                let Some(item) = slot else { continue };
                if refused {
                    continue; // back to the list, with the one that was refused
                }
                let Some(open) = item.open() else {
                    self.forget(item);
                    *slot = None;
                    continue;
                };
                let (event, mut again) = item.report(open.file().poll());
                if let Some(event) = event {
                    if sink(event) {
                        reported += 1;
                    } else {
                        item.take_back();
                        refused = true;
                        again = true;
                    }
                }
                if !again {
                    *slot = None;
                }
            }
            requeued |= self.ready.put_back(&mut batch[..taken]);
        }
        if requeued || left > 0 {
            // What is still ready is for another thread that waits.
            self.ready
                .source
                .notify(PollEvents::IN | PollEvents::RDNORM);
        }
        reported
    }

    /// How many pairs are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.items.lock().len()
    }

    /// Lists descriptor, interest and data of each item, for `/proc/self/fdinfo`.
    pub fn for_each(&self, mut show: impl FnMut(u32, Interest)) {
        for item in self.items.lock().values() {
            let Settings { flags, data, .. } = item.settings();
            show(item.fd(), Interest { flags, data });
        }
    }

    /// Takes items with number `fd` whose files are closed out of the list. They are dropped by the caller.
    fn bury(&self, items: &mut BTreeMap<Key, Arc<Item>>, fd: u32, buried: &mut Vec<Arc<Item>>) {
        while let Some(dead) = items
            .range((fd, 0)..=(fd, usize::MAX))
            .find(|(_, item)| item.is_orphan())
            .map(|(key, _)| *key)
        {
            if let Some(item) = items.remove(&dead) {
                item.kill();
                buried.push(item);
            }
        }
    }

    /// Takes an item whose file is closed out of the list.
    fn forget(&self, item: &Arc<Item>) {
        item.kill();
        let mut items = self.items.lock();
        let key = (item.fd(), item.address());
        let removed = match items.get(&key) {
            Some(found) if Arc::ptr_eq(found, item) => items.remove(&key),
            _ => None,
        };
        drop(items);
        drop(removed);
    }

    /// Length of the longest chain of epoll instances that starts here; `ELOOP` if `target` is in one of them.
    fn depth(&self, target: &Epoll, limit: u32) -> Result<u32> {
        if core::ptr::eq(self, target) || limit == 0 {
            return Err(Errno::ELOOP);
        }
        // Files are kept alive past the lock: dropping the last reference of one may call back.
        let watched: Vec<Arc<OpenFile>> = self
            .items
            .lock()
            .values()
            .filter_map(|i| i.open())
            .collect();
        let mut deepest = 0;
        for open in &watched {
            if let Some(inner) = open.downcast::<Epoll>() {
                deepest = deepest.max(inner.depth(target, limit - 1)?);
            }
        }
        Ok(deepest + 1)
    }

    /// Length of the longest chain of instances that ends here. There is no loop, so this ends.
    fn height(&self) -> u32 {
        let watchers: Vec<Arc<Epoll>> = self
            .watchers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        watchers
            .iter()
            .map(|watcher| watcher.height())
            .max()
            .unwrap_or(0)
            + 1
    }
}

const EXCLUSIVE_ALLOWED: u32 = g::EPOLLIN
    | g::EPOLLOUT
    | g::EPOLLERR
    | g::EPOLLHUP
    | g::EPOLLWAKEUP
    | g::EPOLLET
    | g::EPOLLEXCLUSIVE;

impl File for Epoll {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn poll(&self) -> PollEvents {
        // Notified items may turn out not to be ready any more; look until one is.
        for _ in 0..self.ready.len() {
            let mut slot = [None];
            self.ready.take(&mut slot);
            let [Some(item)] = &slot else { break };
            let Some(open) = item.open() else {
                self.forget(item);
                continue;
            };
            if item.would_report(open.file().poll()) {
                self.ready.put_back(&mut slot);
                return PollEvents::IN | PollEvents::RDNORM;
            }
        }
        PollEvents::empty()
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(&self.ready.source)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(crate::anonymous::metadata())
    }

    fn on_release(&self) {
        let items = core::mem::take(&mut *self.items.lock());
        for item in items.values() {
            if let Some(open) = item.open()
                && let Some(source) = open.file().poll_source()
            {
                item.detach(source);
            }
            item.kill();
        }
        self.ready.close();
    }
}

#[cfg(test)]
mod tests;
