// SPDX-License-Identifier: Apache-2.0
//! Digests, by which everything of an image is known.
//!
//! Source: OCI image specification 1.1, `descriptor.md`. Of the algorithms it registers, SHA-256 is the one in use.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    hex: String,
}

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from(Sha256::digest(bytes).as_slice())
    }

    /// Its digits, without the algorithm.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The first twelve digits, as lists show them.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.hex[..12]
    }

    fn from(hash: &[u8]) -> Self {
        let hex = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { hex }
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if hex.len() != 64 || !hex.bytes().all(is_digit) {
            return Err(format!(
                "{text:?} is no digest: sha256: and 64 digits are expected"
            ));
        }
        Ok(Self { hex: hex.into() })
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex)
    }
}

/// A reader or writer that takes the digest of what passes.
#[derive(Debug)]
pub struct Hashing<T> {
    inner: T,
    hash: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    /// Begins with nothing.
    pub fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    /// The digest and number of the bytes that passed.
    pub fn finish(self) -> (Digest, u64) {
        (Digest::from(self.hash.finalize().as_slice()), self.bytes)
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.pass(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.pass(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
