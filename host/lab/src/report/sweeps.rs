// SPDX-License-Identifier: Apache-2.0

//! Figures over a parameter that is a number: ramps over the offered load, boot storms over the number of instances, and
//! anything measured at four or more sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{self, Curve, Plot, Spot};
use super::model::{Group, Key, Model, Row, is_main};
use super::panels::{WIDE, direction, figure};
use super::verdict::place;
use super::words;
use crate::experiment::Kind;

/// Fewer sizes than this are drawn as bars.
const SIZES: usize = 4;

/// The parameter of a workload that is drawn as x, if it has one.
pub(super) fn parameter(model: &Model<'_>, group: &Group, workload: &str) -> Option<String> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in group.rows.iter().filter(|row| row.key.workload == workload) {
        for (name, value) in &row.key.point {
            values.entry(name).or_default().insert(value);
        }
    }
    values.retain(|_, seen| seen.iter().all(|value| number(value).is_some()));
    let own = match model.kind(workload) {
        Kind::Ramp => Some("rate_per_s"),
        Kind::BootStorm | Kind::Density => Some("instances"),
        _ => None,
    };
    if let Some(own) = own.filter(|own| values.get(own).is_some_and(|seen| seen.len() > 1)) {
        return Some(own.to_owned());
    }
    let (name, seen) = values.into_iter().max_by_key(|(_, seen)| seen.len())?;
    (seen.len() >= SIZES).then(|| name.to_owned())
}

/// The number that a parameter's value is; a path such as "/1024" is named for the size of its file.
pub(super) fn number(value: &str) -> Option<f64> {
    let value = value.strip_prefix('/').unwrap_or(value);
    value.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a row is drawn on a curve rather than as bars.
pub(super) fn is_on_curve(model: &Model<'_>, group: &Group, row: &Row) -> bool {
    parameter(model, group, &row.key.workload).is_some_and(|name| row.key.point.contains_key(&name))
}

/// The curves of a group.
pub(super) fn draw(out: &mut String, model: &Model<'_>, group: &Group) {
    for (_, plot) in plots(model, group) {
        let note = format!(
            "{}; marks: medians with 95 % intervals",
            direction(&plot.metric)
        );
        figure(out, &plot.title, &note, &lines::draw(&plot, WIDE));
    }
}

/// The plots of a group, each with its workload.
pub(super) fn plots<'a>(model: &'a Model<'_>, group: &Group) -> Vec<(&'a str, Plot)> {
    let mut out = Vec::new();
    for workload in &model.workloads {
        let Some(parameter) = parameter(model, group, workload) else {
            continue;
        };
        let mut seen = BTreeSet::new();
        for row in &group.rows {
            let Some(rest) = without(&row.key, &parameter) else {
                continue;
            };
            let mean = row.key.metric == "latency_mean_ms" && model.kind(workload) == Kind::Ramp;
            let wanted = is_main(model, row) || mean;
            if row.key.workload == *workload
                && wanted
                && row.key.metric != "errors"
                && seen.insert(rest.clone())
            {
                out.push((workload.as_str(), plot(model, group, &rest, &parameter)));
            }
        }
    }
    out
}

/// The key without its parameter; none if it has none.
fn without(key: &Key, parameter: &str) -> Option<Key> {
    let mut rest = key.clone();
    rest.point.remove(parameter).map(|_| rest)
}

fn plot(model: &Model<'_>, group: &Group, rest: &Key, parameter: &str) -> Plot {
    let x = |point: &BTreeMap<String, String>| number(point.get(parameter)?);
    let mut curves: Vec<Curve> = group
        .platforms
        .iter()
        .map(|platform| Curve {
            platform: platform.clone(),
            spots: Vec::new(),
            published: published(model, rest, platform, parameter),
        })
        .collect();
    for row in group
        .rows
        .iter()
        .filter(|row| without(&row.key, parameter).as_ref() == Some(rest))
    {
        for (curve, cell) in curves.iter_mut().zip(&row.cells) {
            if let (Some(found), Some(x)) = (&cell.estimate, x(&row.key.point)) {
                curve.spots.push(Spot {
                    x,
                    y: found.median,
                    low: found.low,
                    high: found.high,
                });
            }
        }
    }
    for curve in &mut curves {
        curve.spots.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    curves.retain(|curve| !curve.spots.is_empty() || !curve.published.is_empty());
    let here = place(model, rest);
    let of = if here.is_empty() {
        String::new()
    } else {
        format!(" ({here})")
    };
    let x_title = x_title(parameter);
    let title = format!("{}: {}{of}", words::title(&rest.metric), rest.workload);
    Plot {
        description: format!(
            "{title}, over {x_title}, a curve for each of: {}.",
            group.platforms.join(", ")
        ),
        title,
        x_title,
        metric: rest.metric.clone(),
        curves,
        diagonal: parameter == "rate_per_s" && rest.metric == "throughput_per_s",
        is_over_time: false,
        is_distribution: false,
    }
}

/// All that the study published for the curve, also where nothing was measured beside it.
fn published(model: &Model<'_>, rest: &Key, platform: &str, parameter: &str) -> Vec<(f64, f64)> {
    let all = model
        .experiment
        .iter()
        .flat_map(|experiment| &experiment.published);
    let mut out: Vec<(f64, f64)> = all
        .filter(|published| {
            let mut point = published.point.clone();
            point.remove(parameter).is_some()
                && published.platform == platform
                && published.workload == rest.workload
                && published.metric == rest.metric
                && published
                    .service
                    .as_ref()
                    .is_none_or(|service| *service == rest.service)
                && published.vcpus.is_none_or(|vcpus| vcpus == rest.vcpus)
                && point
                    .iter()
                    .all(|(name, value)| rest.point.get(name) == Some(value))
        })
        .filter_map(|published| Some((number(published.point.get(parameter)?)?, published.value)))
        .collect();
    out.sort_by(|a: &(f64, f64), b| a.0.total_cmp(&b.0));
    out
}

fn x_title(parameter: &str) -> String {
    match parameter {
        "rate_per_s" => "offered requests a second".to_owned(),
        other => other.replace('_', " "),
    }
}
