// SPDX-License-Identifier: Apache-2.0

//! The result as a table of plain text.

use super::figures::{Better, Figure, Samples};

/// One line of the result, as text.
pub(crate) struct Row {
    pub(crate) title: String,
    /// One value for each platform; a dash where nothing was measured.
    pub(crate) values: Vec<String>,
    pub(crate) ratio: String,
}

/// The result: medians, and the second platform against the first.
pub(crate) fn rows(samples: &Samples, platforms: &[&str]) -> Vec<Row> {
    let mut rows = Vec::new();
    for figure in samples.figures() {
        let medians: Vec<Option<f64>> = platforms
            .iter()
            .map(|platform| samples.median(platform, figure))
            .collect();
        rows.push(Row {
            title: figure.title(),
            values: medians
                .iter()
                .map(|value| value.map_or_else(|| "-".to_owned(), |value| figure.format(value)))
                .collect(),
            ratio: match medians[..] {
                [Some(first), Some(second)] => ratio(figure, first, second),
                _ => String::new(),
            },
        });
        if let Figure::Rate {
            connections,
            vcpus: vcpus @ 2..,
        } = figure
        {
            rows.push(gain(samples, platforms, connections, vcpus));
        }
    }
    rows
}

/// What further vCPUs bring each platform over its own single one.
fn gain(samples: &Samples, platforms: &[&str], connections: u32, vcpus: u32) -> Row {
    let gain = |platform: &&str| {
        let more = samples.median(platform, Figure::Rate { connections, vcpus })?;
        let one = samples.median(
            platform,
            Figure::Rate {
                connections,
                vcpus: 1,
            },
        )?;
        Some(format!("{:.2} times", more / one))
    };
    Row {
        title: "  against its own single vCPU".to_owned(),
        values: platforms
            .iter()
            .map(|platform| gain(platform).unwrap_or_else(|| "-".to_owned()))
            .collect(),
        ratio: String::new(),
    }
}

/// How the second value compares with the first, in words that say which one is better.
fn ratio(figure: Figure, first: f64, second: f64) -> String {
    let times = match figure.better() {
        Better::Higher => second / first,
        Better::Lower => first / second,
    };
    let word = match figure {
        Figure::Boot => "sooner",
        Figure::Rate { .. } => "as many",
        Figure::P50 { .. } | Figure::P99 { .. } => "lower",
        _ => "smaller",
    };
    format!(
        "{} times {word}",
        if times < 9.95 {
            format!("{times:.2}")
        } else {
            format!("{times:.1}")
        }
    )
}

/// The rows with aligned columns.
pub(crate) fn text(rows: &[Row], platforms: &[&str]) -> String {
    let width = |column: &dyn Fn(&Row) -> usize, head: usize| {
        rows.iter().map(column).max().unwrap_or(0).max(head)
    };
    let first = width(&|row| row.title.chars().count(), 6);
    let mut columns: Vec<usize> = Vec::new();
    for (index, platform) in platforms.iter().enumerate() {
        columns.push(width(
            &|row| row.values[index].chars().count(),
            platform.len(),
        ));
    }
    let mut out = String::new();
    let mut line = |title: &str, values: &[&str], ratio: &str| {
        out += &format!("{title:<first$}");
        for (value, width) in values.iter().zip(&columns) {
            out += &format!("  {value:>width$}");
        }
        out += &format!("  {ratio}");
        out.truncate(out.trim_end().len());
        out.push('\n');
    };
    line("median", platforms, "ratio");
    for row in rows {
        line(
            &row.title,
            &row.values.iter().map(String::as_str).collect::<Vec<_>>(),
            &row.ratio,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Figure, ratio};

    #[test]
    fn ratios_say_which_is_better() {
        let rate = Figure::Rate {
            connections: 1,
            vcpus: 1,
        };
        assert_eq!(ratio(rate, 2000.0, 3200.0), "1.60 times as many");
        assert_eq!(ratio(Figure::Boot, 2.8, 0.14), "20.0 times sooner");
        assert_eq!(ratio(Figure::KernelSize, 14.0, 28.0), "0.50 times smaller");
    }
}
