// SPDX-License-Identifier: Apache-2.0
//! null(4), random(4) and the console, opened by name.

use super::*;
use crate::vfs::OpenRequest;
use alloc::vec::Vec;
use coracle_core::file::OpenFile;

/// A console that takes `room` bytes and gives a few.
struct Port {
    room: SpinLock<usize>,
    input: SpinLock<&'static [u8]>,
    output: SpinLock<Vec<u8>>,
    source: PollSource,
}

impl CharDevice for Port {
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut room = self.room.lock();
        let len = bytes.len().min(*room);
        if len == 0 {
            return Err(Errno::EAGAIN);
        }
        *room -= len;
        self.output.lock().extend_from_slice(&bytes[..len]);
        Ok(len)
    }
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        let input = core::mem::take(&mut *self.input.lock());
        if input.is_empty() {
            return Err(Errno::EAGAIN);
        }
        out[..input.len()].copy_from_slice(input);
        Ok(input.len())
    }
    fn poll(&self) -> PollEvents {
        PollEvents::OUT | PollEvents::IN | PollEvents::HUP
    }
    fn poll_source(&self) -> &PollSource {
        &self.source
    }
}

fn fixture() -> (Vfs, Arc<Port>) {
    let vfs = Vfs::new(TmpFs::new(1 << 20, 0o755), MountOptions { read_only: true });
    let port = Arc::new(Port {
        room: SpinLock::new(5),
        input: SpinLock::new(b"typed"),
        output: SpinLock::default(),
        source: PollSource::new(),
    });
    mount(&vfs, port.clone(), 1 << 20).unwrap();
    (vfs, port)
}

fn open(vfs: &Vfs, path: &str) -> Result<Arc<OpenFile>> {
    vfs.open(vfs.root(), path.as_bytes(), &OpenRequest::new(g::O_RDWR))
}

fn read(file: &OpenFile, len: usize) -> Result<Vec<u8>> {
    let mut out = alloc::vec![0xaa; len];
    let n = file.read(&mut IoDst::kernel(&mut out))?;
    out.truncate(n);
    Ok(out)
}

#[test]
fn memory_devices_follow_their_rules() {
    let (vfs, _) = fixture();
    let file = |name: &str| open(&vfs, name).unwrap();
    let write = |name: &str| file(name).write(&mut IoSrc::kernel(&[1; 9]));
    assert_eq!(read(&file("/dev/null"), 4), Ok(Vec::new()));
    assert_eq!(read(&file("/dev/zero"), 4), Ok(alloc::vec![0; 4]));
    assert_eq!(read(&file("/dev/full"), 4), Ok(alloc::vec![0; 4]));
    assert_eq!((write("/dev/null"), write("/dev/zero")), (Ok(9), Ok(9)));
    assert_eq!(write("/dev/full"), Err(Errno::ENOSPC));
    let a = read(&file("/dev/urandom"), 1000).unwrap();
    let b = read(&file("/dev/random"), 1000).unwrap();
    assert!(a.len() == 1000 && b.len() == 1000 && a != b);
    let null = file("/dev/null").file().metadata().unwrap();
    assert_eq!(
        (null.mode, null.special_device),
        (g::S_IFCHR | 0o666, 0x103)
    );
    assert!(matches!(open(&vfs, "/dev/tty"), Err(Errno::ENXIO)));
    assert!(file("/dev/zero").file().page(0, false).is_ok());
    assert!(open(&vfs, "/dev/shm").is_err_and(|e| e == Errno::EISDIR));
}

#[test]
fn the_console_takes_what_fits_and_keeps_what_was_typed() {
    let (vfs, port) = fixture();
    let console = open(&vfs, "/dev/console").unwrap();
    let mut src = IoSrc::kernel(b"hello world");
    assert_eq!(console.write(&mut src), Ok(5));
    assert_eq!(
        (src.remaining(), console.write(&mut src)),
        (6, Err(Errno::EAGAIN))
    );
    *port.room.lock() = 100;
    assert_eq!(console.write(&mut src), Ok(6));
    assert_eq!(&*port.output.lock(), b"hello world");
    assert_eq!(read(&console, 2), Ok(b"ty".to_vec()));
    assert!(console.file().poll().contains(PollEvents::IN));
    assert_eq!(read(&console, 9), Ok(b"ped".to_vec()));
    assert_eq!(read(&console, 9), Err(Errno::EAGAIN));
    let tcgets = coracle_abi::raw::ioctl::TCGETS;
    assert_eq!(console.file().ioctl(tcgets, 0), Err(Errno::ENOTTY));
}

#[test]
fn a_descriptor_is_told_of_what_it_was_opened_for() {
    let (vfs, _) = fixture();
    let events = |access| {
        let open = vfs.open(vfs.root(), b"/dev/console", &OpenRequest::new(access));
        open.unwrap().file().poll()
    };
    let input = PollEvents::IN | PollEvents::HUP;
    assert_eq!(events(g::O_RDONLY), input);
    assert_eq!(events(g::O_WRONLY), PollEvents::OUT);
    assert_eq!(events(g::O_RDWR), input | PollEvents::OUT);
}
