// SPDX-License-Identifier: Apache-2.0
//! A file system above a lower layer against a plain one that began with the same files.

use super::super::TmpFs;
use super::*;
use crate::vfs::{
    AttributeChange, FileSystem, Follow, FsStatus, MountOptions, NewKind, NewNode, OpenRequest,
    Rename, Vfs,
};
use coracle_core::file::{File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A lower layer on a disk: no page is in memory until it is fetched, and nothing can be changed.
struct OnDisk {
    inner: Arc<dyn Inode>,
    fetched: Mutex<BTreeSet<u64>>,
}

impl OnDisk {
    fn new(inner: Arc<dyn Inode>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            fetched: Mutex::default(),
        })
    }

    fn file(&self) -> Arc<dyn File> {
        self.inner.clone().open(0).unwrap()
    }
}

impl Inode for OnDisk {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn metadata(&self) -> Result<Metadata> {
        self.inner.metadata()
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(Self::new(self.inner.lookup(name)?))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.inner.read_link()
    }

    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn File>> {
        Ok(self)
    }
}

impl File for OnDisk {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn metadata(&self) -> Result<Metadata> {
        self.inner.metadata()
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        self.file().read_at(position, dst)
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        assert!(!write, "the lower layer is never written");
        // A page is in memory for one use only, as if memory were always short.
        match self.fetched.lock().unwrap().remove(&index) {
            true => self.file().page(index, false),
            false => Err(Errno::EAGAIN),
        }
    }

    fn fetch(&self, index: u64, _write: bool) -> Result<()> {
        self.fetched.lock().unwrap().insert(index);
        Ok(())
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.file().read_directory(cursor, emit)
    }
}

struct Disk(Arc<TmpFs>);

impl FileSystem for Disk {
    fn type_name(&self) -> &'static str {
        "disk"
    }

    fn root(&self) -> Arc<dyn Inode> {
        OnDisk::new(self.0.root())
    }

    fn status(&self) -> FsStatus {
        self.0.status()
    }
}

/// The same calls on one name space.
struct Tree(Vfs);

impl Tree {
    fn new(fs: Arc<TmpFs>) -> Self {
        Self(Vfs::new(fs, MountOptions::default()))
    }

    fn create(&self, path: &str, kind: NewKind<'_>) -> Result<()> {
        let node = NewNode {
            kind,
            mode: 0o755,
            uid: 1,
            gid: 2,
        };
        self.0.create(self.0.root(), path.as_bytes(), &node)?;
        Ok(())
    }

    fn with<T>(
        &self,
        path: &str,
        flags: u32,
        what: impl FnOnce(&dyn File) -> Result<T>,
    ) -> Result<T> {
        let request = OpenRequest::new(flags);
        let open = self.0.open(self.0.root(), path.as_bytes(), &request)?;
        what(open.file().as_ref())
    }

    fn write(&self, path: &str, at: u64, bytes: &[u8]) -> Result<usize> {
        self.with(path, g::O_WRONLY | g::O_CREAT, |file| {
            Ok(file.write_at(at, false, &mut IoSrc::kernel(bytes))?.0)
        })
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 100_000];
        let len = self.with(path, 0, |file| {
            file.read_at(0, &mut IoDst::kernel(&mut bytes))
        })?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let place = self.0.resolve(self.0.root(), path.as_bytes(), Follow::No)?;
        place.inode.metadata()
    }

    /// Names in a directory; read in pieces, to see that positions hold.
    fn names(&self, path: &str) -> Result<Vec<String>> {
        self.with(path, g::O_DIRECTORY, |file| {
            let (mut names, mut cursor) = (Vec::new(), 0);
            loop {
                let before = names.len();
                file.read_directory(cursor, &mut |entry| {
                    if names.len() == before + 2 {
                        return false;
                    }
                    cursor = entry.next;
                    names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    true
                })?;
                if names.len() == before {
                    names.sort();
                    return Ok(names);
                }
            }
        })
    }

    fn change(&self, path: &str, change: &AttributeChange) -> Result<()> {
        let place = self.0.resolve(self.0.root(), path.as_bytes(), Follow::No)?;
        self.0.change(&place, change)
    }

    fn rename(&self, from: &str, to: &str, how: Rename) -> Result<()> {
        let root = self.0.root();
        self.0
            .rename((root, from.as_bytes()), (root, to.as_bytes()), how)
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let root = self.0.root();
        let place = self.0.resolve(root, from.as_bytes(), Follow::No)?;
        self.0.link(&place, root, to.as_bytes())
    }

    /// Everything one can see, without times and numbers.
    fn picture(&self, path: &str, out: &mut Vec<String>) {
        let m = self.metadata(path).unwrap();
        let what = (m.mode, m.links, m.uid, m.gid, m.special_device);
        out.push(format!("{path} {what:x?}"));
        match Kind::from_mode(m.mode) {
            Some(Kind::Directory) => {
                for name in self.names(path).unwrap() {
                    if name != "." && name != ".." {
                        self.picture(&format!("{path}/{name}"), out);
                    }
                }
            }
            Some(Kind::File) => {
                let sum = NameCache::hash(m.size, &self.read(path).unwrap());
                out.push(format!("{} bytes, {sum:x}", m.size));
            }
            Some(Kind::Symlink) => {
                let place = self.0.resolve(self.0.root(), path.as_bytes(), Follow::No);
                out.push(format!("{:?}", place.unwrap().inode.read_link()));
            }
            _ => {}
        }
    }
}

