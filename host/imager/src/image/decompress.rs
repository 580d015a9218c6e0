// SPDX-License-Identifier: Apache-2.0
//! Layers and archives as they come: plain, gzip or zstd. What they are is seen from their first bytes, because media types
//! of layers are not always true and archives have none.
//!
//! Source: RFC 1952 (gzip), RFC 8878 (zstd): both allow several members or frames one behind the other.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes read at once.
const BUFFER: usize = 128 << 10;

/// The uncompressed content of `from`.
///
/// # Errors
/// What `from` answers; `Unsupported` for bzip2 and xz.
pub fn decompress<'a>(from: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut from = BufReader::with_capacity(BUFFER, from);
    let head: Vec<u8> = from.fill_buf()?.iter().take(4).copied().collect();
    let unsupported = |name: &str| {
        let text = format!("compressed with {name}; Coracle reads gzip and zstd");
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    };
    match head.as_slice() {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(from))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            let decoder = FrameDecoder::new();
            Ok(Box::new(Zstd {
                from,
                decoder,
                is_within_frame: false,
            }))
        }
        [b'B', b'Z', b'h', ..] => unsupported("bzip2"),
        [0xfd, b'7', b'z', b'X', ..] => unsupported("xz"),
        _ => Ok(Box::new(from)),
    }
}

/// All frames of a zstd stream.
struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    is_within_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins a frame, or goes past one without content (zstd:chunked has its table of contents in such).
    fn next_frame(&mut self) -> io::Result<()> {
        match self.decoder.init(&mut self.from) {
            Ok(()) => self.is_within_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                let mut skipped = self.from.by_ref().take(length.into());
                io::copy(&mut skipped, &mut io::sink())?;
            }
            Err(error) => return Err(invalid(error)),
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.is_within_frame && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(buffer.len());
                let decoded = self.decoder.decode_blocks(&mut self.from, some);
                decoded.map_err(invalid)?;
                continue;
            }
            if self.from.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.next_frame()?;
        }
    }
}

fn invalid(error: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        decompress(bytes)?.read_to_end(&mut found)?;
        Ok(found)
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        let mut gzip = Vec::new();
        for part in ["one ", "two"] {
            let mut member = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::fast());
            io::Write::write_all(&mut member, part.as_bytes()).expect("in memory");
            member.finish().expect("in memory");
        }
        assert_eq!(all(&gzip).expect("good"), b"one two");
        assert!(all(&gzip[..gzip.len() - 3]).is_err());

        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let frame = |text: &str| ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let zstd = [&skipped[..], &frame("one "), &skipped, &frame("two")].concat();
        assert_eq!(all(&zstd).expect("good"), b"one two");
        assert!(all(&zstd[..zstd.len() - 2]).is_err());
    }

    #[test]
    fn what_is_not_compressed_stays_and_what_is_unknown_is_said() {
        assert_eq!(all(b"").expect("nothing"), b"");
        assert_eq!(all(b"plain").expect("plain"), b"plain");
        let error = all(b"BZh91AY").expect_err("not read");
        assert!(error.to_string().contains("gzip and zstd"));
    }
}
