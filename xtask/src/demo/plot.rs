// SPDX-License-Identifier: Apache-2.0

//! Plots as SVG: horizontal bars for medians, a dot for each sample. Colours come from the page's style sheet.

use std::fmt::Write;

use super::figures::{Figure, Samples, median};
use super::html::escape;

const BAR: f64 = 16.0;
const BAR_GAP: f64 = 4.0;
const GROUP_GAP: f64 = 14.0;
const TOP: f64 = 4.0;
const AXIS: f64 = 24.0;
/// Room for the column of values at the right.
const VALUE: f64 = 84.0;
const TICKS: u32 = 4;

/// Bars of one or more figures of the same unit, for each platform, on one axis that starts at 0.
pub(crate) fn bars(
    title: &str,
    figures: &[Figure],
    platforms: &[&str],
    samples: &Samples,
) -> String {
    let single = figures.len() == 1;
    // A panel of three or more figures takes the width of the page.
    let width = if figures.len() > 2 { 880.0 } else { 420.0 };
    // A lone figure's name is the heading; its bars carry the platforms' names.
    let left = if single { 70.0 } else { 176.0 };
    let room = width - left - VALUE;
    let most = figures
        .iter()
        .flat_map(|figure| {
            platforms
                .iter()
                .flat_map(|platform| samples.of(platform, *figure))
        })
        .fold(0.0_f64, f64::max);
    let (step, ticks) = axis(most);
    let scale = room / (step * f64::from(ticks));

    let mut body = String::new();
    let mut y = TOP;
    for figure in figures {
        let measured: Vec<(usize, Vec<f64>)> = platforms
            .iter()
            .map(|platform| samples.of(platform, *figure))
            .enumerate()
            .filter(|(_, v)| !v.is_empty())
            .collect();
        let bar_count = f64::from(u32::try_from(measured.len()).unwrap_or(0));
        let height = bar_count * (BAR + BAR_GAP) - BAR_GAP;
        if !single {
            text(
                &mut body,
                left - 10.0,
                y + height / 2.0 + 4.5,
                "end",
                "",
                short_title(*figure),
            );
        }
        for (platform, values) in measured {
            if single {
                text(
                    &mut body,
                    left - 10.0,
                    y + BAR - 3.5,
                    "end",
                    "soft",
                    platforms[platform].to_owned(),
                );
            }
            bar(&mut body, left, y, scale, platform, *figure, &values);
            let middle = figure.format(median(&values).unwrap_or(0.0));
            text(
                &mut body,
                width - 2.0,
                y + BAR - 3.5,
                "end",
                "value",
                middle,
            );
            y += BAR + BAR_GAP;
        }
        y += GROUP_GAP - BAR_GAP;
    }
    let bottom = y - GROUP_GAP + 8.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {:.0}\" role=\"img\" aria-label=\"{}\">\n",
        bottom + AXIS,
        escape(title)
    );
    for tick in 0..=ticks {
        let value = step * f64::from(tick);
        let x = left + value * scale;
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{bottom:.1}\"/>"
        );
        text(
            &mut out,
            x,
            bottom + 17.0,
            "middle",
            "soft",
            axis_label(figures[0], value),
        );
    }
    out + &body + "</svg>\n"
}

fn bar(
    out: &mut String,
    left: f64,
    y: f64,
    scale: f64,
    platform: usize,
    figure: Figure,
    values: &[f64],
) {
    let middle = median(values).unwrap_or(0.0);
    let length = (middle * scale).max(1.0);
    let _ = writeln!(
        out,
        "<rect class=\"bar{platform}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>"
    );
    if values.len() > 1 {
        for value in values {
            let x = value * scale;
            let _ = writeln!(
                out,
                "<circle class=\"dot{platform}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}</title></circle>",
                left + x,
                y + BAR / 2.0,
                figure.format(*value)
            );
        }
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: String) {
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(&words)
    );
}

/// The figure's name without what the panel's heading says already.
fn short_title(figure: Figure) -> String {
    let title = figure.title();
    match figure {
        Figure::Rate { .. } | Figure::P50 { .. } | Figure::P99 { .. } => title
            .split_once(", ")
            .map_or(title.clone(), |(_, rest)| rest.to_owned()),
        _ => title
            .split_once(", ")
            .map_or(title.clone(), |(name, _)| name.to_owned()),
    }
}

/// The value at a tick; digits only where they are needed.
fn axis_label(figure: Figure, value: f64) -> String {
    let digits = if value == 0.0 || value >= 10.0 || value.fract() == 0.0 {
        0
    } else {
        1 + usize::from(value < 1.0)
    };
    let number = format!("{value:.digits$}");
    let number = if number.contains('.') {
        number.trim_end_matches('0').to_owned()
    } else {
        number
    };
    let unit = match figure {
        Figure::Boot => " s",
        Figure::Rate { .. } => "",
        Figure::P50 { .. } | Figure::P99 { .. } => " ms",
        Figure::SmallestMemory => " MiB",
        Figure::PeakMemory | Figure::ImageSize | Figure::KernelSize => " MB",
    };
    number + unit
}

/// The distance of ticks (1, 2, 2.5 or 5 times a power of ten), and how many make room for `most`.
fn axis(most: f64) -> (f64, u32) {
    let rough = most.max(f64::MIN_POSITIVE) / f64::from(TICKS);
    let power = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let ticks = (1..=TICKS)
        .find(|ticks| step * f64::from(*ticks) >= most)
        .unwrap_or(TICKS);
    (step, ticks)
}

#[cfg(test)]
mod tests {
    use super::axis;

    #[test]
    fn axes_have_round_ticks_and_enough_room() {
        for most in [0.14, 1.55, 3700.0, 7666.0, 58.9, 256.0, 1e-9] {
            let (step, ticks) = axis(most);
            assert!(
                step * f64::from(ticks) >= most * 0.999_999,
                "{most}: {ticks} ticks of {step}"
            );
            assert!((1..=4).contains(&ticks));
        }
        let (step, ticks) = axis(3700.0);
        assert!((step - 1000.0).abs() < 1e-6 && ticks == 4);
    }
}
