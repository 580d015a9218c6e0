// SPDX-License-Identifier: Apache-2.0
//! The control queues of a device with several ports (virtio 1.2, 5.3.6.2): which ports there are, and what for.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use coracle_abi::convert::usize_from_u32;

use crate::ring::{Span, Virtqueue};
use crate::transport::Transport;

/// Bytes of a received message: 8 and a name.
const MESSAGE_BYTES: usize = 128;

/// Messages to receive at a time.
pub(super) const BUFFERS: u16 = 16;

/// `struct virtio_console_control`: port, event, value.
const HEADER_BYTES: usize = 8;

const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_REMOVE: u16 = 2;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

/// What the device says about a port.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Added,
    Removed,
    /// The port is a console.
    Console,
    /// The host opened (or closed) its end.
    Open(bool),
    Name(String),
}

/// Reads a message: the port's number and what is said about it. `None` for what is too short or not of use.
pub(super) fn parse(message: &[u8]) -> Option<(u32, Event)> {
    let (header, rest) = message.split_first_chunk::<HEADER_BYTES>()?;
    let [a, b, c, d, e, f, g, h] = *header;
    let port = u32::from_le_bytes([a, b, c, d]);
    let value = u16::from_le_bytes([g, h]);
    let event = match u16::from_le_bytes([e, f]) {
        PORT_ADD => Event::Added,
        PORT_REMOVE => Event::Removed,
        CONSOLE_PORT if value != 0 => Event::Console,
        PORT_OPEN => Event::Open(value != 0),
        PORT_NAME => {
            // QEMU ends the name with a zero byte, the specification does not.
            let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            Event::Name(String::from_utf8_lossy(name).into_owned())
        }
        _ => return None,
    };
    Some((port, event))
}

/// The control queues.
pub(super) struct Control {
    receive: Virtqueue<Box<[u8; MESSAGE_BYTES]>>,
    transmit: Virtqueue<Box<[u8; HEADER_BYTES]>>,
}

impl Control {
    /// Posts the buffers for messages.
    pub(super) fn new(
        receive: Virtqueue<Box<[u8; MESSAGE_BYTES]>>,
        transmit: Virtqueue<Box<[u8; HEADER_BYTES]>>,
    ) -> Self {
        let mut this = Self { receive, transmit };
        for _ in 0..BUFFERS.min(this.receive.size()) {
            this.post(Box::new([0; MESSAGE_BYTES]));
        }
        this
    }

    /// Tells the device that its ports may be announced.
    pub(super) fn announce_driver(&mut self, transport: &dyn Transport) {
        self.send(0, DEVICE_READY, 1);
        self.notify(transport);
    }

    /// Accepts a port, and opens our end of it; or turns it down.
    pub(super) fn answer(&mut self, port: u32, accept: bool) {
        self.send(port, PORT_READY, u16::from(accept));
        if accept {
            self.send(port, PORT_OPEN, 1);
        }
    }

    /// Takes the messages that have arrived, and asks for an interrupt for the next.
    pub(super) fn take(&mut self) -> Vec<(u32, Event)> {
        let mut messages = Vec::new();
        loop {
            // As many as there are buffers: a device that never stops does not keep us here.
            for _ in 0..BUFFERS {
                let Some((buffer, len)) = self.receive.pop_used() else {
                    break;
                };
                match parse(&buffer[..usize_from_u32(len)]) {
                    Some(message) => messages.push(message),
                    None => log::debug!("{}: a control message is of no use", super::NAME),
                }
                self.post(buffer);
            }
            if messages.len() >= usize::from(BUFFERS) || !self.receive.enable_interrupts() {
                return messages;
            }
        }
    }

    /// Tells the device about answers and fresh buffers, if it needs to be told.
    pub(super) fn notify(&mut self, transport: &dyn Transport) {
        if self.receive.should_notify() {
            transport.notify(self.receive.index());
        }
        if self.transmit.should_notify() {
            transport.notify(self.transmit.index());
        }
    }

    fn send(&mut self, port: u32, event: u16, value: u16) {
        while self.transmit.pop_used().is_some() {}
        let [a, b, c, d] = port.to_le_bytes();
        let [e, f] = event.to_le_bytes();
        let [g, h] = value.to_le_bytes();
        let message = Box::new([a, b, c, d, e, f, g, h]);
        let span = Span::readable(&message[..]);
        if self.transmit.add(&[span], message).is_err() {
            log::error!(
                "{}: the device does not read its control queue",
                super::NAME
            );
        }
    }

    fn post(&mut self, mut buffer: Box<[u8; MESSAGE_BYTES]>) {
        let span = Span::writable(&mut buffer[..]);
        // There is always room for the few buffers; a broken queue refuses, and the buffer is freed.
        let _ = self.receive.add(&[span], buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_bytes_are_read() {
        assert_eq!(parse(&[1, 0, 0, 0, 1, 0, 0, 0]), Some((1, Event::Added)));
        assert_eq!(
            parse(b"\x02\0\0\0\x07\0\x01\0abc\0x"),
            Some((2, Event::Name("abc".into())))
        );
        assert_eq!(
            parse(b"\x02\0\0\0\x07\0\x01\0\xff"),
            Some((2, Event::Name("\u{fffd}".into())))
        );
        assert_eq!(
            parse(b"\x02\0\0\0\x06\0\0\0"),
            Some((2, Event::Open(false)))
        );
        assert_eq!(parse(b"\x02\0\0\0\x06\0\0"), None);
        assert_eq!(parse(b"\x02\0\0\0\x99\0\0\0"), None);
    }
}
