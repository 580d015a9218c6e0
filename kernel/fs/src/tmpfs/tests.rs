// SPDX-License-Identifier: Apache-2.0
//! Contents against a plain vector, and the limits of the file system.

use super::*;
use coracle_abi::convert::{low_u8, u64_from, usize_from};
use coracle_core::file::File;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::{prop_assert, prop_assert_eq};

const FILE: NewNode<'static> = NewNode {
    kind: NewKind::File,
    mode: 0o644,
    uid: 0,
    gid: 0,
};

fn write(file: &Node, position: u64, bytes: &[u8]) -> Result<usize> {
    file.write_at(position, false, &mut IoSrc::kernel(bytes))
        .map(|(n, _)| n)
}

fn read(file: &Node, position: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xaa; len];
    let n = file
        .read_at(position, &mut IoDst::kernel(&mut out))
        .unwrap();
    out.truncate(n);
    out
}

fn size(file: &Node) -> u64 {
    File::metadata(file).unwrap().size
}

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    Truncate(u64),
    Punch(u64, u64),
    Allocate(u64, u64, bool),
    MapWrite(u64, u8),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || 0..40_000u64;
    let bytes = || proptest::collection::vec(any::<u8>(), 0..9000);
    proptest::collection::vec(
        prop_oneof![
            4 => (at(), bytes()).prop_map(|(at, b)| Op::Write(at, b)),
            2 => bytes().prop_map(Op::Append),
            2 => at().prop_map(Op::Truncate),
            2 => (at(), 1..20_000u64).prop_map(|(at, len)| Op::Punch(at, len)),
            1 => (at(), 1..20_000u64, any::<bool>()).prop_map(|(a, l, k)| Op::Allocate(a, l, k)),
            2 => (0..10u64, any::<u8>()).prop_map(|(i, b)| Op::MapWrite(i, b)),
        ],
        1..25,
    )
}

/// 10 000 bytes that live for ever; aligned to a page if `aligned`.
fn static_bytes(aligned: bool) -> StaticBytes {
    let store: &'static mut [u8] = vec![0; 16 * 4096].leak();
    let skip = store.as_ptr().addr().wrapping_neg() % 4096 + usize::from(!aligned);
    let bytes = &mut store[skip..skip + 10_000];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = low_u8(u64_from(at % 251));
    }
    StaticBytes {
        bytes,
        page: |bytes| {
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % 4096), (4096, 0));
            let page = Page::zeroed().unwrap();
            page.write(0, bytes);
            Some(page)
        },
    }
}

proptest! {
    #[test]
    fn behaves_like_a_vector(ops in ops(), base in 0..3u8) {
        let fs = TmpFs::new(1 << 20, 0o755);
        let content = (base > 0).then(|| static_bytes(base == 1));
        let mut model = content.map_or(Vec::new(), |c| c.bytes.to_vec());
        let original = model.clone();
        let file = Node::new(&fs.shared, &FILE, content.map(Base::Static));
        for op in ops {
            match op {
                Op::Write(at, bytes) => {
                    prop_assert_eq!(write(&file, at, &bytes), Ok(bytes.len()));
                    if !bytes.is_empty() {
                        let end = usize_from(at) + bytes.len();
                        model.resize(model.len().max(end), 0);
                        model[usize_from(at)..end].copy_from_slice(&bytes);
                    }
                }
                Op::Append(bytes) => {
                    let (n, end) = file.write_at(0, true, &mut IoSrc::kernel(&bytes)).unwrap();
                    model.extend(&bytes);
                    // Nothing appended moves nothing, not even to the end.
                    let reached = if bytes.is_empty() { 0 } else { u64_from(model.len()) };
                    prop_assert_eq!((n, end), (bytes.len(), reached));
                }
                Op::Truncate(to) => {
                    File::truncate(&*file, to).unwrap();
                    model.resize(usize_from(to), 0);
                }
                Op::Punch(at, len) => {
                    let mode = g::FALLOC_FL_PUNCH_HOLE | g::FALLOC_FL_KEEP_SIZE;
                    file.allocate(mode, at, len).unwrap();
                    let end = model.len().min(usize_from(at + len));
                    if (usize_from(at)) < end {
                        model[usize_from(at)..end].fill(0);
                    }
                }
                Op::Allocate(at, len, keep) => {
                    file.allocate(if keep { g::FALLOC_FL_KEEP_SIZE } else { 0 }, at, len).unwrap();
                    if !keep {
                        model.resize(model.len().max(usize_from(at + len)), 0);
                    }
                }
                Op::MapWrite(index, byte) => {
                    let at = usize_from(index) * 4096;
                    match file.page(index, true) {
                        // A shared mapping may write behind the end of the file; that must never be read.
                        Ok(page) => {
                            prop_assert!(at < model.len());
                            page.write(4000, &[byte]);
                            if let Some(cell) = model.get_mut(at + 4000) {
                                *cell = byte;
                            }
                        }
                        Err(error) => prop_assert_eq!((error, at >= model.len()), (Errno::ENXIO, true)),
                    }
                }
            }
            prop_assert_eq!(size(&file), u64_from(model.len()));
            prop_assert_eq!(&read(&file, 0, 100_000), &model);
            for index in 0..model.len().div_ceil(4096) {
                let mut out = [0; 4096];
                file.page(u64_from(index), false).unwrap().read(0, &mut out);
                let part = &model[index * 4096..model.len().min(index * 4096 + 4096)];
                prop_assert_eq!(&out[..part.len()], part);
            }
            // Holes are zero and cover the rest: what SEEK_DATA skips must read as zeroes.
            let mut at = 0;
            while at < u64_from(model.len()) {
                let data = file.seek_content(at, false).unwrap_or(u64_from(model.len()));
                prop_assert!(model[usize_from(at)..usize_from(data)].iter().all(|b| *b == 0));
                at = if data < u64_from(model.len()) { file.seek_content(data, true).unwrap() } else { data };
                prop_assert!(at > data || at == u64_from(model.len()));
            }
        }
        if let Some(content) = content {
            prop_assert_eq!(content.bytes, &original[..]);
        }
        drop(file);
        prop_assert_eq!(fs.status().free_blocks, 256);
    }
}

