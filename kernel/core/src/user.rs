// SPDX-License-Identifier: Apache-2.0
//! Application memory as the kernel sees it: addresses that may be nonsense.
//!
//! A copy checks that the range lies below the end of the application's half, then runs a routine whose faults are
//! caught. Pages are not made present here; see [`crate::io`] for why, and [`UserOut`]/[`UserIn`] for the typed
//! pointers of handlers, which do make them present.

use core::marker::PhantomData;

use coracle_abi::{Errno, USER_END};

use crate::Result;
use crate::memory;

/// Whether `[at, at + len)` lies within the application's half of the address space.
#[inline]
fn in_range(at: usize, len: usize) -> bool {
    at.checked_add(len).is_some_and(|end| end <= USER_END)
}

/// Copies to the application; returns how many bytes were not copied.
#[inline]
#[must_use]
pub fn write_bytes(at: usize, bytes: &[u8]) -> usize {
    if !in_range(at, bytes.len()) {
        return bytes.len();
    }
    // SAFETY: the destination is in the application's half, which holds no kernel object, and a fault is caught.
    unsafe { coracle_arch::user::copy(at as *mut u8, bytes.as_ptr(), bytes.len()) }
}

/// Copies from the application; returns how many bytes were not copied.
#[inline]
#[must_use]
pub fn read_bytes(bytes: &mut [u8], at: usize) -> usize {
    if !in_range(at, bytes.len()) {
        return bytes.len();
    }
    // SAFETY: the source is in the application's half and a fault is caught; the destination is borrowed exclusively.
    unsafe { coracle_arch::user::copy(bytes.as_mut_ptr(), at as *const u8, bytes.len()) }
}

/// Zeroes application memory; returns how many bytes were not written.
#[inline]
#[must_use]
pub fn zero_bytes(at: usize, len: usize) -> usize {
    if !in_range(at, len) {
        return len;
    }
    // SAFETY: as for `write_bytes`.
    unsafe { coracle_arch::user::zero(at as *mut u8, len) }
}

/// Copies all of `bytes` to the application, making pages present as needed. `EFAULT` if that cannot be.
pub fn write_all(at: usize, bytes: &[u8]) -> Result<()> {
    transfer(at, bytes.len(), true, |done| {
        write_bytes(at + done, &bytes[done..])
    })
}

/// Fills all of `bytes` from the application, making pages present as needed. `EFAULT` if that cannot be.
pub fn read_all(bytes: &mut [u8], at: usize) -> Result<()> {
    let len = bytes.len();
    transfer(at, len, false, |done| {
        read_bytes(&mut bytes[done..], at + done)
    })
}

/// Zeroes `len` bytes, making pages present as needed. `EFAULT` if that cannot be.
pub fn zero_all(at: usize, len: usize) -> Result<()> {
    transfer(at, len, true, |done| zero_bytes(at + done, len - done))
}

/// Runs `copy(bytes done so far) -> bytes left` until nothing is left, faulting in the page it stopped at.
fn transfer(
    at: usize,
    len: usize,
    write: bool,
    mut copy: impl FnMut(usize) -> usize,
) -> Result<()> {
    let mut left = copy(0);
    while left > 0 {
        let done = len - left;
        let stopped_at = at
            .checked_add(done)
            .filter(|a| *a < USER_END)
            .ok_or(Errno::EFAULT)?;
        memory::fault_in(stopped_at, write)?;
        left = copy(done);
    }
    Ok(())
}

/// Types that are plain bytes: any bit pattern is a value, and there is no padding that could leak kernel memory.
///
/// # Safety
/// The implementer promises both properties.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($t:ty),* $(,)?) => { $(
        // SAFETY: integers and C structures of integers, whose padding (if any) is named in fields or zeroed by
        // `zeroed` before the fields are set.
        unsafe impl Plain for $t {}
    )* };
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);

// SAFETY: an array of plain values is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

mod plain_structs {
    //! The C structures that cross the border.
    use super::Plain;
    use coracle_abi::raw::{general as g, net as n, system as s};
    plain!(
        g::timespec,
        g::timeval,
        g::__kernel_timespec,
        g::itimerval,
        g::__kernel_itimerspec,
        g::timezone,
        g::stat,
        g::statfs,
        g::statx,
        g::statx_timestamp,
        g::rlimit,
        g::rlimit64,
        g::rusage,
        g::iovec,
        g::epoll_event,
        g::pollfd,
        g::clone_args,
        g::robust_list_head,
        g::robust_list,
        g::open_how,
        g::flock,
        n::sockaddr,
        n::sockaddr_in,
        n::linger,
        n::msghdr,
        n::mmsghdr,
        n::cmsghdr,
        n::ucred,
        s::new_utsname,
    );
}

/// Reads a value of type `T` from the bytes of a buffer of exactly its size.
fn from_bytes<T: Plain>(fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the slice covers exactly the zeroed value.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    fill(bytes)?;
    // SAFETY: any bit pattern is a value of a `Plain` type.
    Ok(unsafe { value.assume_init() })
}

/// The bytes of a plain value.
#[must_use]
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a `Plain` value has no uninitialised padding and its bytes may be read.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// A plain value with all bytes zero.
#[must_use]
pub fn zeroed<T: Plain>() -> T {
    // SAFETY: any bit pattern, so also all zeroes, is a value of a `Plain` type.
    unsafe { core::mem::zeroed() }
}

