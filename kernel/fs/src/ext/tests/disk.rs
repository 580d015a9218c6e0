// SPDX-License-Identifier: Apache-2.0
//! A disk in memory that remembers in which order it was written and flushed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;

use crate::{Errno, Result};

type Block = Box<[u8]>;

/// What was done to the disk.
#[derive(Clone)]
pub(super) enum Event {
    /// Blocks from this one on.
    Write(u64, Vec<Block>),
    Flush,
    /// A mark of the test.
    Mark(usize),
}

#[derive(Default)]
struct Content {
    blocks: BTreeMap<u64, Block>,
    events: Option<Vec<Event>>,
    reads: usize,
    requests: usize,
    flushes: usize,
    /// Requests that still succeed.
    left: Option<usize>,
}

/// The disk.
pub(super) struct Disk {
    blocks: u64,
    read_only: bool,
    content: Mutex<Content>,
}

impl Disk {
    /// A formatted disk.
    pub(super) fn formatted(mib: u64) -> Arc<Self> {
        let file = tempfile::tempfile().unwrap();
        coracle_volume::format(&file, mib << 20, [3; 16], 1_700_000_000).unwrap();
        Self::from_file(file)
    }

    pub(super) fn from_file(mut file: File) -> Arc<Self> {
        use std::io::Seek;
        file.rewind().unwrap();
        let mut blocks = BTreeMap::new();
        let mut buffer = vec![0; 4096];
        let count = file.metadata().unwrap().len() / 4096;
        for n in 0..count {
            file.read_exact(&mut buffer).unwrap();
            if buffer.iter().any(|b| *b != 0) {
                blocks.insert(n, buffer.clone().into_boxed_slice());
            }
        }
        Arc::new(Self::of(count, blocks))
    }

    fn of(blocks: u64, content: BTreeMap<u64, Block>) -> Self {
        let content = Content {
            blocks: content,
            ..Content::default()
        };
        Self {
            blocks,
            read_only: false,
            content: Mutex::new(content),
        }
    }

    /// A copy as it is now.
    pub(super) fn snapshot(&self) -> Arc<Self> {
        Arc::new(Self::of(
            self.blocks,
            self.content.lock().unwrap().blocks.clone(),
        ))
    }

    pub(super) fn record(&self) {
        self.content.lock().unwrap().events = Some(Vec::new());
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.content.lock().unwrap().events.clone().unwrap()
    }

    pub(super) fn mark(&self, n: usize) {
        if let Some(events) = &mut self.content.lock().unwrap().events {
            events.push(Event::Mark(n));
        }
    }

    pub(super) fn apply(&self, first: u64, pages: &[Block]) {
        let mut content = self.content.lock().unwrap();
        for (at, page) in (first..).zip(pages) {
            content.blocks.insert(at, page.clone());
        }
    }

    /// Writes and flushes since the last call.
    pub(super) fn requests(&self) -> (usize, usize) {
        let mut content = self.content.lock().unwrap();
        (
            std::mem::take(&mut content.requests),
            std::mem::take(&mut content.flushes),
        )
    }

    pub(super) fn reads(&self) -> usize {
        std::mem::take(&mut self.content.lock().unwrap().reads)
    }

    /// Lets writes fail after `left` more.
    pub(super) fn fail_after(&self, left: usize) {
        self.content.lock().unwrap().left = Some(left);
    }

    /// The same disk, but shorter.
    pub(super) fn cut(other: &Self, blocks: u64) -> Arc<Self> {
        Arc::new(Self::of(
            blocks,
            other.content.lock().unwrap().blocks.clone(),
        ))
    }

    /// Numbers of the blocks of metadata and of other content that were written.
    pub(super) fn used_blocks(&self) -> Vec<u64> {
        self.content
            .lock()
            .unwrap()
            .blocks
            .keys()
            .copied()
            .collect()
    }

    pub(super) fn damage(&self, block: u64, at: usize, byte: u8) {
        let mut content = self.content.lock().unwrap();
        let block = content
            .blocks
            .entry(block)
            .or_insert_with(|| vec![0; 4096].into());
        block[at] = byte;
    }

    pub(super) fn image(&self) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(self.blocks * 4096).unwrap();
        for (n, block) in &self.content.lock().unwrap().blocks {
            file.as_file().write_all_at(block, n * 4096).unwrap();
        }
        file
    }

    /// Asks e2fsck, where it is installed: there is no fault, after a replay of the journal if that is wanted.
    #[track_caller]
    pub(super) fn check(&self, replay: bool) {
        let image = self.image();
        let run = |how: &str| {
            let output = Command::new("/usr/sbin/e2fsck")
                .arg(how)
                .arg(image.path())
                .output()
                .ok()?;
            Some((
                output.status.code(),
                String::from_utf8_lossy(&output.stdout).into_owned(),
            ))
        };
        if replay && let Some((code, text)) = run("-p") {
            assert!(matches!(code, Some(0 | 1)), "{text}");
        }
        match run("-fn") {
            Some((code, text)) => {
                if code != Some(0) {
                    let kept = std::env::temp_dir().join("ext-test-failed.img");
                    std::fs::copy(image.path(), &kept).unwrap();
                }
                assert_eq!(code, Some(0), "{text}");
            }
            None => eprintln!("no e2fsck here: not checked"),
        }
    }
}

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        self.blocks * 8
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, sector: u64, pages: &[Page]) -> Result<()> {
        assert!(sector.is_multiple_of(8));
        let mut content = self.content.lock().unwrap();
        content.reads += 1;
        for (at, page) in (sector / 8..).zip(pages) {
            if at >= self.blocks {
                return Err(Errno::EIO);
            }
            match content.blocks.get(&at) {
                Some(block) => page.write(0, block),
                None => page.zero(0, 4096),
            }
        }
        Ok(())
    }

    fn write(&self, sector: u64, pages: &[Page]) -> Result<()> {
        let mut content = self.content.lock().unwrap();
        content.requests += 1;
        if let Some(left) = &mut content.left {
            *left = left.checked_sub(1).ok_or(Errno::EIO)?;
        }
        let mut blocks = Vec::new();
        for (at, page) in (sector / 8..).zip(pages) {
            if at >= self.blocks {
                return Err(Errno::EIO);
            }
            let mut block = vec![0; 4096];
            page.read(0, &mut block);
            let block = block.into_boxed_slice();
            blocks.push(block.clone());
            content.blocks.insert(at, block);
        }
        if let Some(events) = &mut content.events {
            events.push(Event::Write(sector / 8, blocks));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut content = self.content.lock().unwrap();
        content.flushes += 1;
        if let Some(events) = &mut content.events {
            events.push(Event::Flush);
        }
        Ok(())
    }
}
