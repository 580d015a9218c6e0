// SPDX-License-Identifier: Apache-2.0

//! Curves: a figure over a parameter, over time, or as a distribution.

use super::svg::{Anchor, Axis, Svg, TEXT, slot, width};
use super::words::{self, Unit};

/// A point of a curve with its interval, in the metric's own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A platform's curve.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) platform: String,
    pub(super) spots: Vec<Spot>,
    /// What the study published, drawn as hollow marks.
    pub(super) published: Vec<(f64, f64)>,
}

/// Curves on two axes.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) description: String,
    /// What x is, with its unit.
    pub(super) x_title: String,
    /// The metric of y; its name ends in the unit.
    pub(super) metric: String,
    pub(super) curves: Vec<Curve>,
    /// Whether equal x and y are marked by a line (offered and achieved load).
    pub(super) diagonal: bool,
    /// Whether x is time, which is never drawn logarithmically.
    pub(super) is_over_time: bool,
    /// Whether y holds between points (distributions), in %; then there are no marks.
    pub(super) is_distribution: bool,
}

const TALL: f64 = 210.0;
const TOP: f64 = 10.0;
const LEGEND: f64 = 18.0;
/// More points than this are drawn without marks.
const MARKS: usize = 40;

/// The plot, `wide` px wide.
pub(super) fn draw(plot: &Plot, wide: f64) -> String {
    let spots = || plot.curves.iter().flat_map(|curve| &curve.spots);
    let published = || plot.curves.iter().flat_map(|curve| &curve.published);
    let ys: Vec<f64> = spots()
        .flat_map(|spot| [spot.y, spot.high, spot.low.max(0.0)])
        .chain(published().map(|point| point.1))
        .collect();
    let xs: Vec<f64> = spots()
        .map(|spot| spot.x)
        .chain(published().map(|point| point.0))
        .collect();
    let unit = if plot.is_distribution {
        words::unit("share_percent", 100.0)
    } else {
        words::unit(&plot.metric, ys.iter().copied().fold(0.0, f64::max))
    };
    let y_axis = if plot.is_distribution {
        Axis::from_zero(100.0, 4)
    } else {
        Axis::fitting(&ys.iter().map(|y| unit.of(*y)).collect::<Vec<_>>(), 4)
    };
    let x_axis = x_axis(&xs, wide, plot.is_over_time);

    let mut entries: Vec<(usize, bool, &str)> = plot
        .curves
        .iter()
        .map(|curve| (slot(&curve.platform), false, curve.platform.as_str()))
        .collect();
    if let Some(curve) = plot.curves.iter().find(|curve| !curve.published.is_empty()) {
        entries.push((slot(&curve.platform), true, "published"));
    }
    let (legend, head) = legend(&entries, wide);
    let left = y_axis
        .ticks
        .iter()
        .map(|tick| width(&unit.with_name(y_axis.label(*tick))))
        .fold(0.0, f64::max)
        + 8.0;
    // The last number of x stands half outside.
    let last = x_axis
        .ticks
        .last()
        .map_or(0.0, |tick| width(&x_axis.label(*tick)));
    let right = wide - (last / 2.0 + 2.0).max(8.0);
    let (top, bottom) = (head + TOP, head + TOP + TALL);
    let place = |x: f64, y: f64| {
        (
            left + x_axis.at(x) * (right - left),
            bottom - y_axis.at(unit.of(y)) * (bottom - top),
        )
    };

    let mut out = Svg::default();
    for tick in &y_axis.ticks {
        let y = bottom - y_axis.at(*tick) * (bottom - top);
        out.line("grid", (left, y), (right, y));
        out.text(
            left - 6.0,
            y + 4.0,
            Anchor::End,
            "soft",
            &unit.with_name(y_axis.label(*tick)),
        );
    }
    x_numbers(&mut out, &x_axis, (left, right), (top, bottom));
    out.fitted(
        f64::midpoint(left, right),
        bottom + 33.0,
        Anchor::Middle,
        "soft",
        &plot.x_title,
        right - left,
    );
    if plot.diagonal {
        out.path("same", &diagonal(&xs, place));
    }
    for curve in &plot.curves {
        draw_curve(&mut out, plot, curve, &unit, place);
    }
    out.group("front", &legend);
    out.finish((wide, bottom + 40.0), &plot.title, &plot.description)
}

