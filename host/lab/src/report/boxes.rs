// SPDX-License-Identifier: Apache-2.0

//! Box plots of response times: the middle half as a box, whiskers from the 2nd to the 98th percentile (the part that study
//! 003 looks at), and marks at the 99.9th percentile and the maximum.

use super::bars::ticks;
use super::svg::{Anchor, Axis, Svg, slot, width};
use super::words;
use crate::statistics::Distribution;

/// Boxes that belong together: a label above, and platforms with their response times.
pub(super) struct Bundle<'a> {
    pub(super) label: String,
    pub(super) boxes: Vec<(&'a str, &'a Distribution)>,
}

const BOX: f64 = 15.0;
const STEP: f64 = 22.0;
const LABEL: f64 = 19.0;
const GAP: f64 = 10.0;

/// The plot, `wide` px wide.
pub(super) fn draw(title: &str, description: &str, bundles: &[Bundle<'_>], wide: f64) -> String {
    let all = || bundles.iter().flat_map(|bundle| &bundle.boxes);
    let values: Vec<f64> = all()
        .flat_map(|(_, times)| [times.quantile_ms(0.02), times.quantile_ms(1.0)])
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let unit = words::unit("latency_max_ms", most);
    let scaled: Vec<f64> = values.iter().map(|value| unit.of(*value)).collect();
    let axis = Axis::fitting(&scaled, 4);
    let left = all()
        .map(|(name, _)| width(name))
        .fold(0.0, f64::max)
        .min(wide * 0.36)
        + 8.0;
    // The last number of the axis stands half outside.
    let last = axis
        .ticks
        .last()
        .map_or(0.0, |tick| width(&unit.with_name(axis.label(*tick))));
    let room = wide - left - (last / 2.0 + 4.0).max(12.0);
    let x = |value: f64| left + axis.at(unit.of(value)) * room;
    let mut front = Svg::default();
    let mut y = 2.0;
    for bundle in bundles {
        if !bundle.label.is_empty() {
            front.fitted(0.0, y + 13.0, Anchor::Start, "label", &bundle.label, wide);
            y += LABEL;
        }
        for (name, times) in &bundle.boxes {
            let (middle, slot) = (y + BOX / 2.0, slot(name));
            let at = |share: f64| x(times.quantile_ms(share));
            front.fitted(left - 8.0, y + 12.0, Anchor::End, "soft", name, left - 6.0);
            front.line("whisker", (at(0.02), middle), (at(0.25), middle));
            front.line("whisker", (at(0.75), middle), (at(0.98), middle));
            for end in [0.02, 0.98] {
                front.line("whisker", (at(end), middle - 4.0), (at(end), middle + 4.0));
            }
            let value = |share: f64| unit.value(times.quantile_ms(share));
            let about = format!(
                "{name}: median {}, middle half {} to {}, 2nd to 98th percentile {} to {}, maximum {}, {} answers",
                value(0.5),
                value(0.25),
                value(0.75),
                value(0.02),
                value(0.98),
                value(1.0),
                times.count()
            );
            front.rect(
                &format!("box c{slot}"),
                (at(0.25), y),
                ((at(0.75) - at(0.25)).max(1.0), BOX),
                &about,
            );
            front.line("whisker", (at(0.5), y), (at(0.5), y + BOX));
            for (share, words) in [(0.999, "99.9th percentile"), (1.0, "maximum")] {
                front.mark(
                    &format!("hollow c{slot}"),
                    0,
                    (at(share), middle),
                    2.6,
                    &format!("{words} {}", value(share)),
                );
            }
            y += STEP;
        }
        y += GAP;
    }
    let bottom = y - GAP;
    let mut out = Svg::default();
    ticks(&mut out, &axis, (left, room), bottom, &unit);
    out.group("front", &front);
    out.finish((wide, bottom + 24.0), title, description)
}
