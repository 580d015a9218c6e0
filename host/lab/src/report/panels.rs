// SPDX-License-Identifier: Apache-2.0

//! The plots of a chapter: which figures are drawn, and how.

use std::fmt::Write;

use super::bars::{self, Bar, Bundle};
use super::model::{Group, Model, Row, is_main};
use super::verdict::place;
use super::words::{self, escape};
use super::{distributions, phases, series, sweeps};
use crate::metric::{self, Better};

/// Width of a plot, px; a page shows two side by side.
pub(super) const WIDE: f64 = 440.0;

/// A figure of the page: heading, note, drawing.
pub(super) fn figure(out: &mut String, heading: &str, note: &str, drawing: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<figure>\n<h4>{}</h4>\n<p class=\"note\">{}</p>\n{drawing}</figure>",
        escape(heading),
        escape(note)
    );
}

/// All plots of a result.
pub(super) fn all(out: &mut String, model: &Model<'_>) {
    for (index, group) in model.groups.iter().enumerate() {
        let mut plots = String::new();
        bar_plots(&mut plots, model, group);
        phases::draw(&mut plots, model, group);
        sweeps::draw(&mut plots, model, group);
        distributions::draw(&mut plots, model, group);
        let (over_time, folded) = series::draw(model, group);
        plots += &over_time;
        if plots.is_empty() && folded.is_empty() {
            continue;
        }
        let on = if index == 0 {
            ""
        } else {
            "On another substrate: "
        };
        let _ = writeln!(
            out,
            "<h3>{on}{}</h3>\n<div class=\"panels\">\n{plots}</div>\n{}{folded}",
            escape(&group.substrate),
            distributions::details(model, group)
        );
    }
}

fn bar_plots(out: &mut String, model: &Model<'_>, group: &Group) {
    for panel in bar_panels(model, group) {
        let drawing = bars::draw(
            &panel.heading,
            &panel.note,
            &panel.metric,
            &panel.bundles,
            WIDE,
        );
        figure(out, &panel.heading, &panel.note, &drawing);
    }
}

/// Bars of one metric in one workload, or of a workload's own figures of one unit.
pub(super) struct Panel {
    pub(super) heading: String,
    pub(super) note: String,
    pub(super) metric: String,
    pub(super) workload: String,
    pub(super) bundles: Vec<Bundle>,
}

/// The plots with bars, in the order of the rows.
pub(super) fn bar_panels(model: &Model<'_>, group: &Group) -> Vec<Panel> {
    let mut panels: Vec<((String, String), Panel)> = Vec::new();
    let drawn = |row: &&Row| is_main(model, row) && !sweeps::is_on_curve(model, group, row);
    for row in group.rows.iter().filter(drawn) {
        let name = row.key.metric.as_str();
        let known = metric::find(name);
        let unit = words::unit_of(name);
        let id = (
            row.key.workload.clone(),
            known.map_or(unit.clone(), |metric| metric.name.to_owned()),
        );
        let here = place(model, &row.key);
        let label = match (known, here.is_empty()) {
            (Some(_), _) => here,
            (None, true) => words::title(name),
            (None, false) => format!("{} ({here})", words::title(name)),
        };
        let bundle = Bundle {
            label,
            bars: bars_of(model, group, row),
        };
        if let Some((_, panel)) = panels.iter_mut().find(|(known, _)| *known == id) {
            panel.bundles.push(bundle);
            continue;
        }
        let what = known.map_or_else(|| own_figures(&unit), |metric| metric.title.to_owned());
        let heading = if row.key.workload == "start" {
            what
        } else {
            format!("{what}: {}", row.key.workload)
        };
        panels.push((
            id,
            Panel {
                heading,
                note: direction(name).to_owned(),
                metric: name.to_owned(),
                workload: row.key.workload.clone(),
                bundles: vec![bundle],
            },
        ));
    }
    let mut panels: Vec<Panel> = panels.into_iter().map(|(_, panel)| panel).collect();
    for panel in &mut panels {
        name_alone(panel);
    }
    together(panels)
}

/// A panel of one own figure is named for it.
fn name_alone(panel: &mut Panel) {
    let title = words::title(&panel.metric);
    if let ([bundle], None) = (panel.bundles.as_mut_slice(), metric::find(&panel.metric)) {
        panel.heading = format!("{title}: {}", panel.workload);
        bundle.label = match bundle.label.strip_prefix(&title) {
            Some(rest) => rest
                .trim_start_matches([' ', '('])
                .trim_end_matches(')')
                .to_owned(),
            None => std::mem::take(&mut bundle.label),
        };
    }
}

/// Where three or more workloads have one bundle each of a metric, one panel holds all of them.
fn together(panels: Vec<Panel>) -> Vec<Panel> {
    let is_single = |panel: &Panel| panel.bundles.len() == 1 && panel.workload != "start";
    let singles = |metric: &str| {
        panels
            .iter()
            .filter(|panel| is_single(panel) && panel.metric == metric)
            .count()
    };
    let many: Vec<bool> = panels
        .iter()
        .map(|panel| is_single(panel) && singles(&panel.metric) >= 3)
        .collect();
    let mut out: Vec<Panel> = Vec::new();
    for (mut panel, is_one_of_many) in panels.into_iter().zip(many) {
        if is_one_of_many {
            for bundle in &mut panel.bundles {
                let here = std::mem::take(&mut bundle.label);
                bundle.label = if here.is_empty() {
                    panel.workload.clone()
                } else {
                    format!("{} ({here})", panel.workload)
                };
            }
            let title = words::title(&panel.metric);
            if let Some(first) = out
                .iter_mut()
                .find(|known| known.metric == panel.metric && known.heading == title)
            {
                first.bundles.append(&mut panel.bundles);
                continue;
            }
            panel.heading = title;
        }
        out.push(panel);
    }
    out
}

fn own_figures(unit: &str) -> String {
    match unit {
        "ns" | "us" | "ms" | "s" => "Time".to_owned(),
        "1/s" => "Rate".to_owned(),
        "B" => "Size".to_owned(),
        _ => "Count".to_owned(),
    }
}

/// Which way is good, in words.
pub(super) fn direction(metric: &str) -> &'static str {
    match words::better(metric) {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
        Better::Neither => "neither more nor less is better",
    }
}

fn bars_of(model: &Model<'_>, group: &Group, row: &Row) -> Vec<Bar> {
    group
        .platforms
        .iter()
        .zip(&row.cells)
        .filter(|(_, cell)| cell.estimate.is_some() || cell.failures > 0)
        .map(|(platform, cell)| Bar {
            platform: platform.clone(),
            estimate: cell.estimate,
            runs: model
                .rounds(&row.key, platform)
                .map(crate::statistics::Rounds::values)
                .unwrap_or_default(),
            failures: cell.failures,
        })
        .collect()
}