/// What both begin with.
fn fill(fs: &Arc<TmpFs>) {
    let tree = Tree::new(fs.clone());
    for path in ["/a", "/a/b", "/a/b/c", "/d", "/e"] {
        tree.create(path, NewKind::Directory).unwrap();
    }
    for (path, len) in [
        ("/f", 10_000),
        ("/a/f", 4096),
        ("/a/b/g", 5000),
        ("/d/h", 1),
    ] {
        let bytes: Vec<u8> = (0..len).map(|n: u32| (n % 251).to_le_bytes()[0]).collect();
        tree.write(path, 0, &bytes).unwrap();
    }
    tree.link("/f", "/a/same").unwrap();
    tree.create("/a/link", NewKind::Symlink(b"b/g")).unwrap();
    tree.create("/d/null", NewKind::CharDevice(0x103)).unwrap();
    tree.create("/d/pipe", NewKind::Fifo).unwrap();
}

fn overlay(limit: u64) -> (Arc<TmpFs>, Arc<TmpFs>) {
    let lower = TmpFs::new(1 << 20, 0o755);
    fill(&lower);
    let upper = TmpFs::over(&Disk(lower.clone()), limit).unwrap();
    (lower, upper)
}

#[derive(Debug, Clone)]
enum Op {
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    MakeDirectory(String),
    MakeLink(String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String, u8),
    Link(String, String),
    Mode(String, u32),
    Punch(String, u64, u64),
    Allocate(String, u64),
}

