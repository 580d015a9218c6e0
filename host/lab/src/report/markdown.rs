// SPDX-License-Identifier: Apache-2.0

//! The report as Markdown, for issues, pull requests and terminals.

use std::fmt::Write;

use super::Chapter;
use super::table::{cell_text, figures};
use super::{html, method, verdict, words};

/// The whole document.
pub(super) fn render(chapters: &[Chapter<'_>], left_out: &[String]) -> String {
    let mut out = String::new();
    if chapters.len() > 1 {
        out += "# Results of the lab\n\n";
        for chapter in chapters {
            // Writing to a String cannot fail; so everywhere here.
            let _ = writeln!(out, "- {}", cell_text(&html::heading(&chapter.model)));
        }
        out.push('\n');
    }
    for why in left_out {
        let _ = writeln!(out, "> a result is left out: {}\n", cell_text(why));
    }
    for chapter in chapters {
        chapter_of(&mut out, chapter);
    }
    out
}

fn chapter_of(out: &mut String, chapter: &Chapter<'_>) {
    let model = &chapter.model;
    let run = &model.loaded.run;
    let _ = writeln!(out, "# {}\n", cell_text(&html::heading(model)));
    if let Some(experiment) = &model.experiment {
        let _ = writeln!(out, "{}\n", cell_text(&experiment.question));
    }
    for remark in &model.remarks {
        let _ = writeln!(out, "> {}\n", cell_text(remark));
    }
    let _ = writeln!(out, "{}\n", cell_text(&html::circumstances(model)));
    out.push_str("## Answer\n\n");
    for answer in verdict::answers(model) {
        if let Some(claim) = &answer.claim {
            let _ = writeln!(out, "- Claim: {}", cell_text(claim));
        }
        if let Some(summary) = &answer.summary {
            let _ = writeln!(out, "- {}", cell_text(summary));
        }
        for point in &answer.points {
            let indent = if answer.summary.is_some() { "  " } else { "" };
            let _ = writeln!(out, "{indent}- {}", cell_text(&point.sentence));
        }
    }
    out.push_str("\n## Figures\n\n");
    for (index, group) in model.groups.iter().enumerate() {
        if index > 0 {
            let _ = writeln!(
                out,
                "### On another substrate: {}\n\n{}\n",
                cell_text(&group.substrate),
                html::WHY_APART
            );
        }
        for main in [true, false] {
            for workload in &model.workloads {
                if let Some(table) = figures(model, group, workload, main) {
                    let _ = writeln!(out, "{}", table.markdown());
                }
            }
        }
    }
    let errors = model.errors_by_kind();
    if !errors.is_empty() {
        out.push_str("## Requests without a right answer\n\n");
        for line in errors {
            let _ = writeln!(out, "- {}", cell_text(&line));
        }
        out.push('\n');
    }
    if !model.loaded.failures.is_empty() {
        out.push_str("## Failures\n\n");
        for failure in &model.loaded.failures {
            let _ = writeln!(out, "- {}", cell_text(&html::failed(failure)));
        }
        out.push('\n');
    }
    out.push_str("## Method\n\n");
    for entry in method::entries(model) {
        let _ = writeln!(out, "- **{}**", cell_text(&entry.term));
        for words in &entry.words {
            if entry.is_code {
                let _ = writeln!(out, "  - `{}`", words.replace('`', "'").replace('\n', " "));
            } else {
                let _ = writeln!(out, "  - {}", cell_text(words));
            }
        }
    }
    let _ = writeln!(
        out,
        "- raw samples: {}result.jsonl ({} samples of {})\n",
        cell_text(&chapter.to_result),
        model.loaded.samples.len(),
        cell_text(&words::point(&std::collections::BTreeMap::from([(
            "experiment".to_owned(),
            run.experiment.clone()
        )])))
    );
}
