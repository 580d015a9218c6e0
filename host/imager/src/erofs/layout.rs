// SPDX-License-Identifier: Apache-2.0
//! Where everything of an image goes: settled for the whole tree before an inode is written, because folders record the
//! places of the inodes in them.

use std::collections::BTreeMap;

use super::writer::{Data, Stored};
use super::{BLOCK, COMPACT, DIRENT, EXTENDED, FLAT_INLINE, FLAT_PLAIN, SLOT, xattr};
use crate::tree::{Inode, InodeId, Kind, Meta, Tree};

/// How many blocks with room left are remembered when the next inode is placed.
const OPEN_BLOCKS: usize = 32;

/// The plan for a tree.
pub(super) struct Layout {
    /// Every inode with a name, the root first, then folder by folder.
    pub(super) places: Vec<Place>,
    /// The time that compact inodes share: the most frequent one.
    pub(super) time: Time,
    /// Bytes of the metadata area, whole blocks.
    pub(super) meta_bytes: usize,
    /// Blocks behind the metadata area.
    pub(super) more_blocks: u64,
    /// Index into `places` by inode number of the tree.
    by_id: Vec<usize>,
}

/// A time: seconds since 1970, nanoseconds.
pub(super) type Time = (i64, u32);

/// The plan for an inode.
pub(super) struct Place {
    pub(super) id: InodeId,
    /// The folder a folder is in.
    pub(super) parent: InodeId,
    pub(super) links: u32,
    /// Position in the metadata area, bytes.
    pub(super) position: usize,
    /// `COMPACT` or `EXTENDED`.
    pub(super) head: usize,
    pub(super) xattrs: Vec<u8>,
    /// `FLAT_PLAIN` or `FLAT_INLINE`.
    pub(super) format: u16,
    /// Bytes of the content.
    pub(super) size: u64,
    /// The first of the blocks behind the metadata area that hold content, counted from the first of them.
    pub(super) more: Option<u64>,
}

impl Layout {
    pub(super) fn new(tree: &Tree<Data>) -> Self {
        let mut places = order(tree);
        let time = most_frequent_time(tree, &places);
        let mut by_id = vec![0; tree.capacity()];
        let mut area = Area::default();
        let mut more_blocks = 0;
        for (index, place) in places.iter_mut().enumerate() {
            let inode = tree.get(place.id);
            by_id[place.id.index()] = index;
            place.xattrs = xattr::encode(&inode.xattrs);
            place.size = size(tree, place.id);
            place.head = head(inode.meta, time, place);
            let (whole, end) = match &inode.kind {
                Kind::File(Data(Stored::Blocks { .. })) => (0, 0),
                Kind::Directory(_) | Kind::File(_) | Kind::Symlink(_) => split(place.size),
                _ => (0, 0),
            };
            let record = place.head + place.xattrs.len();
            let is_inline = end > 0 && record + end <= BLOCK;
            place.format = if is_inline { FLAT_INLINE } else { FLAT_PLAIN };
            let blocks = whole + u64::from(end > 0 && !is_inline);
            if blocks > 0 {
                place.more = Some(more_blocks);
                more_blocks += blocks;
            }
            place.position = area.place(record + if is_inline { end } else { 0 });
        }
        Self {
            places,
            time,
            meta_bytes: area.end.next_multiple_of(BLOCK),
            more_blocks,
            by_id,
        }
    }

    /// The number by which folders know an inode.
    pub(super) fn nid(&self, id: InodeId) -> u64 {
        (self.places[self.by_id[id.index()]].position / SLOT) as u64
    }
}

/// Whole blocks of content, and bytes of the rest.
fn split(size: u64) -> (u64, usize) {
    let rest = usize::try_from(size % BLOCK as u64).expect("less than a block");
    (size / BLOCK as u64, rest)
}

/// All inodes with a name, and how many they have; the content of a folder lies together.
fn order(tree: &Tree<Data>) -> Vec<Place> {
    let place = |id, parent, links| Place {
        id,
        parent,
        links,
        position: 0,
        head: COMPACT,
        xattrs: Vec::new(),
        format: FLAT_PLAIN,
        size: 0,
        more: None,
    };
    let mut places = vec![place(Tree::<Data>::ROOT, Tree::<Data>::ROOT, 2)];
    let mut seen = vec![None; tree.capacity()];
    let mut at = 0;
    while at < places.len() {
        let folder = places[at].id;
        for (_, child) in tree.children(folder) {
            let is_directory = tree.is_directory(child);
            places[at].links += u32::from(is_directory);
            match seen[child.index()] {
                Some(known) => {
                    let known: &mut Place = &mut places[known];
                    known.links += 1;
                }
                None => {
                    seen[child.index()] = Some(places.len());
                    places.push(place(child, folder, if is_directory { 2 } else { 1 }));
                }
            }
        }
        at += 1;
    }
    places
}

