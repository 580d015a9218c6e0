// SPDX-License-Identifier: Apache-2.0

//! Pieces of plots: shapes, text that fits, axes with round ticks, and the colour of each platform.

use std::fmt::Write;

use super::words::escape;

/// Letters are this high, px.
pub(super) const TEXT: f64 = 12.0;

/// A drawing that grows downwards.
#[derive(Debug, Default)]
pub(super) struct Svg(String);

/// Where text stands from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Text on the base line `y`.
    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        // Writing to a String cannot fail; so everywhere here.
        let _ = writeln!(
            self.0,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(words)
        );
    }

    /// Text cut to `room` px; the whole of it shows when pointed at.
    pub(super) fn fitted(
        &mut self,
        x: f64,
        y: f64,
        anchor: Anchor,
        class: &str,
        words: &str,
        room: f64,
    ) {
        // Bold letters are wider.
        let room = if matches!(class, "label" | "value" | "title") {
            room / 1.13
        } else {
            room
        };
        let cut = fit(words, room);
        if cut == words {
            self.text(x, y, anchor, class, words);
        } else {
            let _ = write!(self.0, "<g><title>{}</title>", escape(words));
            self.text(x, y, anchor, class, &cut);
            self.0 += "</g>\n";
        }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.0,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A rectangle; `about` shows when pointed at.
    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), about: &str) {
        let _ = writeln!(
            self.0,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            corner.0,
            corner.1,
            size.0.max(0.0),
            size.1.max(0.0),
            escape(about)
        );
    }

    /// A line through points.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.0, "<path class=\"{class}\" d=\"{d}\"/>");
    }

    /// A mark whose shape, like its colour, belongs to the platform's slot.
    pub(super) fn mark(
        &mut self,
        class: &str,
        slot: usize,
        at: (f64, f64),
        size: f64,
        about: &str,
    ) {
        let (x, y) = at;
        let shape = match slot % 4 {
            0 => format!(
                "M{:.1} {y:.1}a{size} {size} 0 1 0 {:.1} 0a{size} {size} 0 1 0 {:.1} 0z",
                x - size,
                size * 2.0,
                -size * 2.0
            ),
            1 => format!(
                "M{:.1} {:.1}h{w:.1}v{w:.1}h-{w:.1}z",
                x - size * 0.9,
                y - size * 0.9,
                w = size * 1.8
            ),
            2 => format!(
                "M{x:.1} {:.1}l{size:.1} {size:.1}l-{size:.1} {size:.1}l-{size:.1} -{size:.1}z",
                y - size
            ),
            _ => format!(
                "M{x:.1} {:.1}l{:.1} {:.1}h-{:.1}z",
                y - size * 1.1,
                size * 1.1,
                size * 1.9,
                size * 2.2
            ),
        };
        let _ = writeln!(
            self.0,
            "<path class=\"{class}\" d=\"{shape}\"><title>{}</title></path>",
            escape(about)
        );
    }

    /// What was drawn, within `class` if a class is given.
    pub(super) fn group(&mut self, class: &str, inner: &Svg) {
        let _ = writeln!(self.0, "<g class=\"{class}\">\n{}</g>", inner.0);
    }

    /// What was drawn, without an element around it.
    pub(super) fn inner(&self) -> &str {
        &self.0
    }

    /// The drawing as an element of a page, named for those who cannot see it.
    pub(super) fn finish(&self, size: (f64, f64), title: &str, description: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<desc>{}</desc>\n{}</svg>\n",
            size.0,
            size.1,
            escape(title),
            escape(description),
            self.0
        )
    }
}

/// The colour and shape of a platform, the same in every plot: a class "c0" to "c9".
pub(super) fn slot(platform: &str) -> usize {
    match platform {
        "process" => 0,
        "container" => 1,
        "gvisor" => 2,
        "linux-vm" => 3,
        "linux-vm-container" => 4,
        "unikernel" => 5,
        other => 6 + other.bytes().map(usize::from).sum::<usize>() % 4,
    }
}

