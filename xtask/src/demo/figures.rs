// SPDX-License-Identifier: Apache-2.0

//! What is measured, and the samples of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A figure of the comparison; the order is that of reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Figure {
    /// From the start of the command to the end of the first answer, seconds.
    Boot,
    /// Requests a second over that many connections on that many vCPUs.
    Rate { vcpus: u32, connections: u32 },
    /// Median latency, milliseconds, one vCPU.
    P50 { connections: u32 },
    /// 99th percentile of the latency, milliseconds, one vCPU.
    P99 { connections: u32 },
    /// `VmHWM` of the VMM process after the load, MB.
    PeakMemory,
    /// The smallest guest that boots and answers 100 requests, MiB.
    SmallestMemory,
    /// Kernel, root file system and program as handed to the VMM, MB.
    ImageSize,
    /// The kernel's file alone, MB.
    KernelSize,
}

/// Which direction is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

impl Figure {
    /// A name for machines.
    pub(crate) fn key(self) -> String {
        match self {
            Figure::Boot => "boot_s".to_owned(),
            Figure::Rate { connections, vcpus } => {
                format!("requests_per_s_c{connections}_v{vcpus}")
            }
            Figure::P50 { connections } => format!("p50_ms_c{connections}"),
            Figure::P99 { connections } => format!("p99_ms_c{connections}"),
            Figure::PeakMemory => "vmm_peak_mb".to_owned(),
            Figure::SmallestMemory => "smallest_memory_mib".to_owned(),
            Figure::ImageSize => "image_mb".to_owned(),
            Figure::KernelSize => "kernel_mb".to_owned(),
        }
    }

    /// A name for readers.
    pub(crate) fn title(self) -> String {
        let over = |connections: u32| {
            if connections == 1 {
                "1 connection".to_owned()
            } else {
                format!("{connections} connections")
            }
        };
        match self {
            Figure::Boot => "boot to first HTTP answer".to_owned(),
            Figure::Rate {
                connections,
                vcpus: 1,
            } => format!("requests/s, {}", over(connections)),
            Figure::Rate { connections, vcpus } => {
                format!("requests/s, {}, {vcpus} vCPUs", over(connections))
            }
            Figure::P50 { connections } => format!("p50 latency, {}", over(connections)),
            Figure::P99 { connections } => format!("p99 latency, {}", over(connections)),
            Figure::PeakMemory => "peak memory of the VMM".to_owned(),
            Figure::SmallestMemory => "smallest memory that serves".to_owned(),
            Figure::ImageSize => "image size, all that boots".to_owned(),
            Figure::KernelSize => "kernel file".to_owned(),
        }
    }

    pub(crate) fn better(self) -> Better {
        match self {
            Figure::Rate { .. } => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// A value with its unit, with as many digits as the measurement deserves.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Figure::Boot if value < 1.0 => format!("{:.0} ms", value * 1e3),
            Figure::Boot => format!("{value:.2} s"),
            Figure::Rate { .. } => thousands(value),
            Figure::P50 { .. } | Figure::P99 { .. } if value < 10.0 => format!("{value:.2} ms"),
            Figure::P50 { .. } | Figure::P99 { .. } => format!("{value:.1} ms"),
            Figure::PeakMemory => format!("{value:.0} MB"),
            Figure::SmallestMemory => format!("{value:.0} MiB"),
            Figure::ImageSize => format!("{value:.1} MB"),
            Figure::KernelSize => format!("{value:.2} MB"),
        }
    }
}

/// A rounded number with a thin gap between thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// One measured value.
struct Sample {
    platform: &'static str,
    figure: Figure,
    value: f64,
}

/// All measured values, also written to a file of JSON lines as they come.
pub(crate) struct Samples {
    samples: Vec<Sample>,
    problems: Vec<String>,
    file: File,
}

impl Samples {
    /// Starts the file with a line that says what was measured how.
    pub(crate) fn create(path: &Path, about: &Value) -> Result<Samples> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut samples = Samples {
            samples: Vec::new(),
            problems: Vec::new(),
            file,
        };
        samples.write(&json!({ "about": about }))?;
        Ok(samples)
    }

    /// Records a value; `context` is kept in the file.
    pub(crate) fn add(
        &mut self,
        platform: &'static str,
        figure: Figure,
        value: f64,
        context: &Value,
    ) -> Result<()> {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        self.samples.push(Sample {
            platform,
            figure,
            value,
        });
        self.write(&json!({
            "time": time, "platform": platform, "figure": figure.key(), "value": value, "context": context,
        }))
    }

    /// Keeps an observation in the file that is no figure of the comparison.
    pub(crate) fn note(&mut self, platform: &'static str, what: &Value) -> Result<()> {
        self.write(&json!({ "platform": platform, "note": what }))
    }

    /// Records what went wrong, such as requests without an answer.
    pub(crate) fn add_problem(&mut self, platform: &'static str, what: &str) -> Result<()> {
        let text = format!("{platform}: {what}");
        self.write(&json!({ "platform": platform, "problem": what }))?;
        self.problems.push(text);
        Ok(())
    }

    /// All that went wrong, a line each.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    fn write(&mut self, line: &Value) -> Result<()> {
        writeln!(self.file, "{line}").context("write the samples")
    }

    /// The values of a figure on a platform, in the order they were measured.
    pub(crate) fn of(&self, platform: &str, figure: Figure) -> Vec<f64> {
        let wanted = |sample: &&Sample| sample.platform == platform && sample.figure == figure;
        self.samples
            .iter()
            .filter(wanted)
            .map(|sample| sample.value)
            .collect()
    }

    /// The median of a figure on a platform.
    pub(crate) fn median(&self, platform: &str, figure: Figure) -> Option<f64> {
        median(&self.of(platform, figure))
    }

    /// The figures that were measured, in order.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let figures: BTreeSet<Figure> = self.samples.iter().map(|sample| sample.figure).collect();
        figures.into_iter().collect()
    }
}

/// The median; of an even number of values, the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, median};

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn values_read_well() {
        assert_eq!(Figure::Boot.format(0.1402), "140 ms");
        assert_eq!(Figure::Boot.format(1.552), "1.55 s");
        assert_eq!(
            Figure::Rate {
                connections: 1,
                vcpus: 1
            }
            .format(12345.6),
            "12 346"
        );
        assert_eq!(
            Figure::Rate {
                connections: 1,
                vcpus: 1
            }
            .format(999.4),
            "999"
        );
    }
}
