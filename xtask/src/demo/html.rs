// SPDX-License-Identifier: Apache-2.0

//! The result as one HTML file: table, plots and method. It needs nothing from the network and follows the reader's
//! light or dark setting.

use std::fmt::Write;

use super::figures::{Figure, Samples};
use super::plot;
use super::table::Row;

/// What the page says beside the samples.
pub(crate) struct Page<'a> {
    /// A sentence on machine and conditions.
    pub(crate) summary: String,
    pub(crate) rows: &'a [Row],
    pub(crate) platforms: &'a [&'a str],
    pub(crate) method: &'a [Entry],
}

/// A line on how it was measured: plain text or a command line.
pub(crate) struct Entry {
    term: String,
    words: String,
    is_code: bool,
}

/// An entry in words.
pub(crate) fn text(term: &str, words: impl Into<String>) -> Entry {
    Entry {
        term: term.to_owned(),
        words: words.into(),
        is_code: false,
    }
}

/// An entry that is a command line.
pub(crate) fn code(term: &str, words: impl Into<String>) -> Entry {
    Entry {
        is_code: true,
        ..text(term, words)
    }
}

/// A plot: its heading, and the figures in it, which share a unit.
struct Panel {
    title: &'static str,
    note: &'static str,
    wanted: fn(&Figure) -> bool,
}

const PANELS: [Panel; 7] = [
    Panel {
        title: "Boot to first HTTP answer",
        note: "from the start of the command to the last byte of the answer; less is better",
        wanted: |figure| matches!(figure, Figure::Boot),
    },
    Panel {
        title: "Peak memory of the VMM process",
        note: "resident, 256 MiB guest, after the load; less is better",
        wanted: |figure| matches!(figure, Figure::PeakMemory),
    },
    Panel {
        title: "Requests per second",
        note: "GET /todos, closed loop; more is better",
        wanted: |figure| matches!(figure, Figure::Rate { .. }),
    },
    Panel {
        title: "Median latency",
        note: "1 vCPU; less is better",
        wanted: |figure| matches!(figure, Figure::P50 { .. }),
    },
    Panel {
        title: "99th percentile of latency",
        note: "1 vCPU; less is better",
        wanted: |figure| matches!(figure, Figure::P99 { .. }),
    },
    Panel {
        title: "Smallest memory that serves",
        note: "the guest boots and answers 100 requests; less is better",
        wanted: |figure| matches!(figure, Figure::SmallestMemory),
    },
    Panel {
        title: "Size on disk",
        note: "less is better",
        wanted: |figure| matches!(figure, Figure::ImageSize | Figure::KernelSize),
    },
];

/// The whole document.
pub(crate) fn render(page: &Page, samples: &Samples) -> String {
    let mut out = String::new();
    let title = "Coracle: one Go service, two kernels";
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n<p class=\"lead\">{}</p>\n",
        escape(&page.summary)
    );
    table(&mut out, page);
    legend(&mut out, page.platforms);
    out += "<div class=\"panels\">\n";
    for panel in PANELS {
        let figures: Vec<Figure> = samples.figures().into_iter().filter(panel.wanted).collect();
        if figures.is_empty() {
            continue;
        }
        let wide = if figures.len() > 2 {
            " class=\"wide\""
        } else {
            ""
        };
        let plot = plot::bars(panel.title, &figures, page.platforms, samples);
        let _ = write!(
            out,
            "<figure{wide}>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n{plot}</figure>\n",
            panel.title, panel.note
        );
    }
    out += "</div>\n<section>\n<h2>How this was measured</h2>\n<dl>\n";
    for entry in page.method {
        let (term, words) = (escape(&entry.term), escape(&entry.words));
        let words = if entry.is_code {
            format!("<code>{words}</code>")
        } else {
            words
        };
        let _ = writeln!(out, "<dt>{term}</dt><dd>{words}</dd>");
    }
    out += "</dl>\n</section>\n</main>\n</body>\n</html>\n";
    out
}

