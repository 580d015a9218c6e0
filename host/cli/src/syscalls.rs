// SPDX-License-Identifier: Apache-2.0
//! `coracle syscalls`: the kernel's own table, so that it cannot differ from what the kernel does.

use coracle_abi::syscalls::{self, TABLE};
use serde::Serialize;

use crate::args::{Format, SyscallLevel, SyscallsArgs};
use crate::error::Failure;
use crate::output;

/// One call as it is shown.
#[derive(Debug, Serialize)]
struct Row {
    number: u32,
    name: &'static str,
    level: &'static str,
    note: &'static str,
}

/// Prints the table in the order of the numbers.
pub(crate) fn syscalls(args: &SyscallsArgs) -> Result<u8, Failure> {
    let listed = TABLE.iter().map(|entry| Row {
        number: entry.number,
        name: entry.name,
        level: entry.level.name(),
        note: entry.note,
    });
    let missing = syscalls::missing().map(|(number, name)| Row {
        number,
        name,
        level: SyscallLevel::Missing.name(),
        note: "returns ENOSYS",
    });
    let level = args
        .level
        .or(args.missing.then_some(SyscallLevel::Missing))
        .map(SyscallLevel::name);
    let has_level = |row: &Row| match level {
        Some(level) => row.level == level,
        // Who asks for a call by name wants to hear that it is missing.
        None => !args.names.is_empty() || row.level != SyscallLevel::Missing.name(),
    };
    let mut rows: Vec<Row> = listed.chain(missing).collect();
    for name in &args.names {
        if !rows.iter().any(|row| row.name == name) {
            let hint = "; coracle syscalls -o name lists those there are";
            return Err(Failure::new(format!(
                "{name}: no system call of Linux{hint}"
            )));
        }
    }
    let is_named = |row: &Row| args.names.is_empty() || args.names.iter().any(|n| n == row.name);
    rows.retain(|row| has_level(row) && is_named(row));
    rows.sort_by_key(|row| row.number);
    match args.output {
        Format::Json => output::json(&rows)?,
        Format::Name => output::print(
            &rows
                .iter()
                .map(|row| format!("{}\n", row.name))
                .collect::<String>(),
        ),
        Format::Table => {
            let cells = rows.iter().map(|row| {
                [
                    row.number.to_string(),
                    row.name.into(),
                    row.level.into(),
                    row.note.into(),
                ]
            });
            output::table(
                &["NUMBER", "NAME", "LEVEL", "NOTE"],
                cells.map(Vec::from).collect(),
            );
        }
    }
    Ok(0)
}