/// About how wide words are, px, in the fonts a browser takes for `system-ui`; rather too wide than too narrow.
pub(super) fn width(words: &str) -> f64 {
    let share = |letter: char| match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '\u{a0}' => 0.32,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.92,
        'A'..='Z' => 0.72,
        letter if letter.is_ascii() => 0.6,
        '\u{2013}' | '\u{b5}' => 0.6,
        _ => 1.0,
    };
    words.chars().map(share).sum::<f64>() * TEXT
}

/// As much of `words` as fits in `room` px, with an ellipsis if that is not all.
pub(super) fn fit(words: &str, room: f64) -> String {
    if width(words) <= room {
        return words.to_owned();
    }
    let mut out = String::new();
    for letter in words.chars() {
        out.push(letter);
        if width(&out) + TEXT > room {
            out.pop();
            break;
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\u{2026}');
    out
}

/// From values to positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// From 0 to at least `most`, with at most `count` steps.
    pub(super) fn from_zero(most: f64, count: u32) -> Axis {
        Axis::linear(0.0, most, count)
    }

    /// Over `low` to `high` at least, ending at ticks.
    pub(super) fn linear(low: f64, high: f64, count: u32) -> Axis {
        let span = if high > low {
            high - low
        } else {
            high.abs().max(1.0)
        };
        let step = nice(span / f64::from(count.max(1)));
        let first = (low / step).floor();
        let mut last = (high / step).ceil();
        if last <= first {
            last = first + 1.0;
        }
        let mut ticks = Vec::new();
        let mut index = first;
        while index <= last && ticks.len() < 64 {
            ticks.push(index * step);
            index += 1.0;
        }
        Axis {
            low: first * step,
            high: last * step,
            log: false,
            ticks,
        }
    }

    /// Logarithmic over `low` to `high`, both above 0, with a little room at both ends. Ticks are powers of ten, and 2 and 5
    /// times of them where there would be few.
    pub(super) fn log(low: f64, high: f64) -> Axis {
        let (low, high) = (low / 1.25, high.max(low) * 1.25);
        let (first, last) = (low.log10().ceil(), high.log10().floor());
        let every = ((last - first) / 6.0).ceil().max(1.0);
        let few = last - first < 2.0;
        let mut ticks = Vec::new();
        let mut index = if few { first - 1.0 } else { first };
        while index <= last && ticks.len() < 64 {
            let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
            ticks.extend(factors.iter().map(|factor| factor * 10_f64.powf(index)));
            index += every;
        }
        ticks.retain(|tick| (low..=high).contains(tick));
        Axis {
            low,
            high,
            log: true,
            ticks,
        }
    }

    /// Logarithmic if the values spread over more than a factor of 100, else from 0.
    pub(super) fn fitting(values: &[f64], count: u32) -> Axis {
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values
            .iter()
            .copied()
            .filter(|value| *value > 0.0)
            .fold(f64::INFINITY, f64::min);
        if least.is_finite() && most / least > 100.0 {
            Axis::log(least, most)
        } else {
            Axis::from_zero(most, count)
        }
    }

    /// Where a value lies, from 0 to 1; what lies outside is put to the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let place = if self.log {
            if value <= 0.0 {
                return 0.0;
            }
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }

    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// The number at a tick, with no more digits than the ticks need.
    pub(super) fn label(&self, tick: f64) -> String {
        if self.log {
            return plain(tick);
        }
        let step = self
            .ticks
            .get(1)
            .map_or(1.0, |second| (second - self.ticks[0]).abs());
        let digits = (0..=6_usize)
            .find(|digits| {
                let scaled = step * 10_f64.powi(i32::try_from(*digits).unwrap_or(0));
                (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0)
            })
            .unwrap_or(6);
        if tick.abs() >= 1e6 || digits == 6 {
            return plain(tick);
        }
        let text = format!("{tick:.digits$}");
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        let whole = super::words::number(whole.parse().unwrap_or(0.0));
        let whole = if whole == "0" && tick < 0.0 {
            "-0".to_owned()
        } else {
            whole.split('.').next().unwrap_or("").to_owned()
        };
        if rest.is_empty() {
            whole
        } else {
            format!("{whole}.{rest}")
        }
    }
}

