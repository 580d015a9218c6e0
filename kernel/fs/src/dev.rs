// SPDX-License-Identifier: Apache-2.0
//! `/dev`: the devices every program expects (null(4), random(4), console(4)).
//!
//! `/dev` is a file system in memory like any other; the name space gives device files their meaning by number, so a
//! device file of the image works as well.

use alloc::sync::Arc;
use core::any::Any;

use coracle_abi::raw::general as g;
use coracle_core::device::CharDevice;
use coracle_core::file::{File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::tmpfs::TmpFs;
use crate::vfs::{DeviceDriver, Follow, MountOptions, NewKind, NewNode, Vfs, device_number};
use crate::{Errno, PollEvents, Result};

/// Most bytes that one read of a random device returns (random(4)).
const RANDOM_MAX: usize = (1 << 25) - 1;

const NULL: u64 = device_number(1, 3);
const ZERO: u64 = device_number(1, 5);
const FULL: u64 = device_number(1, 7);
const RANDOM: u64 = device_number(1, 8);
const URANDOM: u64 = device_number(1, 9);
const TTY: u64 = device_number(5, 0);
const CONSOLE: u64 = device_number(5, 1);

/// Mounts `/dev` and `/dev/shm` and gives the device numbers their meaning. `shm_limit_bytes` limits each of the two.
///
/// `/dev/tty` is there but opening it gives `ENXIO`: the program has no controlling terminal.
pub fn mount(vfs: &Vfs, console: Arc<dyn CharDevice>, shm_limit_bytes: u64) -> Result<()> {
    let fs = TmpFs::new(shm_limit_bytes, 0o755);
    mount_at(vfs, b"/dev", fs)?;
    let dev = vfs.resolve(vfs.root(), b"/dev", Follow::Yes)?;
    for (name, number) in [
        (&b"null"[..], NULL),
        (b"zero", ZERO),
        (b"full", FULL),
        (b"random", RANDOM),
        (b"urandom", URANDOM),
        (b"tty", TTY),
        (b"console", CONSOLE),
    ] {
        let mode = if number == CONSOLE { 0o620 } else { 0o666 };
        dev.inode
            .create(name, &root_owned(NewKind::CharDevice(number), mode))?;
    }
    for (name, target) in [
        (&b"fd"[..], &b"/proc/self/fd"[..]),
        (b"stdin", b"/proc/self/fd/0"),
        (b"stdout", b"/proc/self/fd/1"),
        (b"stderr", b"/proc/self/fd/2"),
    ] {
        dev.inode
            .create(name, &root_owned(NewKind::Symlink(target), 0o777))?;
    }
    mount_at(vfs, b"/dev/shm", TmpFs::new(shm_limit_bytes, 0o1777))?;

    for (number, what) in [
        (NULL, Memory::Null),
        (ZERO, Memory::Zero),
        (FULL, Memory::Full),
        (RANDOM, Memory::Random),
        (URANDOM, Memory::Random),
    ] {
        vfs.register_device(number, Arc::new(Shared(Arc::new(MemoryDevice(what)))));
    }
    let console = Arc::new(Console {
        device: console,
        pending: SpinLock::new(Pending::default()),
    });
    vfs.register_device(CONSOLE, Arc::new(ConsoleDriver(console)));
    Ok(())
}

/// Mounts a file system at a directory of the root, which is made if the image does not have it (also on a root that
/// is mounted read-only: the image's author expects these directories to be there).
pub fn mount_at(vfs: &Vfs, path: &[u8], fs: Arc<dyn crate::vfs::FileSystem>) -> Result<()> {
    let at = match vfs.resolve(vfs.root(), path, Follow::Yes) {
        Ok(place) => place,
        Err(Errno::ENOENT) => {
            let split = path.iter().rposition(|b| *b == b'/').ok_or(Errno::EINVAL)?;
            let mut parent = vfs.resolve(vfs.root(), &path[..=split], Follow::Yes)?;
            parent.inode = parent
                .inode
                .create(&path[split + 1..], &root_owned(NewKind::Directory, 0o755))?;
            parent
        }
        Err(error) => return Err(error),
    };
    vfs.mount(&at, fs, MountOptions::default())
}

fn root_owned(kind: NewKind<'_>, mode: u32) -> NewNode<'_> {
    NewNode {
        kind,
        mode,
        uid: 0,
        gid: 0,
    }
}

/// A device whose descriptors all share one object.
struct Shared<T>(Arc<T>);

impl<T: File> DeviceDriver for Shared<T> {
    fn open(&self, _flags: u32) -> Result<Arc<dyn File>> {
        Ok(self.0.clone())
    }
}

fn metadata() -> Metadata {
    Metadata {
        mode: g::S_IFCHR | 0o600,
        links: 1,
        ..Metadata::default()
    }
}

/// The devices that are nothing but a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Null,
    Zero,
    Full,
    Random,
}

struct MemoryDevice(Memory);

impl File for MemoryDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        match self.0 {
            Memory::Null => Ok(0),
            Memory::Zero | Memory::Full => dst.write_zeros(dst.remaining()),
            Memory::Random => random(dst),
        }
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        match self.0 {
            Memory::Full => Err(Errno::ENOSPC),
            // Bytes written to the random devices may be mixed in without being trusted (random(4)); they are not.
            _ => Ok(src.remaining()),
        }
    }

    fn is_seekable(&self) -> bool {
        true // to any position, which does not matter
    }

    fn read_at(&self, _position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        self.read(dst)
    }

    fn write_at(&self, position: u64, _append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        Ok((self.write(src)?, position))
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(metadata())
    }

    fn page(&self, _index: u64, _write: bool) -> Result<Page> {
        match self.0 {
            Memory::Zero => Page::zeroed(),
            _ => Err(Errno::ENODEV),
        }
    }
}

