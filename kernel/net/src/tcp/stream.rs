// SPDX-License-Identifier: Apache-2.0
//! Bytes in and out of a connection, and its end, as the application asks for them.

use coracle_core::io::{IoDst, IoSrc};
use coracle_core::{Errno, PollEvents, Result};

use super::TcpSocket;
use super::buffers::affordable;
use super::socket::Role;
use super::tcb::{Context, State, Tcb};
use crate::socket::{PagePart, Shutdown};
use crate::stack::NetStack;

/// An answer within this time makes an exchange a conversation, which needs no quick acknowledgements.
const CONVERSATION_NS: u64 = 40_000_000;

impl TcpSocket {
    /// Queues bytes to be sent. `EAGAIN` if there is no room or the connection is not complete; `EPIPE` if this side
    /// was closed. With `more`, the last segment waits for what follows (`MSG_MORE`).
    pub(crate) fn send(
        &self,
        stack: &NetStack,
        src: &mut IoSrc<'_>,
        more: bool,
        now: u64,
    ) -> Result<usize> {
        self.enqueue(stack, more, now, |tcb, room| {
            let count = tcb.send.push(src, room)?;
            Ok((count, src.remaining() > 0))
        })
    }

    /// Queues parts of pages without copying them; otherwise as `send`. Returns how many bytes there was room for.
    pub(crate) fn send_pages(
        &self,
        stack: &NetStack,
        parts: &[PagePart],
        more: bool,
        now: u64,
    ) -> Result<usize> {
        let len: usize = parts.iter().map(|part| part.len).sum();
        self.enqueue(stack, more, now, |tcb, room| {
            let count = len.min(room);
            let mut left = count;
            for part in parts {
                let step = part.len.min(left);
                tcb.send.push_page(part.page.clone(), part.offset, step);
                left -= step;
            }
            Ok((count, count < len))
        })
    }

    fn enqueue(
        &self,
        stack: &NetStack,
        more: bool,
        now: u64,
        push: impl FnOnce(&mut Tcb, usize) -> Result<(usize, bool)>,
    ) -> Result<usize> {
        self.with_tcb(stack, now, |tcb, cx| {
            if let Some(error) = tcb.error.take() {
                return Err(error);
            }
            match tcb.state {
                State::SynSent | State::SynReceived => {
                    tcb.wants_room = true;
                    return Err(Errno::EAGAIN);
                }
                _ if !tcb.can_send() => return Err(Errno::EPIPE),
                _ => {}
            }
            let queued = tcb.send.len();
            let left = stack.tcp.memory_left(&stack.config);
            let room = tcb
                .send_limit(cx.options)
                .saturating_sub(queued)
                .min(affordable(queued, left));
            if room == 0 {
                tcb.wants_room = true;
                return Err(Errno::EAGAIN);
            }
            let (count, left) = push(tcb, room)?;
            if left {
                tcb.wants_room = true;
            }
            tcb.more_promised = more && !left;
            if now < tcb.last_received + CONVERSATION_NS {
                tcb.quick_acks = 0;
            }
            tcb.output(cx);
            tcb.settle_memory(stack);
            Ok(count)
        })
        .unwrap_or(Err(Errno::EPIPE))
    }

    /// Takes received bytes. `EAGAIN` if there are none yet, 0 at the end.
    pub(crate) fn receive(
        &self,
        stack: &NetStack,
        dst: &mut IoDst<'_>,
        peek: bool,
        discard: bool,
        now: u64,
    ) -> Result<usize> {
        self.with_tcb(stack, now, |tcb, cx| {
            if tcb.receive.len() == 0 {
                return tcb.nothing_to_read(dst.remaining() == 0);
            }
            let count = if discard {
                tcb.receive.discard(dst.remaining())
            } else {
                tcb.receive.read(dst, peek)?
            };
            if !peek && tcb.is_synchronized() && !tcb.fin_received {
                tcb.note_read(cx, count);
                if tcb.window_update_due(cx) {
                    tcb.send_ack(cx);
                }
            }
            tcb.settle_memory(stack);
            Ok(count)
        })
        .unwrap_or(Err(Errno::ENOTCONN))
    }