/// A power of ten or a great number, short: "0.01", "100", "10k", "1M".
fn plain(value: f64) -> String {
    let size = value.abs();
    let (per, end) = match size {
        _ if size >= 1e15 => return format!("{value:.0e}"),
        _ if size >= 1e9 => (1e9, "G"),
        _ if size >= 1e6 => (1e6, "M"),
        _ if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    if size > 0.0 && size < 1e-4 {
        return format!("{value:.0e}");
    }
    let text = format!("{:.4}", value / per);
    format!("{}{end}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// 1, 2, 2.5 or 5 times a power of ten, at least `rough`.
fn nice(rough: f64) -> f64 {
    let rough = rough.max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999_999)
        .unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::{Axis, fit, slot, width};

    #[test]
    fn axes_have_round_ticks_and_enough_room() {
        for most in [0.14, 1.55, 3700.0, 7666.0, 58.9, 256.0, 1e-9, 1e12, 0.0] {
            let axis = Axis::from_zero(most, 4);
            assert!((2..=6).contains(&axis.ticks.len()), "{most}: {axis:?}");
            assert!(axis.ticks[axis.ticks.len() - 1] >= most * 0.999_999);
            assert!(axis.at(most) <= 1.0 && axis.at(0.0) == 0.0);
        }
        let axis = Axis::from_zero(3700.0, 4);
        let labels: Vec<String> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(
            labels,
            ["0", "1\u{a0}000", "2\u{a0}000", "3\u{a0}000", "4\u{a0}000"]
        );
        let axis = Axis::from_zero(0.9, 4);
        assert_eq!(axis.label(axis.ticks[1]), "0.25");
        let axis = Axis::from_zero(2.2e7, 4);
        assert_eq!(axis.label(axis.ticks[1]), "10M");
    }

    #[test]
    fn a_wide_spread_is_logarithmic() {
        let axis = Axis::fitting(&[0.05, 30_000.0, 0.0], 4);
        assert!(axis.is_log());
        assert!(axis.at(0.0).abs() < 1e-9 && axis.at(0.05) > 0.0 && axis.at(30_000.0) < 1.0);
        let labels: Vec<String> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["0.1", "1", "10", "100", "1000", "10k"]);
        let axis = Axis::log(3.0, 40.0);
        let labels: Vec<String> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
        assert_eq!(labels, ["5", "10", "20", "50"]);
        assert!(!Axis::fitting(&[1.0, 90.0], 4).is_log());
        assert!(!Axis::fitting(&[0.0], 4).is_log() && !Axis::fitting(&[], 4).is_log());
        assert!(Axis::log(1e-9, 1e15).ticks.len() <= 7);
    }

    #[test]
    fn text_is_cut_to_its_room() {
        assert_eq!(fit("short", 100.0), "short");
        let cut = fit("a service with quite a long name indeed", 100.0);
        assert!(cut.ends_with('\u{2026}') && width(&cut) <= 110.0, "{cut}");
        assert_eq!(fit("x", 0.0), "\u{2026}");
    }

    #[test]
    fn each_platform_has_its_colour() {
        let known = [
            "process",
            "container",
            "gvisor",
            "linux-vm",
            "linux-vm-container",
            "unikernel",
        ];
        for (index, name) in known.into_iter().enumerate() {
            assert_eq!(slot(name), index);
        }
        assert!((6..10).contains(&slot("image:osv")));
    }
}
