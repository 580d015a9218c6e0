// SPDX-License-Identifier: Apache-2.0
//! The kernel command line: what is needed before the boot module is read (decision 0001).
//!
//! Follows the syntax of the Linux kernel's admin-guide "kernel-parameters": words separated by blanks, double quotes
//! protect blanks, `-` and `_` in names are the same, and what follows `--` is not for the kernel. Works without
//! memory allocation, since it runs before there is a heap.

use core::fmt;

/// How much the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only what stops something from working.
    Error,
    /// Also what may surprise.
    Warn,
    /// Also what happens once.
    Info,
    /// Also what a developer wants to see.
    Debug,
    /// Everything.
    Trace,
}

/// A virtio-mmio device that the VMM announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtioMmioDevice {
    /// Physical address of its registers.
    pub base: u64,
    /// Bytes of register space.
    pub size: u64,
    /// Interrupt line.
    pub irq: u32,
    /// Linux's platform device id, if given.
    pub id: Option<u32>,
}

/// One option that the kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelOption {
    /// `virtio_mmio.device=<size>@<base>:<irq>[:<id>]`; may be given several times.
    VirtioMmio(VirtioMmioDevice),
    /// `tsc_khz=<n>`: the time-stamp counter's frequency; saves measuring it.
    TscKhz(u64),
    /// `loglevel=error|warn|info|debug|trace`
    LogLevel(LogLevel),
}

/// A known option whose value makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadOption<'a> {
    /// The whole word.
    pub word: &'a [u8],
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for BadOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kernel command line: `{}`: expected {}",
            self.word.escape_ascii(),
            self.expected
        )
    }
}

/// The known options in order; unknown words are passed over.
pub fn options(cmdline: &[u8]) -> impl Iterator<Item = Result<KernelOption, BadOption<'_>>> {
    words(cmdline)
        .take_while(|word| *word != b"--")
        .filter_map(parse_word)
}

/// The words of a command line. A quote opens or closes a stretch in which blanks do not separate.
fn words(cmdline: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    cmdline
        .split(move |byte| {
            quoted ^= *byte == b'"';
            !quoted && (byte.is_ascii_whitespace() || *byte == 0)
        })
        .filter(|word| !word.is_empty())
}

fn parse_word(word: &[u8]) -> Option<Result<KernelOption, BadOption<'_>>> {
    let text = core::str::from_utf8(word).ok()?.trim_matches('"');
    let (name, value) = text.split_once('=')?;
    let value = value.trim_matches('"');
    let (parsed, expected) = if is_name(name, "virtio_mmio.device") {
        (
            virtio_mmio(value).map(KernelOption::VirtioMmio),
            "<size>@<base>:<irq>[:<id>]",
        )
    } else if is_name(name, "tsc_khz") {
        (
            value
                .parse()
                .ok()
                .filter(|khz| *khz > 0)
                .map(KernelOption::TscKhz),
            "a number of kilohertz above 0",
        )
    } else if is_name(name, "loglevel") {
        (
            log_level(value).map(KernelOption::LogLevel),
            "error, warn, info, debug or trace",
        )
    } else {
        return None;
    };
    Some(parsed.ok_or(BadOption { word, expected }))
}

fn is_name(given: &str, known: &str) -> bool {
    let alike = |c| if c == b'-' { b'_' } else { c };
    given.len() == known.len() && given.bytes().zip(known.bytes()).all(|(a, b)| alike(a) == b)
}

fn log_level(value: &str) -> Option<LogLevel> {
    Some(match value {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        _ => return None,
    })
}

fn virtio_mmio(value: &str) -> Option<VirtioMmioDevice> {
    let (size, rest) = value.split_once('@')?;
    let mut parts = rest.split(':');
    let base = size_with_suffix(parts.next()?)?;
    let irq = u32::try_from(number(parts.next()?)?).ok()?;
    let id = match parts.next() {
        Some(id) => Some(u32::try_from(number(id)?).ok()?),
        None => None,
    };
    let size = size_with_suffix(size).filter(|size| *size > 0)?;
    base.checked_add(size)?;
    parts.next().is_none().then_some(VirtioMmioDevice {
        base,
        size,
        irq,
        id,
    })
}

/// A number with an optional factor, as Linux's `memparse`: `4K` is 4096.
fn size_with_suffix(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

/// Hexadecimal with `0x`, octal with a leading `0`, else decimal.
fn number(text: &str) -> Option<u64> {
    // from_str_radix would accept a sign.
    if !text.bytes().next()?.is_ascii_digit() {
        return None;
    }
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return hex
            .bytes()
            .next()?
            .is_ascii_hexdigit()
            .then(|| u64::from_str_radix(hex, 16).ok())?;
    }
    match text.strip_prefix('0') {
        Some("") | None => text.parse().ok(),
        Some(octal) if octal.starts_with('+') => None,
        Some(octal) => u64::from_str_radix(octal, 8).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelOption, LogLevel, VirtioMmioDevice, options};
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert_eq;

    fn good(cmdline: &str) -> Vec<KernelOption> {
        options(cmdline.as_bytes()).map(Result::unwrap).collect()
    }

    #[test]
    fn what_qemu_and_firecracker_pass() {
        let line = "quiet virtio_mmio.device=512@0xfeb00e00:12 pci=off virtio-mmio.device=4K@0xd0000000:5:2 tsc_khz=2000000";
        let device = |base, size, irq, id| {
            KernelOption::VirtioMmio(VirtioMmioDevice {
                base,
                size,
                irq,
                id,
            })
        };
        let expected = [
            device(0xfeb0_0e00, 512, 12, None),
            device(0xd000_0000, 4096, 5, Some(2)),
            KernelOption::TscKhz(2_000_000),
        ];
        assert_eq!(good(line), expected);
    }

    #[test]
    fn quotes_and_the_end_of_kernel_options() {
        assert_eq!(
            good("init=\"a loglevel=warn b\" loglevel=\"debug\" -- loglevel=trace"),
            [KernelOption::LogLevel(LogLevel::Debug)]
        );
        assert_eq!(
            good("\"loglevel=error\"\0"),
            [KernelOption::LogLevel(LogLevel::Error)]
        );
        assert_eq!(good(""), []);
    }

    #[test]
    fn nonsense_is_named() {
        for word in [
            "virtio_mmio.device=4K",
            "virtio_mmio.device=0@0x1000:5",
            "virtio_mmio.device=4K@0x1000",
            "virtio_mmio.device=4K@0x1000:5:6:7",
            "virtio_mmio.device=4K@+1:5",
            "virtio_mmio.device=4K@0x+1:5",
            "virtio_mmio.device=4K@0x1000:0+7",
            "virtio_mmio.device=4K@0xffffffffffffffff:1",
            "virtio_mmio.device=99999999999G@0:1",
            "tsc_khz=0",
            "tsc_khz=fast",
            "loglevel=7",
        ] {
            let mut found = options(word.as_bytes());
            let error = found.next().unwrap().unwrap_err();
            assert_eq!(error.word, word.as_bytes());
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = options(&line).count();
        }

        #[test]
        fn devices_survive_printing(base in 0..u64::MAX / 2, kib in 1..1u64 << 30, irq in any::<u32>(), id in any::<u32>()) {
            let line = format!("virtio_mmio.device={kib}K@{base:#x}:{irq}:{id}");
            let device = VirtioMmioDevice { base, size: kib << 10, irq, id: Some(id) };
            prop_assert_eq!(good(&line), [KernelOption::VirtioMmio(device)]);
        }
    }
}
