// SPDX-License-Identifier: Apache-2.0

//! The answers of a result: a sentence for each statement the experiment wants decided.

use super::finding::{Finding, SHARE};
use super::model::{Key, Model, Row, is_main};
use super::words;
use crate::experiment::Verdict;
use crate::metric::Better;
use crate::statistics::{Estimate, Ratio};

/// A statement, decided as far as the samples allow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// What was claimed or is wanted.
    pub(super) claim: Option<String>,
    /// In one sentence, where there are several points.
    pub(super) summary: Option<String>,
    /// A sentence for each service and point.
    pub(super) points: Vec<Decided>,
}

/// A sentence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decided {
    pub(super) sentence: String,
    /// None where there is nothing to decide by.
    pub(super) finding: Option<Finding>,
    /// "go, 1 vCPU, connections 40".
    pub(super) place: String,
    pub(super) ratio: Option<Ratio>,
}

/// All answers, in the experiment's order.
pub(super) fn answers(model: &Model<'_>) -> Vec<Answer> {
    let verdicts = model
        .experiment
        .iter()
        .flat_map(|experiment| &experiment.verdicts);
    let answers: Vec<Answer> = verdicts.map(|verdict| answer(model, verdict)).collect();
    if answers.is_empty() {
        overall(model)
    } else {
        answers
    }
}

/// Where the experiment wants nothing decided: how the platforms of each substrate stand to their first one.
fn overall(model: &Model<'_>) -> Vec<Answer> {
    let mut out = Vec::new();
    for group in &model.groups {
        let Some(baseline) = group.baseline() else {
            continue;
        };
        for platform in group.platforms.iter().skip(1) {
            let rows: Vec<&Row> = group
                .rows
                .iter()
                .filter(|row| {
                    is_main(model, row) && words::better(&row.key.metric) != Better::Neither
                })
                .filter(|row| {
                    [platform.as_str(), baseline]
                        .iter()
                        .all(|name| model.rounds(&row.key, name).is_some())
                })
                .collect();
            let units = rows.iter().map(|row| words::unit_of(&row.key.metric));
            let one_kind = units.collect::<std::collections::BTreeSet<_>>().len() == 1;
            let points: Vec<Decided> = rows
                .iter()
                .map(|row| {
                    let mut decided = decide(model, platform, baseline, &row.key);
                    let what = lower(&words::title(&row.key.metric));
                    decided.place = match decided.place.as_str() {
                        "" => what,
                        place => format!("{what}, {place}"),
                    };
                    decided
                })
                .collect();
            if !points.is_empty() {
                out.push(Answer {
                    claim: None,
                    summary: summary(
                        &format!("{platform} against {baseline}, {} figures", points.len()),
                        &points,
                        one_kind,
                    ),
                    points,
                });
            }
        }
    }
    out
}

