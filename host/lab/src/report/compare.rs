// SPDX-License-Identifier: Apache-2.0

//! What changed between two results of the same experiment: for use after a change of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::finding::{Finding, SHARE};
use super::model::{Key, Model, is_main_key};
use super::words;
use crate::metric::Better;
use crate::record::{self, Recorded, Run};
use crate::statistics::{Estimate, FEWEST, Ratio, ratio};
use crate::{Error, Result};

/// Two results of one experiment, beside each other.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// The earlier result's folder.
    pub before: String,
    /// The later result's folder.
    pub after: String,
    /// What was not the same: host, versions, images, substrates.
    pub differences: Vec<Difference>,
    /// What a reader must know of the files.
    pub remarks: Vec<String>,
    /// Every figure that one of them has.
    pub figures: Vec<Changed>,
}

/// A circumstance that was not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// "host: kernel".
    pub what: String,
    /// As it was; none if it was not recorded.
    pub before: Option<String>,
    /// As it is.
    pub after: Option<String>,
}

/// A figure before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// Where.
    pub platform: String,
    /// Of which service.
    pub service: String,
    /// On how many processors.
    pub vcpus: u32,
    /// In which workload.
    pub workload: String,
    /// At which point.
    pub point: BTreeMap<String, String>,
    /// Which metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Whether it is one of the figures that come first in reports. Only these can fail a comparison.
    pub is_main: bool,
    /// The median before.
    pub before: Option<Estimate>,
    /// The median after.
    pub after: Option<Estimate>,
    /// After by before.
    pub ratio: Option<Ratio>,
    /// "better", "worse", "no difference", "different", "not settled", "other substrate", "only before", "only after".
    pub change: &'static str,
}

/// Compares two results: folders, or files.
///
/// # Errors
/// When one cannot be read, is of another schema version, or they are of different experiments.
pub fn compare(before: &Path, after: &Path) -> Result<Comparison> {
    let (first, second) = (read(before)?, read(after)?);
    if first.run.experiment != second.run.experiment {
        return Err(Error::Input(format!(
            "{} is a result of {}, {} one of {}: only results of the same experiment can be compared",
            before.display(),
            first.run.experiment,
            after.display(),
            second.run.experiment
        )));
    }
    let (old, new) = (Model::new(&first), Model::new(&second));
    let mut remarks: Vec<String> = Vec::new();
    for (name, model) in [(before, &old), (after, &new)] {
        remarks.extend(
            model
                .remarks
                .iter()
                .map(|remark| format!("{}: {remark}", name.display())),
        );
    }
    let figures = figures(&old, &new);
    let runs = figures
        .iter()
        .filter_map(|figure| figure.ratio)
        .map(|ratio| ratio.runs)
        .max();
    if let Some(runs) = runs.filter(|runs| *runs < FEWEST) {
        remarks.push(format!(
            "no figure has more than {runs} runs on both sides, and below {FEWEST} nothing is decided: run with --repetitions {FEWEST} or more"
        ));
    }
    Ok(Comparison {
        experiment: first.run.experiment.clone(),
        before: first.folder.display().to_string(),
        after: second.folder.display().to_string(),
        differences: differences(&first.run, &second.run),
        remarks,
        figures,
    })
}

fn read(path: &Path) -> Result<Recorded> {
    match record::find(path)?.as_slice() {
        [file] => record::read(file),
        files => Err(Error::Input(format!(
            "{}: {} results in it; name one of them",
            path.display(),
            files.len()
        ))),
    }
}

fn differences(before: &Run, after: &Run) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut look = |what: String, before: Option<String>, after: Option<String>| {
        if before != after {
            out.push(Difference {
                what,
                before,
                after,
            });
        }
    };
    let text = |is: bool| Some(if is { "short form" } else { "full" }.to_owned());
    look("length".to_owned(), text(before.quick), text(after.quick));
    look(
        "commit".to_owned(),
        before.commit.clone(),
        after.commit.clone(),
    );
    if before.text != after.text {
        let of = |run: &Run| Some(format!("as of {}", run.started));
        look("experiment.toml".to_owned(), of(before), of(after));
    }
    let substrates = |run: &Run| -> BTreeMap<String, String> {
        run.platforms
            .iter()
            .map(|facts| (facts.name.clone(), facts.substrate.clone()))
            .collect()
    };
    let images = |run: &Run| -> BTreeMap<String, String> {
        run.images
            .iter()
            .map(|(service, image)| (service.clone(), image.digest.clone()))
            .collect()
    };
    for (kind, before, after) in [
        ("host", before.host.clone(), after.host.clone()),
        ("version", before.tools.clone(), after.tools.clone()),
        ("substrate", substrates(before), substrates(after)),
        ("image", images(before), images(after)),
    ] {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            // The load of a host before a run is never the same twice.
            if !(kind == "host" && name.starts_with("load")) {
                look(
                    format!("{kind}: {name}"),
                    before.get(name).cloned(),
                    after.get(name).cloned(),
                );
            }
        }
    }
    out
}

