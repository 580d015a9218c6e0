// SPDX-License-Identifier: Apache-2.0
//! System calls on file descriptors.

mod control;
mod copy;
mod create;
mod epoll;
mod fcntl;
mod poll;
mod select;
mod splice;
mod table;
mod timer;
pub(crate) mod transfer;

pub(crate) use control::{
    fadvise64, fallocate, fdatasync, fetch_ahead, fsync, ftruncate, ioctl, lseek, readahead, sync,
    sync_file_range, syncfs,
};
pub(crate) use copy::{copy_file_range, sendfile};
pub(crate) use create::{
    epoll_create, epoll_create1, eventfd, eventfd2, memfd_create, pipe, pipe2, shared_memory,
    signalfd, signalfd4, timerfd_create,
};
pub(crate) use epoll::{epoll_ctl, epoll_pwait, epoll_pwait2, epoll_wait};
pub(crate) use fcntl::{fcntl, flock};
pub(crate) use poll::{poll, ppoll};
pub(crate) use select::{pselect6, select};
pub(crate) use splice::{splice, tee, vmsplice};
pub(crate) use table::{close, close_range, dup, dup2, dup3};
pub(crate) use timer::{timerfd_gettime, timerfd_settime};
pub(crate) use transfer::{
    pread64, preadv, preadv2, pwrite64, pwritev, pwritev2, read, readv, write, writev,
};
