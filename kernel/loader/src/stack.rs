// SPDX-License-Identifier: Apache-2.0
//! The first bytes of a process's stack: arguments, environment and auxiliary vector.
//!
//! System V ABI for x86-64, section 3.4.1 ("Initial Stack and Register State"); arm64 Linux uses the same layout. From
//! low to high addresses: the argument count, argument pointers, NULL, environment pointers, NULL, auxiliary vector,
//! padding, the 16 random bytes, the platform's name, argument strings, environment strings, the executable's path and
//! eight zero bytes. The strings stand together in order, as setproctitle and `/proc/self/cmdline` expect.

use alloc::vec::Vec;
use coracle_abi::Errno;
use core::fmt;
use core::ops::Range;

const AT_NULL: u64 = 0;
const AT_PLATFORM: u64 = 15;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;
/// Linux: no argument or environment string is longer (`MAX_ARG_STRLEN`, with its NUL).
const STRING_MAX: usize = 131_072;
const WORD: u64 = 8;

/// Arguments or environment: strings one behind the other, each with its NUL. They may come from a program, so growing
/// them fails instead of ending the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// Adds a string.
    ///
    /// # Errors
    /// [`StackError`] if it is impossible or there is no memory.
    pub fn push(&mut self, string: &[u8]) -> Result<(), StackError> {
        if string.len() >= STRING_MAX {
            return Err(StackError::StringTooLong);
        }
        if string.contains(&0) {
            return Err(StackError::NulInString);
        }
        self.bytes
            .try_reserve(string.len() + 1)
            .map_err(|_| StackError::NoMemory)?;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// All strings of `all`. Errors as [`Strings::push`].
    pub fn of<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, StackError> {
        let mut strings = Self::default();
        all.into_iter()
            .try_for_each(|string| strings.push(string))?;
        Ok(strings)
    }

    /// How many strings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all strings with their NULs.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The strings without their NULs.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|b| *b == 0).take(self.count)
    }
}

/// How many bytes strings and pointers may have together, for a soft `RLIMIT_STACK` of so many bytes (execve(2),
/// "Limits on size of arguments and environment").
#[must_use]
pub fn size_limit(stack_limit: u64) -> u64 {
    (stack_limit / 4).clamp(128 << 10, 6 << 20)
}

/// What the stack is made of.
#[derive(Debug, Clone)]
pub struct StackInput<'a> {
    /// End of the stack; a multiple of 16.
    pub top: u64,
    /// How many bytes strings and pointers may have, see [`size_limit`].
    pub max_len: u64,
    /// Arguments.
    pub argv: &'a Strings,
    /// Environment strings `NAME=value`.
    pub env: &'a Strings,
    /// Auxiliary vector: (type, value) without `AT_RANDOM`, `AT_PLATFORM`, `AT_EXECFN` and `AT_NULL`, which are added.
    pub auxv: &'a [(u64, u64)],
    /// For `AT_RANDOM`.
    pub random: [u8; 16],
    /// For `AT_PLATFORM`, for example `x86_64`.
    pub platform: &'a [u8],
    /// For `AT_EXECFN`: the path of the executable as it was asked for.
    pub execfn: &'a [u8],
}

/// The finished image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackImage {
    /// The first stack pointer, a multiple of 16: where `bytes` belong. They end at the top.
    pub sp: u64,
    /// What to copy there.
    pub bytes: Vec<u8>,
    /// Where the argument strings are, for `/proc/self/cmdline`.
    pub arg_range: Range<u64>,
    /// Where the environment strings are, for `/proc/self/environ`.
    pub env_range: Range<u64>,
    /// Where the auxiliary vector is, for `/proc/self/auxv`.
    pub auxv_range: Range<u64>,
}

/// Why there is no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackError {
    /// Everything together exceeds the given length or the address space.
    TooLarge,
    /// One string is longer than Linux allows.
    StringTooLong,
    /// A string contains a NUL byte and would end there.
    NulInString,
    /// The kernel has not enough memory for them.
    NoMemory,
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "arguments and environment are too large for the stack",
            Self::StringTooLong => "an argument or environment string is longer than 131071 bytes",
            Self::NulInString => "an argument or environment string contains a NUL byte",
            Self::NoMemory => "not enough memory for arguments and environment",
        })
    }
}

impl core::error::Error for StackError {}

impl From<StackError> for Errno {
    /// What `execve(2)` returns.
    fn from(error: StackError) -> Self {
        match error {
            StackError::TooLarge | StackError::StringTooLong => Self::E2BIG,
            StackError::NulInString => Self::EINVAL,
            StackError::NoMemory => Self::ENOMEM,
        }
    }
}