fn figures(old: &Model<'_>, new: &Model<'_>) -> Vec<Changed> {
    let mut out = Vec::new();
    let mut seen: BTreeSet<(Key, String)> = BTreeSet::new();
    for model in [new, old] {
        for group in &model.groups {
            for row in &group.rows {
                for platform in &group.platforms {
                    let measured = [old, new]
                        .iter()
                        .any(|model| model.rounds(&row.key, platform).is_some());
                    if measured && seen.insert((row.key.clone(), platform.clone())) {
                        out.push(figure(old, new, &row.key, platform));
                    }
                }
            }
        }
    }
    out
}

fn figure(old: &Model<'_>, new: &Model<'_>, key: &Key, platform: &str) -> Changed {
    let (first, second) = (old.rounds(key, platform), new.rounds(key, platform));
    let (before, after) = (old.estimate(key, platform), new.estimate(key, platform));
    let same_substrate = old.substrate(platform) == new.substrate(platform);
    // The two were not measured side by side, so that rounds are not pairs.
    let found = match (first, second) {
        (Some(first), Some(second)) if same_substrate => {
            ratio(second, first, false, new.loaded.run.seed)
        }
        _ => None,
    };
    let change = match (&before, &after) {
        (Some(_), None) => "only before",
        (None, _) => "only after",
        (Some(_), Some(_)) if !same_substrate => "other substrate",
        (Some(first), Some(second)) if Model::is_exact(&key.metric) && first.median > 0.0 => {
            Finding::of_exact(&key.metric, second.median / first.median).word()
        }
        (Some(_), Some(_)) => found
            .map_or(Finding::NotSettled, |ratio| {
                Finding::of(&key.metric, &ratio, SHARE)
            })
            .word(),
    };
    Changed {
        platform: platform.to_owned(),
        service: key.service.clone(),
        vcpus: key.vcpus,
        workload: key.workload.clone(),
        point: key.point.clone(),
        metric: key.metric.clone(),
        unit: words::unit_of(&key.metric),
        is_main: is_main_key(new, key),
        before,
        after,
        ratio: found,
        change,
    }
}

/// The columns of [`Comparison::table`].
pub const COLUMNS: [&str; 8] = [
    "PLATFORM", "WHAT", "WORKLOAD", "METRIC", "BEFORE", "AFTER", "RATIO", "CHANGE",
];

impl Comparison {
    /// The figures as lines of a table: the main ones, and of the others those that differ; or all.
    #[must_use]
    pub fn table(&self, all: bool) -> Vec<Vec<String>> {
        let wanted = |figure: &&Changed| {
            all || figure.is_main || matches!(figure.change, "better" | "worse")
        };
        self.figures
            .iter()
            .filter(wanted)
            .map(Changed::line)
            .collect()
    }

    /// How many figures fell which way, in words.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for figure in &self.figures {
            *counts.entry(figure.change).or_default() += 1;
        }
        let parts: Vec<String> = counts
            .into_iter()
            .map(|(change, count)| format!("{count} {change}"))
            .collect();
        format!("{} figures: {}", self.figures.len(), parts.join(", "))
    }

    /// The main figures that are worse by at least `share` of what they were, and whose interval holds no equality.
    #[must_use]
    pub fn worse(&self, share: f64) -> Vec<&Changed> {
        self.figures
            .iter()
            .filter(|figure| figure.is_main && figure.change == "worse")
            .filter(|figure| figure.change_by().is_some_and(|by| by.abs() >= share))
            .collect()
    }
}

impl Changed {
    /// The share by which the median changed: 0.1 is a tenth more.
    fn change_by(&self) -> Option<f64> {
        let (before, after) = (self.before?.median, self.after?.median);
        (before > 0.0).then(|| after / before - 1.0)
    }

    fn line(&self) -> Vec<String> {
        let most = [&self.before, &self.after]
            .into_iter()
            .flatten()
            .map(|found| found.median)
            .fold(0.0, f64::max);
        let unit = words::unit(&self.metric, most);
        let value = |found: &Option<Estimate>| {
            found.as_ref().map_or("-".to_owned(), |found| {
                unit.value(found.median).replace('\u{a0}', " ")
            })
        };
        let mut what = vec![self.service.clone(), words::vcpus(self.vcpus)];
        if !self.point.is_empty() {
            what.push(words::point(&self.point));
        }
        vec![
            self.platform.clone(),
            what.join(", "),
            self.workload.clone(),
            words::title(&self.metric),
            value(&self.before),
            value(&self.after),
            self.ratio.as_ref().map_or("-".to_owned(), |ratio| {
                words::ratio(ratio).replace('\u{2013}', "-")
            }),
            match (self.change, words::better(&self.metric)) {
                ("worse" | "better", Better::Higher | Better::Lower) => {
                    self.change_by().map_or(self.change.to_owned(), |by| {
                        format!("{}, {:+.1} %", self.change, by * 100.0)
                    })
                }
                (change, _) => change.to_owned(),
            },
        ]
    }
}
