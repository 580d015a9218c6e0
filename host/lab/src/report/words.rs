// SPDX-License-Identifier: Apache-2.0

//! Numbers, units and names as readers want them.

use std::collections::BTreeMap;

use crate::metric::{self, Better};
use crate::statistics::{Estimate, FEWEST, Ratio};

/// A gap between thousands that does not break a line.
const GAP: char = '\u{a0}';

/// A unit to print values in: as many as `per` of the metric's own make one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    per: f64,
    /// "MB"; empty for counts.
    pub(super) name: String,
}

/// The unit that prints values up to `most` of a metric with few digits.
pub(super) fn unit(metric: &str, most: f64) -> Unit {
    let own = unit_of(metric);
    let most = most.abs();
    let steps: &[(f64, f64, &str)] = match own.as_str() {
        "B" => &[(1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB")],
        "s" if most > 0.0 => &[(1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "\u{b5}s")],
        "ms" if most > 0.0 => &[(1e4, 1e3, "s"), (0.1, 1.0, "ms"), (0.0, 1e-3, "\u{b5}s")],
        "us" => &[(1e7, 1e6, "s"), (1e4, 1e3, "ms"), (0.0, 1.0, "\u{b5}s")],
        "ns" => &[(1e10, 1e9, "s"), (1e7, 1e6, "ms"), (1e4, 1e3, "\u{b5}s")],
        "1/s" => &[(0.0, 1.0, "/s")],
        "%" => &[(0.0, 1.0, "%")],
        _ => &[],
    };
    let (per, name) = steps
        .iter()
        .find(|(from, ..)| most >= *from)
        .map_or((1.0, own.as_str()), |(_, per, name)| (*per, *name));
    Unit {
        per,
        name: name.to_owned(),
    }
}

/// The metric's own unit, as in the list of metrics or by the end of its name.
pub(super) fn unit_of(metric: &str) -> String {
    metric::find(metric)
        .map(|metric| metric.unit)
        .or_else(|| metric::unit_of(metric).map(|(unit, _)| unit))
        .or_else(|| metric.ends_with("_percent").then_some("%"))
        .unwrap_or("")
        .to_owned()
}

/// Which way is good.
pub(super) fn better(metric: &str) -> Better {
    metric::find(metric)
        .map(|metric| metric.better)
        .or_else(|| metric::unit_of(metric).map(|(_, better)| better))
        .unwrap_or(Better::Neither)
}

/// The metric's name for readers.
pub(super) fn title(metric: &str) -> String {
    if let Some(known) = metric::find(metric) {
        return known.title.to_owned();
    }
    let end = metric::unit_of(metric).map_or(0, |(unit, _)| match unit {
        "1/s" => 6,
        "Mbit/s" => 7,
        "B" => 6,
        "s" => 2,
        "ns" | "us" | "ms" => 3,
        _ => 0,
    });
    let name = metric
        .get(..metric.len().saturating_sub(end))
        .unwrap_or(metric);
    name.replace('_', " ")
}

impl Unit {
    /// A value of the metric in this unit, without its name.
    pub(super) fn of(&self, value: f64) -> f64 {
        value / self.per
    }

    /// A value with the unit's name.
    pub(super) fn value(&self, value: f64) -> String {
        let value = self.of(value);
        // Counts are whole.
        if self.name.is_empty() && value.fract() == 0.0 {
            return grouped(value, 0);
        }
        self.with_name(number(value))
    }

    /// A number of an axis with the unit's name.
    pub(super) fn with_name(&self, number: String) -> String {
        match self.name.as_str() {
            "" => number,
            "/s" | "%" => number + &self.name,
            name => format!("{number}{GAP}{name}"),
        }
    }

    /// "\[1 650-1 670\]"; empty where the ends print like the median.
    pub(super) fn interval(&self, estimate: &Estimate) -> String {
        if estimate.samples < 2 {
            return String::new();
        }
        let digits = digits(self.of(estimate.median));
        let end = |value: f64| grouped(self.of(value), digits);
        format!("{}\u{2013}{}", end(estimate.low), end(estimate.high))
    }
}

/// A number with three digits that count, or all digits before the point.
pub(super) fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-5 {
        return format!("{value:.2e}");
    }
    grouped(value, digits(value))
}

fn digits(value: f64) -> usize {
    let size = value.abs();
    match size {
        0.0 => 0,
        _ if size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ if size >= 0.099_95 => 3,
        _ if size >= 0.009_995 => 4,
        _ if size >= 0.000_999_5 => 5,
        _ => 6,
    }
}

/// With `digits` after the point and gaps between thousands. Very great numbers in powers of ten.
fn grouped(value: f64, digits: usize) -> String {
    if value.abs() >= 1e11 {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole
        .strip_prefix('-')
        .map_or(("", whole), |whole| ("-", whole));
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(GAP);
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out += rest;
    }
    out
}

/// A count with gaps between thousands.
pub(super) fn number_of(count: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of answers stay far below 2^53"
    )]
    let value = count as f64;
    grouped(value, 0)
}

