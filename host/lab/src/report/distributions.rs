// SPDX-License-Identifier: Apache-2.0

//! Response times as distributions: box plots, the share that was answered within a time, and the classes of study 003.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::boxes;
use super::lines::{self, Curve, Plot, Spot};
use super::model::{Group, Key, Model};
use super::panels::{WIDE, figure};
use super::table::{Cell, Line, Table};
use super::verdict::place;
use super::words;
use crate::record;
use crate::statistics::{Class, Distribution};

/// More places than this, and their distributions are folded away.
const OPEN: usize = 4;

/// More places than this, and there is no box plot of them.
const TALL: usize = 16;

/// The response times at one place, by platform.
struct Times<'a> {
    place: String,
    workload: &'a str,
    by_platform: Vec<(&'a str, Distribution)>,
}

/// Box plots and distributions of a group; remarks on histograms that cannot be read come first.
pub(super) fn draw(out: &mut String, model: &Model<'_>, group: &Group) {
    let times = collect(model, group);
    if times.is_empty() {
        return;
    }
    let note = "box: middle half; whiskers: 2nd to 98th percentile; circles: 99.9th percentile and maximum";
    let workloads: Vec<&str> = model
        .workloads
        .iter()
        .map(String::as_str)
        .filter(|workload| times.iter().any(|times| times.workload == *workload))
        .collect();
    // A plot taller than a few screens helps nobody; the folded tables hold the same.
    if workloads.len() >= 3 && times.len() <= TALL {
        let title = "Response times".to_owned();
        let label = |times: &Times<'_>| match times.place.as_str() {
            "" => times.workload.to_owned(),
            place => format!("{} ({place})", times.workload),
        };
        let all: Vec<&Times<'_>> = times.iter().collect();
        figure(out, &title, note, &box_plot(&title, note, &all, label));
    } else {
        for workload in workloads {
            let here: Vec<&Times<'_>> = times
                .iter()
                .filter(|times| times.workload == workload)
                .collect();
            if here.len() <= TALL {
                let title = format!("Response times: {workload}");
                figure(
                    out,
                    &title,
                    note,
                    &box_plot(&title, note, &here, |times| times.place.clone()),
                );
            }
        }
    }
    if times.len() <= OPEN {
        for times in &times {
            share_within(out, times);
        }
    }
}

fn box_plot(
    title: &str,
    note: &str,
    times: &[&Times<'_>],
    label: impl Fn(&Times<'_>) -> String,
) -> String {
    let bundles: Vec<boxes::Bundle<'_>> = times
        .iter()
        .map(|times| boxes::Bundle {
            label: label(times),
            boxes: times
                .by_platform
                .iter()
                .map(|(name, times)| (*name, times))
                .collect(),
        })
        .collect();
    boxes::draw(title, note, &bundles, WIDE)
}

/// What is folded away: the distributions of many places, and the tables.
pub(super) fn details(model: &Model<'_>, group: &Group) -> String {
    let times = collect(model, group);
    let mut out = String::new();
    if times.len() > OPEN {
        let mut plots = String::new();
        for times in &times {
            share_within(&mut plots, times);
        }
        // Writing to a String cannot fail; so here and below.
        let _ = writeln!(
            out,
            "<details><summary>Share answered within a time, at {} points</summary><div class=\"panels\">\n{plots}</div></details>",
            times.len()
        );
    }
    if !times.is_empty() {
        let tables: String = times.iter().map(|times| table(times).html()).collect();
        let _ = writeln!(
            out,
            "<details><summary>Response times: mean and deviation, trimmed as in study 003, and by class</summary>\n{tables}</details>"
        );
    }
    out
}

fn collect<'a>(model: &'a Model<'_>, group: &'a Group) -> Vec<Times<'a>> {
    let mut places: BTreeMap<usize, Times<'a>> = BTreeMap::new();
    let mut order: Vec<Key> = Vec::new();
    for row in &group.rows {
        let key = Key {
            metric: String::new(),
            ..row.key.clone()
        };
        if !order.contains(&key) {
            order.push(key);
        }
    }
    for (index, key) in order.iter().enumerate() {
        for platform in &group.platforms {
            let histograms: Vec<_> = model
                .loaded
                .samples
                .iter()
                .filter(|sample| {
                    !sample.partial
                        && sample.cell.platform == *platform
                        && sample.cell.service == key.service
                        && sample.cell.vcpus == key.vcpus
                        && sample.workload == key.workload
                        && sample.point == key.point
                })
                .filter_map(|sample| record::decode(sample.latency.as_ref()?).ok())
                .collect();
            let Ok(Some(times)) = Distribution::merge(&histograms) else {
                continue;
            };
            let workload = model.workloads.iter().find(|name| **name == key.workload);
            let here = places.entry(index).or_insert_with(|| Times {
                place: place(model, key),
                workload: workload.map_or("", String::as_str),
                by_platform: Vec::new(),
            });
            here.by_platform.push((platform, times));
        }
    }
    places.into_values().collect()
}

