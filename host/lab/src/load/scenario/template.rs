// SPDX-License-Identifier: Apache-2.0

//! Texts with places to fill: `{user}`, `{count}`, and the names of the file's values.

use std::collections::BTreeMap;

/// A text, cut at its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(String),
}

/// What fills the places of one request.
#[derive(Debug)]
pub(super) struct Filling<'a> {
    /// The user's number, from 0.
    pub(super) user: u64,
    /// How many requests the user has made.
    pub(super) count: u64,
    /// Drawn for this request.
    pub(super) values: &'a BTreeMap<String, u64>,
}

impl Template {
    /// Cuts `text`. A place is a word in braces; `{{` and `}}` are braces, and so is a brace that no word follows (JSON).
    /// A word that is none of `known` is an error.
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let tail = &rest[at..];
            let doubled = tail.starts_with("{{") || tail.starts_with("}}");
            let word: &str = tail.strip_prefix('{').map_or("", |tail| {
                let letter = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                tail.find(letter).map_or("", |end| &tail[..end])
            });
            let closed = tail[1..]
                .strip_prefix(word)
                .is_some_and(|tail| tail.starts_with('}'));
            if doubled {
                plain.push_str(&tail[..1]);
                rest = &tail[2..];
            } else if word.is_empty() || !closed {
                plain.push_str(&tail[..1]);
                rest = &tail[1..];
            } else if known.contains(&word) {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Place(word.to_owned()));
                rest = &tail[word.len() + 2..];
            } else {
                return Err(crate::experiment::unknown("place", word, known));
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template { pieces })
    }

    /// The text with its places filled.
    pub(super) fn fill(&self, filling: &Filling<'_>) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Place(word) => {
                    let value = match word.as_str() {
                        "user" => filling.user,
                        "count" => filling.count,
                        word => filling.values.get(word).copied().unwrap_or(0),
                    };
                    text.push_str(&value.to_string());
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Filling, Template};

    fn filled(text: &str) -> Result<String, String> {
        let values = BTreeMap::from([("device".to_owned(), 7)]);
        let template = Template::parse(text, &["user", "count", "device"])?;
        Ok(template.fill(&Filling {
            user: 3,
            count: 11,
            values: &values,
        }))
    }

    #[test]
    fn places_are_filled() {
        assert_eq!(
            filled("/u{user}/d{device}?n={count}").unwrap(),
            "/u3/d7?n=11"
        );
        assert_eq!(filled("plain").unwrap(), "plain");
        assert_eq!(filled("").unwrap(), "");
    }

    #[test]
    fn json_needs_no_quoting() {
        let json = r#"{"id": {device}, "list": [{}], "é": "{ user }"}"#;
        assert_eq!(
            filled(json).unwrap(),
            r#"{"id": 7, "list": [{}], "é": "{ user }"}"#
        );
        assert_eq!(filled("{{user}}").unwrap(), "{user}");
        assert_eq!(filled("{user").unwrap(), "{user");
    }

    #[test]
    fn an_unknown_place_names_the_nearest() {
        let why = filled("/u{usr}").unwrap_err();
        assert!(why.contains("\"usr\"") && why.contains("\"user\""), "{why}");
    }
}