/// A part of a whole in percent: "0.12 %".
pub(super) fn share(part: u64, whole: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of answers stay far below 2^53"
    )]
    let share = if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    };
    format!("{}{GAP}%", number(share * 100.0))
}

/// A ratio: "1.84", "0.089", "11.2".
pub(super) fn times(value: f64) -> String {
    number(value)
}

/// "1.84 (1.79-1.90)".
pub(super) fn ratio(ratio: &Ratio) -> String {
    format!(
        "{} ({}\u{2013}{})",
        times(ratio.ratio),
        times(ratio.low),
        times(ratio.high)
    )
}

/// Why a figure is not settled, in brackets after it; none if it is.
pub(super) fn unsettled(runs: usize, width: Option<f64>, share: f64) -> Option<String> {
    if runs < FEWEST {
        let runs = if runs == 1 {
            "1 run".to_owned()
        } else {
            format!("{runs} runs")
        };
        return Some(format!("not settled: {runs}, an interval needs {FEWEST}"));
    }
    match width {
        Some(width) if width <= share => None,
        Some(width) => Some(format!(
            "not settled: the interval is {} % wide, wanted {} %",
            number(width * 100.0),
            number(share * 100.0)
        )),
        None => Some("not settled: around 0".to_owned()),
    }
}

/// "connections 40, size 64".
pub(super) fn point(point: &BTreeMap<String, String>) -> String {
    let parts: Vec<String> = point
        .iter()
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    parts.join(", ")
}

/// "1 vCPU", "4 vCPUs".
pub(super) fn vcpus(count: u32) -> String {
    format!("{count} vCPU{}", if count == 1 { "" } else { "s" })
}

/// Seconds as "3 min 20 s".
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.0} s");
    }
    let minutes = (seconds / 60.0).floor();
    if minutes < 60.0 {
        return format!("{minutes:.0} min {:.0} s", seconds - minutes * 60.0);
    }
    let hours = (minutes / 60.0).floor();
    format!("{hours:.0} h {:.0} min", minutes - hours * 60.0)
}

/// Text for HTML and SVG: what means something there is replaced, and control characters, which XML cannot hold, are shown
/// as their pictures (U+2400 on); tabs and line ends stay.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(letter),
            '\u{7f}' => out.push('\u{2421}'),
            '\0'..='\u{1f}' => {
                out.push(char::from_u32(0x2400 + u32::from(letter)).unwrap_or('\u{fffd}'))
            }
            '\u{80}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            // Letters that turn the direction of text could make a name read as another.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{digits, escape, number, title, unit, unit_of};

    #[test]
    fn numbers_keep_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (1663.04, "1\u{a0}663"),
            (1_234_567.8, "1\u{a0}234\u{a0}568"),
            (99.96, "100"),
            (12.345, "12.3"),
            (1.845, "1.84"),
            (0.0891, "0.0891"),
            (-4.5, "-4.50"),
            (-12345.0, "-12\u{a0}345"),
            (1e20, "1.00e20"),
            (3.2e-9, "3.20e-9"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(digits(9.999), 1);
    }

    #[test]
    fn units_fit_the_values() {
        assert_eq!(
            unit("memory_resident_bytes", 91e6).value(88_100_000.0),
            "88.1\u{a0}MB"
        );
        assert_eq!(unit("first_answer_s", 0.31).value(0.1402), "140\u{a0}ms");
        assert_eq!(unit("first_answer_s", 2.9).value(0.1402), "0.140\u{a0}s");
        assert_eq!(
            unit("throughput_per_s", 1e5).value(12345.6),
            "12\u{a0}346/s"
        );
        assert_eq!(unit("errors", 3.0).value(3.0), "3");
        assert_eq!(unit("getpid_ns", 151.2).value(151.2), "151\u{a0}ns");
        assert_eq!(unit("latency_p99_ms", 0.0).value(0.0), "0\u{a0}ms");
        assert_eq!(unit_of("nothing"), "");
    }

    #[test]
    fn own_figures_are_named_without_their_unit() {
        assert_eq!(title("getpid_ns"), "getpid");
        assert_eq!(title("page_faults_per_s"), "page faults");
        assert_eq!(title("throughput_per_s"), "Throughput");
        assert_eq!(title("odd"), "odd");
    }

    #[test]
    fn nothing_from_outside_reaches_the_page_as_markup() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&\u{1b}[31m\0\u{7f}\u{202e}\n\u{85}"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{241b}[31m\u{2400}\u{2421}\u{fffd}\n\u{fffd}"
        );
    }
}
