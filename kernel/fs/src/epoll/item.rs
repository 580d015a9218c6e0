// SPDX-License-Identifier: Apache-2.0
//! One watched file, and the list of those that may be ready.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::poll::{PollSource, WaitToken, Waiter};
use coracle_core::sync::SpinLock;

use super::{Event, Interest};
use crate::PollEvents;

/// Items that were notified since they were last looked at, each at most once.
#[derive(Default)]
pub(super) struct Ready {
    list: SpinLock<List>,
    pub(super) source: PollSource,
}

#[derive(Default)]
struct List {
    items: VecDeque<Arc<Item>>,
    closed: bool,
}

impl Ready {
    /// Makes room for `count` items, so that queueing never allocates.
    pub(super) fn reserve(&self, count: usize) {
        let mut list = self.list.lock();
        if list.items.capacity() < count {
            // Removed items may still be queued: keep room for them, and grow in large steps.
            let more = (2 * count).max(64) - list.items.len();
            list.items.reserve_exact(more);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.lock().items.len()
    }

    /// Moves the oldest items into `slots` and returns how many.
    pub(super) fn take(&self, slots: &mut [Option<Arc<Item>>]) -> usize {
        let mut list = self.list.lock();
        let mut taken = 0;
        for slot in slots {
            let Some(item) = list.items.pop_front() else {
                break;
            };
            // Before the file is asked: a change after the answer queues the item again.
            item.queued.store(false, Ordering::SeqCst);
            *slot = Some(item);
            taken += 1;
        }
        taken
    }

    /// Queues the items that are left in `slots`; returns whether there were any.
    pub(super) fn put_back(&self, slots: &mut [Option<Arc<Item>>]) -> bool {
        if slots.iter().all(Option::is_none) {
            return false;
        }
        let mut list = self.list.lock();
        if list.closed {
            return false;
        }
        for item in slots.iter_mut().filter_map(Option::take) {
            if !item.queued.swap(true, Ordering::SeqCst) {
                list.items.push_back(item);
            }
        }
        true
    }

    fn push(&self, item: Arc<Item>) {
        let mut list = self.list.lock();
        if list.closed {
            drop(list);
            drop(item);
        } else {
            list.items.push_back(item);
        }
    }

    /// The instance is closed: drops what is queued and takes nothing more.
    pub(super) fn close(&self) {
        let mut list = self.list.lock();
        list.closed = true;
        let items = core::mem::take(&mut list.items);
        drop(list);
        drop(items);
    }
}

/// What an item is watched for.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) flags: u32,
    pub(super) data: u64,
    /// False after a one-shot item was reported, and for ever after the item was removed.
    armed: bool,
    token: Option<WaitToken>,
}

/// A descriptor that is watched by one epoll instance.
pub(super) struct Item {
    me: Weak<Item>,
    fd: u32,
    open: Weak<OpenFile>,
    ready: Arc<Ready>,
    /// On the ready list.
    queued: AtomicBool,
    /// The events of interest while armed, else 0: a copy of the settings that notifications read without a lock.
    wanted: AtomicU32,
    settings: SpinLock<Settings>,
}

fn wanted_events(flags: u32) -> u32 {
    (PollEvents::from_bits_truncate(flags) | PollEvents::ALWAYS).bits()
}

impl Item {
    pub(super) fn new(
        fd: u32,
        open: &Arc<OpenFile>,
        ready: &Arc<Ready>,
        interest: Interest,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            fd,
            open: Arc::downgrade(open),
            ready: ready.clone(),
            queued: AtomicBool::new(false),
            wanted: AtomicU32::new(wanted_events(interest.flags)),
            settings: SpinLock::new(Settings {
                flags: interest.flags,
                data: interest.data,
                armed: true,
                token: None,
            }),
        })
    }

    pub(super) fn fd(&self) -> u32 {
        self.fd
    }

    /// The address of the open file description, for the key.
    pub(super) fn address(&self) -> usize {
        self.open.as_ptr().addr()
    }

    pub(super) fn open(&self) -> Option<Arc<OpenFile>> {
        self.open.upgrade()
    }

    pub(super) fn is_orphan(&self) -> bool {
        self.open.strong_count() == 0
    }

    pub(super) fn settings(&self) -> Settings {
        *self.settings.lock()
    }

    /// Starts to listen to the file.
    pub(super) fn attach(self: &Arc<Self>, source: &PollSource, exclusive: bool) {
        let interest = PollEvents::from_bits_truncate(self.settings().flags);
        let token = source.attach(self.clone(), interest, exclusive);
        self.settings.lock().token = Some(token);
    }

    /// Stops to listen.
    pub(super) fn detach(&self, source: &PollSource) {
        let token = self.settings.lock().token.take();
        if let Some(token) = token {
            source.detach(token);
        }
    }

    /// Watches for something else, armed.
    pub(super) fn change(self: &Arc<Self>, source: &PollSource, interest: Interest) {
        let mut settings = self.settings.lock();
        let same_events = wanted_events(settings.flags) == wanted_events(interest.flags);
        settings.flags = interest.flags;
        settings.data = interest.data;
        settings.armed = true;
        drop(settings);
        self.wanted
            .store(wanted_events(interest.flags), Ordering::SeqCst);
        if !same_events {
            self.detach(source);
            self.attach(source, false);
        }
    }

    /// The item is removed and reports nothing any more, even if it is still queued.
    pub(super) fn kill(&self) {
        self.wanted.store(0, Ordering::SeqCst);
        self.settings.lock().armed = false;
    }

    /// After the item was added or changed: queues it if the file is ready already.
    pub(super) fn queue_if_ready(&self, now: PollEvents) {
        self.notify(now);
    }

    pub(super) fn would_report(&self, now: PollEvents) -> bool {
        now.bits() & self.wanted.load(Ordering::SeqCst) != 0
    }

    /// The event to report for a file that is ready for `now`, and whether the item stays on the list.
    pub(super) fn report(&self, now: PollEvents) -> (Option<Event>, bool) {
        let mut settings = self.settings.lock();
        let events = PollEvents::from_bits_truncate(now.bits() & wanted_events(settings.flags));
        if !settings.armed || events.is_empty() {
            return (None, false);
        }
        if settings.flags & g::EPOLLONESHOT != 0 {
            settings.armed = false;
            self.wanted.store(0, Ordering::SeqCst);
        }
        let event = Event {
            events,
            data: settings.data,
        };
        let level = settings.flags & (g::EPOLLET | g::EPOLLONESHOT) == 0;
        (Some(event), level)
    }
}

impl Item {
    /// Undoes [`Item::report`]: the event did not reach the application.
    pub(super) fn take_back(&self) {
        let mut settings = self.settings.lock();
        // Unless the item was removed meanwhile: then it has no token any more.
        if settings.token.is_some() {
            settings.armed = true;
            self.wanted
                .store(wanted_events(settings.flags), Ordering::SeqCst);
        }
    }
}

impl Waiter for Item {
    fn notify(&self, events: PollEvents) -> bool {
        if events.bits() & self.wanted.load(Ordering::SeqCst) == 0 {
            return false;
        }
        if self.queued.swap(true, Ordering::SeqCst) {
            return false;
        }
        let Some(me) = self.me.upgrade() else {
            return false;
        };
        self.ready.push(me);
        let waited_for = !self.ready.source.is_empty();
        self.ready
            .source
            .notify(PollEvents::IN | PollEvents::RDNORM);
        waited_for
    }
}