fn answer(model: &Model<'_>, verdict: &Verdict) -> Answer {
    let mut keys: Vec<&Key> = Vec::new();
    for group in &model.groups {
        for row in &group.rows {
            let key = &row.key;
            if key.workload == verdict.workload
                && key.metric == verdict.metric
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
    }
    let mut points: Vec<Decided> = keys
        .into_iter()
        .filter(|key| {
            [&verdict.platform, &verdict.against]
                .into_iter()
                .any(|platform| model.rounds(key, platform).is_some())
        })
        .map(|key| decide(model, &verdict.platform, &verdict.against, key))
        .collect();
    if points.is_empty() {
        points.push(Decided {
            sentence: format!(
                "{} of {} against {} was not measured.",
                words::title(&verdict.metric),
                verdict.platform,
                verdict.against
            ),
            finding: None,
            place: String::new(),
            ratio: None,
        });
    }
    Answer {
        claim: verdict.claim.clone(),
        summary: summary(
            &format!(
                "{} of {} against {}, at {} points",
                words::title(&verdict.metric),
                verdict.platform,
                verdict.against,
                points.len()
            ),
            &points,
            true,
        ),
        points,
    }
}

fn decide(model: &Model<'_>, of: &str, by: &str, key: &Key) -> Decided {
    let place = place(model, key);
    let undecided = |why: String| Decided {
        sentence: format!("{}: {why}.", with_place(&words::title(&key.metric), &place)),
        finding: None,
        place: place.clone(),
        ratio: None,
    };
    for platform in [of, by] {
        if model.rounds(key, platform).is_none() {
            let failed = model.failures(key, platform);
            return undecided(match failed {
                0 => format!("{platform} was not measured"),
                1 => format!("{platform} failed"),
                _ => format!("{platform} failed {failed} times"),
            });
        }
    }
    let (on, against_on) = (model.substrate(of), model.substrate(by));
    if on != against_on {
        return undecided(format!(
            "not compared, since {of} ran on \u{201c}{on}\u{201d} and {by} on \u{201c}{against_on}\u{201d}"
        ));
    }
    let exact = Model::is_exact(&key.metric);
    let Some(ratio) = model.ratio(key, of, by) else {
        return match (exact, model.estimate(key, of), model.estimate(key, by)) {
            (true, Some(of_size), Some(by_size)) if by_size.median > 0.0 => {
                sized(key, (of, by), place, &of_size, &by_size)
            }
            (_, Some(of_found), Some(by_found)) => {
                undecided(without_ratio((of, &of_found), (by, &by_found), &key.metric))
            }
            _ => undecided("no ratio".to_owned()),
        };
    };
    let finding = if exact {
        Finding::of_exact(&key.metric, ratio.ratio)
    } else {
        Finding::of(&key.metric, &ratio, SHARE)
    };
    let unsettled = words::unsettled(ratio.runs, ratio.width(), SHARE).filter(|_| !exact);
    let ending = match (finding, unsettled) {
        (Finding::NotSettled, Some(why)) => why,
        (finding, Some(why)) => format!("{}; the size of it is {why}", finding.word()),
        (finding, None) => finding.word().to_owned(),
    };
    let text = if exact {
        words::times(ratio.ratio)
    } else {
        words::ratio(&ratio)
    };
    Decided {
        sentence: format!(
            "{}: {ending}{}.",
            with_place(&claim(&key.metric, of, by, &text), &place),
            in_the_study(model, key, of, by)
        ),
        finding: Some(finding),
        place,
        ratio: Some(ratio),
    }
}

/// The study's own ratio, where it printed one figure for each side of this very point.
fn in_the_study(model: &Model<'_>, key: &Key, of: &str, by: &str) -> String {
    match (
        model.published(key, of).as_slice(),
        model.published(key, by).as_slice(),
    ) {
        ([of], [by]) if by.value > 0.0 => {
            format!("; in the study {} times", words::times(of.value / by.value))
        }
        _ => String::new(),
    }
}

/// Two figures that cannot be divided, and why.
fn without_ratio(
    (of, of_found): (&str, &Estimate),
    (by, by_found): (&str, &Estimate),
    metric: &str,
) -> String {
    let unit = words::unit(metric, of_found.median.max(by_found.median));
    let why = if of_found.samples.min(by_found.samples) < 2 {
        "no ratio of single runs"
    } else {
        "no ratio to 0"
    };
    format!(
        "{of} {}, {by} {}; {why}",
        unit.value(of_found.median),
        unit.value(by_found.median)
    )
}

/// Sizes do not differ from run to run, so one is enough.
fn sized(
    key: &Key,
    (of, by): (&str, &str),
    place: String,
    of_size: &Estimate,
    by_size: &Estimate,
) -> Decided {
    let ratio = of_size.median / by_size.median;
    let finding = Finding::of_exact(&key.metric, ratio);
    let words = claim(&key.metric, of, by, &words::times(ratio));
    Decided {
        sentence: format!("{}: {}.", with_place(&words, &place), finding.word()),
        finding: Some(finding),
        place,
        ratio: None,
    }
}

/// What a ratio means for a metric, as the beginning of a sentence.
fn claim(metric: &str, of: &str, by: &str, ratio: &str) -> String {
    match metric {
        "throughput_per_s" | "sustained_per_s" => {
            format!("{of} serves {ratio} times the requests of {by}")
        }
        "first_answer_s" => format!("{of} takes {ratio} times as long as {by} to the first answer"),
        "restart_ms" | "restart_legacy_ms" => {
            format!("{of} takes {ratio} times as long as {by} to restart")
        }
        "bandwidth_mbit_s" => format!("{of} carries {ratio} times the data of {by}"),
        "running_instances" => format!("{of} fits {ratio} times the instances of {by}"),
        _ if metric.starts_with("memory_") || metric.starts_with("image_") => {
            format!(
                "{of} needs {ratio} times the {} of {by}",
                lower(&words::title(metric))
            )
        }
        _ => format!(
            "{} of {of} is {ratio} times that of {by}",
            words::title(metric)
        ),
    }
}

/// A name within a sentence: a capital at its begin goes, unless the word is one of capitals.
pub(super) fn lower(title: &str) -> String {
    let mut letters = title.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().collect::<String>() + letters.as_str()
        }
        _ => title.to_owned(),
    }
}

fn with_place(sentence: &str, place: &str) -> String {
    if place.is_empty() {
        sentence.to_owned()
    } else {
        format!("{sentence} ({place})")
    }
}

/// Where a figure was measured, as far as the result has more than one such place.
pub(super) fn place(model: &Model<'_>, key: &Key) -> String {
    let mut parts = Vec::new();
    if model.services > 1 {
        parts.push(key.service.clone());
    }
    if model.sizes > 1 {
        parts.push(words::vcpus(key.vcpus));
    }
    if !key.point.is_empty() {
        parts.push(words::point(&key.point));
    }
    parts.join(", ")
}

/// Many points in one sentence that begins with `what`: how many fell which way, and the range of the
/// ratios, where they are of one kind.
fn summary(what: &str, points: &[Decided], has_range: bool) -> Option<String> {
    if points.len() < 2 {
        return None;
    }
    let count = |finding: Option<Finding>| {
        points
            .iter()
            .filter(|point| point.finding == finding)
            .count()
    };
    let mut counts = Vec::new();
    for finding in [
        Finding::Better,
        Finding::Worse,
        Finding::Different,
        Finding::Same,
        Finding::NotSettled,
    ] {
        let count = count(Some(finding));
        if count > 0 {
            counts.push(format!("{count} {}", finding.word()));
        }
    }
    let missing = count(None);
    if missing > 0 {
        counts.push(format!("{missing} without a ratio"));
    }
    let by_ratio = |a: &&Decided, b: &&Decided| {
        let value = |point: &Decided| point.ratio.map_or(f64::NAN, |ratio| ratio.ratio);
        value(a).total_cmp(&value(b))
    };
    let known = || points.iter().filter(|point| point.ratio.is_some());
    let range = match (known().min_by(by_ratio), known().max_by(by_ratio)) {
        (Some(least), Some(most)) if has_range && least != most => format!(
            "; from {} ({}) to {} times ({})",
            words::times(least.ratio?.ratio),
            least.place,
            words::times(most.ratio?.ratio),
            most.place
        ),
        _ => String::new(),
    };
    Some(format!("{what}: {}{range}.", counts.join(", ")))
}
