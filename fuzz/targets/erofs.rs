// SPDX-License-Identifier: Apache-2.0
//! EROFS images: whatever the blocks hold, every name, link and byte is found or refused, and nothing takes for ever.

use std::sync::Arc;

use coracle_core::device::BlockDevice;
use coracle_core::io::IoDst;
use coracle_core::memory::Page;
use coracle_core::{Errno, Result};
use coracle_fs::erofs::Erofs;
use coracle_fs::vfs::{FileSystem, Inode, Kind};

const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// A disk with the fuzzer's bytes; the last sector is padded.
struct Disk(Vec<u8>);

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        (self.0.len() / SECTOR) as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, pages: &[Page]) -> Result<()> {
        let start = usize::try_from(sector).expect("on the disk") * SECTOR;
        assert!(start < self.0.len(), "no read begins behind the end");
        for (page, at) in pages.iter().zip((start..).step_by(PAGE)) {
            let rest = self.0.get(at..).ok_or(Errno::EIO)?;
            page.write(0, &rest[..rest.len().min(PAGE)]);
        }
        Ok(())
    }

    fn write(&self, _sector: u64, _pages: &[Page]) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    let Ok(image) = Erofs::mount(Arc::new(Disk(bytes))) else {
        return;
    };
    assert!(image.status().blocks * PAGE as u64 <= data.len() as u64 + SECTOR as u64);
    let mut budget = 400;
    walk(&image.root(), 0, &mut budget);
}

fn walk(inode: &Arc<dyn Inode>, depth: usize, budget: &mut usize) {
    if *budget == 0 || depth > 12 {
        return;
    }
    *budget -= 1;
    let metadata = inode.metadata().expect("an inode that was read");
    assert_eq!(Kind::from_mode(metadata.mode), Some(inode.kind()));
    for name in inode.extended_names().unwrap_or_default() {
        assert!(!name.is_empty() && !name.contains(&0));
        if let Ok(value) = inode.extended(&name) {
            assert!(value.len() < 1 << 16);
        }
    }
    let Ok(file) = inode.clone().open(0) else {
        return;
    };
    match inode.kind() {
        Kind::Directory => {
            let (mut names, mut last) = (Vec::new(), 0);
            let _ = file.read_directory(0, &mut |entry| {
                assert!(entry.next > last, "reading a directory comes to an end");
                last = entry.next;
                names.push(entry.name.to_vec());
                names.len() < 60
            });
            for name in names {
                assert!(!name.is_empty() && name.len() <= 255 && !name.contains(&b'/'));
                // In a directory that is not sorted a name may not be found.
                if let Ok(child) = inode.lookup(&name)
                    && name != b"."
                    && name != b".."
                {
                    if let Some((_, name)) = child.parent() {
                        assert!(!name.is_empty());
                    }
                    walk(&child, depth + 1, budget);
                }
            }
            assert!(inode.lookup(b"no such name, surely").is_err());
        }
        Kind::File => {
            let mut out = [0; 5000];
            for at in [0, 4095, metadata.size.saturating_sub(100), u64::MAX / 2] {
                if let Ok(count) = file.read_at(at, &mut IoDst::kernel(&mut out)) {
                    assert!(count as u64 <= metadata.size.saturating_sub(at));
                }
            }
            let last = metadata.size / PAGE as u64;
            for index in [0, last, last + 1, u64::MAX] {
                while file.page(index, false) == Err(Errno::EAGAIN) {
                    if file.fetch(index, false).is_err() {
                        break;
                    }
                }
            }
            assert!(file.page(last + 1, false).is_err());
        }
        Kind::Symlink => {
            if let Ok(text) = inode.read_link() {
                assert_eq!(text.len() as u64, metadata.size);
            }
        }
        _ => {}
    }
}