/// Checks that arguments, environment and path fit, as Linux does it before it looks at the program.
///
/// # Errors
/// [`StackError::TooLarge`]
pub fn check_size(
    argv: &Strings,
    env: &Strings,
    execfn: &[u8],
    max_len: u64,
) -> Result<(), StackError> {
    let pointers = (argv.count().max(1) + env.count()) as u64 * WORD;
    let strings = (argv.size() + env.size() + execfn.len() + 1) as u64;
    if pointers + strings > max_len {
        return Err(StackError::TooLarge);
    }
    Ok(())
}

/// Lays out the image.
///
/// # Errors
/// [`StackError`] if a string is impossible or everything is too large.
pub fn build(input: &StackInput<'_>) -> Result<StackImage, StackError> {
    check_size(input.argv, input.env, input.execfn, input.max_len)?;
    for string in [input.execfn, input.platform] {
        if string.contains(&0) {
            return Err(StackError::NulInString);
        }
    }
    // Sizes first, so that every address is known before anything is written.
    let (arg_len, env_len) = (input.argv.size() as u64, input.env.size() as u64);
    let strings_len = arg_len + env_len + input.execfn.len() as u64 + 1 + WORD;
    let misc_len = input.random.len() as u64 + input.platform.len() as u64 + 1;
    let words = 1 + (input.argv.count() + 1) + (input.env.count() + 1) + 2 * (input.auxv.len() + 4);
    let vectors_len = words as u64 * WORD;
    let len = (strings_len + misc_len + vectors_len).next_multiple_of(16);
    let sp = input.top.checked_sub(len).ok_or(StackError::TooLarge)? & !15;
    let arg_start = input.top - strings_len;
    let arg_range = arg_start..arg_start + arg_len;
    let env_range = arg_range.end..arg_range.end + env_len;
    let misc_start = arg_start - misc_len;

    let mut image = Vec::new();
    image
        .try_reserve_exact(usize::try_from(len).map_err(|_| StackError::TooLarge)?)
        .map_err(|_| StackError::NoMemory)?;
    let mut word = |value: u64| image.extend_from_slice(&value.to_le_bytes());
    word(input.argv.count() as u64);
    pointers(arg_range.start, input.argv)
        .chain([0])
        .for_each(&mut word);
    pointers(env_range.start, input.env)
        .chain([0])
        .for_each(&mut word);
    let added = [
        (AT_RANDOM, misc_start),
        (AT_PLATFORM, misc_start + input.random.len() as u64),
        (AT_EXECFN, env_range.end),
        (AT_NULL, 0),
    ];
    for (kind, value) in input.auxv.iter().chain(&added) {
        word(*kind);
        word(*value);
    }
    let auxv_end = sp + image.len() as u64;
    let auxv_range = auxv_end - 2 * WORD * (input.auxv.len() + added.len()) as u64..auxv_end;
    let misc_at = usize::try_from(misc_start - sp).map_err(|_| StackError::TooLarge)?;
    image.resize(misc_at, 0);
    image.extend_from_slice(&input.random);
    for part in [
        input.platform,
        &[0],
        &input.argv.bytes,
        &input.env.bytes,
        input.execfn,
        &[0],
        &0u64.to_le_bytes(),
    ] {
        image.extend_from_slice(part);
    }
    Ok(StackImage {
        sp,
        bytes: image,
        arg_range,
        env_range,
        auxv_range,
    })
}

/// The address of each string when they stand one behind the other from `at` on.
fn pointers(mut at: u64, strings: &Strings) -> impl Iterator<Item = u64> {
    strings.iter().map(move |string| {
        let here = at;
        at += string.len() as u64 + 1;
        here
    })
}

#[cfg(test)]
mod tests {
    use super::{StackError, StackImage, StackInput, Strings, build, size_limit};
    use crate::bytes::u64_at;
    use coracle_abi::Errno;
    use proptest::prelude::{any, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    /// Reads the image back the way a C start-up file does.
    struct Reader<'a>(&'a StackImage);

