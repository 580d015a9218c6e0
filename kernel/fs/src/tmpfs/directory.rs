// SPDX-License-Identifier: Apache-2.0
//! Names in a directory, in two orders: by name for look-ups, by age for getdents(2), whose positions must stay valid
//! while entries come and go.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use super::node::Node;

/// The first position behind `.` and `..`.
pub(super) const FIRST_COOKIE: u64 = 2;

struct Entry {
    cookie: u64,
    node: Arc<Node>,
}

/// The entries of one directory and its own place in the tree.
pub(super) struct Directory {
    by_name: BTreeMap<Arc<[u8]>, Entry>,
    by_age: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
    pub(super) parent: Weak<Node>,
    pub(super) name: Arc<[u8]>,
    /// Set by rmdir(2): nothing can be added any more.
    pub(super) removed: bool,
}

impl Directory {
    pub(super) fn new() -> Self {
        Self {
            by_name: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            parent: super::nowhere(),
            name: Arc::from(&b""[..]),
            removed: false,
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.by_name.get(name).map(|entry| &entry.node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a name, or lets an existing one mean `node` and returns what it meant.
    pub(super) fn insert(&mut self, name: &[u8], node: Arc<Node>) -> Option<Arc<Node>> {
        if let Some(entry) = self.by_name.get_mut(name) {
            return Some(core::mem::replace(&mut entry.node, node));
        }
        let name: Arc<[u8]> = Arc::from(name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_age.insert(cookie, name.clone());
        self.by_name.insert(name, Entry { cookie, node });
        None
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Arc<Node>> {
        let entry = self.by_name.remove(name)?;
        self.by_age.remove(&entry.cookie);
        Some(entry.node)
    }

    /// The entries from position `cookie` on, with the position of the next one.
    pub(super) fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, &Arc<Node>)> {
        self.by_age
            .range(cookie..)
            .filter_map(|(cookie, name)| Some((*cookie + 1, name, self.get(name)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
}
