// SPDX-License-Identifier: Apache-2.0
//! The two ends of a transfer: where a read puts its bytes and where a write takes them from.
//!
//! Copies never make missing pages present. A copy that meets one stops and remembers the address; the system-call
//! layer faults the page in and calls again. So files may copy while they hold a spin lock, with two rules:
//! a stream consumes exactly what was copied (`Ok(n)` with `n > 0`, or `Err(EFAULT)` when nothing was), and a message
//! is consumed only if all of it was copied ([`IoDst::faulted`] tells), otherwise `EFAULT`.

use coracle_abi::Errno;

use crate::Result;
use crate::user;

/// One piece of application memory, as in `struct iovec` (readv(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub base: usize,
    /// Length in bytes.
    pub len: usize,
}

enum Dst<'a> {
    User(&'a [Segment]),
    Kernel(&'a mut [u8]),
}

enum Src<'a> {
    User(&'a [Segment]),
    Kernel(&'a [u8]),
}

/// Position within a list of segments.
#[derive(Default)]
struct Cursor {
    segment: usize,
    offset: usize,
    done: usize,
    fault: Option<usize>,
}

impl Cursor {
    /// Runs `copy(user address, offset into the kernel side, length) -> bytes not copied` over the segments.
    fn advance(
        &mut self,
        segments: &[Segment],
        len: usize,
        mut copy: impl FnMut(usize, usize, usize) -> usize,
    ) -> usize {
        let mut moved = 0;
        while moved < len {
            let Some(segment) = segments.get(self.segment) else {
                break;
            };
            let step = (segment.len - self.offset).min(len - moved);
            if step > 0 {
                let at = segment.base.wrapping_add(self.offset);
                let copied = step - copy(at, moved, step);
                moved += copied;
                self.offset += copied;
                self.done += copied;
                if copied < step {
                    self.fault = Some(at.wrapping_add(copied));
                    return moved;
                }
            }
            if self.offset == segment.len {
                self.segment += 1;
                self.offset = 0;
            }
        }
        moved
    }
}

impl Cursor {
    /// Goes back to where `done` bytes were moved. A fault stays known.
    fn rewind(&mut self, segments: &[Segment], done: usize) {
        debug_assert!(done <= self.done);
        let mut left = done;
        *self = Self {
            done,
            fault: self.fault,
            ..Self::default()
        };
        while let Some(segment) = segments.get(self.segment)
            && left >= segment.len
        {
            left -= segment.len;
            self.segment += 1;
        }
        self.offset = left;
    }
}

/// Where a read puts its bytes.
pub struct IoDst<'a> {
    to: Dst<'a>,
    total: usize,
    cursor: Cursor,
}

/// Where a write takes its bytes from.
pub struct IoSrc<'a> {
    from: Src<'a>,
    total: usize,
    cursor: Cursor,
}

macro_rules! common {
    ($name:ident) => {
        impl $name<'_> {
            /// Bytes that still fit or are still there.
            #[must_use]
            pub fn remaining(&self) -> usize {
                self.total - self.cursor.done
            }

            /// Bytes moved so far.
            #[must_use]
            pub fn done(&self) -> usize {
                self.cursor.done
            }

            /// Whether the last copy stopped at memory that is missing, and where.
            #[must_use]
            pub fn faulted(&self) -> Option<usize> {
                self.cursor.fault
            }

            /// Forgets the fault, after the page was made present.
            pub fn clear_fault(&mut self) {
                self.cursor.fault = None;
            }
        }
    };
}
common!(IoDst);
common!(IoSrc);

/// Sum of the lengths; `EINVAL` above `SSIZE_MAX` as in readv(2).
fn total(segments: &[Segment]) -> Result<usize> {
    segments
        .iter()
        .try_fold(0usize, |sum, s| sum.checked_add(s.len))
        .filter(|sum| isize::try_from(*sum).is_ok())
        .ok_or(Errno::EINVAL)
}

impl<'a> IoDst<'a> {
    /// Application memory. The addresses may be nonsense; copying to them gives `EFAULT`.
    pub fn user(segments: &'a [Segment]) -> Result<Self> {
        Ok(Self {
            total: total(segments)?,
            to: Dst::User(segments),
            cursor: Cursor::default(),
        })
    }

    /// Kernel memory.
    pub fn kernel(bytes: &'a mut [u8]) -> Self {
        Self {
            total: bytes.len(),
            to: Dst::Kernel(bytes),
            cursor: Cursor::default(),
        }
    }

