// SPDX-License-Identifier: Apache-2.0
//! One direction of a Unix connection, or the inbox of a datagram socket: messages with what is attached to them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::PacketBuf;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, Result};

use crate::socket::{Credentials, UnixAddress};

/// Bytes of one piece of a stream: a size class of the packet pool.
const PIECE: usize = 4096;
/// What a message costs besides its payload.
const OVERHEAD: usize = 256;
/// Bytes queued at most (`net.core.wmem_default` of Linux).
pub(super) const LIMIT: usize = 212_992;

/// What travels with bytes.
#[derive(Clone, Default)]
pub(super) struct Attachment {
    pub(super) rights: Vec<Arc<OpenFile>>,
    pub(super) credentials: Option<Credentials>,
    pub(super) source: Option<UnixAddress>,
}

struct Message {
    data: PacketBuf,
    attachment: Attachment,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Message>,
    /// Bytes queued, with their overhead.
    held: usize,
    /// The writer's limit of `held`.
    limit: usize,
    /// The writer has ended, or the reader wants no more.
    ended: bool,
}

/// A bounded queue of messages. Its lock is a leaf.
pub(super) struct Channel {
    state: SpinLock<State>,
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            state: SpinLock::new(State {
                limit: LIMIT,
                ..State::default()
            }),
        }
    }
}

/// What a read got.
pub(super) struct Taken {
    pub(super) copied: usize,
    /// Length of the message; for a stream the same as `copied`.
    pub(super) len: usize,
    /// The writer, who had no room, has room now.
    pub(super) made_room: bool,
    pub(super) attachment: Attachment,
}

impl State {
    /// Whether a writer is told that there is room (`unix_writable` of Linux).
    fn has_room(&self) -> bool {
        self.ended || self.held * 4 <= self.limit
    }
}

impl Channel {
    /// Appends bytes of a stream; returns how many there was room for. `EAGAIN` for none, `EPIPE` after the end.
    pub(super) fn write_stream(
        &self,
        src: &mut IoSrc<'_>,
        attachment: Attachment,
        limit: usize,
    ) -> Result<usize> {
        let mut state = self.state.lock();
        state.limit = limit;
        if state.ended {
            return Err(Errno::EPIPE);
        }
        let mut attachment = Some(attachment);
        let mut done = 0;
        while src.remaining() > 0 && state.held < limit {
            let fresh = attachment
                .as_ref()
                .is_some_and(|a| !a.rights.is_empty() || a.credentials.is_some());
            let want = src.remaining().min(limit - state.held);
            let fits = |m: &Message| m.data.tailroom() > 0;
            if fresh || !state.queue.back().is_some_and(fits) {
                let size = if want > PIECE / 2 { PIECE } else { PIECE / 2 };
                state.queue.push_back(Message {
                    data: PacketBuf::new(0, size),
                    attachment: attachment.take().unwrap_or_default(),
                });
                state.held += OVERHEAD;
            }
            let Some(last) = state.queue.back_mut() else {
                break;
            };
            let before = last.data.len();
            let step = want.min(last.data.tailroom());
            let result = src.read(last.data.append(step));
            let copied = *result.as_ref().unwrap_or(&0);
            last.data.truncate(before + copied);
            if before + copied == 0 {
                let back = state.queue.pop_back();
                state.held -= OVERHEAD;
                attachment = back.map(|m| m.attachment);
            }
            state.held += copied;
            done += copied;
            if copied < step {
                if done == 0 {
                    return result;
                }
                break;
            }
        }
        if done == 0 && src.remaining() > 0 {
            return Err(Errno::EAGAIN);
        }
        Ok(done)
    }

    /// Appends one whole message. `EMSGSIZE` if it can never fit, `EAGAIN` if it does not fit now.
    pub(super) fn write_message(
        &self,
        src: &mut IoSrc<'_>,
        attachment: Attachment,
        limit: usize,
    ) -> Result<usize> {
        let len = src.remaining();
        if len + OVERHEAD > limit {
            return Err(Errno::EMSGSIZE);
        }
        let start = src.done();
        let mut data = PacketBuf::new(0, len);
        if src.read(data.append(len)) != Ok(len) {
            src.rewind(start);
            return Err(Errno::EFAULT);
        }
        let mut state = self.state.lock();
        state.limit = limit;
        if state.ended {
            return Err(Errno::EPIPE);
        }
        if state.held + len + OVERHEAD > limit {
            src.rewind(start);
            return Err(Errno::EAGAIN);
        }
        state.held += len + OVERHEAD;
        state.queue.push_back(Message { data, attachment });
        Ok(len)
    }

