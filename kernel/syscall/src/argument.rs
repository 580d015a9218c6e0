// SPDX-License-Identifier: Apache-2.0
//! Raw registers to typed arguments. A handler never sees a register.

use coracle_abi::Errno;
use coracle_abi::convert::{low_u32, signed, u64_from};
use coracle_core::Result;
use coracle_core::user::{Plain, User, UserIn, UserOut};

/// A type that an argument of a system call can have.
pub trait Argument: Sized {
    /// The value for a register. Fails only for values that no call takes.
    fn parse(raw: usize) -> Result<Self>;
}

/// A file descriptor number as the application gave it; perhaps negative, perhaps `AT_FDCWD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fd(pub i32);

impl Fd {
    /// The index into the table; `EBADF` for a negative number.
    pub fn index(self) -> Result<u32> {
        u32::try_from(self.0).map_err(|_| Errno::EBADF)
    }
}

impl Argument for Fd {
    fn parse(raw: usize) -> Result<Self> {
        i32::parse(raw).map(Fd)
    }
}

impl Argument for usize {
    fn parse(raw: usize) -> Result<Self> {
        Ok(raw)
    }
}

impl Argument for u32 {
    fn parse(raw: usize) -> Result<Self> {
        Ok(low_u32(u64_from(raw)))
    }
}

impl Argument for i32 {
    fn parse(raw: usize) -> Result<Self> {
        u32::parse(raw).map(signed)
    }
}

impl Argument for i64 {
    fn parse(raw: usize) -> Result<Self> {
        Ok(u64_from(raw).cast_signed())
    }
}

impl Argument for User {
    fn parse(raw: usize) -> Result<Self> {
        Ok(User(raw))
    }
}

impl<T: Plain> Argument for UserIn<T> {
    fn parse(raw: usize) -> Result<Self> {
        Ok(Self::new(raw))
    }
}

impl<T: Plain> Argument for UserOut<T> {
    fn parse(raw: usize) -> Result<Self> {
        Ok(Self::new(raw))
    }
}
