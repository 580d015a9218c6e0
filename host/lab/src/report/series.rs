// SPDX-License-Identifier: Apache-2.0

//! Figures over time: endurance, and latency during a load.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::lines::{self, Curve, Plot, Spot};
use super::model::{Group, Key, Model};
use super::panels::{WIDE, figure};
use super::verdict::place;
use super::words;
use crate::experiment::Kind;
use crate::statistics::median;

/// A curve has at most this many points; what lies between is put together as median and range.
const BINS: f64 = 120.0;

/// The plots of a group: those of endurance runs to be seen at once, and the others.
pub(super) fn draw(model: &Model<'_>, group: &Group) -> (String, String) {
    let (mut open, mut folded) = (String::new(), String::new());
    for key in keys(model, group) {
        let Some(plot) = plot(model, group, &key) else {
            continue;
        };
        let endures = model.kind(&key.workload) == Kind::Endurance;
        let out = if endures && key.metric == "throughput_per_s" {
            &mut open
        } else {
            &mut folded
        };
        figure(
            out,
            &plot.title,
            "all rounds: median, and the range as a band",
            &lines::draw(&plot, WIDE),
        );
    }
    if !folded.is_empty() {
        let mut details = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            details,
            "<details><summary>Over time</summary><div class=\"panels\">\n{folded}</div></details>"
        );
        folded = details;
    }
    (open, folded)
}

/// What has series, with their names as metrics, in the order of the rows.
fn keys(model: &Model<'_>, group: &Group) -> Vec<Key> {
    let mut found: BTreeSet<Key> = BTreeSet::new();
    for sample in &model.loaded.samples {
        for name in sample.series.keys() {
            found.insert(Key {
                workload: sample.workload.clone(),
                service: sample.cell.service.clone(),
                vcpus: sample.cell.vcpus,
                point: sample.point.clone(),
                metric: name.clone(),
            });
        }
    }
    let place = |key: &Key| {
        let same = |row: &super::model::Row| {
            (
                &row.key.workload,
                &row.key.service,
                row.key.vcpus,
                &row.key.point,
            ) == (&key.workload, &key.service, key.vcpus, &key.point)
        };
        group.rows.iter().position(same).unwrap_or(usize::MAX)
    };
    let mut keys: Vec<Key> = found.into_iter().collect();
    keys.sort_by_key(|key| (place(key), key.metric.clone()));
    keys
}

fn plot(model: &Model<'_>, group: &Group, key: &Key) -> Option<Plot> {
    let mut curves = Vec::new();
    for platform in &group.platforms {
        let mut points: Vec<(f64, f64)> = model
            .loaded
            .samples
            .iter()
            .filter(|sample| {
                sample.cell.platform == *platform
                    && sample.cell.service == key.service
                    && sample.cell.vcpus == key.vcpus
                    && sample.workload == key.workload
                    && sample.point == key.point
            })
            .filter_map(|sample| sample.series.get(&key.metric))
            .flatten()
            .copied()
            .filter(|(at, value)| at.is_finite() && value.is_finite())
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let spots = bins(&points);
        if !spots.is_empty() {
            curves.push(Curve {
                platform: platform.clone(),
                spots,
                published: Vec::new(),
            });
        }
    }
    if curves.iter().all(|curve| curve.spots.len() < 2) {
        return None;
    }
    let here = place(model, key);
    let of = if here.is_empty() {
        String::new()
    } else {
        format!(" ({here})")
    };
    let title = format!(
        "{} over time: {}{of}",
        words::title(&key.metric),
        key.workload
    );
    Some(Plot {
        description: format!("{title}, for each platform."),
        title,
        x_title: "seconds since the begin of the measurement".to_owned(),
        metric: key.metric.clone(),
        curves,
        diagonal: false,
        is_over_time: true,
        is_distribution: false,
    })
}

/// Median and range of what lies close together in time. `points` are in order.
fn bins(points: &[(f64, f64)]) -> Vec<Spot> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Vec::new();
    };
    let width = ((last.0 - first.0) / BINS).max(f64::MIN_POSITIVE);
    let mut by_bin: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for point in points {
        // From 0 to 120.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bin = ((point.0 - first.0) / width).floor().clamp(0.0, BINS) as u32;
        by_bin.entry(bin).or_default().push(*point);
    }
    let spot = |points: &Vec<(f64, f64)>| {
        let times: Vec<f64> = points.iter().map(|point| point.0).collect();
        let values: Vec<f64> = points.iter().map(|point| point.1).collect();
        Some(Spot {
            x: median(&times)?,
            y: median(&values)?,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    };
    by_bin.values().filter_map(spot).collect()
}

#[cfg(test)]
mod tests {
    use super::bins;

    #[test]
    fn many_points_become_few_with_their_range() {
        let points: Vec<(f64, f64)> = (0..6000)
            .map(|second| (f64::from(second), f64::from(second % 10)))
            .collect();
        let spots = bins(&points);
        assert!(spots.len() <= 121 && spots.len() > 100, "{}", spots.len());
        assert!((spots[0].low, spots[0].high) == (0.0, 9.0) && (spots[0].y - 4.5).abs() < 0.6);
        assert_eq!(bins(&[(1.0, 2.0)]).len(), 1);
        assert_eq!(bins(&[(1.0, 2.0), (1.0, 4.0)])[0].y, 3.0);
        assert!(bins(&[]).is_empty());
    }
}
