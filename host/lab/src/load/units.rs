// SPDX-License-Identifier: Apache-2.0

//! Numbers as load tools print them. Whatever is not exactly a number of a known unit is `None`.

/// A time with its unit: `310.00us`, `1.53ms`, `1.01s`, `1.00m`, `1.00h`; in ns.
pub(crate) fn time_ns(text: &str) -> Option<f64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(end)?;
    let factor = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    Some(parse_number(number)? * factor)
}

/// A whole number of digits only.
pub(crate) fn parse_int(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// A number from 0 on, without exponent, sign or the words that Rust takes (`inf`, `nan`).
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok())?
}

/// Seconds as a duration.
pub(crate) fn seconds(value: f64) -> Option<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(value).ok()
}

#[cfg(test)]
mod tests {
    use super::{parse_int, parse_number, time_ns};

    #[test]
    fn times() {
        assert_eq!(time_ns("980.00us"), Some(980e3));
        assert_eq!(time_ns("1.53ms"), Some(1.53e6));
        assert_eq!(time_ns("1.01s"), Some(1.01e9));
        assert_eq!(time_ns("2.00m"), Some(120e9));
        for wrong in [
            "", "1.0", "ms", "1.0ns", "-1ms", "1e3ms", "nanms", "1.0 ms", "1,0ms", "é1s", "1é",
        ] {
            assert_eq!(time_ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_int("12"), Some(12));
        assert_eq!(parse_number("12.5"), Some(12.5));
        for wrong in ["", "+1", "-1", "0x1", "1_0", "inf", "nan", "1e5", " 1"] {
            assert_eq!(parse_int(wrong), None, "{wrong}");
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }
}
