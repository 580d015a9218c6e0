// SPDX-License-Identifier: Apache-2.0

//! A figure by platform: bars from 0 with their intervals, or marks on a logarithmic axis where values lie far apart.

use super::lines::legend;
use super::svg::{Anchor, Axis, Svg, slot, width};
use super::words::{self, Unit};
use crate::statistics::Estimate;

/// One platform's bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) platform: String,
    /// None where every run failed.
    pub(super) estimate: Option<Estimate>,
    /// The single runs, drawn as dots where they are few.
    pub(super) runs: Vec<f64>,
    pub(super) failures: usize,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    /// Above the bars; empty where the heading of the plot says it.
    pub(super) label: String,
    pub(super) bars: Vec<Bar>,
}

const BAR: f64 = 15.0;
const STEP: f64 = 20.0;
const LABEL: f64 = 19.0;
const GAP: f64 = 10.0;
const AXIS: f64 = 24.0;
/// More bundles than this on a logarithmic axis get a line each, with the marks of all platforms on it.
const MANY: usize = 12;
/// More single runs than this are left out.
const DOTS: usize = 24;

/// The plot, `wide` px wide. `title` and `description` are for those who cannot see it.
pub(super) fn draw(
    title: &str,
    description: &str,
    metric: &str,
    bundles: &[Bundle],
    wide: f64,
) -> String {
    let bars = || bundles.iter().flat_map(|bundle| &bundle.bars);
    let values: Vec<f64> = bars()
        .filter_map(|bar| bar.estimate)
        .flat_map(|found| [found.median, found.high])
        .collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let unit = words::unit(metric, most);
    let name_room = bars()
        .map(|bar| width(&bar.platform))
        .fold(0.0, f64::max)
        .min(wide * 0.36)
        + 8.0;
    let value_room = bars()
        .map(|bar| width(&value(bar, &unit)) * 1.15)
        .fold(0.0, f64::max)
        .clamp(40.0, wide * 0.34)
        + 8.0;
    let room = wide - name_room - value_room;
    let scaled: Vec<f64> = values.iter().map(|value| unit.of(*value)).collect();
    let axis = Axis::fitting(&scaled, 4);
    if axis.is_log() && bundles.len() > MANY {
        return marks(title, description, &unit, &axis, bundles, wide);
    }
    let x = |value: f64| name_room + axis.at(unit.of(value)) * room;

    let mut front = Svg::default();
    let mut y = 2.0;
    for bundle in bundles {
        if !bundle.label.is_empty() {
            front.fitted(0.0, y + 13.0, Anchor::Start, "label", &bundle.label, wide);
            y += LABEL;
        }
        for bar in &bundle.bars {
            let middle = y + BAR / 2.0;
            let slot = slot(&bar.platform);
            front.fitted(
                name_room - 8.0,
                y + 12.0,
                Anchor::End,
                "soft",
                &bar.platform,
                name_room - 6.0,
            );
            let text = value(bar, &unit);
            front.fitted(wide, y + 12.0, Anchor::End, "value", &text, value_room);
            if let Some(found) = &bar.estimate {
                let about = format!("{}: {}", bar.platform, sentence(found, &unit));
                let dots = if bar.runs.len() <= DOTS {
                    bar.runs.as_slice()
                } else {
                    &[]
                };
                if axis.is_log() {
                    front.mark(
                        &format!("fill c{slot}"),
                        slot,
                        (x(found.median), middle),
                        5.0,
                        &about,
                    );
                } else {
                    front.rect(
                        &format!("fill c{slot}"),
                        (name_room, y),
                        ((x(found.median) - name_room).max(1.0), BAR),
                        &about,
                    );
                }
                for run in dots {
                    front.mark(
                        &format!("dot c{slot}"),
                        0,
                        (x(*run), middle),
                        2.0,
                        &unit.value(*run),
                    );
                }
                if found.high > found.low {
                    whisker(&mut front, (x(found.low), x(found.high)), middle);
                }
            }
            y += STEP;
        }
        y += GAP;
    }
    let bottom = y - GAP;
    let mut out = Svg::default();
    ticks(&mut out, &axis, (name_room, room), bottom, &unit);
    out.group("front", &front);
    out.finish((wide, bottom + AXIS), title, description)
}