fn time(meta: Meta) -> Time {
    (meta.mtime_s, meta.mtime_ns)
}

fn most_frequent_time(tree: &Tree<Data>, places: &[Place]) -> Time {
    let mut counts = BTreeMap::<Time, usize>::new();
    for place in places {
        *counts.entry(time(tree.get(place.id).meta)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(time, _)| time).unwrap_or_default()
}

/// The smaller form of the inode that can hold what there is to say.
fn head(meta: Meta, shared: Time, place: &Place) -> usize {
    let narrow = u16::try_from(meta.uid).is_ok()
        && u16::try_from(meta.gid).is_ok()
        && u16::try_from(place.links).is_ok()
        && u32::try_from(place.size).is_ok();
    if narrow && time(meta) == shared {
        COMPACT
    } else {
        EXTENDED
    }
}

fn size(tree: &Tree<Data>, id: InodeId) -> u64 {
    match &tree.get(id).kind {
        Kind::Directory(_) => directory_size(&directory(tree, id, id)),
        Kind::File(data) => data.size(),
        Kind::Symlink(target) => target.len() as u64,
        _ => 0,
    }
}

/// Everything in a folder in the order of EROFS: that of the bytes of the names.
pub(super) fn directory(tree: &Tree<Data>, id: InodeId, parent: InodeId) -> Vec<(&[u8], InodeId)> {
    let mut entries: Vec<(&[u8], InodeId)> = tree.children(id).collect();
    entries.extend([(b".".as_slice(), id), (b"..".as_slice(), parent)]);
    entries.sort_unstable();
    entries
}

/// The entries of each block of a folder.
pub(super) fn directory_blocks<'a, 'n>(
    entries: &'a [(&'n [u8], InodeId)],
) -> Vec<&'a [(&'n [u8], InodeId)]> {
    let mut blocks = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (index, (name, _)) in entries.iter().enumerate() {
        let bytes = DIRENT + name.len();
        if used + bytes > BLOCK {
            blocks.push(&entries[start..index]);
            (start, used) = (index, 0);
        }
        used += bytes;
    }
    blocks.push(&entries[start..]);
    blocks
}

fn directory_size(entries: &[(&[u8], InodeId)]) -> u64 {
    let blocks = directory_blocks(entries);
    let last = blocks.last().into_iter().flat_map(|block| block.iter());
    let last: usize = last.map(|(name, _)| DIRENT + name.len()).sum();
    ((blocks.len() - 1) * BLOCK + last) as u64
}

/// What the writer still has to write of an inode that is no folder.
pub(super) fn small_content(inode: &Inode<Data>) -> &[u8] {
    match &inode.kind {
        Kind::File(Data(Stored::Small(bytes))) => bytes,
        Kind::Symlink(target) => target,
        _ => &[],
    }
}

/// The metadata area while it fills: records of up to a block lie in one block, so that content behind an inode does not
/// cross a border, which the format forbids.
struct Area {
    /// Its size so far, bytes.
    end: usize,
    /// Blocks with room: where the room begins. The room ends with the block.
    open: Vec<usize>,
}

impl Default for Area {
    fn default() -> Self {
        // Number 0 is no inode number of Linux.
        Self {
            end: SLOT,
            open: vec![SLOT],
        }
    }
}

impl Area {
    /// A place for a record: in the fullest block that has room for it, else in a new one.
    fn place(&mut self, bytes: usize) -> usize {
        let bytes = bytes.next_multiple_of(SLOT);
        let room = |from: usize| from.next_multiple_of(BLOCK) - from;
        let fitting = (0..self.open.len()).filter(|&at| room(self.open[at]) >= bytes);
        let position = match fitting.min_by_key(|&at| room(self.open[at])) {
            Some(at) => self.open.swap_remove(at),
            None => self.end.next_multiple_of(BLOCK),
        };
        let end = position + bytes;
        self.end = self.end.max(end);
        if room(end) > 0 {
            self.open.push(end);
            if self.open.len() > OPEN_BLOCKS {
                let fullest = (0..self.open.len()).min_by_key(|&at| room(self.open[at]));
                self.open.swap_remove(fullest.unwrap_or(0));
            }
        }
        position
    }
}
