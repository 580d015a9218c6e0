// SPDX-License-Identifier: Apache-2.0

//! As much of DNS as a load generator needs: queries with one question, and the head of an answer (RFC 1035, section 4.1).

use super::http::Answer;

/// Types of records that a file of queries may name (RFC 1035, 3596, 2782).
const TYPES: &[(&str, u16)] = &[
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", 28),
    ("SRV", 33),
    ("ANY", 255),
];

/// The queries of a file as dnsperf takes it: lines of name and type, comments begin with `;` or `#`.
pub(super) fn read(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut queries = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let query = line
            .split_once(char::is_whitespace)
            .and_then(|(name, kind)| {
                let kind = kind.trim();
                let known = |known: &&(&str, u16)| known.0.eq_ignore_ascii_case(kind);
                encode(name, TYPES.iter().find(known)?.1)
            });
        queries.push(query.ok_or_else(|| format!("`{line}` is not a name and a type"))?);
    }
    if queries.is_empty() {
        return Err("no query in it".to_owned());
    }
    Ok(queries)
}

/// A query of class IN that wants recursion, with the id 0.
fn encode(name: &str, kind: u16) -> Option<Vec<u8>> {
    let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..=63).contains(length));
        // The root is a name without labels.
        match length {
            None if name == "." => {}
            length => {
                query.push(length?);
                query.extend_from_slice(label.as_bytes());
            }
        }
    }
    query.push(0);
    if query.len() > 12 + 255 {
        return None;
    }
    query.extend_from_slice(&kind.to_be_bytes());
    query.extend_from_slice(&1_u16.to_be_bytes());
    Some(query)
}

/// The query with that id.
pub(super) fn with_id(query: &[u8], id: u16) -> Vec<u8> {
    let mut bytes = query.to_vec();
    if let Some(place) = bytes.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
    bytes
}

/// The answer to the query of that id, with its RCODE as status; `None` for anything else.
pub(super) fn answer(bytes: &[u8], id: u16) -> Option<Answer> {
    let head: &[u8; 12] = bytes.first_chunk()?;
    let is_answer = head[2] & 0x80 != 0;
    (u16::from_be_bytes([head[0], head[1]]) == id && is_answer).then_some(Answer {
        status: u16::from(head[3] & 0x0f),
        close: false,
        body_bytes: bytes.len() as u64,
    })
}

/// The name of an RCODE.
pub(super) fn code(status: u16) -> String {
    match status {
        0 => "NOERROR".to_owned(),
        1 => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        3 => "NXDOMAIN".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        other => format!("rcode {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{answer, read, with_id};

    #[test]
    fn queries_are_encoded() {
        let queries = read("; a comment\n\nwww.example.com A\nexample.com.\taaaa\n. NS\n").unwrap();
        let bytes = with_id(&queries[0], 0x1234);
        assert_eq!(
            bytes,
            b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01"
        );
        assert!(queries[1].ends_with(b"\x07example\x03com\0\0\x1c\0\x01"));
        assert!(queries[2].ends_with(b"\0\0\0\0\0\x02\0\x01"));
    }

    #[test]
    fn what_is_no_query_is_an_error() {
        let long = format!("{} A", "a.".repeat(200));
        let label = format!("{}.com A", "a".repeat(64));
        for text in [
            "",
            "www.example.com",
            "www.example.com B",
            "a..b A",
            &long,
            &label,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn answers_are_told_from_other_datagrams() {
        let mut bytes = with_id(&read("a A").unwrap()[0], 7);
        assert!(answer(&bytes, 7).is_none(), "it is a query");
        bytes[2] |= 0x80;
        bytes[3] = 3;
        assert_eq!(answer(&bytes, 7).unwrap().status, 3);
        assert!(answer(&bytes, 8).is_none());
        assert!(answer(&bytes[..11], 7).is_none());
    }
}