    impl Reader<'_> {
        fn word(&self, addr: u64) -> u64 {
            u64_at(&self.0.bytes, usize::try_from(addr - self.0.sp).unwrap()).unwrap()
        }
        fn bytes(&self, addr: u64) -> &[u8] {
            &self.0.bytes[usize::try_from(addr - self.0.sp).unwrap()..]
        }
        fn string(&self, addr: u64) -> Vec<u8> {
            self.bytes(addr)
                .iter()
                .copied()
                .take_while(|b| *b != 0)
                .collect()
        }
        fn strings_until_null(&self, at: &mut u64) -> Vec<Vec<u8>> {
            let mut found = Vec::new();
            while self.word(*at) != 0 {
                found.push(self.string(self.word(*at)));
                *at += 8;
            }
            *at += 8;
            found
        }
    }

    fn input<'a>(argv: &'a Strings, env: &'a Strings, auxv: &'a [(u64, u64)]) -> StackInput<'a> {
        StackInput {
            top: 0x7fff_0000,
            max_len: 1 << 20,
            argv,
            env,
            auxv,
            random: *b"0123456789abcdef",
            platform: b"x86_64",
            execfn: b"/bin/app",
        }
    }

    #[test]
    fn impossible_inputs() {
        let of = |strings: &[&[u8]]| Strings::of(strings.iter().copied());
        let none = Strings::default();
        assert_eq!(of(&[b"a\0b"]), Err(StackError::NulInString));
        let long = vec![b'x'; 131_072];
        assert_eq!(of(&[&long]), Err(StackError::StringTooLong));
        let longest = of(&[&long[1..]]).unwrap();
        assert!(build(&input(&none, &longest, &[])).is_ok());
        let many = of(&vec![&b"y"[..]; 200_000]).unwrap();
        assert_eq!(build(&input(&many, &none, &[])), Err(StackError::TooLarge));
        assert_eq!(size_limit(8 << 20), 2 << 20);
        assert_eq!((size_limit(0), size_limit(u64::MAX)), (128 << 10, 6 << 20));
        let low = StackInput {
            top: 64,
            ..input(&none, &none, &[])
        };
        assert_eq!(build(&low), Err(StackError::TooLarge));
        assert_eq!(Errno::from(StackError::TooLarge), Errno::E2BIG);
    }

    proptest! {
        #[test]
        fn a_program_finds_everything(
            argv in proptest::collection::vec("[a-z]{0,9}", 0..9),
            env in proptest::collection::vec("[A-Z]{1,4}=[a-z]{0,9}", 0..9),
            auxv in proptest::collection::vec((32..60u64, any::<u64>()), 0..9),
        ) {
            let argv: Vec<&[u8]> = argv.iter().map(String::as_bytes).collect();
            let env: Vec<&[u8]> = env.iter().map(String::as_bytes).collect();
            let (arguments, environment) = (Strings::of(argv.iter().copied()).unwrap(), Strings::of(env.iter().copied()).unwrap());
            prop_assert_eq!(arguments.iter().collect::<Vec<_>>(), argv.clone());
            let image = build(&input(&arguments, &environment, &auxv)).unwrap();
            prop_assert!(image.sp.is_multiple_of(16));
            prop_assert_eq!(image.sp + image.bytes.len() as u64, 0x7fff_0000);
            let reader = Reader(&image);
            prop_assert_eq!(reader.word(image.sp), argv.len() as u64);
            let mut at = image.sp + 8;
            prop_assert_eq!(reader.strings_until_null(&mut at), argv.clone());
            prop_assert_eq!(reader.strings_until_null(&mut at), env.clone());
            prop_assert_eq!(at, image.auxv_range.start);
            let mut found = Vec::new();
            while reader.word(at) != 0 {
                found.push((reader.word(at), reader.word(at + 8)));
                at += 16;
            }
            prop_assert_eq!(at + 16, image.auxv_range.end);
            let (given, added) = found.split_at(auxv.len());
            prop_assert_eq!(given, &auxv[..]);
            let value = |kind| added.iter().find(|(k, _)| *k == kind).unwrap().1;
            prop_assert_eq!(&reader.bytes(value(25))[..16], b"0123456789abcdef");
            prop_assert_eq!(reader.string(value(15)), b"x86_64");
            prop_assert_eq!(reader.string(value(31)), b"/bin/app");
            let joined = |strings: &[&[u8]]| strings.iter().flat_map(|s| [s, &b"\0"[..]].concat()).collect::<Vec<u8>>();
            let args_len = joined(&argv).len();
            prop_assert_eq!(&reader.bytes(image.arg_range.start)[..args_len], &joined(&argv)[..]);
            prop_assert_eq!(image.arg_range.end, image.env_range.start);
            prop_assert_eq!(image.arg_range.end - image.arg_range.start, args_len as u64);
            prop_assert_eq!(image.env_range.end - image.env_range.start, joined(&env).len() as u64);
        }
    }
}