    /// Takes bytes of a stream, not beyond a place where something is attached. `EAGAIN` for none, 0 at the end.
    pub(super) fn read_stream(&self, dst: &mut IoDst<'_>, peek: bool) -> Result<Taken> {
        let mut state = self.state.lock();
        let mut taken = Taken {
            copied: 0,
            len: 0,
            made_room: false,
            attachment: Attachment::default(),
        };
        if state.queue.is_empty() && !state.ended && dst.remaining() > 0 {
            return Err(Errno::EAGAIN);
        }
        let had_room = state.has_room();
        let mut at = 0;
        let mut freed = Vec::new();
        while dst.remaining() > 0 {
            let Some(message) = state.queue.get_mut(at) else {
                break;
            };
            let attached =
                !message.attachment.rights.is_empty() || message.attachment.credentials.is_some();
            if attached && taken.copied > 0 {
                break;
            }
            let want = message.data.len().min(dst.remaining());
            let copied = match dst.write(message.data.data()) {
                Ok(copied) => copied,
                Err(_) if taken.copied > 0 => break,
                Err(error) => return Err(error),
            };
            taken.copied += copied;
            if peek {
                taken.attachment = message.attachment.clone();
                at += 1;
            } else {
                if attached {
                    taken.attachment = core::mem::take(&mut message.attachment);
                }
                let whole = copied == message.data.len();
                message.data.trim_front(copied);
                state.held -= copied;
                if whole {
                    state.held -= OVERHEAD;
                    freed.extend(state.queue.pop_front());
                }
            }
            if attached || copied < want {
                break;
            }
        }
        taken.made_room = !had_room && state.has_room();
        drop(state);
        drop(freed);
        taken.len = taken.copied;
        Ok(taken)
    }

    /// Takes one whole message. `EAGAIN` for none; an empty one at the end.
    pub(super) fn read_message(&self, dst: &mut IoDst<'_>, peek: bool) -> Result<Taken> {
        let mut state = self.state.lock();
        let Some(first) = state.queue.front() else {
            if !state.ended {
                return Err(Errno::EAGAIN);
            }
            return Ok(Taken {
                copied: 0,
                len: 0,
                made_room: false,
                attachment: Attachment::default(),
            });
        };
        let len = first.data.len();
        let copied = dst.write(first.data.data())?;
        if dst.faulted().is_some() {
            return Err(Errno::EFAULT); // the message stays
        }
        let mut made_room = false;
        let attachment = if peek {
            first.attachment.clone()
        } else {
            let had_room = state.has_room();
            state.held -= len + OVERHEAD;
            made_room = !had_room && state.has_room();
            let message = state.queue.pop_front();
            drop(state);
            message.map(|m| m.attachment).unwrap_or_default()
        };
        Ok(Taken {
            copied,
            len,
            made_room,
            attachment,
        })
    }

    /// Nothing more goes in.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
    }

    /// Nothing more goes in, and what is there is thrown away. Returns whether there was something.
    pub(super) fn abandon(&self) -> bool {
        let mut state = self.state.lock();
        state.ended = true;
        state.held = 0;
        let queue = core::mem::take(&mut state.queue);
        drop(state);
        !queue.is_empty() // dropped here: files may be closed, which takes other locks
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state.lock().ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().queue.is_empty()
    }

    /// Whether a writer is told that there is room.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().has_room()
    }

    /// Bytes waiting; with `first`, of the first message only (`FIONREAD`).
    pub(super) fn readable_bytes(&self, first: bool) -> usize {
        let state = self.state.lock();
        let most = if first { 1 } else { usize::MAX };
        state.queue.iter().take(most).map(|m| m.data.len()).sum()
    }
}
