// SPDX-License-Identifier: Apache-2.0

//! Tables of figures, written once and printed as HTML and as Markdown.

use std::fmt::Write;

use super::finding::{Finding, SHARE};
use super::model::{Group, Measured, Model, Row, is_main};
use super::sweeps;
use super::verdict::place;
use super::words::{self, Unit, escape};

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) caption: String,
    /// The first is that of the row's names.
    pub(super) columns: Vec<String>,
    pub(super) lines: Vec<Line>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub(super) enum Line {
    /// A heading over the lines that follow.
    Heading(String),
    /// A name and its cells.
    Row(String, Vec<Cell>),
}

/// A cell: what counts, and small print.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) main: String,
    pub(super) small: Vec<String>,
    /// "better", "worse" or nothing, for colour beside the words.
    pub(super) class: &'static str,
}

impl Cell {
    pub(super) fn plain(main: impl Into<String>) -> Cell {
        Cell {
            main: main.into(),
            ..Cell::default()
        }
    }
}

/// The figures of a workload on the platforms of a group: those in the short form, or the others. None if there are none.
pub(super) fn figures(
    model: &Model<'_>,
    group: &Group,
    workload: &str,
    main: bool,
) -> Option<Table> {
    let rows: Vec<&Row> = group
        .rows
        .iter()
        .filter(|row| {
            // What is drawn over a parameter is long; its table is folded away.
            let is_short = is_main(model, row) && !sweeps::is_on_curve(model, group, row);
            row.key.workload == workload && is_short == main
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut columns = vec![String::new()];
    columns.extend(group.platforms.iter().cloned());
    let baseline = group.baseline();
    if let Some(baseline) = baseline {
        let others = group.platforms.iter().skip(1);
        columns.extend(others.map(|platform| format!("{platform} / {baseline}")));
    }
    let mut lines = Vec::new();
    let mut last = None;
    for row in rows {
        let here = place(model, &row.key);
        if last.as_ref() != Some(&here) {
            if !here.is_empty() {
                lines.push(Line::Heading(here.clone()));
            }
            last = Some(here);
        }
        lines.push(line(row, baseline.is_some()));
    }
    Some(Table {
        caption: format!(
            "{workload}: medians and 95 % intervals on {}",
            group.substrate
        ),
        columns,
        lines,
    })
}

/// All that the study published, also where nothing was measured beside it. None if there is nothing.
pub(super) fn published(model: &Model<'_>) -> Option<Table> {
    let experiment = model.experiment.as_ref()?;
    let line = |one: &crate::experiment::Published| {
        let unit = words::unit(&one.metric, one.value);
        let mut place = vec![one.workload.clone()];
        place.extend(one.service.clone());
        place.extend(one.vcpus.map(words::vcpus));
        if !one.point.is_empty() {
            place.push(words::point(&one.point));
        }
        let mut value = Cell::plain(unit.value(one.value));
        value.small.extend(one.source.clone());
        let cells = vec![
            Cell::plain(one.ran_as.clone().unwrap_or_else(|| one.platform.clone())),
            Cell::plain(words::title(&one.metric)),
            value,
        ];
        Line::Row(place.join(", "), cells)
    };
    (!experiment.published.is_empty()).then(|| Table {
        caption: "What the study printed, on its own machines".to_owned(),
        columns: ["", "Ran as", "Figure", "Value"]
            .map(str::to_owned)
            .to_vec(),
        lines: experiment.published.iter().map(line).collect(),
    })
}

fn line(row: &Row, ratios: bool) -> Line {
    let most = row
        .cells
        .iter()
        .filter_map(|cell| cell.estimate)
        .map(|found| found.median)
        .fold(0.0, f64::max);
    let metric = row.key.metric.as_str();
    let unit = words::unit(metric, most);
    let mut cells: Vec<Cell> = row
        .cells
        .iter()
        .map(|cell| value(cell, metric, &unit))
        .collect();
    if ratios {
        let base = row.cells.first();
        cells.extend(
            row.cells
                .iter()
                .skip(1)
                .map(|cell| compared(cell, base, metric)),
        );
    }
    Line::Row(words::title(metric), cells)
}

fn value(cell: &Measured, metric: &str, unit: &Unit) -> Cell {
    let mut out = Cell::plain("\u{2013}");
    if let Some(found) = &cell.estimate {
        out.main = unit.value(found.median);
        let interval = unit.interval(found);
        let exact = Model::is_exact(metric);
        if !interval.is_empty() && !exact {
            let word = if found.runs < crate::statistics::FEWEST {
                "range "
            } else {
                ""
            };
            out.small
                .push(format!("{word}{interval}, n {}", found.samples));
        } else if !exact {
            out.small.push(format!("n {}", found.samples));
        }
        if !exact {
            if !found.is_settled(SHARE) {
                out.small.push("not settled".to_owned());
            }
            if found.within_rounds {
                out.small.push("in few rounds".to_owned());
            }
        }
    }
    if cell.failures > 0 {
        out.small.push(format!("{} failed", cell.failures));
    }
    for published in &cell.published {
        let ran_as = published
            .ran_as
            .as_ref()
            .map_or(String::new(), |ran_as| format!(" ({ran_as})"));
        out.small
            .push(format!("published {}{ran_as}", unit.value(published.value)));
    }
    out
}

fn compared(cell: &Measured, base: Option<&Measured>, metric: &str) -> Cell {
    let mut out = Cell::plain("\u{2013}");
    if let Some(ratio) = &cell.ratio {
        out.main = words::times(ratio.ratio);
        let finding = if Model::is_exact(metric) {
            Finding::of_exact(metric, ratio.ratio)
        } else {
            out.small.push(format!(
                "{}\u{2013}{}",
                words::times(ratio.low),
                words::times(ratio.high)
            ));
            Finding::of(metric, ratio, SHARE)
        };
        out.small.push(finding.word().to_owned());
        out.class = match finding {
            Finding::Better => "better",
            Finding::Worse => "worse",
            _ => "",
        };
    }
    if let (Some([of]), Some([by])) = (
        Some(cell.published.as_slice()),
        base.map(|base| base.published.as_slice()),
    ) && by.value > 0.0
    {
        out.small
            .push(format!("published {}", words::times(of.value / by.value)));
    }
    out
}

impl Table {
    /// As an HTML table with its parts named for screen readers.
    pub(super) fn html(&self) -> String {
        let mut out = format!(
            "<div class=\"scroll\" tabindex=\"0\"><table>\n<caption>{}</caption>\n<thead><tr>",
            escape(&self.caption)
        );
        for (index, column) in self.columns.iter().enumerate() {
            let class = if index == 0 { "" } else { " class=\"number\"" };
            let _ = if column.is_empty() {
                write!(out, "<td></td>")
            } else {
                write!(out, "<th scope=\"col\"{class}>{}</th>", escape(column))
            };
        }
        out += "</tr></thead>\n<tbody>\n";
        for line in &self.lines {
            match line {
                Line::Heading(words) => {
                    let _ = writeln!(
                        out,
                        "<tr class=\"heading\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>",
                        self.columns.len(),
                        escape(words)
                    );
                }
                Line::Row(name, cells) => {
                    let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(name));
                    for cell in cells {
                        let _ = write!(
                            out,
                            "<td class=\"number {}\"><b>{}</b>",
                            cell.class,
                            escape(&cell.main)
                        );
                        for small in &cell.small {
                            let class = if small.len() > 32 {
                                " class=\"long\""
                            } else {
                                ""
                            };
                            let _ = write!(out, " <small{class}>{}</small>", escape(small));
                        }
                        out += "</td>";
                    }
                    out += "</tr>\n";
                }
            }
        }
        out + "</tbody>\n</table></div>\n"
    }

    /// As a table of GitHub's Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut out = format!("{}\n\n|", cell_text(&self.caption));
        for column in &self.columns {
            let _ = write!(out, " {} |", cell_text(column));
        }
        out += "\n|---|";
        out += &"---:|".repeat(self.columns.len().saturating_sub(1));
        out.push('\n');
        for line in &self.lines {
            match line {
                Line::Heading(words) => {
                    let _ = write!(out, "| **{}** |", cell_text(words));
                    out += &" |".repeat(self.columns.len().saturating_sub(1));
                }
                Line::Row(name, cells) => {
                    let _ = write!(out, "| {} |", cell_text(name));
                    for cell in cells {
                        let small = if cell.small.is_empty() {
                            String::new()
                        } else {
                            format!(" ({})", cell.small.join("; "))
                        };
                        let _ = write!(out, " {}{} |", cell_text(&cell.main), cell_text(&small));
                    }
                }
            }
            out.push('\n');
        }
        out
    }
}

/// Text that stays text within Markdown, and within a cell of a table.
pub(super) fn cell_text(words: &str) -> String {
    let mut out = String::new();
    for letter in escape(words).chars() {
        match letter {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' => {
                out.push('\\');
                out.push(letter);
            }
            '\n' | '\t' => out.push(' '),
            _ => out.push(letter),
        }
    }
    out.replace("&#39;", "'").replace("&quot;", "\"")
}
