// SPDX-License-Identifier: Apache-2.0
//! Pending timers of one CPU or of the machine, ordered by deadline.
//!
//! A binary heap of small entries over a slab that holds the keys and knows each timer's place in the heap, so that a
//! cancelled timer leaves at once: most timers (socket time-outs, futex waits) are cancelled, and leaving them in the
//! heap until they expire would cost memory and a wake-up each. Both vectors keep their capacity, so there is no
//! allocation once the largest number of timers has been seen.

use alloc::vec::Vec;

/// Names a timer. A handle of a timer that expired or was cancelled is recognised and does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerHandle {
    /// Index into the slab.
    pub slot: u32,
    /// How often the slot had been used before.
    pub generation: u32,
}

#[derive(Debug)]
struct Slot<K> {
    generation: u32,
    /// In use: index into the heap. Free: the next free slot or [`NONE`].
    link: u32,
    key: Option<K>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    deadline_ns: u64,
    /// Makes timers with the same deadline expire in the order they were set.
    serial: u64,
    slot: u32,
}

impl Entry {
    fn before(&self, other: &Self) -> bool {
        (self.deadline_ns, self.serial) < (other.deadline_ns, other.serial)
    }
}

const NONE: u32 = u32::MAX;

/// Timers, each with a deadline in nanoseconds (of whatever clock the caller uses) and a key.
#[derive(Debug)]
pub struct TimerQueue<K> {
    slots: Vec<Slot<K>>,
    free: u32,
    heap: Vec<Entry>,
    serial: u64,
}

impl<K> Default for TimerQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> TimerQueue<K> {
    /// An empty queue; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            heap: Vec::new(),
            serial: 0,
        }
    }

    /// The number of pending timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no timer is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.deadline_ns)
    }

    /// Adds a timer. O(log n).
    ///
    /// # Panics
    /// If four billion timers are pending.
    pub fn insert(&mut self, deadline_ns: u64, key: K) -> TimerHandle {
        let place = index(self.heap.len());
        let slot = match self.free {
            NONE => {
                self.slots.push(Slot {
                    generation: 0,
                    link: place,
                    key: Some(key),
                });
                index(self.slots.len() - 1)
            }
            slot => {
                let entry = &mut self.slots[slot as usize];
                self.free = entry.link;
                entry.link = place;
                entry.key = Some(key);
                slot
            }
        };
        self.heap.push(Entry {
            deadline_ns,
            serial: self.serial,
            slot,
        });
        self.serial += 1;
        self.sift_up(place as usize);
        TimerHandle {
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// Removes a timer before it expires and returns its key; `None` if it expired or was cancelled before. O(log n).
    pub fn cancel(&mut self, handle: TimerHandle) -> Option<K> {
        let slot = self.slots.get(handle.slot as usize)?;
        if slot.generation != handle.generation || slot.key.is_none() {
            return None;
        }
        self.remove_at(slot.link as usize)
    }

    /// The deadline of a timer that is still pending.
    #[must_use]
    pub fn deadline(&self, handle: TimerHandle) -> Option<u64> {
        let slot = self.slots.get(handle.slot as usize)?;
        (slot.generation == handle.generation && slot.key.is_some())
            .then(|| self.heap[slot.link as usize].deadline_ns)
    }

    /// Removes and returns the earliest timer if its deadline is `now_ns` or earlier. O(log n).
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<K> {
        if self.next_deadline()? > now_ns {
            return None;
        }
        self.remove_at(0)
    }

    /// Takes the heap's entry at `place` out and frees its slot.
    fn remove_at(&mut self, place: usize) -> Option<K> {
        let removed = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.slots[self.heap[place].slot as usize].link = index(place);
            // The entry moved here came from the end; it may belong above or below.
            self.sift_down(place);
            self.sift_up(place);
        }
        let slot = &mut self.slots[removed.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.link = self.free;
        self.free = removed.slot;
        slot.key.take()
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.heap[place].before(&self.heap[parent]) {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(mut child) = self.heap.get(left).map(|_| left) else {
                return;
            };
            if self
                .heap
                .get(left + 1)
                .is_some_and(|right| right.before(&self.heap[left]))
            {
                child = left + 1;
            }
            if !self.heap[child].before(&self.heap[place]) {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a].slot as usize].link = index(a);
        self.slots[self.heap[b].slot as usize].link = index(b);
    }
}

/// Slots and places are 32 bits wide to keep entries small.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than four billion timers")
}

#[cfg(test)]
mod tests {
    use super::TimerQueue;
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    #[test]
    fn equal_deadlines_expire_in_order_of_insertion() {
        let mut timers = TimerQueue::new();
        for key in 0..10 {
            timers.insert(5, key);
        }
        assert_eq!(timers.pop_expired(4), None);
        let order: Vec<_> = core::iter::from_fn(|| timers.pop_expired(5)).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_stale_handle_does_nothing() {
        let mut timers = TimerQueue::new();
        let first = timers.insert(1, 'a');
        assert_eq!(timers.pop_expired(1), Some('a'));
        let second = timers.insert(2, 'b');
        assert_eq!(first.slot, second.slot);
        assert_eq!(timers.cancel(first), None);
        assert_eq!(timers.deadline(first), None);
        assert_eq!(timers.deadline(second), Some(2));
        assert_eq!(timers.cancel(second), Some('b'));
        assert_eq!(timers.cancel(second), None);
        assert!(timers.is_empty());
    }

    #[test]
    fn steady_state_does_not_allocate() {
        let mut timers = TimerQueue::new();
        let mut handles: Vec<_> = (0..10_000u64)
            .map(|n| timers.insert(n * 7919 % 10_007, n))
            .collect();
        let capacity = (timers.heap.capacity(), timers.slots.capacity());
        for round in 0..100_000u64 {
            let at = (round * 31 % 10_000) as usize;
            assert!(timers.cancel(handles[at]).is_some());
            handles[at] = timers.insert(round * 13 % 9_973, round);
        }
        assert_eq!(capacity, (timers.heap.capacity(), timers.slots.capacity()));
        assert_eq!(timers.len(), 10_000);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(u64),
        Cancel(usize),
        Pop(u64),
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(ops in proptest::collection::vec(prop_oneof![
            3 => (0..50u64).prop_map(Op::Insert),
            2 => any::<usize>().prop_map(Op::Cancel),
            2 => (0..50u64).prop_map(Op::Pop),
        ], 1..200)) {
            let mut timers = TimerQueue::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut handles = Vec::new();
            for op in ops {
                match op {
                    Op::Insert(deadline) => {
                        let key = handles.len();
                        handles.push(timers.insert(deadline, key));
                        model.push((deadline, key));
                        model.sort_unstable();
                    }
                    Op::Cancel(which) if !handles.is_empty() => {
                        let key = which % handles.len();
                        let place = model.iter().position(|(_, k)| *k == key);
                        prop_assert_eq!(timers.cancel(handles[key]), place.map(|p| model.remove(p).1));
                    }
                    Op::Cancel(_) => {}
                    Op::Pop(now) => {
                        let due = model.first().is_some_and(|(d, _)| *d <= now);
                        prop_assert_eq!(timers.pop_expired(now), due.then(|| model.remove(0).1));
                    }
                }
                prop_assert_eq!(timers.next_deadline(), model.first().map(|(d, _)| *d));
                prop_assert!(model.iter().all(|(d, k)| timers.deadline(handles[*k]) == Some(*d)));
            }
        }
    }
}
