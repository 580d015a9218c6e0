// SPDX-License-Identifier: Apache-2.0
//! The runnable threads of one CPU, served in turn.
//!
//! Round robin: a thread whose slice ended goes to the back, a woken one too. The front is for hand-over, where the
//! waker knows that the woken thread should be next (a futex holder releasing, a reply to a waiting client). An idle
//! CPU takes half of another's queue from the tail, the threads that would wait longest and whose cache is coldest.

use alloc::collections::VecDeque;
use alloc::collections::vec_deque::Drain;

/// Runnable things in the order they will run.
#[derive(Debug)]
pub struct RunQueue<T> {
    queue: VecDeque<T>,
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> RunQueue<T> {
    /// An empty queue; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// How many are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nobody is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds at the end.
    pub fn push_back(&mut self, item: T) {
        self.queue.push_back(item);
    }

    /// Adds so that it runs next.
    pub fn push_front(&mut self, item: T) {
        self.queue.push_front(item);
    }

    /// Takes the one whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// Takes the later half, rounded up, out of the queue, in the order they would have run.
    pub fn steal_half(&mut self) -> Drain<'_, T> {
        self.queue.drain(self.queue.len() / 2..)
    }

    /// Takes the first one from the tail that `wanted` accepts, for a thief that respects affinity.
    pub fn steal_one(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<T> {
        let at = self.queue.iter().rposition(&mut wanted)?;
        self.queue.remove(at)
    }

    /// Takes a particular one out, wherever it stands.
    pub fn remove(&mut self, item: &T) -> Option<T>
    where
        T: PartialEq,
    {
        let at = self.queue.iter().position(|other| other == item)?;
        self.queue.remove(at)
    }

    /// All that wait, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.queue.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::RunQueue;

    fn queue(items: &[u32]) -> RunQueue<u32> {
        let mut queue = RunQueue::new();
        items.iter().for_each(|i| queue.push_back(*i));
        queue
    }

    #[test]
    fn everyone_gets_a_turn() {
        let mut queue = queue(&[1, 2, 3]);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let next = queue.pop().unwrap();
            turns.push(next);
            queue.push_back(next);
        }
        assert_eq!(turns, [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn hand_over_runs_next() {
        let mut queue = queue(&[1, 2]);
        queue.push_front(9);
        assert_eq!(queue.pop(), Some(9));
        assert_eq!(queue.remove(&2), Some(2));
        assert_eq!(queue.remove(&2), None);
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn half_is_stolen_from_the_tail() {
        for (len, stolen) in [(0, 0), (1, 1), (2, 1), (5, 3)] {
            let items: Vec<u32> = (0..len).collect();
            let mut victim = queue(&items);
            let got: Vec<_> = victim.steal_half().collect();
            assert_eq!(got, items[items.len() - stolen..]);
            assert_eq!(
                victim.iter().copied().collect::<Vec<_>>(),
                items[..items.len() - stolen]
            );
        }
    }

    #[test]
    fn a_thief_may_choose() {
        let mut victim = queue(&[1, 2, 3, 4, 5]);
        assert_eq!(victim.steal_one(|i| i % 2 == 0), Some(4));
        assert_eq!(victim.steal_one(|i| *i > 8), None);
        assert_eq!(victim.len(), 4);
    }
}