    /// `shutdown(2)`.
    pub(crate) fn shutdown(&self, stack: &NetStack, how: Shutdown, now: u64) -> Result<()> {
        let mut inner = self.inner.lock();
        if let Role::Listening(_) = inner.role {
            if !how.read {
                return Ok(());
            }
            let role = core::mem::replace(&mut inner.role, Role::Idle);
            let port = inner.bound_port;
            drop(inner);
            if let (Some(me), Some(port)) = (self.me.upgrade(), port) {
                stack.tcp.ports.update(&me, port, |b| b.listening = false);
            }
            if let Role::Listening(queues) = role {
                stack.close_listener(queues, now);
            }
            self.notify(PollEvents::IN | PollEvents::HUP);
            return Ok(());
        }
        drop(inner);
        let events = self.with_tcb(stack, now, |tcb, cx| {
            if matches!(tcb.state, State::SynSent | State::Closed) {
                return Err(Errno::ENOTCONN);
            }
            let mut events = PollEvents::empty();
            if how.read {
                tcb.receive_shutdown = true;
                events |= PollEvents::IN | PollEvents::RDNORM | PollEvents::RDHUP;
            }
            if how.write && !tcb.fin_queued {
                tcb.close_sending(cx);
                events |= PollEvents::OUT | PollEvents::WRNORM;
            }
            if tcb.fin_queued && (tcb.receive_shutdown || tcb.fin_received) {
                events |= PollEvents::HUP;
            }
            Ok(events)
        });
        self.notify(events.unwrap_or(Err(Errno::ENOTCONN))?);
        Ok(())
    }

    /// The last descriptor was closed.
    pub(crate) fn close(&self, stack: &NetStack, now: u64) {
        let mut inner = self.inner.lock();
        let port = inner.bound_port.take();
        let listening = matches!(inner.role, Role::Listening(_));
        let queues = listening.then(|| core::mem::replace(&mut inner.role, Role::Idle));
        drop(inner);
        if let (Some(me), Some(port)) = (self.me.upgrade(), port) {
            stack.tcp.ports.unbind(&me, port);
        }
        if let Some(Role::Listening(queues)) = queues {
            stack.close_listener(queues, now);
        }
        self.with_tcb(stack, now, |tcb, cx| {
            tcb.close(cx);
            tcb.settle_memory(stack);
        });
    }

    /// Ends the connection with a reset.
    pub(super) fn abort(&self, stack: &NetStack, now: u64) {
        let events = self.with_tcb(stack, now, |tcb, cx| {
            let events = tcb.abort(cx);
            tcb.settle_memory(stack);
            events
        });
        self.notify(events.unwrap_or(PollEvents::empty()));
    }
}

impl Tcb {
    /// What a read finds when no bytes are ready.
    fn nothing_to_read(&mut self, wants_nothing: bool) -> Result<usize> {
        if wants_nothing || self.fin_received {
            return Ok(0);
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.state {
            State::Closed if !self.established => Err(Errno::ENOTCONN),
            _ if self.at_end() => Ok(0),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// The application sends nothing more.
    fn close_sending(&mut self, cx: &Context<'_>) {
        if !self.fin_queued {
            self.fin_queued = true;
            self.more_promised = false;
            if self.is_synchronized() {
                self.output(cx);
            }
        }
    }

    fn abort(&mut self, cx: &Context<'_>) -> PollEvents {
        self.receive.clear();
        if self.state == State::Closed {
            return PollEvents::empty();
        }
        if self.is_synchronized() {
            self.send_reset(cx);
        }
        self.finish(cx)
    }

    /// Nobody refers to the connection any more.
    fn close(&mut self, cx: &Context<'_>) {
        let unread = self.receive.len() > 0;
        self.receive.clear();
        if self.state == State::Closed {
            return;
        }
        let hard = cx.options.linger_s == Some(0);
        if !self.is_synchronized() || unread || hard {
            // Unread data means the peer's bytes were lost: it must not take our FIN for success (RFC 2525, 2.17).
            self.abort(cx);
            return;
        }
        self.orphan = true;
        self.receive_shutdown = true;
        self.close_sending(cx);
        if self.state == State::FinWait2 {
            let timeout = u64::from(cx.options.fin_timeout_s) * 1_000_000_000;
            self.give_up_at = cx.now + timeout;
        }
        self.schedule(cx);
    }
}