    /// Copies as much of `bytes` as fits and returns how much that was. `EFAULT` if memory is missing at the first
    /// byte; a shorter count with [`IoDst::faulted`] set if it is missing later.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let len = bytes.len().min(self.remaining());
        self.copy(
            len,
            |at, offset, step| user::write_bytes(at, &bytes[offset..offset + step]),
            |out| {
                out.copy_from_slice(&bytes[..len]);
            },
        )
    }

    /// Writes `len` zero bytes, as far as they fit. Errors as [`IoDst::write`].
    pub fn write_zeros(&mut self, len: usize) -> Result<usize> {
        let len = len.min(self.remaining());
        self.copy(
            len,
            |at, _, step| user::zero_bytes(at, step),
            |out| out.fill(0),
        )
    }

    fn copy(
        &mut self,
        len: usize,
        user: impl FnMut(usize, usize, usize) -> usize,
        kernel: impl FnOnce(&mut [u8]),
    ) -> Result<usize> {
        match &mut self.to {
            Dst::User(segments) => match self.cursor.advance(segments, len, user) {
                0 if len > 0 => Err(Errno::EFAULT),
                moved => Ok(moved),
            },
            Dst::Kernel(to) => {
                kernel(&mut to[self.cursor.done..self.cursor.done + len]);
                self.cursor.done += len;
                Ok(len)
            }
        }
    }
}

impl IoDst<'_> {
    /// Goes back to an earlier value of `done()`: for a message that could not be copied as a whole and stays where it
    /// is. A fault stays known, so that the page can be made present.
    pub fn rewind(&mut self, done: usize) {
        let segments = match &self.to {
            Dst::User(segments) => segments,
            Dst::Kernel(_) => &[][..],
        };
        self.cursor.rewind(segments, done);
    }
}

impl<'a> IoSrc<'a> {
    /// Application memory. The addresses may be nonsense; copying from them gives `EFAULT`.
    pub fn user(segments: &'a [Segment]) -> Result<Self> {
        Ok(Self {
            total: total(segments)?,
            from: Src::User(segments),
            cursor: Cursor::default(),
        })
    }

    /// Kernel memory.
    #[must_use]
    pub fn kernel(bytes: &'a [u8]) -> Self {
        Self {
            total: bytes.len(),
            from: Src::Kernel(bytes),
            cursor: Cursor::default(),
        }
    }

    /// Fills `bytes` as far as the source lasts and returns how much that was. Errors as [`IoDst::write`].
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let len = bytes.len().min(self.remaining());
        match &self.from {
            Src::User(segments) => {
                let copy = |at: usize, offset: usize, step: usize| {
                    user::read_bytes(&mut bytes[offset..offset + step], at)
                };
                match self.cursor.advance(segments, len, copy) {
                    0 if len > 0 => Err(Errno::EFAULT),
                    moved => Ok(moved),
                }
            }
            Src::Kernel(from) => {
                bytes[..len].copy_from_slice(&from[self.cursor.done..self.cursor.done + len]);
                self.cursor.done += len;
                Ok(len)
            }
        }
    }

    /// Goes back to an earlier value of `done()`: for a message that was read but could not be sent. A fault stays
    /// known, so that the page can be made present.
    pub fn rewind(&mut self, done: usize) {
        let segments = match &self.from {
            Src::User(segments) => segments,
            Src::Kernel(_) => &[][..],
        };
        self.cursor.rewind(segments, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_filled_in_order() {
        let (mut a, mut b) = ([0u8; 3], [0u8; 5]);
        let segments = [
            Segment {
                base: a.as_mut_ptr() as usize,
                len: 3,
            },
            Segment { base: 1, len: 0 },
            Segment {
                base: b.as_mut_ptr() as usize,
                len: 5,
            },
        ];
        let mut dst = IoDst::user(&segments).unwrap();
        assert_eq!(dst.write(b"hello"), Ok(5));
        assert_eq!(dst.write(b"world"), Ok(3));
        assert_eq!((dst.remaining(), dst.done()), (0, 8));
        assert_eq!((&a, &b), (b"hel", b"lowor"));

        let mut src = IoSrc::user(&segments).unwrap();
        let mut out = [0u8; 4];
        assert_eq!(src.read(&mut out), Ok(4));
        assert_eq!(&out, b"hell");
        src.rewind(3);
        assert_eq!(src.read(&mut out), Ok(4));
        assert_eq!(&out, b"lowo");

        let mut dst = IoDst::user(&segments).unwrap();
        assert_eq!(dst.write(b"hello"), Ok(5));
        dst.rewind(2);
        assert_eq!(dst.write(b"y"), Ok(1));
        assert_eq!((&a, &b), (b"hey", b"lowor"));
    }

    #[test]
    fn absurd_lengths_are_refused() {
        let segments = [
            Segment {
                base: 0,
                len: usize::MAX,
            },
            Segment { base: 0, len: 2 },
        ];
        assert_eq!(IoDst::user(&segments).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn addresses_of_the_kernel_fault() {
        let segments = [Segment {
            base: coracle_abi::USER_END - 1,
            len: 4,
        }];
        let mut dst = IoDst::user(&segments).unwrap();
        assert_eq!(dst.write(b"abcd"), Err(Errno::EFAULT));
        assert!(dst.faulted().is_some());
    }
}
