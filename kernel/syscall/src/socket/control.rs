// SPDX-License-Identifier: Apache-2.0
//! Control messages (cmsg(3)): descriptors and credentials that go along with a message, and what the network tells.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{low_u32, u64_from, usize_from};
use coracle_core::file::OpenFile;
use coracle_core::thread::FIRST_TID;
use coracle_core::user::{self, User};
use coracle_core::{Errno, Result};
use coracle_net::ControlMessage;
use coracle_net::socket::linux::{SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};

use crate::argument::Fd;
use crate::info::{Identity, Ids, identity};
use crate::process::process;

/// Length of `struct cmsghdr`.
const HEADER: usize = 16;

/// Most descriptors in one message (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// Most bytes of control messages (`net.core.optmem_max`).
const MOST_BYTES: usize = 20_480;

fn align(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

/// Reads the control messages of sendmsg(2). `ENOBUFS` if they are too long, `EINVAL` if they are malformed, `EBADF`
/// for a descriptor that is not open, `EPERM` for forged credentials.
pub(super) fn read(at: User, len: usize) -> Result<Vec<ControlMessage>> {
    if at.is_null() || len == 0 {
        return Ok(Vec::new());
    }
    if len > MOST_BYTES {
        return Err(Errno::ENOBUFS);
    }
    let mut bytes = alloc::vec![0; len];
    user::read_all(&mut bytes, at.0)?;
    let mut messages = Vec::new();
    let mut rest = &bytes[..];
    while rest.len() >= HEADER {
        let len = usize_from(user::from_slice(rest)?);
        let [level, kind]: [u32; 2] = user::from_slice(&rest[8..])?;
        let data = rest.get(HEADER..len).ok_or(Errno::EINVAL)?;
        match (level, kind) {
            (SOL_SOCKET, SCM_RIGHTS) => messages.push(ControlMessage::Rights(rights(data)?)),
            (SOL_SOCKET, SCM_CREDENTIALS) => check_credentials(data)?,
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => messages.push(ControlMessage::Other {
                level,
                kind,
                data: data.to_vec(),
            }),
        }
        rest = rest.get(align(len)..).unwrap_or_default();
    }
    Ok(messages)
}

fn rights(data: &[u8]) -> Result<Vec<Arc<OpenFile>>> {
    let numbers = data.chunks_exact(size_of::<i32>());
    if numbers.len() > MOST_DESCRIPTORS {
        return Err(Errno::EINVAL);
    }
    numbers
        .map(|number| process().any_file(Fd(user::from_slice(number)?)))
        .collect()
}

/// The kernel fills credentials in by itself; stating others than the own ones is refused.
fn check_credentials(data: &[u8]) -> Result<()> {
    let [pid, uid, gid]: [u32; 3] = user::from_slice(data)?;
    let Identity { user, group, .. } = identity();
    let has = |ids: Ids, id| [ids.real, ids.effective, ids.saved].contains(&id);
    if pid == FIRST_TID && has(user, uid) && has(group, gid) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// A second copy of messages, for a second attempt to send them.
pub(super) fn copy_of(messages: &[ControlMessage]) -> Vec<ControlMessage> {
    messages
        .iter()
        .map(|message| match message {
            ControlMessage::Rights(files) => ControlMessage::Rights(files.clone()),
            ControlMessage::Other { level, kind, data } => ControlMessage::Other {
                level: *level,
                kind: *kind,
                data: data.clone(),
            },
        })
        .collect()
}

/// Where recvmsg(2) puts control messages.
pub(super) struct Room {
    at: usize,
    left: usize,
    used: usize,
    close_on_exec: bool,
    cut: bool,
}

impl Room {
    pub(super) fn new(at: User, len: usize, close_on_exec: bool) -> Self {
        Self {
            at: at.0,
            left: if at.is_null() { 0 } else { len },
            used: 0,
            close_on_exec,
            cut: false,
        }
    }

    /// Bytes written.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether something did not fit (`MSG_CTRUNC`).
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    pub(super) fn put(&mut self, message: ControlMessage) -> Result<()> {
        match message {
            ControlMessage::Rights(files) => self.put_rights(&files),
            ControlMessage::Other { level, kind, data } => {
                let room = self.left.saturating_sub(HEADER);
                self.cut |= data.len() > room;
                if self.left < HEADER {
                    self.cut = true;
                    return Ok(());
                }
                self.write(level, kind, &data[..data.len().min(room)])
            }
        }
    }

    /// Gives as many files descriptors as there is room for; the others are closed.
    fn put_rights(&mut self, files: &[Arc<OpenFile>]) -> Result<()> {
        let fitting = self.left.saturating_sub(HEADER) / size_of::<i32>();
        let mut data = Vec::new();
        for file in files.iter().take(fitting) {
            let Ok(fd) = process().add_file(file.clone(), self.close_on_exec) else {
                break;
            };
            data.extend_from_slice(&low_u32(u64_from(fd)).to_ne_bytes());
        }
        self.cut |= data.len() < files.len() * size_of::<i32>();
        if data.is_empty() {
            return Ok(());
        }
        self.write(SOL_SOCKET, SCM_RIGHTS, &data)
    }

    fn write(&mut self, level: u32, kind: u32, data: &[u8]) -> Result<()> {
        let len = HEADER + data.len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(&level.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(data);
        user::write_all(self.at, &bytes)?;
        let step = align(len).min(self.left);
        self.at += step;
        self.left -= step;
        self.used += step;
        Ok(())
    }
}
