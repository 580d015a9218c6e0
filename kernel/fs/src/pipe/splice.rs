// SPDX-License-Identifier: Apache-2.0
//! What splice(2) needs of pipes: to look at bytes before it is known how many of them the other file takes, and to keep
//! room for bytes that are still to be read from it. So nothing that was taken from one file is ever without a place.

use coracle_core::PollEvents;

use super::PipeEnd;
use crate::{Errno, Result};

impl PipeEnd {
    /// Copies bytes from the front to `out` and lends them: nobody else reads until [`PipeEnd::give_back`]. 0 at the end,
    /// `EAGAIN` if nothing is there or it is lent to another.
    pub fn borrow(&self, out: &mut [u8]) -> Result<usize> {
        let mut state = self.pipe.state.lock();
        if state.ring.is_empty() || state.is_lent {
            return if state.writers == 0 && !state.is_lent {
                Ok(0)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        let (first, second) = state.ring.peek_range(0, out.len());
        out[..first.len()].copy_from_slice(first);
        out[first.len()..first.len() + second.len()].copy_from_slice(second);
        let count = first.len() + second.len();
        state.is_lent = true;
        Ok(count)
    }

    /// Ends what [`PipeEnd::borrow`] began: `taken` bytes went elsewhere.
    pub fn give_back(&self, taken: usize) {
        let mut state = self.pipe.state.lock();
        state.is_lent = false;
        state.ring.consume(taken);
        drop(state);
        self.pipe
            .source
            .notify(PollEvents::IN | PollEvents::RDNORM | PollEvents::OUT | PollEvents::WRNORM);
    }

    /// Keeps room for up to `most` bytes and returns how much. `EPIPE` if nobody reads, `EAGAIN` if there is none.
    pub fn reserve(&self, most: usize) -> Result<usize> {
        let mut state = self.pipe.state.lock();
        if state.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let room = state.room().min(most);
        if room == 0 {
            return Err(Errno::EAGAIN);
        }
        state.reserved += room;
        Ok(room)
    }

    /// Ends what [`PipeEnd::reserve`] began with `reserved` bytes of room: puts `bytes` there, which are not more.
    pub fn fill(&self, reserved: usize, bytes: &[u8]) {
        let mut state = self.pipe.state.lock();
        state.reserved -= reserved;
        let (first, second) = state.ring.spare(bytes.len());
        let split = first.len();
        first.copy_from_slice(&bytes[..split]);
        let rest = &bytes[split..];
        second[..rest.len()].copy_from_slice(rest);
        state.ring.commit(bytes.len());
        drop(state);
        self.pipe
            .source
            .notify(PollEvents::IN | PollEvents::RDNORM | PollEvents::OUT | PollEvents::WRNORM);
    }

    /// Whether this is an end to read from, and one to write to.
    #[must_use]
    pub fn directions(&self) -> (bool, bool) {
        (self.reads, self.writes)
    }
}
