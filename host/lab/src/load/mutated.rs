// SPDX-License-Identifier: Apache-2.0

//! Outputs of tools as they could come from another version, or half written: for tests that parsers do not panic, and
//! do not make figures that cannot be.

use proptest::prelude::{Just, Strategy, any, prop_oneof};

use super::Row;

/// A recorded output with a piece replaced, removed or doubled, or cut off.
pub(crate) fn mutated(text: &'static str) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::new()),
        Just("-1".to_owned()),
        Just("99999999999999999999999999".to_owned()),
        Just("1e400".to_owned()),
        Just("nan".to_owned()),
        Just("\n".to_owned()),
        Just(",".to_owned()),
        Just("\"".to_owned()),
        any::<String>(),
    ];
    (0..text.len(), 0..12_usize, piece, 0..8_u8).prop_map(move |(at, length, piece, how)| {
        let boundary = |at: usize| (at..=text.len()).find(|at| text.is_char_boundary(*at));
        let start = boundary(at).unwrap_or(text.len());
        let end = boundary((start + length).min(text.len())).unwrap_or(text.len());
        match how {
            0 => text[..start].to_owned(),
            1 => text[start..].to_owned(),
            2 => format!("{}{}", &text[..end], &text[start..]),
            _ => format!("{}{piece}{}", &text[..start], &text[end..]),
        }
    })
}

/// Figures of a row that was read must be finite, and not below 0.
pub(crate) fn is_sane(row: &Row) -> bool {
    let series = row.series.values().flatten().map(|point| point.1);
    row.metrics
        .values()
        .copied()
        .chain(series)
        .all(|value| value.is_finite() && value >= 0.0)
}