fn table(out: &mut String, page: &Page) {
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr><th>Median</th>");
    for platform in page.platforms {
        let _ = write!(out, "<th class=\"number\">{}</th>", escape(platform));
    }
    out.push_str("<th class=\"number\">Ratio</th></tr></thead>\n<tbody>\n");
    for row in page.rows {
        let detail = if row.title.starts_with(' ') {
            " class=\"detail\""
        } else {
            ""
        };
        let _ = write!(
            out,
            "<tr{detail}><th scope=\"row\">{}</th>",
            escape(row.title.trim())
        );
        for value in &row.values {
            let _ = write!(out, "<td class=\"number\">{}</td>", escape(value));
        }
        let _ = writeln!(
            out,
            "<td class=\"number ratio\">{}</td></tr>",
            escape(&row.ratio)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn legend(out: &mut String, platforms: &[&str]) {
    out.push_str("<p class=\"legend\">");
    for (index, platform) in platforms.iter().enumerate() {
        let _ = write!(
            out,
            "<span class=\"key key{index}\"></span>{} ",
            escape(platform)
        );
    }
    out.push_str("<span class=\"hint\">bars: median &middot; dots: single runs</span></p>\n");
}

/// Text with the characters that mean something to HTML replaced.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = "
:root { --page:#fbfaf8; --card:#ffffff; --line:#e4e1da; --text:#1f2328; --soft:#656d76;
  --p0:#8b95a5; --p1:#0e7c86; --dot0:#4d5663; --dot1:#06474d; }
@media (prefers-color-scheme: dark) { :root { --page:#14171a; --card:#1b1f24; --line:#30363d; --text:#e6e8eb;
  --soft:#9aa4af; --p0:#6c7683; --p1:#2aa7b3; --dot0:#c3cad3; --dot1:#c9f1f4; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--page); color:var(--text);
  font:16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif; }
main { max-width:60rem; margin:0 auto; padding:2.5rem 1.25rem 4rem; }
h1 { font-size:1.8rem; line-height:1.2; margin:0 0 .5rem; letter-spacing:-.01em; }
h2 { font-size:1.05rem; margin:0; }
.lead { color:var(--soft); margin:0 0 1.75rem; max-width:48rem; }
.scroll { overflow-x:auto; background:var(--card); border:1px solid var(--line); border-radius:10px; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; }
th, td { padding:.5rem .9rem; text-align:left; border-bottom:1px solid var(--line); font-weight:400; white-space:nowrap; }
thead th { color:var(--soft); font-size:.85rem; }
tbody tr:last-child > * { border-bottom:0; }
.number { text-align:right; }
.ratio { font-weight:600; }
.detail th { padding-left:2rem; color:var(--soft); }
.legend { margin:2rem 0 .75rem; }
.key { display:inline-block; width:.8rem; height:.8rem; border-radius:3px; margin:0 .4rem 0 0; vertical-align:-1px; }
.legend .key:not(:first-child) { margin-left:1rem; }
.key0 { background:var(--p0); } .key1 { background:var(--p1); }
.hint { color:var(--soft); margin-left:1.25rem; font-size:.9rem; }
.panels { display:grid; grid-template-columns:repeat(2, minmax(0, 1fr)); gap:1rem; }
figure { margin:0; padding:1.1rem 1.25rem .9rem; background:var(--card); border:1px solid var(--line); border-radius:10px;
  min-width:0; }
figure.wide { grid-column:1 / -1; }
.note { margin:0 0 .6rem; color:var(--soft); font-size:.85rem; }
svg { display:block; width:100%; height:auto; }
svg text { fill:var(--text); font:13px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif; }
svg .soft { fill:var(--soft); } svg .grid { stroke:var(--line); } svg .value { font-weight:600; }
svg .bar0 { fill:var(--p0); } svg .bar1 { fill:var(--p1); }
svg .dot0 { fill:var(--dot0); stroke:var(--card); } svg .dot1 { fill:var(--dot1); stroke:var(--card); }
section { margin-top:2.5rem; }
dl { display:grid; grid-template-columns:9rem minmax(0, 1fr); gap:.5rem 1rem; margin:.9rem 0 0; font-size:.92rem; }
dt { color:var(--soft); } dd { margin:0; overflow-wrap:anywhere; }
code { font:.82rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; color:var(--soft); }
@media (max-width:46rem) { .panels { grid-template-columns:minmax(0, 1fr); } dl { grid-template-columns:minmax(0, 1fr); gap:.1rem; }
  dd { margin-bottom:.6rem; } }
";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Figure, Page, Samples, code, render, text};
    use crate::demo::table;

    /// A page with every figure of two platforms.
    fn page() -> String {
        let path = std::env::temp_dir().join(format!("coracle-html-{}.jsonl", std::process::id()));
        let mut samples = Samples::create(&path, &Value::Null).unwrap();
        std::fs::remove_file(&path).unwrap();
        let platforms = ["Linux VM", "Coracle"];
        for (platform, factor) in platforms.into_iter().zip([1.0, 0.5]) {
            let mut add = |figure, values: &[f64]| {
                for value in values {
                    let value = if matches!(figure, Figure::Rate { .. }) {
                        value / factor
                    } else {
                        value * factor
                    };
                    samples.add(platform, figure, value, &Value::Null).unwrap();
                }
            };
            add(Figure::Boot, &[1.6, 1.7, 1.65]);
            for connections in [1, 10, 40] {
                add(
                    Figure::Rate {
                        connections,
                        vcpus: 1,
                    },
                    &[2400.0, 2500.0, 2450.0],
                );
                add(Figure::P50 { connections }, &[0.4, 0.5]);
                add(Figure::P99 { connections }, &[3.4, 30.5]);
            }
            add(Figure::PeakMemory, &[251.0, 250.0]);
            add(
                Figure::Rate {
                    connections: 40,
                    vcpus: 2,
                },
                &[6400.0, 6500.0],
            );
            add(Figure::SmallestMemory, &[80.0]);
            add(Figure::ImageSize, &[21.4]);
            add(Figure::KernelSize, &[14.2]);
        }
        let rows = table::rows(&samples, &platforms);
        let method = [text("Odd <term>", "a & b"), code("", "run <it>")];
        let summary = "A summary".to_owned();
        render(
            &Page {
                summary,
                rows: &rows,
                platforms: &platforms,
                method: &method,
            },
            &samples,
        )
    }

    #[test]
    fn the_page_is_whole_and_needs_no_network() {
        let page = page();
        for tag in [
            "html", "head", "body", "main", "table", "svg", "figure", "text", "dl", "section",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
            assert!(opened > 0, "{tag}");
        }
        assert_eq!(page.matches("<svg").count(), 7);
        for unwanted in ["http://", "https://", "src=", "NaN", "inf", "<term>"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
        assert!(
            page.contains("Odd &lt;term&gt;")
                && page.contains("<code>run &lt;it&gt;</code>")
                && page.contains("2.00 times sooner")
        );
    }
}
