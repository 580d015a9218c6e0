// SPDX-License-Identifier: Apache-2.0

//! The figures of a report for programs: CSV, and JSON lines.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Chapter;
use super::finding::{Finding, SHARE};
use super::model::{Group, Measured, Row};
use super::{verdict, words};

const COLUMNS: [&str; 22] = [
    "experiment",
    "workload",
    "service",
    "vcpus",
    "point",
    "metric",
    "unit",
    "platform",
    "substrate",
    "median",
    "low",
    "high",
    "samples",
    "runs",
    "settled",
    "failures",
    "published",
    "baseline",
    "ratio",
    "ratio_low",
    "ratio_high",
    "finding",
];

/// A line for each figure of each platform.
pub(super) fn csv(chapters: &[Chapter<'_>]) -> String {
    let mut out = COLUMNS.join(",") + "\n";
    each(chapters, |value| {
        let fields: Vec<String> = COLUMNS
            .iter()
            .map(|column| match value.get(*column) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Object(point)) => {
                    let parts: Vec<String> = point
                        .iter()
                        .map(|(name, value)| {
                            format!("{name}={}", value.as_str().unwrap_or_default())
                        })
                        .collect();
                    parts.join(" ")
                }
                Some(Value::Array(values)) => {
                    let parts: Vec<String> = values.iter().map(Value::to_string).collect();
                    parts.join(" ")
                }
                Some(other) => other.to_string(),
            })
            .map(|field| quoted(&field))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", fields.join(","));
    });
    out
}

/// The same as objects, and before each result one on the run with the answers to its questions.
pub(super) fn json_lines(chapters: &[Chapter<'_>]) -> String {
    let mut out = String::new();
    for chapter in chapters {
        let run = &chapter.model.loaded.run;
        let answers: Vec<Value> = verdict::answers(&chapter.model)
            .into_iter()
            .map(|answer| {
                let points: Vec<Value> = answer
                    .points
                    .iter()
                    .map(|point| {
                        json!({
                            "place": point.place, "sentence": point.sentence,
                            "finding": point.finding.map(Finding::word),
                        })
                    })
                    .collect();
                json!({ "claim": answer.claim, "summary": answer.summary, "points": points })
            })
            .collect();
        let head = json!({
            "report": 1, "experiment": run.experiment, "started": run.started, "quick": run.quick, "seed": run.seed,
            "commit": run.commit, "host": run.host, "tools": run.tools, "answers": answers,
            "failures": chapter.model.loaded.failures.len(), "remarks": chapter.model.remarks,
        });
        let _ = writeln!(out, "{head}");
        each(std::slice::from_ref(chapter), |value| {
            let _ = writeln!(out, "{value}");
        });
    }
    out
}

fn each(chapters: &[Chapter<'_>], mut put: impl FnMut(Value)) {
    for chapter in chapters {
        for group in &chapter.model.groups {
            for row in &group.rows {
                for (platform, cell) in group.platforms.iter().zip(&row.cells) {
                    if cell.estimate.is_some() || cell.failures > 0 || !cell.published.is_empty() {
                        put(figure(chapter, group, row, platform, cell));
                    }
                }
            }
        }
    }
}

fn figure(
    chapter: &Chapter<'_>,
    group: &Group,
    row: &Row,
    platform: &str,
    cell: &Measured,
) -> Value {
    let key = &row.key;
    let mut value = json!({
        "experiment": chapter.model.loaded.run.experiment, "workload": key.workload, "service": key.service,
        "vcpus": key.vcpus, "point": key.point, "metric": key.metric, "unit": words::unit_of(&key.metric),
        "platform": platform, "substrate": group.substrate, "failures": cell.failures,
    });
    if let Some(found) = &cell.estimate {
        value["median"] = json!(found.median);
        value["low"] = json!(found.low);
        value["high"] = json!(found.high);
        value["samples"] = json!(found.samples);
        value["runs"] = json!(found.runs);
        value["settled"] = json!(found.is_settled(SHARE));
    }
    if !cell.published.is_empty() {
        let values: Vec<f64> = cell
            .published
            .iter()
            .map(|published| published.value)
            .collect();
        value["published"] = json!(values);
    }
    if let Some(ratio) = &cell.ratio {
        value["baseline"] = json!(group.baseline());
        value["ratio"] = json!(ratio.ratio);
        value["ratio_low"] = json!(ratio.low);
        value["ratio_high"] = json!(ratio.high);
        value["finding"] = json!(Finding::of(&key.metric, ratio, SHARE).word());
    }
    value
}

/// A field of CSV (RFC 4180). One that a spreadsheet would take for a formula gets an apostrophe.
fn quoted(field: &str) -> String {
    let field = if field.starts_with(['=', '+', '@', '\t', '\r'])
        || (field.starts_with('-') && field.parse::<f64>().is_err())
    {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (field, text) in [
            ("plain", "plain"),
            ("-1.5", "-1.5"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("-x", "'-x"),
        ] {
            assert_eq!(quoted(field), text);
        }
    }
}
