// SPDX-License-Identifier: Apache-2.0

//! Response times as text: HDR histogram, V2 + DEFLATE, base64. Other tools of the HdrHistogram family read it too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::{Error, Result};

/// The text of a histogram. `None` if it is empty or cannot be written (a figure beyond the format's 2^63).
#[must_use]
pub fn encode(histogram: &Histogram<u64>) -> Option<String> {
    if histogram.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .ok()?;
    Some(STANDARD.encode(bytes))
}

/// The histogram of a text.
///
/// # Errors
/// When it is not base64 of a V2 histogram.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    let wrong = |why: String| Error::Input(format!("a histogram cannot be read: {why}"));
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| wrong(error.to_string()))?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_the_way_through_text() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value in [1_000, 250_000, 250_000, 90_000_000, 12_000_000_000] {
            histogram.record(value).unwrap();
        }
        let back = decode(&encode(&histogram).unwrap()).unwrap();
        assert_eq!(back, histogram);
        assert_eq!(back.len(), 5);
    }

    #[test]
    fn nothing_is_not_a_histogram() {
        assert_eq!(encode(&Histogram::<u64>::new(3).unwrap()), None);
        for wrong in ["", "%%%", "AAAA", "HISTEwAAAA=="] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}
