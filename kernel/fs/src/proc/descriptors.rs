// SPDX-License-Identifier: Apache-2.0
//! `/proc/PID/fd` and `fdinfo`: open descriptors as links to their objects.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt::Write;

use coracle_core::file::{File, Metadata, OpenFile};

use super::Info;
use super::process::number;
use crate::pipe::{Pipe, PipeEnd};
use crate::pseudo::{List, Spec};
use crate::vfs::{Inode, Kind, Mount, Place, Target, VnodeFile};
use crate::{Errno, Result};

/// `fd`
pub(super) struct Descriptors(pub(super) Info);

impl List for Descriptors {
    fn names(&self) -> Vec<String> {
        self.0.descriptors().iter().map(u32::to_string).collect()
    }

    fn find(&self, name: &str) -> Option<Spec> {
        let fd = number(name)?;
        self.0.open_file(fd)?;
        let (shown, info) = (self.0.clone(), self.0.clone());
        Some(Spec::Link(
            Box::new(move || Ok(shown_name(&*shown.open_file(fd).ok_or(Errno::ENOENT)?))),
            Some(Box::new(move || {
                follow(info.open_file(fd).ok_or(Errno::ENOENT)?, info.root().mount)
            })),
        ))
    }
}

/// The text of a link in `fd`.
fn shown_name(open: &OpenFile) -> Vec<u8> {
    if let Some(file) = open.downcast::<VnodeFile>() {
        return file.path();
    }
    if let Some(end) = open.downcast::<PipeEnd>() {
        return format!("pipe:[{}]", end.pipe().number()).into_bytes();
    }
    let file = open.file().as_any();
    let kind = if file.is::<crate::eventfd::EventFd>() {
        "anon_inode:[eventfd]".to_string()
    } else if file.is::<crate::epoll::Epoll>() {
        "anon_inode:[eventpoll]".to_string()
    } else if file.is::<crate::timerfd::TimerFd>() {
        "anon_inode:[timerfd]".to_string()
    } else if file.is::<crate::signalfd::SignalFd>() {
        "anon_inode:[signalfd]".to_string()
    } else {
        let metadata = open.file().metadata().unwrap_or_default();
        match Kind::from_mode(metadata.mode) {
            Some(Kind::Socket) => format!("socket:[{}]", metadata.inode),
            _ => "anon_inode:[file]".to_string(),
        }
    };
    kind.into_bytes()
}

/// Where a link to an open file leads: to the object itself, whatever its name.
pub(super) fn follow(open: Arc<OpenFile>, mount: Arc<Mount>) -> Result<Target> {
    if let Some(file) = open.downcast::<VnodeFile>() {
        return Ok(Target::Jump(file.place().clone(), file.named().cloned()));
    }
    let inode: Arc<dyn Inode> = match open.downcast::<PipeEnd>() {
        Some(end) => Arc::new(UnnamedPipe(end.pipe().clone(), end.metadata()?)),
        None => Arc::new(Unnamed(open)),
    };
    Ok(Target::Jump(Place { mount, inode }, None))
}

/// An object without a name, reached through its descriptor.
struct Unnamed(Arc<OpenFile>);

impl Inode for Unnamed {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        let mode = self.0.file().metadata().unwrap_or_default().mode;
        // Event counters and their kind have no type; they open like sockets, not at all.
        Kind::from_mode(mode).unwrap_or(Kind::Socket)
    }

    fn metadata(&self) -> Result<Metadata> {
        self.0.file().metadata()
    }

    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn File>> {
        Err(Errno::ENXIO)
    }
}

/// A pipe reached through a descriptor: opening it makes another end. It does not keep the first end open.
struct UnnamedPipe(Arc<Pipe>, Metadata);

impl Inode for UnnamedPipe {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        Kind::Fifo
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.1)
    }

    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn File>> {
        Err(Errno::ENXIO)
    }

    fn pipe(&self) -> Option<Arc<Pipe>> {
        Some(self.0.clone())
    }
}

/// `fdinfo`
pub(super) struct DescriptorInfo(pub(super) Info);

impl List for DescriptorInfo {
    fn names(&self) -> Vec<String> {
        Descriptors(self.0.clone()).names()
    }

    fn find(&self, name: &str) -> Option<Spec> {
        let fd = number(name)?;
        self.0.open_file(fd)?;
        let info = self.0.clone();
        Some(Spec::File(Box::new(move || {
            let open = info.open_file(fd).ok_or(Errno::ENOENT)?;
            let mut out = format!(
                "pos:\t{}\nflags:\t0{:o}\n",
                *open.position().lock(),
                open.flags()
            );
            if let Some(epoll) = open.downcast::<crate::epoll::Epoll>() {
                epoll.for_each(|fd, interest| {
                    let _ = writeln!(
                        out,
                        "tfd: {fd:>8} events: {:>8x} data: {:>16x}",
                        interest.flags, interest.data
                    );
                });
            }
            Ok(out.into_bytes())
        })))
    }
}
