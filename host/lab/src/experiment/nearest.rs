// SPDX-License-Identifier: Apache-2.0

//! The known word that was probably meant.

/// The known word with the fewest letters to change, if it is near enough to have been meant.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let best = known
        .into_iter()
        .min_by_key(|candidate| distance(word, candidate))?;
    let likely = distance(word, best) <= word.chars().count().max(3) / 2 + 1;
    likely.then_some(best)
}

/// `"x" is no KIND; did you mean "y"?`, or the whole list where nothing is near.
#[must_use]
pub fn unknown(kind: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(best) => format!("unknown {kind} {word:?}; did you mean {best:?}?"),
        None if known.is_empty() => format!("unknown {kind} {word:?}; there is none"),
        None => format!("unknown {kind} {word:?}; known: {}", known.join(", ")),
    }
}

/// Levenshtein distance.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_when_it_is_near() {
        let known = ["process", "container", "linux-vm", "unikernel"];
        assert_eq!(nearest("unikernal", known), Some("unikernel"));
        assert_eq!(nearest("linuxvm", known), Some("linux-vm"));
        assert_eq!(nearest("zzzzzzzz", known), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn a_list_is_shown_where_nothing_is_near() {
        assert!(unknown("tool", "wkr", &["wrk", "ab"]).contains("did you mean \"wrk\"?"));
        assert!(unknown("tool", "qqqqqqqqq", &["wrk", "ab"]).contains("known: wrk, ab"));
    }
}