#[test]
fn content_is_limited() {
    let fs = TmpFs::new(3 * 4096, 0o755);
    let file = Node::new(&fs.shared, &FILE, None);
    assert_eq!(write(&file, 0, &[1; 5 * 4096]), Ok(3 * 4096));
    assert_eq!(write(&file, 3 * 4096, b"x"), Err(Errno::ENOSPC));
    assert_eq!(file.allocate(0, 0, 4 * 4096), Err(Errno::ENOSPC));
    assert_eq!((size(&file), fs.status().free_blocks), (3 * 4096, 0));
    File::truncate(&*file, 4096 + 1).unwrap();
    assert_eq!(fs.status().free_blocks, 1);
    assert_eq!(write(&file, 1 << 40, b"far"), Ok(3));
    assert_eq!(size(&file), (1 << 40) + 3);
    assert_eq!(File::metadata(&*file).unwrap().blocks, 3 * 8);
    assert_eq!(
        write(&file, i64::MAX.cast_unsigned(), b"x"),
        Err(Errno::EFBIG)
    );
    assert_eq!(File::truncate(&*file, u64::MAX), Err(Errno::EFBIG));
}

#[test]
fn static_content_takes_memory_only_when_changed() {
    let fs = TmpFs::new(1 << 20, 0o755);
    let root = fs.root();
    let content = static_bytes(true);
    let file = fs.add_static_file(&root, b"bin", &FILE, content).unwrap();
    assert_eq!(read(&file, 4090, 20), content.bytes[4090..4110]);
    file.page(0, false).unwrap();
    assert_eq!(fs.status().free_blocks, 256);
    file.page(2, false).unwrap(); // the last page is not whole: its tail must be zero
    file.page(0, true).unwrap();
    assert_eq!(fs.status().free_blocks, 254);
    let mut tail = [1; 100];
    file.page(2, false).unwrap().read(10_000 - 8192, &mut tail);
    assert_eq!(tail, [0; 100]);
}

#[test]
fn seals_refuse_changes() {
    let fs = TmpFs::new(1 << 20, 0o755);
    let file = fs.unnamed_file(&FILE);
    assert_eq!(file.seals(0), Ok(g::F_SEAL_SEAL));
    assert_eq!(file.seals(g::F_SEAL_WRITE), Err(Errno::EPERM));
    file.allow_sealing();
    assert_eq!(write(&file, 0, b"abc"), Ok(3));
    assert_eq!(file.seals(g::F_SEAL_GROW | g::F_SEAL_SHRINK), Ok(6));
    assert_eq!(write(&file, 1, b"z"), Ok(1));
    assert_eq!(write(&file, 1, b"zzz"), Err(Errno::EPERM));
    assert_eq!(File::truncate(&*file, 1), Err(Errno::EPERM));
    file.seals(g::F_SEAL_WRITE | g::F_SEAL_SEAL).unwrap();
    assert_eq!(write(&file, 0, b"q"), Err(Errno::EPERM));
    assert_eq!(file.seals(g::F_SEAL_EXEC), Err(Errno::EPERM));
    assert_eq!(read(&file, 0, 9), b"azc");
}

#[test]
fn times_follow_use() {
    let fs = TmpFs::new(1 << 20, 0o755);
    let file = Node::new(&fs.shared, &FILE, None);
    let times = || {
        let m = File::metadata(&*file).unwrap();
        (m.accessed_ns, m.modified_ns, m.changed_ns)
    };
    let start = times();
    std::thread::sleep(std::time::Duration::from_millis(2));
    write(&file, 0, b"x").unwrap();
    let written = times();
    assert!(written.0 == start.0 && written.1 > start.1 && written.2 == written.1);
    std::thread::sleep(std::time::Duration::from_millis(2));
    read(&file, 0, 1);
    let first = times();
    assert!(first.0 > written.1 && first.1 == written.1);
    std::thread::sleep(std::time::Duration::from_millis(2));
    read(&file, 0, 1);
    assert_eq!(times().0, first.0, "relatime: nothing was written since");
}

#[test]
fn names_change_on_several_cpus() {
    let fs = TmpFs::new(1 << 20, 0o755);
    let root = fs.root();
    let directory = NewNode {
        kind: NewKind::Directory,
        ..FILE
    };
    let (a, b) = (
        root.create(b"a", &directory).unwrap(),
        root.create(b"b", &directory).unwrap(),
    );
    std::thread::scope(|s| {
        for thread in 0..4u8 {
            let (a, b) = (a.clone(), b.clone());
            s.spawn(move || {
                let name = [b'n', b'0' + thread];
                for _ in 0..500 {
                    a.create(&name, &FILE).unwrap();
                    a.rename(&name, &b, &name, crate::vfs::Rename::Replace)
                        .unwrap();
                    b.rename(&name, &a, b"same", crate::vfs::Rename::Replace)
                        .unwrap();
                    let _ = a.unlink(b"same");
                }
            });
        }
    });
    for dir in [&a, &b] {
        assert!(matches!(dir.lookup(b"same"), Err(Errno::ENOENT)));
        assert_eq!(dir.metadata().unwrap().size, 40, "no entry is left");
    }
}
