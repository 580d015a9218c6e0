// SPDX-License-Identifier: Apache-2.0
//! `AF_NETLINK`, as far as programs need it to list interfaces, addresses and routes (`netlink(7)`, `rtnetlink(7)`):
//! `getifaddrs` of glibc and musl, `net.Interfaces` of Go. Changes are refused.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use coracle_abi::convert::{low_u32, u64_from};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use crate::address::{Address, Prefix};
use crate::link::Interface;
use crate::socket::flags_of;
use crate::stack::NetStack;
use crate::wire::len16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;

const HEADER: usize = 16;
/// Messages are packed into datagrams of at most this size, as Linux does.
const DATAGRAM: usize = 4096;
/// Longest request looked at.
const REQUEST: usize = 4096;
/// Datagrams that wait.
const WAITING: usize = 64;

/// Port numbers of sockets that do not choose one; Linux begins with the process number.
static NEXT_PORT: AtomicU32 = AtomicU32::new(1);

struct Inner {
    port: u32,
    queue: VecDeque<Vec<u8>>,
}

/// A netlink socket of the family `NETLINK_ROUTE`.
pub(crate) struct NetlinkSocket {
    pub(crate) poll: PollSource,
    inner: SpinLock<Inner>,
}

/// One message under construction.
struct Message<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Message<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: u16, flags: u16, request: &Request) -> Self {
        let start = out.len();
        out.extend(0u32.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(flags.to_ne_bytes());
        out.extend(request.seq.to_ne_bytes());
        out.extend(request.port.to_ne_bytes());
        Self { out, start }
    }

    fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.out.extend(len16(4 + data.len()).to_ne_bytes());
        self.out.extend(kind.to_ne_bytes());
        self.out.extend(data);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }

    fn address(&mut self, kind: u16, address: Address) {
        match address.v4() {
            Some(v4) => self.attribute(kind, &v4.octets()),
            None => self.attribute(kind, &address.v6().octets()),
        }
    }

    fn end(self) {
        let len = low_u32(u64_from(self.out.len() - self.start));
        self.out[self.start..self.start + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

struct Request {
    kind: u16,
    flags: u16,
    seq: u32,
    /// Port of the socket that asks.
    port: u32,
    /// Address family asked for; 0 for all.
    family: u8,
    header: [u8; HEADER],
}

impl Request {
    /// `None` for what is too short to be a message.
    fn parse(bytes: &[u8], port: u32) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let len = u32::from_ne_bytes([h[0], h[1], h[2], h[3]]);
        let len = usize::try_from(len).ok()?;
        if len < HEADER || len > bytes.len() {
            return None;
        }
        Some(Self {
            kind: u16::from_ne_bytes([h[4], h[5]]),
            flags: u16::from_ne_bytes([h[6], h[7]]),
            seq: u32::from_ne_bytes([h[8], h[9], h[10], h[11]]),
            port,
            family: bytes[HEADER..len].first().copied().unwrap_or(0),
            header: *h,
        })
    }

    fn wants(&self, address: Address) -> bool {
        self.family == 0 || self.family == family_of(address)
    }
}

fn family_of(address: Address) -> u8 {
    if address.is_v4() { 2 } else { 10 }
}

/// Linux's interface index.
fn index_of(interface: usize) -> u32 {
    low_u32(u64_from(interface + 1))
}

/// `RT_SCOPE_*`.
fn scope_of(address: Address) -> u8 {
    if address.is_loopback() {
        254
    } else if address.is_v6_link_local() {
        253
    } else {
        0
    }
}

impl NetlinkSocket {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            poll: PollSource::new(),
            inner: SpinLock::new(Inner {
                port: 0,
                queue: VecDeque::new(),
            }),
        })
    }

    /// `bind(2)`: port 0 asks for any.
    pub(crate) fn bind(&self, port: u32) {
        let mut inner = self.inner.lock();
        inner.port = if port == 0 {
            NEXT_PORT.fetch_add(1, Ordering::Relaxed)
        } else {
            port
        };
    }

    pub(crate) fn port(&self) -> u32 {
        self.inner.lock().port
    }

    /// Takes a request and queues the answer.
    #[cold]
    pub(crate) fn send(&self, stack: &NetStack, src: &mut IoSrc<'_>) -> Result<usize> {
        let len = src.remaining();
        if len > REQUEST {
            return Err(Errno::EMSGSIZE);
        }
        let start = src.done();
        let mut bytes = alloc::vec![0; len];
        if src.read(&mut bytes) != Ok(len) {
            src.rewind(start);
            return Err(Errno::EFAULT);
        }
        if self.port() == 0 {
            self.bind(0);
        }
        let Some(request) = Request::parse(&bytes, self.port()) else {
            return Ok(len); // Linux ignores it too
        };
        let mut answer = Vec::new();
        if request.flags & NLM_F_REQUEST != 0 {
            answer_request(stack, &request, &mut answer);
        }
        if !answer.is_empty() {
            let mut inner = self.inner.lock();
            if inner.queue.len() + answer.len() > WAITING {
                return Err(Errno::ENOBUFS);
            }
            inner.queue.extend(answer);
            drop(inner);
            self.poll.notify(PollEvents::IN | PollEvents::RDNORM);
        }
        Ok(len)
    }

    /// Takes a datagram: bytes copied and its length.
    pub(crate) fn receive(&self, dst: &mut IoDst<'_>, peek: bool) -> Result<(usize, usize)> {
        let mut inner = self.inner.lock();
        let first = inner.queue.front().ok_or(Errno::EAGAIN)?;
        let len = first.len();
        let copied = dst.write(first)?;
        if dst.faulted().is_some() {
            return Err(Errno::EFAULT);
        }
        if !peek {
            inner.queue.pop_front();
        }
        Ok((copied, len))
    }

    pub(crate) fn poll(&self) -> PollEvents {
        let write = PollEvents::OUT | PollEvents::WRNORM;
        if self.inner.lock().queue.is_empty() {
            write
        } else {
            write | PollEvents::IN | PollEvents::RDNORM
        }
    }

    pub(crate) fn readable_bytes(&self) -> usize {
        self.inner.lock().queue.front().map_or(0, Vec::len)
    }
}

