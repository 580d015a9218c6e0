// SPDX-License-Identifier: Apache-2.0

//! The report as one HTML file. It needs nothing from the network and no script, follows the reader's light or dark
//! setting, and names its parts for screen readers.

use std::fmt::Write;

use super::finding::Finding;
use super::model::{Group, Model};
use super::table::{figures, published};
use super::words::{self, escape};
use super::{Chapter, method, panels, svg, verdict};
use crate::record::Failure;

/// Colours, and the plots' own rules: for pages and for pictures that stand alone.
pub(super) const STYLE: &str = include_str!("style.css");
const PAGE: &str = include_str!("page.css");

/// Why platforms of another substrate have tables of their own.
pub(super) const WHY_APART: &str = "These are not compared with the platforms above: they ran on something else, so that a ratio \
     would be one of hypervisors, emulators or machines, not of what runs in them.";

/// The whole document.
pub(super) fn render(chapters: &[Chapter<'_>], left_out: &[String]) -> String {
    let title = match chapters {
        [chapter] => heading(&chapter.model),
        _ => "Results of the lab".to_owned(),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{STYLE}{PAGE}</style>\n</head>\n<body>\n<main>\n",
        escape(&title)
    );
    if chapters.len() > 1 {
        // Writing to a String cannot fail; so everywhere here.
        let _ = writeln!(
            out,
            "<h1>{}</h1>\n<nav aria-label=\"Contents\"><ol class=\"contents\">",
            escape(&title)
        );
        for chapter in chapters {
            let _ = writeln!(
                out,
                "<li><a href=\"#{}\">{}</a>{}</li>",
                chapter.id,
                escape(&heading(&chapter.model)),
                in_short(&chapter.model)
            );
        }
        out += "</ol></nav>\n";
    }
    for why in left_out {
        let _ = writeln!(
            out,
            "<p class=\"remark\">a result is left out: {}</p>",
            escape(why)
        );
    }
    for chapter in chapters {
        chapter_of(
            &mut out,
            chapter,
            if chapters.len() > 1 { "h2" } else { "h1" },
        );
    }
    out + "<footer>Written by <code>coracle lab report</code> from result.jsonl.</footer>\n</main>\n</body>\n</html>\n"
}

/// The experiment's title.
pub(super) fn heading(model: &Model<'_>) -> String {
    model.experiment.as_ref().map_or_else(
        || model.loaded.run.experiment.clone(),
        |experiment| experiment.title.clone(),
    )
}

/// Machine and conditions in a sentence.
pub(super) fn circumstances(model: &Model<'_>) -> String {
    let run = &model.loaded.run;
    let fact = |name: &str| {
        run.host
            .get(name)
            .map_or(String::new(), |value| format!(", {value}"))
    };
    let rounds = model
        .loaded
        .sessions
        .iter()
        .map(|session| session.round + 1)
        .max()
        .unwrap_or(0);
    format!(
        "{}: {} of {}{}{}{}{}.",
        run.started,
        match rounds {
            1 => "1 round".to_owned(),
            _ => format!("{rounds} rounds"),
        },
        run.experiment,
        if run.quick { ", short form" } else { "" },
        fact("cpu"),
        fact("accelerator"),
        match model.loaded.failures.len() {
            0 => String::new(),
            1 => "; 1 start or measurement failed".to_owned(),
            failures => format!("; {failures} starts or measurements failed"),
        }
    )
}

/// A failure in one line.
pub(super) fn failed(failure: &Failure) -> String {
    let mut place = format!(
        "{}, {}, {}, round {}",
        failure.cell.platform,
        failure.cell.service,
        words::vcpus(failure.cell.vcpus),
        failure.round + 1
    );
    if let Some(workload) = &failure.workload {
        place += &format!(", {workload}");
    }
    if !failure.point.is_empty() {
        place += &format!(" ({})", words::point(&failure.point));
    }
    format!("{place}: {}", failure.what)
}

/// The first answer, for the list of contents.
fn in_short(model: &Model<'_>) -> String {
    let answers = verdict::answers(model);
    let first = answers.first().and_then(|answer| {
        answer
            .summary
            .clone()
            .or_else(|| answer.points.first().map(|point| point.sentence.clone()))
    });
    first.map_or(String::new(), |words| {
        format!("<br><span class=\"soft\">{}</span>", escape(&words))
    })
}

fn chapter_of(out: &mut String, chapter: &Chapter<'_>, level: &str) {
    let model = &chapter.model;
    let _ = writeln!(
        out,
        "<section class=\"chapter\" id=\"{}\">\n<{level}>{}</{level}>",
        chapter.id,
        escape(&heading(model))
    );
    if let Some(experiment) = &model.experiment {
        let _ = writeln!(
            out,
            "<p class=\"lead\">{}</p>",
            escape(&experiment.question)
        );
    }
    let _ = writeln!(
        out,
        "<p class=\"soft\">{}</p>",
        escape(&circumstances(model))
    );
    for remark in &model.remarks {
        let _ = writeln!(out, "<p class=\"remark\">{}</p>", escape(remark));
    }
    answers(out, model);
    legend(out, model);
    panels::all(out, model);
    tables(out, model);
    failures(out, model);
    how(out, chapter);
    out.push_str("</section>\n");
}

fn answers(out: &mut String, model: &Model<'_>) {
    let answers = verdict::answers(model);
    if answers.is_empty() {
        return;
    }
    out.push_str("<h3>Answer</h3>\n<ul class=\"answers\">\n");
    for answer in answers {
        let claim = answer.claim.as_ref().map_or(String::new(), |claim| {
            format!("<span class=\"claim\">Claim: {}</span>", escape(claim))
        });
        let all = |finding| {
            answer
                .points
                .iter()
                .all(|point| point.finding == Some(finding))
        };
        let class = match () {
            () if all(Finding::Better) => "better",
            () if all(Finding::Worse) => "worse",
            () => "",
        };
        let _ = write!(out, "<li class=\"{class}\">{claim}");
        match &answer.summary {
            None => {
                for point in &answer.points {
                    out.push_str(&escape(&point.sentence));
                }
            }
            Some(summary) => {
                let open = if answer.points.len() <= 4 {
                    " open"
                } else {
                    ""
                };
                let _ = write!(
                    out,
                    "<details{open}><summary>{}</summary><ul>",
                    escape(summary)
                );
                for point in &answer.points {
                    let _ = write!(out, "<li>{}</li>", escape(&point.sentence));
                }
                out.push_str("</ul></details>");
            }
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

fn legend(out: &mut String, model: &Model<'_>) {
    out.push_str("<p class=\"legend\">");
    for platform in model.platforms() {
        let _ = write!(
            out,
            "<span><span class=\"key c{}\"></span>{}</span> ",
            svg::slot(&platform),
            escape(&platform)
        );
    }
    out.push_str(
        "<span class=\"soft\">bars: medians; lines: 95 % intervals; dots: single runs</span></p>\n",
    );
}

fn tables(out: &mut String, model: &Model<'_>) {
    out.push_str("<h3>Figures</h3>\n");
    for (index, group) in model.groups.iter().enumerate() {
        if index > 0 {
            let _ = writeln!(
                out,
                "<h4>On another substrate: {}</h4>\n<p class=\"note\">{WHY_APART}</p>",
                escape(&group.substrate)
            );
        }
        tables_of(out, model, group, true);
        let mut rest = String::new();
        tables_of(&mut rest, model, group, false);
        if !rest.is_empty() {
            let _ = writeln!(
                out,
                "<details><summary>All other figures, and those of the curves, on {}</summary>\n{rest}</details>",
                escape(&group.substrate)
            );
        }
    }
}

fn tables_of(out: &mut String, model: &Model<'_>, group: &Group, main: bool) {
    for workload in &model.workloads {
        if let Some(table) = figures(model, group, workload, main) {
            *out += &table.html();
        }
    }
}

fn failures(out: &mut String, model: &Model<'_>) {
    let errors = model.errors_by_kind();
    if !errors.is_empty() {
        out.push_str("<h3>Requests without a right answer</h3>\n<ul>\n");
        for line in errors {
            let _ = writeln!(out, "<li>{}</li>", escape(&line));
        }
        out.push_str("</ul>\n");
    }
    if model.loaded.failures.is_empty() {
        return;
    }
    out.push_str("<h3>Failures</h3>\n");
    for failure in &model.loaded.failures {
        let _ = writeln!(
            out,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape(&failed(failure)),
            escape(&failure.log)
        );
    }
}

fn how(out: &mut String, chapter: &Chapter<'_>) {
    if let Some(table) = published(&chapter.model) {
        let _ = writeln!(
            out,
            "<details><summary>All figures of the study</summary>\n{}</details>",
            table.html()
        );
    }
    out.push_str("<h3>How this was measured</h3>\n<dl>\n");
    for entry in method::entries(&chapter.model) {
        let _ = write!(out, "<dt>{}</dt><dd>", escape(&entry.term));
        for words in &entry.words {
            if entry.is_code {
                let _ = write!(out, "<div><code>{}</code></div>", escape(words));
            } else {
                let _ = write!(out, "<div>{}</div>", escape(words));
            }
        }
        out.push_str("</dd>\n");
    }
    let mut links = vec![format!(
        "<a href=\"{}\">result.jsonl</a>",
        link(&chapter.to_result, "result.jsonl")
    )];
    let mut raw: Vec<&String> = chapter
        .model
        .loaded
        .samples
        .iter()
        .filter_map(|sample| sample.raw.as_ref())
        .collect();
    raw.sort();
    raw.dedup();
    let folder = link(&chapter.to_result, "raw/");
    if !raw.is_empty() {
        links.push(format!(
            "<a href=\"{folder}\">raw/</a> ({} files of what the tools printed)",
            raw.len()
        ));
    }
    let _ = writeln!(
        out,
        "<dt>Raw samples</dt><dd>{}</dd>\n</dl>",
        links.join(", ")
    );
    if !raw.is_empty() {
        out.push_str("<details><summary>Each raw file</summary><p>");
        for name in raw {
            let short = name.strip_prefix("raw/").unwrap_or(name);
            let _ = writeln!(
                out,
                "<a href=\"{}\">{}</a>",
                link(&chapter.to_result, &format!("raw/{short}")),
                escape(short)
            );
        }
        out.push_str("</p></details>\n");
    }
}

/// A relative link: what has a meaning in addresses is written as percent codes, so that a name cannot be a scheme.
fn link(to_result: &str, name: &str) -> String {
    let mut out = if to_result.is_empty() {
        "./".to_owned()
    } else {
        String::new()
    };
    for byte in format!("{to_result}{name}").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                out.push(char::from(byte))
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
