// SPDX-License-Identifier: Apache-2.0
//! The kernel's report of a crash or a panic, taken from the serial port and made readable: the kernel's own addresses
//! get function, file and line from `coracle-kernel.debug`, names are demangled.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use addr2line::Loader;

/// First and last line of a report (decision 0002).
const BEGIN: &str = "crash report";
const END: &str = "end of crash report";

/// How much of the end of the log is looked at, bytes: threads are listed behind the report.
const TAIL_BYTES: u64 = 1 << 20;

/// Most lines of a report that are taken; the kernel writes fewer than a hundred.
const LINES_MAX: usize = 200;

/// Longest name of a function of the kernel that is shown: generic ones go on for ever.
const NAME_MAX: usize = 80;

/// What precedes an address of the kernel, as linked, and how far before it the place is that is meant: a return address
/// lies behind its call.
const KERNEL_ADDRESSES: [(&str, u64); 2] = [("  kernel 0x", 1), ("  at kernel 0x", 0)];

/// The report in a log of the serial port, line by line; nothing if there is none. After a panic each CPU adds its part.
/// `kernel` is the kernel's file, whose symbols are beside it.
pub(crate) fn read(log: &Path, kernel: &Path) -> Vec<String> {
    let text = tail(log).unwrap_or_default();
    let mut is_inside = false;
    let inside = text.lines().filter(|line| match *line {
        BEGIN | END => {
            is_inside = *line == BEGIN;
            false
        }
        _ => is_inside,
    });
    let lines: Vec<&str> = inside.take(LINES_MAX).collect();
    let mut symbols = None;
    lines
        .into_iter()
        .flat_map(|line| {
            let is_address = |(prefix, _): &(&str, u64)| line.starts_with(prefix);
            let Some((prefix, back)) = KERNEL_ADDRESSES.into_iter().find(is_address) else {
                return vec![readable(line)];
            };
            let symbols = symbols.get_or_insert_with(|| kernel_symbols(kernel));
            let at = u64::from_str_radix(&line[prefix.len()..], 16).ok();
            let place = at.and_then(|at| at.checked_sub(back));
            let known = symbols.as_ref().zip(place);
            known
                .and_then(|(symbols, place)| frames(symbols, place, line))
                .unwrap_or_else(|| vec![line.to_owned()])
        })
        .collect()
}

/// A line of the guest for a terminal: without control characters, with names as they are in the source.
pub(crate) fn readable(line: &str) -> String {
    let plain: String = line
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    // A name stands before its offset.
    let words = plain.split(' ').map(|word| match word.rsplit_once("+0x") {
        Some((name, offset)) => {
            let name = addr2line::demangle_auto(Cow::from(name), None);
            Cow::from(format!("{name}+0x{offset}"))
        }
        None => Cow::from(word),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // A serial port ends lines as terminals want it; `lines` takes the return away as well.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The kernel's symbols: from the file that `cargo xtask build` puts beside it, or from an unstripped kernel itself.
fn kernel_symbols(kernel: &Path) -> Option<Loader> {
    let debug = kernel.with_extension("debug");
    let file = if debug.exists() { &debug } else { kernel };
    Loader::new(file).ok()
}

/// The function at a place behind `line`, and those it was inlined into, one a line. `None` if nothing is known of it.
fn frames(symbols: &Loader, at: u64, line: &str) -> Option<Vec<String>> {
    let mut known: Vec<(String, bool)> = Vec::new();
    let mut frames = symbols.find_frames(at).ok()?;
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref()?;
        let name: String = name.demangle().ok()?.chars().take(NAME_MAX).collect();
        let (file, number) = frame.location.map_or(("?", 0), |place| {
            (place.file.unwrap_or("?"), place.line.unwrap_or(0))
        });
        // From the repository's root on, wherever that was.
        let (file, is_library) = match (file.rfind("/library/"), file.rfind("/kernel/")) {
            (Some(at), _) => (&file[at + 1..], true),
            (None, Some(at)) => (&file[at + 1..], false),
            (None, None) => (file, false),
        };
        known.push((format!("{name} ({file}:{number})"), is_library));
    }
    // Of what was inlined from Rust's own library the place it was inlined into tells enough.
    let library = known.iter().take_while(|(_, is_library)| *is_library);
    let hidden = library.count().min(known.len().saturating_sub(1));
    let mut lines: Vec<String> = Vec::new();
    for (text, _) in &known[hidden..] {
        lines.push(match lines.is_empty() {
            true => format!("{line} {text}"),
            false => format!("      inlined into {text}"),
        });
    }
    if lines.is_empty() {
        let name = addr2line::demangle_auto(Cow::from(symbols.find_symbol(at)?), None);
        lines.push(format!("{line} {name}"));
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(log: &str, kernel: &Path) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serial.log");
        std::fs::write(&path, log).unwrap();
        read(&path, kernel)
    }

    #[test]
    fn all_parts_of_a_report_are_taken() {
        let nowhere = Path::new("/nonexistent/kernel");
        assert_eq!(report_of("[    0.1] WARN  a line\n", nowhere), [""; 0]);
        let log = "crash report\none\nend of crash report\n\ncrash report\r\nnew\x1b[2J\r\n  kernel 0x10\r\n\
                   end of crash report\r\nthread 1\r\n";
        assert_eq!(report_of(log, nowhere), ["one", "new?[2J", "  kernel 0x10"]);
        assert_eq!(report_of("crash report\ncut", nowhere), ["cut"]);
    }

    #[test]
    fn names_are_demangled() {
        let line =
            "  from 0x4015e3 _ZN4core9panicking5panic17h0123456789abcdefE+0x63 (/bin/a+0x5e3)";
        assert_eq!(
            readable(line),
            "  from 0x4015e3 core::panicking::panic+0x63 (/bin/a+0x5e3)"
        );
        let line = "at 0x1 _ZN3foo3barEi+0x0 (/a b)";
        assert_eq!(readable(line), "at 0x1 foo::bar(int)+0x0 (/a b)");
    }

    /// This test's own executable stands in for a kernel.
    #[test]
    fn addresses_of_the_kernel_get_their_place_in_the_source() {
        let me = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&me).unwrap();
        let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&bytes).unwrap();
        let (symbols, names) = file.symbol_table().unwrap().unwrap();
        let this = symbols
            .iter()
            .find(|symbol| {
                let name = usize::try_from(symbol.st_name).unwrap();
                names
                    .get(name)
                    .is_ok_and(|name| name.contains("addresses_of_the_kernel_get"))
            })
            .unwrap();
        let log = format!(
            "crash report\n  at kernel {:#x}\nend of crash report\n",
            this.st_value
        );
        let report = report_of(&log, &me);
        assert!(
            report[0].contains("addresses_of_the_kernel_get") && report[0].contains("report.rs:"),
            "{report:?}"
        );
    }
}
