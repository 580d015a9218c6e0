// SPDX-License-Identifier: Apache-2.0

//! As much of an HTTP/1.1 client as a load generator needs: one request at a time on a connection, and a reader of answers
//! that takes bytes as they come (RFC 9112).

use std::net::SocketAddr;

/// The most an answer's head may have.
const HEAD_LIMIT: usize = 64 << 10;
/// The most of a body that is kept, where it is kept.
const BODY_LIMIT: usize = 64 << 20;
const HEADERS: usize = 64;

/// Bytes of a request. `headers` are further lines, name and value.
pub(crate) fn request(
    method: &str,
    path: &str,
    host: SocketAddr,
    headers: &[(String, String)],
    body: Option<&[u8]>,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in headers {
        text.push_str(name);
        text.push_str(": ");
        text.push_str(value);
        text.push_str("\r\n");
    }
    if let Some(body) = body {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}

/// Where in an answer the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    /// A body with its length known; this many bytes are to come.
    Sized(u64),
    /// The line with the length of a chunk.
    ChunkLine,
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// Fields after the last chunk, up to an empty line.
    Trailer,
    /// A body that ends with the connection.
    UntilClose,
    Complete,
}

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// The connection cannot be used again.
    pub(crate) close: bool,
    /// Bytes of the body, without the framing of chunks.
    pub(crate) body_bytes: u64,
}

/// What is wrong with an answer, for the kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads answers, one after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    place: Place,
    /// The head, or the current line of the framing.
    line: Vec<u8>,
    status: u16,
    close: bool,
    body_bytes: u64,
    body: Option<Vec<u8>>,
}

impl Reader {
    /// A reader that counts bodies, and keeps them if `keep_body`.
    pub(crate) fn new(keep_body: bool) -> Self {
        Reader {
            place: Place::Head,
            line: Vec::new(),
            status: 0,
            close: false,
            body_bytes: 0,
            body: keep_body.then(Vec::new),
        }
    }

    /// Forgets what it has, for the next answer.
    pub(crate) fn reset(&mut self) {
        self.place = Place::Head;
        self.line.clear();
        self.body_bytes = 0;
        if let Some(body) = &mut self.body {
            body.clear();
        }
    }

    /// The body, if it is kept.
    pub(crate) fn body(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }

    /// Takes bytes. `Some` when the answer is complete. Bytes after its end are an error: there was only one request.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Option<Answer>, Malformed> {
        while !bytes.is_empty() {
            bytes = match self.place {
                Place::Head => self.take_head(bytes)?,
                Place::Sized(left) => {
                    let rest = self.take_body(bytes, left)?;
                    if self.place == Place::Sized(0) {
                        self.place = Place::Complete;
                    }
                    rest
                }
                Place::Chunk(left) => {
                    let rest = self.take_body(bytes, left)?;
                    if self.place == Place::Chunk(0) {
                        self.place = Place::ChunkEnd;
                    }
                    rest
                }
                Place::ChunkLine | Place::ChunkEnd | Place::Trailer => self.take_line(bytes)?,
                Place::UntilClose => self.take_body(bytes, u64::MAX)?,
                Place::Complete => return Err(Malformed),
            };
        }
        Ok(self.answer())
    }

    /// The connection ended. `Some` if that is the end of an answer.
    pub(crate) fn end(&mut self) -> Option<Answer> {
        if self.place == Place::UntilClose {
            self.place = Place::Complete;
        }
        self.answer()
    }

    fn answer(&self) -> Option<Answer> {
        (self.place == Place::Complete).then_some(Answer {
            status: self.status,
            close: self.close,
            body_bytes: self.body_bytes,
        })
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let before = self.line.len();
        self.line.extend_from_slice(bytes);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.line) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.line.len() < HEAD_LIMIT => return Ok(&[]),
            _ => return Err(Malformed),
        };
        let status = head.code.ok_or(Malformed)?;
        let mut sized = None;
        let mut chunked = false;
        let mut close = head.version == Some(0);
        for header in head.headers.iter() {
            let value = std::str::from_utf8(header.value).map_err(|_| Malformed)?;
            let value = value.trim();
            if header.name.eq_ignore_ascii_case("content-length") {
                sized = Some(super::units::parse_int(value).ok_or(Malformed)?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
                if !chunked {
                    return Err(Malformed);
                }
            } else if header.name.eq_ignore_ascii_case("connection") {
                close = match value {
                    value if value.eq_ignore_ascii_case("close") => true,
                    value if value.eq_ignore_ascii_case("keep-alive") => false,
                    _ => close,
                };
            }
        }
        self.status = status;
        self.close = close;
        self.line.clear();
        self.place = match status {
            // An answer before the answer.
            100..=199 => Place::Head,
            204 | 304 => Place::Complete,
            _ if chunked => Place::ChunkLine,
            _ => match sized {
                Some(0) => Place::Complete,
                Some(length) => Place::Sized(length),
                None => {
                    self.close = true;
                    Place::UntilClose
                }
            },
        };
        // The head ends within `bytes`: it was not complete before them.
        bytes.get(length.saturating_sub(before)..).ok_or(Malformed)
    }

    /// Takes at most `left` bytes of a body.
    fn take_body<'a>(&mut self, bytes: &'a [u8], left: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (taken, rest) = bytes.split_at(length);
        self.body_bytes += taken.len() as u64;
        if let Some(body) = &mut self.body {
            if body.len() + taken.len() > BODY_LIMIT {
                return Err(Malformed);
            }
            body.extend_from_slice(taken);
        }
        let left = left - taken.len() as u64;
        self.place = match self.place {
            Place::Sized(_) => Place::Sized(left),
            Place::Chunk(_) => Place::Chunk(left),
            other => other,
        };
        Ok(rest)
    }

    /// Takes bytes up to a line end of the framing of chunks.
    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (taken, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        if self.line.len() + taken.len() > HEAD_LIMIT {
            return Err(Malformed);
        }
        self.line.extend_from_slice(taken);
        if end.is_none() {
            return Ok(rest);
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| Malformed)?;
        let text = text.trim_end_matches(['\r', '\n']);
        self.place = match self.place {
            Place::ChunkLine => {
                let digits = text.split(';').next().unwrap_or(text).trim();
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(Malformed);
                }
                match u64::from_str_radix(digits, 16).map_err(|_| Malformed)? {
                    0 => Place::Trailer,
                    length => Place::Chunk(length),
                }
            }
            Place::ChunkEnd if text.is_empty() => Place::ChunkLine,
            Place::Trailer if text.is_empty() => Place::Complete,
            Place::Trailer => Place::Trailer,
            _ => return Err(Malformed),
        };
        self.line.clear();
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Answer, Malformed, Reader, request};

    fn whole(bytes: &[u8]) -> Result<Option<Answer>, Malformed> {
        Reader::new(true).take(bytes)
    }

    #[test]
    fn a_request() {
        let headers = [("Accept".to_owned(), "*/*".to_owned())];
        let bytes = request(
            "POST",
            "/a",
            "10.0.0.2:80".parse().unwrap(),
            &headers,
            Some(b"x"),
        );
        assert_eq!(
            bytes,
            b"POST /a HTTP/1.1\r\nHost: 10.0.0.2:80\r\nAccept: */*\r\nContent-Length: 1\r\n\r\nx"
        );
    }

    #[test]
    fn bodies_of_known_length() {
        let answer = whole(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").unwrap();
        assert_eq!(
            answer,
            Some(Answer {
                status: 200,
                close: false,
                body_bytes: 5
            })
        );
        assert_eq!(
            whole(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"),
            Ok(None)
        );
        assert_eq!(
            whole(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhe"),
            Err(Malformed)
        );
        assert_eq!(
            whole(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
            Err(Malformed)
        );
    }

    #[test]
    fn no_body_and_close() {
        let answer = whole(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(
            answer,
            Some(Answer {
                status: 204,
                close: true,
                body_bytes: 0
            })
        );
        let answer = whole(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert!(answer.unwrap().close);
    }

    #[test]
    fn a_body_until_the_end_of_the_connection() {
        let mut reader = Reader::new(true);
        assert_eq!(reader.take(b"HTTP/1.1 200 OK\r\n\r\nabc"), Ok(None));
        assert_eq!(
            reader.end(),
            Some(Answer {
                status: 200,
                close: true,
                body_bytes: 3
            })
        );
        assert_eq!(reader.body(), b"abc");
        let mut half = Reader::new(false);
        assert_eq!(half.take(b"HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
        assert_eq!(half.end(), None);
    }

    #[test]
    fn an_answer_before_the_answer() {
        let answer = whole(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        );
        assert_eq!(answer.unwrap().unwrap().status, 201);
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;name=value\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn chunks_however_they_are_cut() {
        for cut in 1..CHUNKED.len() {
            let mut reader = Reader::new(true);
            let mut last = Ok(None);
            for piece in CHUNKED.chunks(cut) {
                assert_eq!(last, Ok(None));
                last = reader.take(piece);
            }
            assert_eq!(
                last,
                Ok(Some(Answer {
                    status: 200,
                    close: false,
                    body_bytes: 15
                }))
            );
            assert_eq!(reader.body(), b"hello0123456789");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_does_not_panic(at in 0..CHUNKED.len(), byte in any::<u8>(), cut in 1..CHUNKED.len()) {
            let mut bytes = CHUNKED.to_vec();
            bytes[at] = byte;
            let mut pieces = Reader::new(true);
            let mut last = Ok(None);
            for piece in bytes.chunks(cut) {
                last = pieces.take(piece);
                if last.is_err() {
                    break;
                }
            }
            // How it was cut makes no difference, unless there is more after the end.
            if let (Ok(a), Ok(b)) = (last, whole(&bytes)) {
                prop_assert_eq!(a, b);
            }
        }
    }
}
