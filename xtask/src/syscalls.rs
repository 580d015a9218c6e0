// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask syscalls`: writes `docs/syscalls.md` from the kernel's one list, so that the page cannot differ from it.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use coracle_abi::syscalls::{self, Entry, Level, TABLE};

use crate::paths;

/// The page, from the root of the repository.
const PAGE: &str = "docs/syscalls.md";

macro_rules! families {
    ($($name:ident => $family:ident::$handler:ident($($argument:ident: $type:ty),*) $level:ident $note:literal;)*) => {
        /// The family of each call, in the order of `TABLE`.
        const FAMILIES: &[&str] = &[$(stringify!($family)),*];
    };
}
coracle_abi::for_each_syscall!(families);

/// The families' headings, in the order of the page.
const HEADINGS: [(&str, &str); 8] = [
    ("fd", "Descriptors"),
    ("path", "Paths"),
    ("mem", "Memory"),
    ("thread", "Threads and the process"),
    ("time", "Time"),
    ("signal", "Signals"),
    ("socket", "Sockets"),
    ("info", "Information and identity"),
];

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    std::fs::write(paths::in_root(PAGE), page()).with_context(|| format!("write {PAGE}"))
}

/// An error if the page in the tree is not the one that would be written.
pub(crate) fn check() -> Result<()> {
    let found =
        std::fs::read_to_string(paths::in_root(PAGE)).with_context(|| format!("read {PAGE}"))?;
    if found == page() {
        return Ok(());
    }
    bail!("{PAGE} is out of date; write it anew with `cargo xtask syscalls`")
}

fn page() -> String {
    let mut page = String::from("# System calls\n\n");
    page.push_str(
        "Written by `cargo xtask syscalls` from `kernel/abi/src/syscalls.rs`; do not edit.\n\n",
    );
    let count = |level| TABLE.iter().filter(|entry| entry.level == level).count();
    let missing: Vec<_> = syscalls::missing().collect();
    // Writing to a string cannot fail; the results of `writeln!` say nothing.
    let _ = writeln!(
        page,
        "| Level | Calls | Meaning |\n|---|---|---|\n\
         | {} | {} | as on Linux, for what a program of one process can do |\n\
         | {} | {} | part of it; the note says which |\n\
         | {} | {} | always fails; the note says with what, and why |\n\
         | missing | {} | no handler: `ENOSYS`, and one line in the kernel log at the first call |\n",
        Level::Full.name(),
        count(Level::Full),
        Level::Partial.name(),
        count(Level::Partial),
        Level::Refused.name(),
        count(Level::Refused),
        missing.len(),
    );
    page.push_str(
        "Numbers are those of x86-64. `coracle syscalls` prints the same list, `--level` one level of it, `-o json` for \
         programs.\n",
    );
    for (family, heading) in HEADINGS {
        let _ = writeln!(page, "\n## {heading}\n");
        page.push_str("| Number | Call | Level | Note |\n|---:|---|---|---|\n");
        for entry in of_family(family) {
            let (number, name, level) = (entry.number, entry.name, entry.level.name());
            let note = escaped(entry.note);
            let _ = writeln!(page, "| {number} | `{name}` | {level} | {note} |");
        }
    }
    page.push_str("\n## Missing\n\n");
    let names: Vec<String> = missing
        .iter()
        .map(|(number, name)| format!("`{name}` ({number})"))
        .collect();
    let _ = writeln!(page, "{}.", names.join(", "));
    page
}

/// The calls of a family by number.
fn of_family(family: &str) -> Vec<&'static Entry> {
    let mut entries: Vec<_> = TABLE
        .iter()
        .zip(FAMILIES)
        .filter(|(_, of)| **of == family)
        .map(|(entry, _)| entry)
        .collect();
    entries.sort_by_key(|entry| entry.number);
    entries
}

/// The text without the characters that Markdown takes as its own.
fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|letter| {
            let special = "\\|*_<`".contains(letter);
            special.then_some('\\').into_iter().chain([letter])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, HEADINGS, TABLE, escaped, of_family, page};

    #[test]
    fn every_call_is_on_the_page_once() {
        assert_eq!(FAMILIES.len(), TABLE.len());
        let listed: usize = HEADINGS.iter().map(|(of, _)| of_family(of).len()).sum();
        assert_eq!(listed, TABLE.len(), "a family has no heading");
        let page = page();
        for (number, name) in coracle_abi::numbers::ALL {
            assert_eq!(
                page.matches(&format!("`{name}`")).count(),
                1,
                "{name} ({number})"
            );
        }
    }

    #[test]
    fn notes_keep_their_signs() {
        assert_eq!(escaped("no RESOLVE_* flags"), "no RESOLVE\\_\\* flags");
        assert_eq!(escaped("plain; text"), "plain; text");
    }
}
