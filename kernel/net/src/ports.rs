// SPDX-License-Identifier: Apache-2.0
//! Who is bound to which port: the rules of `bind(2)`, `SO_REUSEADDR` and `SO_REUSEPORT`, for TCP and UDP alike.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::Errno;
use coracle_abi::convert::{low_u16, usize_from_u32};
use coracle_core::Result;
use coracle_core::sync::SpinLock;

use crate::address::{Address, Endpoint};
use crate::map::{HashKey, HashMap};

/// Ports chosen by the kernel (`ip_local_port_range` of Linux).
pub(crate) const EPHEMERAL: core::ops::RangeInclusive<u16> = 32_768..=60_999;

const SHARDS: usize = 32;

/// How a socket is bound.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) address: Address,
    /// An unspecified IPv6 address that also stands for IPv4 (`IPV6_V6ONLY` off).
    pub(crate) dual: bool,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    /// A TCP socket that listens.
    pub(crate) listening: bool,
    /// The peer of a connected UDP socket.
    pub(crate) remote: Option<Endpoint>,
}

struct Bound<T> {
    socket: Arc<T>,
    binding: Binding,
}

type Shard<T> = HashMap<u16, Vec<Bound<T>>>;

/// Sockets by local port. The locks are leaves.
pub(crate) struct PortTable<T> {
    key: HashKey,
    shards: [SpinLock<Shard<T>>; SHARDS],
}

impl Binding {
    fn covers(&self, address: Address) -> bool {
        self.address == address
            || self.address == Address::ANY_V4 && address.is_v4()
            || self.address == Address::ANY_V6 && (self.dual || !address.is_v4())
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.covers(other.address) || other.covers(self.address)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let shared_address = self.reuse_address && other.reuse_address && !other.listening;
        let shared_port = self.reuse_port && other.reuse_port;
        self.overlaps(other) && !shared_address && !shared_port
    }

    /// How well a packet fits; `None` if it does not.
    fn score(&self, local: Address, remote: Endpoint) -> Option<u32> {
        if !self.covers(local) {
            return None;
        }
        let peer = match self.remote {
            Some(peer) if peer == remote => 4,
            Some(_) => return None,
            None => 0,
        };
        let exact = if self.address == local { 2 } else { 0 };
        let same_version = u32::from(self.address.is_v4() == local.is_v4());
        Some(peer + exact + same_version)
    }
}