/// Messages packed into datagrams.
#[derive(Default)]
struct Dump {
    datagrams: Vec<Vec<u8>>,
    current: Vec<u8>,
}

impl Dump {
    fn add(&mut self, message: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        message(&mut bytes);
        if self.current.len() + bytes.len() > DATAGRAM {
            self.datagrams.push(core::mem::take(&mut self.current));
        }
        self.current.append(&mut bytes);
    }

    fn finish(mut self, request: &Request) -> Vec<Vec<u8>> {
        self.add(|out| {
            let message = Message::begin(out, NLMSG_DONE, NLM_F_MULTI, request);
            message.out.extend(0u32.to_ne_bytes());
            message.end();
        });
        self.datagrams.push(self.current);
        self.datagrams
    }
}

fn answer_request(stack: &NetStack, request: &Request, answer: &mut Vec<Vec<u8>>) {
    let is_dump = request.flags & NLM_F_DUMP == NLM_F_DUMP;
    let mut dump = Dump::default();
    match request.kind {
        RTM_GETLINK if is_dump => {
            for interface in stack.interfaces() {
                dump.add(|out| put_link(out, interface, request));
            }
        }
        RTM_GETADDR if is_dump => {
            for interface in stack.interfaces() {
                let addresses = interface.addresses.lock().clone();
                for prefix in addresses.into_iter().filter(|p| request.wants(p.address)) {
                    dump.add(|out| put_address(out, interface, prefix, request));
                }
            }
        }
        RTM_GETROUTE if is_dump => {
            for route in stack.routes() {
                if request.wants(route.destination.address) {
                    dump.add(|out| put_route(out, &route, request));
                }
            }
        }
        _ => {
            let known = matches!(request.kind, RTM_GETLINK | RTM_GETADDR | RTM_GETROUTE);
            let error = if known {
                Errno::EOPNOTSUPP
            } else {
                Errno::EPERM
            };
            answer.push(error_message(request, -error.number()));
            return;
        }
    }
    *answer = dump.finish(request);
    if request.flags & NLM_F_ACK != 0 {
        answer.push(error_message(request, 0));
    }
}

