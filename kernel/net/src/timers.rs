// SPDX-License-Identifier: Apache-2.0
//! All deadlines of the stack in one queue, behind one kernel timer.
//!
//! Owners arm lazily: they keep their exact deadlines to themselves, and put an entry here only when the earliest of
//! them lies before the entry that is already pending. An entry that comes up too early finds nothing to do and is put
//! back. So a busy connection touches this queue some 25 times a second, not once a packet.

use alloc::sync::Weak;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_core::sync::SpinLock;
use coracle_core::timer::{Timer, TimerTarget};
use coracle_logic::timer_queue::{TimerHandle, TimerQueue};

use crate::address::Flow;
use crate::tcp::TcpSocket;

/// Who wants to be called.
pub(crate) enum TimerKey {
    /// A connection: retransmission, delayed acknowledgement, keepalive ...
    Tcp(Weak<TcpSocket>),
    /// A connection that waits for the last part of the handshake.
    HalfOpen(Flow),
    /// Old TIME-WAIT entries.
    TimeWait,
    /// Neighbour resolution on the interface with this index.
    Neighbours(usize),
    /// Address announcements on the interface with this index.
    Announce(usize),
    /// The DHCP client of the interface with this index.
    Dhcp(usize),
    /// IPv6 autoconfiguration of the interface with this index.
    Autoconf(usize),
    /// Packets that found the transmit ring of this interface full.
    Backlog(usize),
}

/// The queue. A leaf lock: nothing is taken while it is held, except the kernel's timer queue.
pub(crate) struct Timers {
    queue: SpinLock<TimerQueue<TimerKey>>,
    /// When the alarm goes off; `u64::MAX` if it is not set. Written under the queue's lock.
    alarm_at: AtomicU64,
    alarm: Option<Timer>,
}

impl Timers {
    pub(crate) fn new(target: Option<Weak<dyn TimerTarget>>) -> Self {
        Self {
            queue: SpinLock::new(TimerQueue::new()),
            alarm_at: AtomicU64::new(u64::MAX),
            alarm: target.map(Timer::new),
        }
    }

    pub(crate) fn set(&self, deadline_ns: u64, key: TimerKey) -> TimerHandle {
        let mut queue = self.queue.lock();
        let handle = queue.insert(deadline_ns, key);
        self.set_alarm(&queue);
        handle
    }

    pub(crate) fn cancel(&self, handle: TimerHandle) {
        let cancelled = self.queue.lock().cancel(handle);
        drop(cancelled); // may free a connection: outside the lock
    }

    /// The next expired entry.
    pub(crate) fn pop(&self, now_ns: u64) -> Option<TimerKey> {
        self.queue.lock().pop_expired(now_ns)
    }

    /// The alarm went off, or time is driven from outside.
    pub(crate) fn rearm(&self) {
        let queue = self.queue.lock();
        self.alarm_at.store(u64::MAX, Ordering::Relaxed);
        self.set_alarm(&queue);
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.queue.lock().next_deadline()
    }

    fn set_alarm(&self, queue: &TimerQueue<TimerKey>) {
        let Some(alarm) = &self.alarm else { return };
        if let Some(next) = queue.next_deadline()
            && next < self.alarm_at.load(Ordering::Relaxed)
        {
            self.alarm_at.store(next, Ordering::Relaxed);
            alarm.arm(next);
        }
    }
}
