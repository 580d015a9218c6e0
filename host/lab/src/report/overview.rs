// SPDX-License-Identifier: Apache-2.0

//! The picture of a result that stands alone, for a README.

use super::html::{STYLE, heading};
use super::model::Model;
use super::panels::{bar_panels, direction};
use super::svg::{Anchor, Svg};
use super::words::escape;
use super::{bars, lines, sweeps, words};

const WIDE: f64 = 640.0;
const EDGE: f64 = 18.0;
const HEAD: f64 = 62.0;

/// The plot of what the experiment decides first; else the first one. None without figures.
pub(super) fn draw(model: &Model<'_>) -> Option<String> {
    let group = model.groups.first()?;
    let wide = WIDE - 2.0 * EDGE;
    let verdict = model
        .experiment
        .as_ref()
        .and_then(|experiment| experiment.verdicts.first());
    let is_wanted = |workload: &str, metric: &str| {
        verdict.is_none_or(|verdict| verdict.workload == workload && verdict.metric == metric)
    };
    let panels = bar_panels(model, group);
    let curves = sweeps::plots(model, group);
    let panel = panels
        .iter()
        .find(|panel| is_wanted(&panel.workload, &panel.metric));
    let curve = curves
        .iter()
        .find(|(workload, plot)| is_wanted(workload, &plot.metric));
    let (metric, plot) = match (panel, curve, panels.first(), curves.first()) {
        (Some(panel), ..) | (None, None, Some(panel), _) => (
            &panel.metric,
            bars::draw(
                &panel.heading,
                &panel.note,
                &panel.metric,
                &panel.bundles,
                wide,
            ),
        ),
        (None, Some((_, plot)), ..) | (None, None, None, Some((_, plot))) => {
            (&plot.metric, lines::draw(plot, wide))
        }
        (None, None, None, None) => return None,
    };
    // The plot is an element of its own, with the height in its view box.
    let tall: f64 = plot
        .split('"')
        .nth(1)
        .and_then(|view| view.split(' ').nth(3))
        .and_then(|tall| tall.parse().ok())?;
    let height = HEAD + tall + EDGE;
    let mut head = Svg::default();
    head.fitted(
        EDGE,
        28.0,
        Anchor::Start,
        "title",
        &heading(model),
        WIDE * 0.8,
    );
    let note = format!(
        "{}, {}; {}",
        words::title(metric),
        direction(metric),
        group.substrate
    );
    head.fitted(EDGE, 47.0, Anchor::Start, "soft", &note, WIDE - 2.0 * EDGE);
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDE:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDE:.0} {height:.0}\" \
         role=\"img\" aria-label=\"{}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"card\" width=\"{WIDE:.0}\" height=\"{height:.0}\" rx=\"10\"/>\n{}\
         <g transform=\"translate({EDGE:.0} {HEAD:.0})\">\n{}</g>\n</svg>\n",
        escape(&heading(model)),
        head.inner(),
        plot.replacen(
            "<svg ",
            &format!(
                "<svg width=\"{:.0}\" height=\"{tall:.0}\" ",
                WIDE - 2.0 * EDGE
            ),
            1
        )
    ))
}