fn path() -> impl Strategy<Value = String> {
    let paths = [
        "/a", "/a/b", "/a/b/c", "/d", "/e", "/f", "/a/f", "/a/b/g", "/d/h", "/a/same", "/a/link",
        "/d/null", "/d/pipe", "/n", "/a/n", "/a/b/n", "/a/b/c/n", "/e/n", "/e/a", "/d/b", "/e/n/b",
        "/d/b/c", "/n/n",
    ];
    proptest::sample::select(paths.map(String::from).to_vec())
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || 0..12_000u64;
    let bytes = || proptest::collection::vec(any::<u8>(), 0..9000);
    let op = prop_oneof![
        4 => (path(), at(), bytes()).prop_map(|(p, at, b)| Op::Write(p, at, b)),
        3 => (path(), at()).prop_map(|(p, at)| Op::Truncate(p, at)),
        2 => path().prop_map(Op::MakeDirectory),
        1 => path().prop_map(Op::MakeLink),
        3 => path().prop_map(Op::Unlink),
        3 => path().prop_map(Op::RemoveDirectory),
        6 => (path(), path(), 0..6u8).prop_map(|(a, b, how)| Op::Rename(a, b, how)),
        2 => (path(), path()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => (path(), 0..0o777u32).prop_map(|(p, mode)| Op::Mode(p, mode)),
        1 => (path(), at(), at()).prop_map(|(p, a, b)| Op::Punch(p, a, b)),
        1 => (path(), at()).prop_map(|(p, a)| Op::Allocate(p, a)),
    ];
    proptest::collection::vec(op, 1..40)
}

fn run(tree: &Tree, op: &Op) -> Result<()> {
    let root = tree.0.root();
    match op {
        Op::Write(path, at, bytes) => tree.write(path, *at, bytes).map(drop),
        Op::Truncate(path, size) => tree.0.truncate(root, path.as_bytes(), *size),
        Op::MakeDirectory(path) => tree.create(path, NewKind::Directory),
        Op::MakeLink(path) => tree.create(path, NewKind::Symlink(b"/a")),
        Op::Unlink(path) => tree.0.unlink(root, path.as_bytes()),
        Op::RemoveDirectory(path) => tree.0.remove_directory(root, path.as_bytes()),
        Op::Rename(from, to, how) => {
            let how = match how {
                0 => Rename::NoReplace,
                1 | 2 => Rename::Exchange,
                _ => Rename::Replace,
            };
            tree.rename(from, to, how)
        }
        Op::Link(from, to) => tree.link(from, to),
        Op::Mode(path, mode) => tree.change(
            path,
            &AttributeChange {
                mode: Some(*mode),
                ..AttributeChange::default()
            },
        ),
        Op::Punch(path, at, len) => tree.with(path, g::O_WRONLY, |file| {
            file.allocate(
                g::FALLOC_FL_KEEP_SIZE | g::FALLOC_FL_PUNCH_HOLE,
                *at,
                *len + 1,
            )
        }),
        Op::Allocate(path, len) => {
            tree.with(path, g::O_WRONLY, |file| file.allocate(0, 0, *len + 1))
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_file_system_without_layers(ops in ops()) {
        let plain = TmpFs::new(1 << 20, 0o755);
        fill(&plain);
        let plain = Tree::new(plain);
        let (lower, upper) = overlay(1 << 20);
        let before = { let mut out = Vec::new(); Tree::new(lower.clone()).picture("/", &mut out); out };
        let layered = Tree::new(upper.clone());
        let number = layered.metadata("/f").unwrap().inode;
        let open = layered.0.open(layered.0.root(), b"/f", &OpenRequest::new(0)).unwrap();
        for op in &ops {
            prop_assert_eq!(run(&plain, op), run(&layered, op), "{:?}", op);
        }
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        plain.picture("/", &mut expected);
        layered.picture("/", &mut found);
        prop_assert_eq!(expected, found);
        prop_assert_eq!(open.file().metadata().unwrap().inode, number);
        let mut after = Vec::new();
        Tree::new(lower).picture("/", &mut after);
        prop_assert_eq!(before, after, "the lower layer never changes");
        prop_assert!(upper.shared.lower.as_ref().unwrap().known.lock().len() < 30);
    }
}

fn known(fs: &TmpFs) -> usize {
    fs.shared.lower.as_ref().unwrap().known.lock().len()
}

#[test]
fn memory_is_used_for_what_changed() {
    let (_lower, upper) = overlay(3 * 4096);
    let tree = Tree::new(upper.clone());
    assert_eq!(tree.read("/f").unwrap().len(), 10_000);
    assert_eq!(upper.status().free_blocks, 3);
    // One byte in the middle of three pages takes one page, under both names.
    tree.write("/a/same", 5000, b"X").unwrap();
    assert_eq!(upper.status().free_blocks, 2);
    let bytes = tree.read("/f").unwrap();
    assert_eq!((bytes.len(), bytes[5000]), (10_000, b'X'));
    assert_eq!(
        (bytes[4999], bytes[5001]),
        (
            (4999u32 % 251).to_le_bytes()[0],
            (5001u32 % 251).to_le_bytes()[0]
        )
    );
    tree.0.unlink(tree.0.root(), b"/f").unwrap();
    assert_eq!(upper.status().free_blocks, 2, "it has another name");
    tree.0.unlink(tree.0.root(), b"/a/same").unwrap();
    assert_eq!(upper.status().free_blocks, 3);
    assert_eq!(tree.metadata("/f"), Err(Errno::ENOENT));
}

#[test]
fn what_is_only_looked_at_is_let_go() {
    let lower = TmpFs::new(16 << 20, 0o755);
    let below = Tree::new(lower.clone());
    for n in 0..2000 {
        below.write(&format!("/{n}"), 0, b"x").unwrap();
    }
    let upper = TmpFs::over(&Disk(lower), 1 << 20).unwrap();
    let tree = Tree::new(upper.clone());
    for n in 0..2000 {
        assert_eq!(tree.metadata(&format!("/{n}")).unwrap().size, 1);
        assert_eq!(tree.metadata(&format!("/{n}x")), Err(Errno::ENOENT));
    }
    assert!(known(&upper) <= 257, "{}", known(&upper));
    tree.change(
        "/7",
        &AttributeChange {
            mode: Some(0o111),
            ..AttributeChange::default()
        },
    )
    .unwrap();
    for n in 1000..2000 {
        tree.metadata(&format!("/{n}")).unwrap();
    }
    assert_eq!(tree.metadata("/7").unwrap().mode & 0o777, 0o111);
}

#[test]
fn a_directory_finds_its_parent_when_only_itself_is_held() {
    let (_lower, upper) = overlay(1 << 20);
    let tree = Tree::new(upper.clone());
    let deep = tree
        .0
        .resolve(tree.0.root(), b"/a/b/c", Follow::No)
        .unwrap();
    for n in 0..1000 {
        let _ = tree.metadata(&format!("/{n}"));
    }
    assert_eq!(deep.directory_path().unwrap(), b"/a/b/c");
    tree.rename("/a/b", "/e/moved", Rename::Replace).unwrap();
    assert_eq!(deep.directory_path().unwrap(), b"/e/moved/c");
    assert_eq!(tree.read("/e/moved/g").unwrap().len(), 5000);
    assert_eq!(tree.names("/a").unwrap(), [".", "..", "f", "link", "same"]);
}

#[test]
fn a_descriptor_sees_what_is_written_later() {
    let (_lower, upper) = overlay(1 << 20);
    let tree = Tree::new(upper);
    let open = tree
        .0
        .open(tree.0.root(), b"/d/h", &OpenRequest::new(0))
        .unwrap();
    tree.write("/d/h", 0, b"new").unwrap();
    let mut out = [0; 9];
    assert_eq!(open.read(&mut IoDst::kernel(&mut out)), Ok(3));
    assert_eq!(&out[..3], b"new");
}

#[test]
fn mappings_share_pages_of_the_lower_layer() {
    let (lower, upper) = overlay(1 << 20);
    let tree = Tree::new(upper.clone());
    let below = Tree::new(lower);
    let page_of = |tree: &Tree, write: bool| {
        tree.with("/f", g::O_RDWR, |file| {
            while file.page(1, write) == Err(Errno::EAGAIN) {
                file.fetch(1, write)?;
                if let Ok(page) = file.page(1, write) {
                    return Ok(page);
                }
            }
            file.page(1, write)
        })
    };
    let shown = page_of(&tree, false).unwrap();
    assert_eq!(shown, page_of(&below, false).unwrap());
    let own = page_of(&tree, true).unwrap();
    assert_ne!(shown, own);
    own.write(0, b"!");
    assert_eq!(tree.read("/f").unwrap()[4096], b'!');
    assert_ne!(below.read("/f").unwrap()[4096], b'!');
}

#[test]
fn names_change_on_several_cpus() {
    let (_lower, upper) = overlay(1 << 20);
    let tree = &Tree::new(upper);
    std::thread::scope(|s| {
        for n in 0..3u8 {
            s.spawn(move || {
                for _ in 0..200 {
                    let _ = tree.rename("/a/b", "/e/b", Rename::Replace);
                    let _ = tree.rename("/e/b", "/a/b", Rename::Replace);
                    tree.write("/f", u64::from(n), &[n]).unwrap();
                    let _ = tree.write("/a/b/g", 4100 + u64::from(n), &[n]);
                    for path in ["/a/b/g", "/e/b/g"] {
                        if let Ok(bytes) = tree.read(path) {
                            assert_eq!(bytes.len(), 5000);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(tree.read("/f").unwrap()[..3], [0, 1, 2]);
    let here = ["/a/b/g", "/e/b/g"].map(|path| tree.read(path).is_ok());
    assert_eq!(here.iter().filter(|found| **found).count(), 1);
}