fn draw_curve(
    out: &mut Svg,
    plot: &Plot,
    curve: &Curve,
    unit: &Unit,
    place: impl Fn(f64, f64) -> (f64, f64),
) {
    let slot = slot(&curve.platform);
    let marked = curve.spots.len() <= MARKS && !plot.is_distribution;
    let line: Vec<(f64, f64)> = curve
        .spots
        .iter()
        .map(|spot| place(spot.x, spot.y))
        .collect();
    let wide_apart = curve.spots.iter().any(|spot| spot.high > spot.low);
    if !marked && wide_apart && !plot.is_distribution {
        let up = curve.spots.iter().map(|spot| place(spot.x, spot.high));
        let down = curve.spots.iter().rev().map(|spot| place(spot.x, spot.low));
        out.path(
            &format!("band c{slot}"),
            &up.chain(down).collect::<Vec<_>>(),
        );
    }
    if line.len() > 1 {
        out.path(&format!("stroke c{slot} d{}", slot % 4), &line);
    }
    if !marked && line.len() > 1 {
        return;
    }
    for (spot, at) in curve.spots.iter().zip(&line) {
        if spot.high > spot.low {
            out.line(
                &format!("stroke thin c{slot}"),
                place(spot.x, spot.low),
                place(spot.x, spot.high),
            );
        }
        let about = format!(
            "{}, {}: {}",
            curve.platform,
            words::number(spot.x),
            unit.value(spot.y)
        );
        out.mark(&format!("fill c{slot}"), slot, *at, 3.6, &about);
    }
    for (x, y) in &curve.published {
        let about = format!(
            "{}, published, {}: {}",
            curve.platform,
            words::number(*x),
            unit.value(*y)
        );
        out.mark(&format!("hollow c{slot}"), slot, place(*x, *y), 3.8, &about);
    }
}

/// From the least to the greatest, with room for two numbers at least.
fn x_axis(xs: &[f64], wide: f64, is_over_time: bool) -> Axis {
    let least = xs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !(least.is_finite() && most.is_finite()) {
        return Axis::from_zero(1.0, 4);
    }
    let count = if wide > 400.0 { 6 } else { 4 };
    if !is_over_time && least > 0.0 && most / least > 50.0 {
        return Axis::log(least, most);
    }
    // A small begin is better seen from 0.
    if least >= 0.0 && least < most / 3.0 {
        Axis::from_zero(most, count)
    } else {
        Axis::linear(least, most, count)
    }
}

fn x_numbers(out: &mut Svg, axis: &Axis, (left, right): (f64, f64), (top, bottom): (f64, f64)) {
    out.line("axis", (left, bottom), (right, bottom));
    let mut free = f64::NEG_INFINITY;
    for tick in &axis.ticks {
        let x = left + axis.at(*tick) * (right - left);
        let label = axis.label(*tick);
        let half = width(&label) / 2.0;
        out.line("grid", (x, top), (x, bottom));
        if x - half > free {
            out.text(x, bottom + 16.0, Anchor::Middle, "soft", &label);
            free = x + half + 6.0;
        }
    }
}

/// Where y equals x, between the least and the greatest x.
fn diagonal(xs: &[f64], place: impl Fn(f64, f64) -> (f64, f64)) -> Vec<(f64, f64)> {
    let least = xs.iter().copied().fold(f64::INFINITY, f64::min).max(0.0);
    let most = xs.iter().copied().fold(least, f64::max);
    (0..=60)
        .map(|step| least + (most - least) * f64::from(step) / 60.0)
        .map(|value| place(value, value))
        .collect()
}

/// Names with their lines and marks, in as many rows as they need; and the height. An entry is a slot, whether its mark is
/// hollow, and a name.
pub(super) fn legend(entries: &[(usize, bool, &str)], wide: f64) -> (Svg, f64) {
    let mut out = Svg::default();
    let (mut x, mut y) = (0.0, TEXT);
    for (slot, hollow, name) in entries {
        let room = 30.0 + width(name) + 14.0;
        if x > 0.0 && x + room > wide {
            x = 0.0;
            y += LEGEND;
        }
        if !hollow {
            out.line(
                &format!("stroke c{slot} d{}", slot % 4),
                (x, y - 4.0),
                (x + 24.0, y - 4.0),
            );
        }
        let class = if *hollow { "hollow" } else { "fill" };
        out.mark(
            &format!("{class} c{slot}"),
            *slot,
            (x + 12.0, y - 4.0),
            3.6,
            name,
        );
        out.fitted(x + 30.0, y, Anchor::Start, "soft", name, wide - x - 30.0);
        x += room;
    }
    (out, y)
}