fn share_within(out: &mut String, times: &Times<'_>) {
    let curves: Vec<Curve> = times
        .by_platform
        .iter()
        .map(|(platform, times)| Curve {
            platform: (*platform).to_owned(),
            spots: steps(times),
            published: Vec::new(),
        })
        .collect();
    let of = if times.place.is_empty() {
        String::new()
    } else {
        format!(" ({})", times.place)
    };
    let title = format!("Answered within: {}{of}", times.workload);
    let plot = Plot {
        description: format!(
            "{title}: the share of answers that took no longer than a time, for each platform."
        ),
        title,
        x_title: "response time, ms".to_owned(),
        metric: String::new(),
        curves,
        diagonal: false,
        is_over_time: false,
        is_distribution: true,
    };
    figure(
        out,
        &plot.title,
        "all runs together; further left is better",
        &lines::draw(&plot, WIDE),
    );
}

/// Corners of the stairs of a distribution.
fn steps(times: &Distribution) -> Vec<Spot> {
    let mut spots = Vec::new();
    let mut last = 0.0;
    for (x, share) in times.steps() {
        for y in [last, share] {
            spots.push(Spot {
                x,
                y: y * 100.0,
                low: y * 100.0,
                high: y * 100.0,
            });
        }
        last = share;
    }
    spots
}

/// "7.59 ± 10.7 ms".
fn with_deviation(mean: f64, deviation: f64) -> String {
    let unit = words::unit("latency_max_ms", mean);
    format!(
        "{} \u{b1} {}",
        words::number(unit.of(mean)),
        unit.value(deviation)
    )
}

fn table(times: &Times<'_>) -> Table {
    let mut columns = vec![String::new()];
    columns.extend(
        times
            .by_platform
            .iter()
            .map(|(platform, _)| (*platform).to_owned()),
    );
    let row = |name: &str, value: &dyn Fn(&Distribution) -> String| {
        let cells = times
            .by_platform
            .iter()
            .map(|(_, times)| Cell::plain(value(times)));
        Line::Row(name.to_owned(), cells.collect())
    };
    let ms = |value: f64| words::unit("latency_max_ms", value).value(value);
    let mut lines = vec![
        row("answers", &|times| words::number_of(times.count())),
        row("mean \u{b1} standard deviation", &|times| {
            let (mean, deviation) = times.mean_and_deviation_ms();
            with_deviation(mean, deviation)
        }),
        row("median", &|times| ms(times.quantile_ms(0.5))),
        row("maximum", &|times| ms(times.quantile_ms(1.0))),
        Line::Heading("2nd to 98th percentile, as study 003 looks at them".to_owned()),
        row("mean \u{b1} standard deviation", &|times| {
            times
                .part(0.02, 0.98)
                .map_or("\u{2013}".to_owned(), |part| {
                    with_deviation(part.mean_ms, part.deviation_ms)
                })
        }),
        row("from", &|times| {
            times
                .part(0.02, 0.98)
                .map_or("\u{2013}".to_owned(), |part| ms(part.least_ms))
        }),
        row("to", &|times| {
            times
                .part(0.02, 0.98)
                .map_or("\u{2013}".to_owned(), |part| ms(part.greatest_ms))
        }),
        Line::Heading("share by class, all answers".to_owned()),
    ];
    let classes: Vec<Vec<Class>> = times
        .by_platform
        .iter()
        .map(|(_, times)| times.classes())
        .collect();
    for index in 0..classes.first().map_or(0, Vec::len) {
        let Some(class) = classes.first().and_then(|classes| classes.get(index)) else {
            continue;
        };
        if classes
            .iter()
            .all(|classes| classes.get(index).is_none_or(|class| class.count == 0))
        {
            continue;
        }
        let name = match class.to_ms {
            Some(to) => format!("{:.0} to {to:.0} ms", class.from_ms),
            None => format!("from {:.0} ms", class.from_ms),
        };
        let cells = classes
            .iter()
            .zip(&times.by_platform)
            .map(|(classes, (_, times))| {
                let count = classes.get(index).map_or(0, |class| class.count);
                Cell {
                    small: vec![words::number_of(count)],
                    ..Cell::plain(words::share(count, times.count()))
                }
            });
        lines.push(Line::Row(name, cells.collect()));
    }
    let of = if times.place.is_empty() {
        String::new()
    } else {
        format!(", {}", times.place)
    };
    Table {
        caption: format!("Response times: {}{of}", times.workload),
        columns,
        lines,
    }
}
