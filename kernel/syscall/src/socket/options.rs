// SPDX-License-Identifier: Apache-2.0
//! `getsockopt(2)` and `setsockopt(2)`: the values' way; their meaning is in `net`.

use coracle_abi::Errno;
use coracle_abi::convert::usize_from_u32;
use coracle_core::Result;
use coracle_core::user::{self, User};

use super::Socket;
use crate::argument::Fd;

/// The longest value of an option that means something here.
const LONGEST: usize = 256;

/// A length as the application states it; `EINVAL` for a negative one. Cut to what any option needs.
fn length(len: u32) -> Result<usize> {
    if len.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(usize_from_u32(len).min(LONGEST))
}

/// `setsockopt(2)`
pub(crate) fn setsockopt(fd: Fd, level: i32, option: i32, value: User, len: u32) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let len = length(len)?;
    let mut bytes = [0; LONGEST];
    user::read_all(&mut bytes[..len], value.0)?;
    socket
        .file()
        .set_option(level.cast_unsigned(), option.cast_unsigned(), &bytes[..len])?;
    Ok(0)
}

/// `getsockopt(2)`
pub(crate) fn getsockopt(fd: Fd, level: i32, option: i32, value: User, len: User) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let room = length(len.read()?)?;
    let mut bytes = [0; LONGEST];
    let used = socket.file().get_option(
        level.cast_unsigned(),
        option.cast_unsigned(),
        &mut bytes[..room],
    )?;
    user::write_all(value.0, &bytes[..used])?;
    len.write(u32::try_from(used).map_err(|_| Errno::EINVAL)?)?;
    Ok(0)
}