fn random(dst: &mut IoDst<'_>) -> Result<usize> {
    let total = dst.remaining().min(RANDOM_MAX);
    let mut done = 0;
    let mut bytes = [0; 256];
    while done < total {
        let chunk = (total - done).min(bytes.len());
        coracle_core::random::fill(&mut bytes[..chunk]);
        match dst.write(&bytes[..chunk]) {
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if dst.faulted().is_some() {
            break;
        }
    }
    bytes.fill(0);
    Ok(done)
}

/// The machine's console.
struct Console {
    device: Arc<dyn CharDevice>,
    pending: SpinLock<Pending>,
}

/// Input that the device gave and the application did not take yet.
struct Pending {
    bytes: [u8; 256],
    start: usize,
    end: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            bytes: [0; 256],
            start: 0,
            end: 0,
        }
    }
}

struct ConsoleDriver(Arc<Console>);

impl DeviceDriver for ConsoleDriver {
    fn open(&self, flags: u32) -> Result<Arc<dyn File>> {
        let access = flags & g::O_ACCMODE;
        Ok(Arc::new(ConsoleFile {
            console: self.0.clone(),
            reads: access != g::O_WRONLY,
            writes: access != g::O_RDONLY,
        }))
    }
}

/// The console as it was opened. It is no terminal: terminal requests give `ENOTTY`. A descriptor that only writes is
/// not told of input and its end, as the writing end of a pipe is not.
struct ConsoleFile {
    console: Arc<Console>,
    reads: bool,
    writes: bool,
}

impl File for ConsoleFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        if dst.remaining() == 0 {
            return Ok(0);
        }
        let mut pending = self.console.pending.lock();
        if pending.start == pending.end {
            let len = self.console.device.read(&mut pending.bytes)?;
            pending.start = 0;
            pending.end = len;
        }
        let count = dst.write(&pending.bytes[pending.start..pending.end])?;
        pending.start += count;
        Ok(count)
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        let mut bytes = [0; 512];
        let mut done = 0;
        while src.remaining() > 0 {
            let before = src.done();
            let read = match src.read(&mut bytes) {
                Ok(read) => read,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            match self.console.device.write(&bytes[..read]) {
                Ok(written) => {
                    done += written;
                    if written < read {
                        src.rewind(before + written);
                        break;
                    }
                }
                Err(error) => {
                    src.rewind(before);
                    if done > 0 {
                        break;
                    }
                    return Err(error);
                }
            }
            if src.faulted().is_some() {
                break;
            }
        }
        Ok(done)
    }

    fn poll(&self) -> PollEvents {
        let pending = self.console.pending.lock();
        let waiting = pending.start < pending.end;
        drop(pending);
        let mut events = self.console.device.poll();
        if waiting {
            events |= PollEvents::IN | PollEvents::RDNORM;
        }
        if !self.reads {
            events -= PollEvents::IN | PollEvents::RDNORM | PollEvents::HUP;
        }
        if !self.writes {
            events -= PollEvents::OUT | PollEvents::WRNORM;
        }
        events
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(self.console.device.poll_source())
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(metadata())
    }
}

#[cfg(test)]
mod tests;
