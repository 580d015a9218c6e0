// SPDX-License-Identifier: Apache-2.0
//! One port of the device: a stream of bytes each way.

use alloc::boxed::Box;
use alloc::sync::Arc;

use coracle_arch::cpu;
use coracle_core::device::CharDevice;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::time;
use coracle_core::{Errno, PollEvents, Result};

use super::input::Input;
use super::output::Output;
use crate::ring::Virtqueue;
use crate::transport::Transport;

/// A port. Output that the host cannot take yet waits; once 16 KiB wait, writing gives `EAGAIN`.
pub struct Port {
    transport: Arc<dyn Transport>,
    state: SpinLock<State>,
    source: PollSource,
}

struct State {
    input: Input,
    output: Output,
    host: Host,
}

/// Whether somebody holds the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    /// Not yet: output waits for them.
    Awaited,
    Connected,
    /// Not any more: reading ends, output waits for the next one.
    Gone,
}

impl Port {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        input: Virtqueue<Box<[u8]>>,
        output: Virtqueue<()>,
    ) -> Self {
        Self {
            transport,
            state: SpinLock::new(State {
                input: Input::new(input),
                output: Output::new(output),
                host: Host::Awaited,
            }),
            source: PollSource::new(),
        }
    }

    /// Writes in a crash, when another CPU, or this one, may have stopped while it held the port: gives up after
    /// `timeout_ns`. Returns how much was taken; [`super::VirtioConsole::drain`] sends it.
    pub fn write_in_crash(&self, mut bytes: &[u8], timeout_ns: u64) -> usize {
        let deadline_ns = time::now().saturating_add(timeout_ns);
        let mut done = 0;
        while !bytes.is_empty() && time::now() <= deadline_ns {
            if let Some(mut state) = self.state.try_lock() {
                let taken = state.output.push(bytes);
                self.pump_output(&mut state);
                done += taken;
                bytes = &bytes[taken..];
            }
            cpu::relax();
        }
        done
    }

    /// Writes all of `bytes`, or nothing if that does not leave `reserve` bytes of room for others. Returns whether it
    /// was written.
    pub fn write_whole(&self, bytes: &[u8], reserve: usize) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return false;
        };
        self.pump_output(&mut state);
        if state.host != Host::Connected || state.output.room() < bytes.len() + reserve {
            return false;
        }
        state.output.push(bytes);
        self.pump_output(&mut state);
        true
    }

    /// Provides the port's memory: the device has said that the port exists.
    pub(super) fn activate(&self) {
        let mut state = self.state.lock();
        state.output.activate();
        if state.input.activate() {
            self.transport.notify(state.input.queue_index());
        }
        state.input.pump();
    }

    /// The host opened or closed its end.
    pub(super) fn set_host_open(&self, open: bool) {
        let mut state = self.state.lock();
        state.host = match (open, state.host) {
            (true, _) => Host::Connected,
            (false, Host::Awaited) => Host::Awaited,
            (false, _) => Host::Gone,
        };
    }

    /// Moves bytes both ways and tells those who wait.
    pub(super) fn service(&self) {
        let mut state = self.state.lock();
        let mut events = PollEvents::empty();
        if state.input.pump() {
            events |= PollEvents::IN;
        }
        if state.host == Host::Gone {
            events |= PollEvents::IN | PollEvents::HUP;
        }
        self.pump_output(&mut state);
        if state.output.take_room() {
            events |= PollEvents::OUT;
        }
        drop(state);
        if !events.is_empty() {
            self.source.notify(events);
        }
    }

    /// Sends what waits, if somebody is there and nobody else uses the port right now. Returns whether output waits that
    /// somebody could still take.
    pub(super) fn has_output(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return true;
        };
        self.pump_output(&mut state);
        !state.output.is_empty() && !state.output.is_broken() && state.host == Host::Connected
    }

    #[cfg(test)]
    pub(super) fn hold(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    fn pump_output(&self, state: &mut State) {
        let may_send = state.host == Host::Connected;
        if state.output.pump(may_send) {
            self.transport.notify(state.output.queue_index());
        }
    }
}

impl CharDevice for Port {
    /// Errors: `EAGAIN`; `EIO` when the device is broken.
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut state = self.state.lock();
        let mut taken = state.output.push(bytes);
        self.pump_output(&mut state);
        if taken < bytes.len() && state.output.has_room() {
            // The device is done with earlier output meanwhile.
            taken += state.output.push(&bytes[taken..]);
            self.pump_output(&mut state);
        }
        match taken {
            0 if state.output.is_broken() => Err(Errno::EIO),
            0 => Err(Errno::EAGAIN),
            _ => Ok(taken),
        }
    }

    fn read(&self, out: &mut [u8]) -> Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let mut state = self.state.lock();
        state.input.pump();
        let (len, notify) = state.input.read(out);
        if notify {
            self.transport.notify(state.input.queue_index());
        }
        match len {
            0 if state.host != Host::Gone => Err(Errno::EAGAIN),
            len => Ok(len),
        }
    }

    fn poll(&self) -> PollEvents {
        let mut state = self.state.lock();
        state.input.pump();
        self.pump_output(&mut state);
        let mut events = PollEvents::empty();
        if state.input.is_readable() {
            events |= PollEvents::IN;
        }
        if state.host == Host::Gone {
            events |= PollEvents::IN | PollEvents::HUP;
        }
        if state.output.is_broken() {
            events |= PollEvents::ERR;
        }
        if state.output.has_room() {
            events |= PollEvents::OUT;
        }
        events
    }

    fn poll_source(&self) -> &PollSource {
        &self.source
    }
}
