// SPDX-License-Identifier: Apache-2.0
//! Tables and times for people.

use std::io::Write;

use serde::Serialize;

use crate::error::Failure;

/// Prints columns as wide as their widest cell, two blanks between them.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    print(&text);
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    print(&(text + "\n"));
    Ok(())
}

/// Prints text; a reader that went away (`| head`) is no error.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Prints one line.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// A span of time in its largest unit.
pub(crate) fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86400 => (seconds / 3600, "hour"),
        _ => (seconds / 86400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_span_has_one_unit() {
        assert_eq!(span(1), "1 second");
        assert_eq!(span(59), "59 seconds");
        assert_eq!(span(60), "1 minute");
        assert_eq!(span(7300), "2 hours");
        assert_eq!(span(86400 * 3), "3 days");
    }
}