/// A line for each bundle with a mark for each platform: many figures that lie far apart.
fn marks(
    title: &str,
    description: &str,
    unit: &Unit,
    axis: &Axis,
    bundles: &[Bundle],
    wide: f64,
) -> String {
    let mut names: Vec<(usize, bool, &str)> = Vec::new();
    for bar in bundles.iter().flat_map(|bundle| &bundle.bars) {
        let entry = (slot(&bar.platform), false, bar.platform.as_str());
        if !names.contains(&entry) {
            names.push(entry);
        }
    }
    let (legend, head) = legend(&names, wide);
    let label_room = bundles
        .iter()
        .map(|bundle| width(&bundle.label))
        .fold(0.0, f64::max)
        .min(wide * 0.45)
        + 8.0;
    // The last number of the axis stands half outside.
    let room = wide - label_room - 24.0;
    let x = |value: f64| label_room + axis.at(unit.of(value)) * room;
    let mut front = Svg::default();
    let mut y = head + 8.0;
    for bundle in bundles {
        let middle = y + STEP / 2.0;
        front.fitted(
            label_room - 8.0,
            middle + 4.0,
            Anchor::End,
            "soft",
            &bundle.label,
            label_room - 6.0,
        );
        front.line("grid", (label_room, middle), (label_room + room, middle));
        for bar in &bundle.bars {
            let Some(found) = &bar.estimate else { continue };
            let slot = slot(&bar.platform);
            front.line(
                &format!("stroke thin c{slot}"),
                (x(found.low), middle),
                (x(found.high), middle),
            );
            let about = format!("{}: {}", bar.platform, sentence(found, unit));
            front.mark(
                &format!("fill c{slot}"),
                slot,
                (x(found.median), middle),
                4.5,
                &about,
            );
        }
        y += STEP;
    }
    let mut out = Svg::default();
    ticks(&mut out, axis, (label_room, room), y, unit);
    out.group("front", &legend);
    out.group("front", &front);
    out.finish((wide, y + AXIS), title, description)
}

fn whisker(out: &mut Svg, (low, high): (f64, f64), y: f64) {
    out.line("whisker", (low, y), (high, y));
    for end in [low, high] {
        out.line("whisker", (end, y - 3.5), (end, y + 3.5));
    }
}

/// Lines and numbers of a horizontal axis; numbers that would touch are left out.
pub(super) fn ticks(
    out: &mut Svg,
    axis: &Axis,
    (left, room): (f64, f64),
    bottom: f64,
    unit: &Unit,
) {
    let labels: Vec<(f64, String)> = axis
        .ticks
        .iter()
        .map(|tick| {
            (
                left + axis.at(*tick) * room,
                unit.with_name(axis.label(*tick)),
            )
        })
        .collect();
    let widest = labels
        .iter()
        .map(|(_, label)| width(label))
        .fold(0.0, f64::max)
        + 8.0;
    let apart = labels.get(1).map_or(room, |second| second.0 - labels[0].0);
    let mut every = 1;
    while apart * f64::from(every) < widest && every < 16 {
        every += 1;
    }
    for ((x, label), index) in labels.iter().zip(0..) {
        out.line("grid", (*x, 0.0), (*x, bottom));
        if index % every == 0 {
            // Half of the first number would stand outside.
            let x = x.max(width(label) / 2.0);
            out.text(x, bottom + 16.0, Anchor::Middle, "soft", label);
        }
    }
}

fn value(bar: &Bar, unit: &Unit) -> String {
    match &bar.estimate {
        Some(found) => unit.value(found.median),
        None if bar.failures > 0 => "failed".to_owned(),
        None => "\u{2013}".to_owned(),
    }
}

/// A figure with its interval in words, for readers who point at it or cannot see it.
pub(super) fn sentence(found: &Estimate, unit: &Unit) -> String {
    let interval = unit.interval(found);
    if interval.is_empty() {
        format!("{} (a single run)", unit.value(found.median))
    } else {
        format!(
            "{} ({interval}), {} runs",
            unit.value(found.median),
            found.runs
        )
    }
}