fn error_message(request: &Request, number: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let message = Message::begin(&mut out, NLMSG_ERROR, 0, request);
    message.out.extend(number.to_ne_bytes());
    message.out.extend(request.header);
    message.end();
    out
}

fn put_link(out: &mut Vec<u8>, interface: &Interface, request: &Request) {
    const IFF_LOWER_UP: u32 = 0x1_0000;
    let mut message = Message::begin(out, RTM_NEWLINK, NLM_F_MULTI, request);
    let hardware: u16 = if interface.is_loopback() { 772 } else { 1 };
    message.out.extend([0, 0]);
    message.out.extend(hardware.to_ne_bytes());
    message.out.extend(index_of(interface.index).to_ne_bytes());
    message
        .out
        .extend((flags_of(interface) | IFF_LOWER_UP).to_ne_bytes());
    message.out.extend(0u32.to_ne_bytes());
    let mut name = interface.name.as_bytes().to_vec();
    name.push(0);
    let broadcast = if interface.is_loopback() {
        [0; 6]
    } else {
        [0xff; 6]
    };
    message.attribute(3, &name);
    message.attribute(13, &1000u32.to_ne_bytes()); // IFLA_TXQLEN
    message.attribute(16, &[if interface.is_loopback() { 0 } else { 6 }]); // IFLA_OPERSTATE
    message.attribute(4, &low_u32(u64_from(interface.mtu)).to_ne_bytes());
    message.attribute(1, &interface.mac);
    message.attribute(2, &broadcast);
    message.end();
}

fn put_address(out: &mut Vec<u8>, interface: &Interface, prefix: Prefix, request: &Request) {
    const PERMANENT: u8 = 0x80;
    let mut message = Message::begin(out, RTM_NEWADDR, NLM_F_MULTI, request);
    let address = prefix.address;
    message.out.extend([
        family_of(address),
        prefix.length,
        PERMANENT,
        scope_of(address),
    ]);
    message.out.extend(index_of(interface.index).to_ne_bytes());
    message.address(1, address);
    if address.is_v4() {
        message.address(2, address);
        if let Some(broadcast) = prefix.broadcast().filter(|_| !interface.is_loopback()) {
            message.address(4, broadcast);
        }
        let mut label = interface.name.as_bytes().to_vec();
        label.push(0);
        message.attribute(3, &label);
    }
    message.end();
}

fn put_route(out: &mut Vec<u8>, route: &crate::route::Route, request: &Request) {
    const TABLE_MAIN: u8 = 254;
    const PROTOCOL_BOOT: u8 = 3;
    const SCOPE_LINK: u8 = 253;
    const UNICAST: u8 = 1;
    let mut message = Message::begin(out, RTM_NEWROUTE, NLM_F_MULTI, request);
    let (address, length) = (route.destination.address, route.destination.length);
    let scope = if route.gateway.is_some() || !address.is_v4() {
        0
    } else {
        SCOPE_LINK
    };
    message.out.extend([
        family_of(address),
        length,
        0,
        0,
        TABLE_MAIN,
        PROTOCOL_BOOT,
        scope,
        UNICAST,
    ]);
    message.out.extend(0u32.to_ne_bytes());
    message.attribute(15, &u32::from(TABLE_MAIN).to_ne_bytes());
    if length > 0 {
        message.address(1, address.network(length));
    }
    message.attribute(4, &index_of(route.interface).to_ne_bytes());
    if let Some(gateway) = route.gateway {
        message.address(5, gateway);
    }
    message.end();
}
