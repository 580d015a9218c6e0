// SPDX-License-Identifier: Apache-2.0
//! A share whose host answers whatever it likes: nothing panics, names that come out are names, and counts stay within
//! what was asked for.
//!
//! The input says how each message is answered: as the protocol wants it, with fields from the input; with a header that
//! is wrong; or not at all. The first messages are answered well, unless the first byte is odd.

use std::sync::Arc;

use coracle_core::device::{Message, ShareDevice};
use coracle_core::file::File;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::sync::SpinLock;
use coracle_fs::ninep::NinepFs;
use coracle_fs::vfs::{AttributeChange, FileSystem, Inode, Kind, NewKind, NewNode, Rename};
use coracle_fs::{Errno, Result};

struct Input {
    bytes: Vec<u8>,
    at: usize,
}

impl Input {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }
}

struct Liar {
    input: Arc<SpinLock<Input>>,
    /// Messages at the start that are answered well.
    honest: SpinLock<u32>,
}

fn word(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

impl ShareDevice for Liar {
    fn tag(&self) -> &str {
        "liar"
    }

    fn most_pages(&self) -> usize {
        4
    }

    fn exchange(&self, mut message: Message) -> Result<(Message, usize)> {
        let mut input = self.input.lock();
        let (kind, tag) = (message.request[4], [message.request[5], message.request[6]]);
        let mut honest = self.honest.lock();
        let mut answer = vec![0; 4];
        if *honest > 0 {
            *honest -= 1;
            answer.push(kind + 1);
            answer.extend(tag);
            match kind {
                100 => {
                    answer.extend(word(5 * 4096));
                    answer.extend(b"\x08\x009P2000.L");
                }
                104 => answer.extend([0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
                110 => answer.extend([0, 0]),
                _ => {
                    answer.extend([0xff, 7, 0, 0, 0, 0, 0, 0]);
                    answer.extend([0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
                    answer.extend(word(0o040_755));
                    answer.resize(160, 0);
                }
            }
        } else {
            let how = input.byte().ok_or(Errno::EIO)?;
            answer.push(match how {
                0xf0..=0xf7 => 7,
                0xf8..=0xfb => how,
                _ => kind + 1,
            });
            answer.extend(if how == 0xfc {
                [tag[0] ^ 1, tag[1]]
            } else {
                tag
            });
            let len = usize::from(how % 0xf0);
            for _ in 0..len {
                answer.push(input.byte().unwrap_or(0));
            }
        }
        let len = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        let told = match input.bytes.first() {
            Some(0xff) => u32::MAX, // a length that is a lie
            _ => len,
        };
        answer[..4].copy_from_slice(&word(told));
        let room = message.answer.len();
        let front = answer.len().min(room);
        message.answer[..front].copy_from_slice(&answer[..front]);
        let mut done = front;
        for (page, part) in message.received.0.iter().zip(answer[front..].chunks(4096)) {
            page.write(0, part);
            done += part.len();
        }
        Ok((message, done))
    }

    fn post(&self, _message: Message) -> bool {
        !self.input.lock().at.is_multiple_of(3)
    }
}

fn next(input: &SpinLock<Input>) -> Option<u8> {
    input.lock().byte()
}

fn use_file(file: &dyn File, what: u8) {
    let mut out = [0; 9000];
    match what % 6 {
        0 => {
            if let Ok(count) = file.read_at(u64::from(what), &mut IoDst::kernel(&mut out)) {
                assert!(count <= out.len());
            }
        }
        1 => {
            if let Ok((count, end)) = file.write_at(5, what & 64 != 0, &mut IoSrc::kernel(&out)) {
                assert!(count <= out.len() && end <= u64::MAX / 2 + 10_000);
            }
        }
        2 => {
            let mut count = 0;
            let _ = file.read_directory(u64::from(what & 8), &mut |entry| {
                assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
                count += 1;
                count < 100
            });
        }
        3 => drop(file.sync()),
        4 => {
            let index = u64::from(what / 8);
            if file.page(index, false) == Err(Errno::EAGAIN) && file.fetch(index, false).is_ok() {
                let _ = file.page(index, what & 1 != 0);
            }
        }
        _ => drop(file.truncate(u64::from(what) * 100)),
    }
}

fn use_inode(here: &Arc<dyn Inode>, root: &Arc<dyn Inode>, what: u8) -> Option<Arc<dyn Inode>> {
    let new = |kind| NewNode {
        kind,
        mode: 0o644,
        uid: 1,
        gid: 1,
    };
    match what % 12 {
        0..=2 => return here.lookup(b"name").ok(),
        3 => drop(here.metadata()),
        4 => {
            if let Ok(text) = here.read_link() {
                assert!(!text.is_empty() && !text.contains(&0));
            }
        }
        5 => return here.create(b"new", &new(NewKind::File)).ok(),
        6 => drop(here.create(b"new", &new(NewKind::Socket))),
        7 => drop(here.unlink(b"name")),
        8 => drop(here.remove_directory(b"name")),
        9 => drop(here.rename(b"name", root, b"other", Rename::Replace)),
        10 => drop(root.link(b"link", here)),
        _ => drop(here.change(&AttributeChange {
            mode: Some(0o600),
            ..AttributeChange::default()
        })),
    }
    None
}

/// A walk upwards reaches the root: at most as many directories are above one as were looked up.
fn comes_to_an_end(inode: &Arc<dyn Inode>) {
    let above = std::iter::successors(inode.parent(), |(parent, _)| parent.parent());
    assert!(above.take(300).count() < 300);
}

pub(crate) fn run(data: &[u8]) {
    let honest = if data.first().is_some_and(|byte| byte & 1 == 0) {
        4
    } else {
        0
    };
    let input = Arc::new(SpinLock::new(Input {
        bytes: data.to_vec(),
        at: 1,
    }));
    let liar = Arc::new(Liar {
        input: input.clone(),
        honest: SpinLock::new(honest),
    });
    let Ok(fs) = NinepFs::mount(liar) else { return };
    let root = fs.root();
    let mut here = root.clone();
    let mut file: Option<Arc<dyn File>> = None;
    for _ in 0..200 {
        let Some(what) = next(&input) else { break };
        match what {
            0..=0x5f => {
                if let Some(found) = use_inode(&here, &root, what) {
                    here = found;
                    comes_to_an_end(&here);
                }
            }
            0x60..=0x6f => drop(fs.status()),
            0x70..=0x7f => here = here.parent().map_or(root.clone(), |(parent, _)| parent),
            0x80..=0x8f if matches!(here.kind(), Kind::File | Kind::Directory) => {
                file = here.clone().open(u32::from(what & 1) * 0o2000).ok();
            }
            0x90.. => {
                if let Some(file) = &file {
                    use_file(file.as_ref(), what);
                }
            }
            _ => {}
        }
    }
    drop(file);
    coracle_fs::ninep::write_back(true);
}
