// SPDX-License-Identifier: Apache-2.0
//! Error numbers with their Linux spelling.

use core::fmt;

/// An error number of `errno(3)`; never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "` of errno(3).")]
                pub const $name: Self = Self::from_raw(crate::raw::errno::$name);
            )*

            /// The symbolic name, for example `"EAGAIN"`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match u32::from(self.0) {
                    $(crate::raw::errno::$name => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    EPERM, ENOENT, ESRCH, EINTR, EIO, ENXIO, E2BIG, ENOEXEC, EBADF, ECHILD, EAGAIN, ENOMEM, EACCES, EFAULT,
    ENOTBLK, EBUSY, EEXIST, EXDEV, ENODEV, ENOTDIR, EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ETXTBSY, EFBIG,
    ENOSPC, ESPIPE, EROFS, EMLINK, EPIPE, EDOM, ERANGE, EDEADLK, ENAMETOOLONG, ENOLCK, ENOSYS, ENOTEMPTY,
    ELOOP, ENOMSG, EIDRM, ECHRNG, EL2NSYNC, EL3HLT, EL3RST, ELNRNG, EUNATCH, ENOCSI, EL2HLT, EBADE, EBADR,
    EXFULL, ENOANO, EBADRQC, EBADSLT, EBFONT, ENOSTR, ENODATA, ETIME, ENOSR, ENONET, ENOPKG, EREMOTE,
    ENOLINK, EADV, ESRMNT, ECOMM, EPROTO, EMULTIHOP, EDOTDOT, EBADMSG, EOVERFLOW, ENOTUNIQ, EBADFD, EREMCHG,
    ELIBACC, ELIBBAD, ELIBSCN, ELIBMAX, ELIBEXEC, EILSEQ, ERESTART, ESTRPIPE, EUSERS, ENOTSOCK, EDESTADDRREQ,
    EMSGSIZE, EPROTOTYPE, ENOPROTOOPT, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EOPNOTSUPP, EPFNOSUPPORT,
    EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL, ENETDOWN, ENETUNREACH, ENETRESET, ECONNABORTED, ECONNRESET,
    ENOBUFS, EISCONN, ENOTCONN, ESHUTDOWN, ETOOMANYREFS, ETIMEDOUT, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH,
    EALREADY, EINPROGRESS, ESTALE, EUCLEAN, ENOTNAM, ENAVAIL, EISNAM, EREMOTEIO, EDQUOT, ENOMEDIUM,
    EMEDIUMTYPE, ECANCELED, ENOKEY, EKEYEXPIRED, EKEYREVOKED, EKEYREJECTED, EOWNERDEAD, ENOTRECOVERABLE,
    ERFKILL, EHWPOISON,
}

impl Errno {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "every error number is below 4096"
    )]
    const fn from_raw(number: u32) -> Self {
        assert!(number > 0 && number < 4096);
        Self(number as u16)
    }

    /// The error with this number; `None` if no error number can be that.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (1..4096).contains(&number).then_some(Self(number))
    }

    /// The positive error number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// The value that a system call returns in its result register for this error.
    #[must_use]
    pub const fn to_return_value(self) -> usize {
        (self.0 as usize).wrapping_neg()
    }

    /// The error that a system call's result stands for, if it is one.
    #[must_use]
    pub fn from_return_value(value: i64) -> Option<Self> {
        u16::try_from(value.checked_neg()?)
            .ok()
            .filter(|number| (1..4096).contains(number))
            .map(Self)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree_with_linux() {
        assert_eq!(Errno::EAGAIN.number(), 11);
        assert_eq!(Errno::EAGAIN.name(), "EAGAIN");
        assert_eq!(Errno::EHWPOISON.name(), "EHWPOISON");
        assert_eq!(Errno::EFAULT.to_return_value().cast_signed(), -14);
        assert_eq!(Errno::from_return_value(-14), Some(Errno::EFAULT));
        for no_error in [0, 14, -4096, i64::MIN, i64::MAX] {
            assert_eq!(Errno::from_return_value(no_error), None);
        }
    }
}