/// A plain value from the start of a kernel byte slice; `EINVAL` if the slice is too short.
pub fn from_slice<T: Plain>(bytes: &[u8]) -> Result<T> {
    let bytes = bytes.get(..size_of::<T>()).ok_or(Errno::EINVAL)?;
    from_bytes(|out| {
        out.copy_from_slice(bytes);
        Ok(())
    })
}

/// An address from the application, of no known type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub usize);

impl User {
    /// Whether the application passed NULL.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address, or `None` for NULL where a manual page allows NULL.
    #[must_use]
    pub fn optional(self) -> Option<Self> {
        (!self.is_null()).then_some(self)
    }

    /// The address `bytes` further on; `EFAULT` when it overflows.
    pub fn offset(self, bytes: usize) -> Result<Self> {
        self.0.checked_add(bytes).map(Self).ok_or(Errno::EFAULT)
    }

    /// Reads a value of type `T`. `EFAULT` if the memory cannot be read.
    pub fn read<T: Plain>(self) -> Result<T> {
        UserIn::new(self.0).read()
    }

    /// Writes a value. `EFAULT` if the memory cannot be written.
    pub fn write<T: Plain>(self, value: T) -> Result<()> {
        UserOut::new(self.0).write(value)
    }
}

/// An address at which the kernel reads values of type `T`.
#[derive(Debug)]
pub struct UserIn<T>(usize, PhantomData<fn() -> T>);

/// An address at which the kernel writes values of type `T`.
#[derive(Debug)]
pub struct UserOut<T>(usize, PhantomData<fn(T)>);

macro_rules! pointer {
    ($name:ident) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
        impl<T: Plain> $name<T> {
            /// The pointer for an address from the application.
            #[must_use]
            pub const fn new(address: usize) -> Self {
                Self(address, PhantomData)
            }

            /// The address.
            #[must_use]
            pub const fn address(self) -> usize {
                self.0
            }

            /// Whether the application passed NULL.
            #[must_use]
            pub const fn is_null(self) -> bool {
                self.0 == 0
            }

            /// The pointer, or `None` for NULL where a manual page allows NULL.
            #[must_use]
            pub fn optional(self) -> Option<Self> {
                (!self.is_null()).then_some(self)
            }

            /// The pointer to element `index` of an array; `EFAULT` when the address overflows.
            pub fn at(self, index: usize) -> Result<Self> {
                let offset = index.checked_mul(size_of::<T>()).ok_or(Errno::EFAULT)?;
                self.0
                    .checked_add(offset)
                    .map(Self::new)
                    .ok_or(Errno::EFAULT)
            }
        }
    };
}
pointer!(UserIn);
pointer!(UserOut);

impl<T: Plain> UserIn<T> {
    /// Reads the value. `EFAULT` if the memory cannot be read.
    pub fn read(self) -> Result<T> {
        from_bytes(|bytes| read_all(bytes, self.0))
    }
}

impl<T: Plain> UserOut<T> {
    /// Writes the value. `EFAULT` if the memory cannot be written.
    pub fn write(self, value: T) -> Result<()> {
        write_all(self.0, bytes_of(&value))
    }

    /// The same address for reading, for arguments that go both ways.
    #[must_use]
    pub const fn as_in(self) -> UserIn<T> {
        UserIn(self.0, PhantomData)
    }
}

/// Reads a NUL-terminated string of less than `limit` bytes (its terminator included). `EFAULT`, or `ENAMETOOLONG`.
pub fn read_c_string(at: usize, limit: usize) -> Result<alloc::vec::Vec<u8>> {
    let mut text = alloc::vec::Vec::new();
    let mut chunk = [0u8; 64];
    while text.len() < limit {
        let here = at.checked_add(text.len()).ok_or(Errno::EFAULT)?;
        // A chunk ends at a multiple of its size, so it never crosses into a page that the string may not reach.
        let len = (chunk.len() - here % chunk.len()).min(limit - text.len());
        read_all(&mut chunk[..len], here)?;
        if let Some(end) = chunk[..len].iter().position(|b| *b == 0) {
            text.extend_from_slice(&chunk[..end]);
            return Ok(text);
        }
        text.extend_from_slice(&chunk[..len]);
    }
    Err(Errno::ENAMETOOLONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_nul_or_limit() {
        let text = b"hello\0rest";
        assert_eq!(read_c_string(text.as_ptr() as usize, 64).unwrap(), b"hello");
        assert_eq!(
            read_c_string(text.as_ptr() as usize, 5),
            Err(Errno::ENAMETOOLONG)
        );
        assert_eq!(read_c_string(USER_END + 5, 64), Err(Errno::EFAULT));
    }

    #[test]
    fn typed_pointers_read_and_write() {
        let mut cell = [7u32, 8];
        let at = cell.as_mut_ptr() as usize;
        assert_eq!(UserIn::<u32>::new(at).at(1).unwrap().read(), Ok(8));
        UserOut::<u32>::new(at).write(9).unwrap();
        assert_eq!(cell[0], 9);
        assert_eq!(UserOut::<u32>::new(usize::MAX).write(1), Err(Errno::EFAULT));
    }
}
