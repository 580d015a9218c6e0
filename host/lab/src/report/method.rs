// SPDX-License-Identifier: Apache-2.0

//! How a result came about: what a reader needs to believe it, doubt it, or measure it again.

use std::collections::BTreeSet;

use super::finding::SHARE;
use super::model::Model;
use super::words;
use crate::metric;
use crate::statistics::{FEWEST, RESAMPLES};

/// A term and what is to be said on it, a paragraph each.
pub(super) struct Entry {
    pub(super) term: String,
    pub(super) words: Vec<String>,
    /// Command lines and the like.
    pub(super) is_code: bool,
}

fn text(term: &str, words: Vec<String>) -> Entry {
    Entry {
        term: term.to_owned(),
        words,
        is_code: false,
    }
}

/// All that is to be said; entries without words are left out.
pub(super) fn entries(model: &Model<'_>) -> Vec<Entry> {
    let run = &model.loaded.run;
    let pairs = |map: &std::collections::BTreeMap<String, String>| -> Vec<String> {
        map.iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect()
    };
    let mut remarks = run.remarks.clone();
    for resumed in &model.loaded.resumed {
        remarks.push(format!("went on at {}", resumed.at));
        remarks.extend(resumed.remarks.clone());
    }
    let mut entries = vec![
        text("Remarks", remarks),
        text("Run", about_run(model)),
        Entry {
            is_code: true,
            ..text("Command", commands(model))
        },
        text("Host", pairs(&run.host)),
        text("Versions", pairs(&run.tools)),
        text(
            "Platforms",
            run.platforms
                .iter()
                .map(|facts| {
                    let about = pairs(&facts.about).join("; ");
                    format!(
                        "{} on {}{}{about}",
                        facts.name,
                        facts.substrate,
                        if about.is_empty() { "" } else { ": " }
                    )
                })
                .collect(),
        ),
        text(
            "Images",
            run.images
                .iter()
                .map(|(service, image)| format!("{service}: {}, {}", image.reference, image.digest))
                .collect(),
        ),
        Entry {
            is_code: true,
            ..text("First start of each platform", starts(model))
        },
        text("Statistics", vec![statistics(model)]),
        text("What each figure includes", metrics(model)),
        text("Published figures", published(model)),
    ];
    entries.retain(|entry| !entry.words.is_empty());
    entries
}

fn about_run(model: &Model<'_>) -> Vec<String> {
    let run = &model.loaded.run;
    let mut out = vec![format!(
        "begun {}{}, seed {}, {}{} starts",
        run.started,
        model
            .loaded
            .end
            .as_ref()
            .map_or(String::new(), |end| format!(
                ", took {}",
                words::duration(end.took_s)
            )),
        run.seed,
        if run.quick {
            "short form (--quick), "
        } else {
            ""
        },
        model.loaded.sessions.len()
    )];
    if let Some(commit) = &run.commit {
        out.push(format!("commit {commit}"));
    }
    let pins: BTreeSet<String> = model
        .loaded
        .sessions
        .iter()
        .flat_map(|session| &session.pinned)
        .map(|(side, list)| format!("{side} on processors {list}"))
        .collect();
    out.extend(pins);
    out
}

fn commands(model: &Model<'_>) -> Vec<String> {
    let run = &model.loaded.run;
    let all = std::iter::once(&run.command)
        .chain(model.loaded.resumed.iter().map(|resumed| &resumed.command));
    all.map(|command| command.join(" ")).collect()
}

fn starts(model: &Model<'_>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let first = model
        .loaded
        .sessions
        .iter()
        .filter(|session| seen.insert(session.cell.platform.clone()));
    first
        .flat_map(|session| {
            let name = &session.cell.platform;
            session
                .commands
                .iter()
                .map(move |command| format!("{name}: {command}"))
        })
        .collect()
}

fn statistics(model: &Model<'_>) -> String {
    let paired = "both sides of a round are drawn together where every round has both";
    format!(
        "Medians of the runs. Intervals are 95 % bootstrap intervals of the median (expanded percentile, {RESAMPLES} draws of \
         rounds, seed {}); those of ratios likewise, {paired}. Below {FEWEST} runs no such interval exists: the range of the \
         runs is given, and nothing is decided. A figure whose interval is wider than {} % of it is \u{201c}not settled\u{201d}. \
         Ratios stand only between platforms of the same substrate.",
        model.loaded.run.seed,
        words::number(SHARE * 100.0)
    )
}

fn metrics(model: &Model<'_>) -> Vec<String> {
    let used: BTreeSet<&str> = model
        .loaded
        .samples
        .iter()
        .flat_map(|sample| sample.metrics.keys())
        .map(String::as_str)
        .collect();
    metric::METRICS
        .iter()
        .filter(|metric| used.contains(metric.name))
        .map(|metric| {
            // The list says it once, at the mean.
            let mean = metric::find("latency_mean_ms").filter(|_| metric.includes == "as the mean");
            format!("{}: {}", metric.title, mean.unwrap_or(metric).includes)
        })
        .collect()
}

fn published(model: &Model<'_>) -> Vec<String> {
    let mut sources = BTreeSet::new();
    for published in model
        .experiment
        .iter()
        .flat_map(|experiment| &experiment.published)
    {
        if let Some(source) = &published.source {
            let ran_as = published
                .ran_as
                .as_ref()
                .map_or(String::new(), |ran_as| format!(" ({ran_as})"));
            sources.insert(format!(
                "{}{ran_as}, {}: {source}",
                published.platform, published.metric
            ));
        }
    }
    let mut out: Vec<String> = sources.into_iter().collect();
    if let Some(study) = model
        .experiment
        .iter()
        .find_map(|experiment| experiment.study.as_ref())
    {
        out.insert(
            0,
            format!(
                "study {study}; its figures are from other machines: compare ratios, not values"
            ),
        );
    }
    out
}
