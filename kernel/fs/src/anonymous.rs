// SPDX-License-Identifier: Apache-2.0
//! What objects without a name share: the device number and the metadata that `fstat(2)` shows.

use coracle_core::file::Metadata;
use coracle_core::sync::Once;

static DEVICE: Once<u64> = Once::new();

/// The device number of the file system that pipes, event counters and the like pretend to be in.
pub(crate) fn device() -> u64 {
    loop {
        if let Some(device) = DEVICE.get() {
            return *device;
        }
        // Whoever loses the race reads the winner's number.
        let _ = DEVICE.set(crate::tmpfs::next_device());
    }
}

/// What Linux reports for eventfd, epoll and timerfd: one inode without type, shared by all.
pub(crate) fn metadata() -> Metadata {
    Metadata {
        device: device(),
        inode: 1,
        mode: 0o600,
        links: 1,
        ..Metadata::default()
    }
}
