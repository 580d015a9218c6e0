// SPDX-License-Identifier: Apache-2.0
//! Names in a directory, in two orders: by name for look-ups, by age for getdents(2), whose positions must stay valid
//! while entries come and go.
//!
//! Above a lower layer these are only the names that differ from the lower directory: added ones, and hidden ones (what
//! overlay file systems on disk call white-outs).

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use super::node::Node;

/// The first position behind `.` and `..`.
pub(super) const FIRST_COOKIE: u64 = 2;

struct Entry {
    cookie: u64,
    /// `None` hides a name of the lower directory.
    node: Option<Arc<Node>>,
    /// The lower directory has this name too.
    covers: bool,
}

/// What a directory itself says about a name.
pub(super) enum Own<'a> {
    /// It means this.
    Node(&'a Arc<Node>),
    /// It is gone, though the lower directory has it.
    Hidden,
    /// The lower directory decides, if there is one.
    Unknown,
}

/// The directory that a directory is in.
pub(super) enum Parent {
    /// None: a root, or removed.
    Nowhere,
    /// One whose entries hold this directory.
    Holder(Weak<Node>),
    /// One of the lower layer, which only its children and users hold.
    Lower(Arc<Node>),
}

impl Parent {
    pub(super) fn get(&self) -> Option<Arc<Node>> {
        match self {
            Self::Nowhere => None,
            Self::Holder(node) => node.upgrade(),
            Self::Lower(node) => Some(node.clone()),
        }
    }
}

/// The entries of one directory and its own place in the tree.
pub(super) struct Directory {
    by_name: BTreeMap<Arc<[u8]>, Entry>,
    by_age: BTreeMap<u64, Arc<[u8]>>,
    next_cookie: u64,
    pub(super) parent: Parent,
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
            parent: Parent::Nowhere,
            name: Arc::from(&b""[..]),
            removed: false,
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Own<'_> {
        match self.by_name.get(name) {
            Some(Entry { node, .. }) => node.as_ref().map_or(Own::Hidden, Own::Node),
            None => Own::Unknown,
        }
    }

    /// Whether there are no entries besides those of the lower directory.
    pub(super) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Adds a name, or lets an existing one mean `node` and returns what it meant. `exists` says that the name is there
    /// now, if only in the lower directory.
    pub(super) fn insert(
        &mut self,
        name: &[u8],
        node: Arc<Node>,
        exists: bool,
    ) -> Option<Arc<Node>> {
        let covers = match self.by_name.get_mut(name) {
            Some(Entry {
                node: Some(old), ..
            }) => return Some(core::mem::replace(old, node)),
            Some(hidden) => hidden.covers,
            None => exists,
        };
        let name: Arc<[u8]> = Arc::from(name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_age.insert(cookie, name.clone());
        let entry = Entry {
            cookie,
            node: Some(node),
            covers,
        };
        self.by_name.insert(name, entry);
        None
    }

    /// Removes a name that is there, if only in the lower directory; returns what the directory itself held.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Arc<Node>> {
        match self.by_name.get_mut(name) {
            Some(entry) if entry.covers => {
                self.by_age.remove(&entry.cookie);
                entry.node.take()
            }
            Some(_) => {
                let entry = self.by_name.remove(name)?;
                self.by_age.remove(&entry.cookie);
                entry.node
            }
            None => {
                let hidden = Entry {
                    cookie: 0,
                    node: None,
                    covers: true,
                };
                self.by_name.insert(Arc::from(name), hidden);
                None
            }
        }
    }

    /// The entries from position `cookie` on, with the position of the next one.
    pub(super) fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, &Arc<Node>)> {
        self.by_age.range(cookie..).filter_map(|(cookie, name)| {
            let node = self.by_name.get(name)?.node.as_ref()?;
            Some((*cookie + 1, name, node))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }
}