impl<T> PortTable<T> {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            shards: [const { SpinLock::new(HashMap::new()) }; SHARDS],
        }
    }

    fn shard(&self, port: u16) -> (&SpinLock<Shard<T>>, u32) {
        let hash = self.key.number(u64::from(port));
        (&self.shards[usize_from_u32(hash >> 16) % SHARDS], hash)
    }

    /// Binds a socket to `port`, or to a free port if it is 0. Returns the port; `EADDRINUSE` if it, or every one, is
    /// taken.
    pub(crate) fn bind(&self, socket: &Arc<T>, port: u16, binding: Binding) -> Result<u16> {
        if port != 0 {
            return self.try_bind(socket, port, binding).map(|()| port);
        }
        ephemeral_ports()
            .find(|port| {
                self.try_bind(
                    socket,
                    *port,
                    Binding {
                        reuse_address: false,
                        reuse_port: false,
                        ..binding
                    },
                )
                .is_ok()
            })
            .inspect(|port| self.update(socket, *port, |b| *b = binding))
            .ok_or(Errno::EADDRINUSE)
    }

    fn try_bind(&self, socket: &Arc<T>, port: u16, binding: Binding) -> Result<()> {
        let (shard, hash) = self.shard(port);
        let mut shard = shard.lock();
        let bound = Bound {
            socket: socket.clone(),
            binding,
        };
        match shard.get_mut(hash, &port) {
            Some(list) if list.iter().any(|b| binding.conflicts(&b.binding)) => {
                return Err(Errno::EADDRINUSE);
            }
            Some(list) => list.push(bound),
            None => {
                shard.insert(hash, port, alloc::vec![bound]);
            }
        }
        Ok(())
    }

    /// Whether any socket is bound to `port`.
    pub(crate) fn is_used(&self, port: u16) -> bool {
        let (shard, hash) = self.shard(port);
        shard.lock().get(hash, &port).is_some()
    }

    /// Changes how `socket` is bound to `port`.
    pub(crate) fn update(&self, socket: &Arc<T>, port: u16, change: impl FnOnce(&mut Binding)) {
        let (shard, hash) = self.shard(port);
        let mut shard = shard.lock();
        if let Some(list) = shard.get_mut(hash, &port)
            && let Some(bound) = list.iter_mut().find(|b| Arc::ptr_eq(&b.socket, socket))
        {
            change(&mut bound.binding);
        }
    }

    /// Marks a bound socket as listening. `EADDRINUSE` if another one listens there and the port is not shared.
    pub(crate) fn listen(&self, socket: &Arc<T>, port: u16) -> Result<()> {
        let (shard, hash) = self.shard(port);
        let mut shard = shard.lock();
        let list = shard.get_mut(hash, &port).ok_or(Errno::EINVAL)?;
        let at = list
            .iter()
            .position(|b| Arc::ptr_eq(&b.socket, socket))
            .ok_or(Errno::EINVAL)?;
        let binding = list[at].binding;
        let taken = list.iter().enumerate().any(|(i, b)| {
            i != at
                && b.binding.listening
                && binding.overlaps(&b.binding)
                && !(binding.reuse_port && b.binding.reuse_port)
        });
        if taken {
            return Err(Errno::EADDRINUSE);
        }
        list[at].binding.listening = true;
        Ok(())
    }

    /// Forgets a socket.
    pub(crate) fn unbind(&self, socket: &Arc<T>, port: u16) {
        let (shard, hash) = self.shard(port);
        let mut shard = shard.lock();
        let Some(list) = shard.get_mut(hash, &port) else {
            return;
        };
        let at = list.iter().position(|b| Arc::ptr_eq(&b.socket, socket));
        let removed = at.map(|at| list.swap_remove(at));
        if list.is_empty() {
            shard.remove(hash, &port);
        }
        drop(shard);
        drop(removed);
    }

    /// The socket a packet is for: the best fit; of several equal ones that share the port, the one chosen by
    /// `choose`, which should depend on the conversation.
    pub(crate) fn find(
        &self,
        local: Endpoint,
        remote: Endpoint,
        listening: bool,
        choose: impl FnOnce() -> u32,
    ) -> Option<Arc<T>> {
        let (shard, hash) = self.shard(local.port);
        let shard = shard.lock();
        let list = shard.get(hash, &local.port)?;
        let score = |b: &Bound<T>| {
            (!listening || b.binding.listening)
                .then(|| b.binding.score(local.address, remote))
                .flatten()
        };
        let best = list.iter().filter_map(score).max()?;
        let mut fitting = list.iter().filter(|b| score(b) == Some(best));
        let count = fitting.clone().count();
        let at = if count > 1 {
            usize_from_u32(choose()) % count
        } else {
            0
        };
        fitting.nth(at).map(|b| b.socket.clone())
    }

    /// All sockets a packet to many is for.
    pub(crate) fn find_all(&self, local: Endpoint, remote: Endpoint) -> Vec<Arc<T>> {
        let (shard, hash) = self.shard(local.port);
        let shard = shard.lock();
        shard.get(hash, &local.port).map_or_else(Vec::new, |list| {
            list.iter()
                .filter(|b| b.binding.score(local.address, remote).is_some())
                .map(|b| b.socket.clone())
                .collect()
        })
    }
}

/// All ephemeral ports once, beginning at a random one.
pub(crate) fn ephemeral_ports() -> impl Iterator<Item = u16> {
    let count = EPHEMERAL.end() - EPHEMERAL.start() + 1;
    let first = low_u16(coracle_core::random::u64()) % count;
    (0..count).map(move |n| EPHEMERAL.start() + (first + n) % count)
}
