// SPDX-License-Identifier: Apache-2.0

//! Results that were never measured, with known figures in them, to test reports on.

pub(crate) mod kinds;
pub(crate) mod stress;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use coracle_lab::record::{
    Cell, End, Failure, ImageFacts, PlatformFacts, Record, Run, SCHEMA, Sample, Session,
};
use coracle_lab::statistics::Random;
use hdrhistogram::Histogram;

/// A result in the making.
pub(crate) struct Synthetic {
    records: Vec<Record>,
    random: Random,
    sessions: u32,
}

/// The substrate of virtual machines here.
pub(crate) const VM: &str = "qemu 10.0, microvm, tcg";

impl Synthetic {
    /// A run of `experiment` on `platforms`, each with its substrate.
    pub(crate) fn new(experiment: &str, text: &str, platforms: &[(&str, &str)]) -> Synthetic {
        let facts = |(name, substrate): &(&str, &str)| PlatformFacts {
            name: (*name).to_owned(),
            substrate: (*substrate).to_owned(),
            about: BTreeMap::from([("version".to_owned(), "1.0".to_owned())]),
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let run = Run {
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            text: text.to_owned(),
            quick: false,
            selection: coracle_lab::record::Selection::default(),
            seed: 42,
            started: "2026-11-21T00:00:00Z".to_owned(),
            command: ["coracle", "lab", "run", experiment]
                .map(str::to_owned)
                .to_vec(),
            commit: Some("0123abc".to_owned()),
            host: BTreeMap::from([
                pair("cpu", "Example CPU 3000, 2 processors"),
                pair("kernel", "6.12.0"),
                pair("accelerator", "software emulation"),
            ]),
            tools: BTreeMap::from([pair("wrk", "4.2.0"), pair("qemu", "10.0.0")]),
            platforms: platforms.iter().map(facts).collect(),
            images: BTreeMap::from([(
                "go".to_owned(),
                ImageFacts {
                    reference: "build/images/todo-go.tar".to_owned(),
                    digest: "sha256:00ff".to_owned(),
                },
            )]),
            remarks: vec!["load generator and server share processors".to_owned()],
        };
        Synthetic {
            records: vec![Record::Run(Box::new(run))],
            random: Random::new(7),
            sessions: 0,
        }
    }

    /// A start.
    pub(crate) fn session(
        &mut self,
        platform: &str,
        service: &str,
        vcpus: u32,
        round: u32,
    ) -> Here<'_> {
        let id = self.sessions;
        self.sessions += 1;
        let cell = Cell {
            platform: platform.to_owned(),
            service: service.to_owned(),
            vcpus,
        };
        self.records.push(Record::Session(Session {
            id,
            round,
            cell: cell.clone(),
            at_s: f64::from(id) * 10.0,
            commands: vec![format!("start --{platform} {service}")],
            pinned: BTreeMap::from([
                ("server".to_owned(), "0".to_owned()),
                ("generator".to_owned(), "1".to_owned()),
            ]),
        }));
        Here {
            result: self,
            id,
            round,
            cell,
        }
    }

    /// A value around `middle`, a share of `noise` up and down.
    pub(crate) fn around(&mut self, middle: f64, noise: f64) -> f64 {
        middle * (1.0 + noise * (2.0 * self.random.unit() - 1.0))
    }

    /// Response times around `middle_ms` with a long tail.
    pub(crate) fn latency(&mut self, middle_ms: f64, count: u32) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for _ in 0..count {
            let unit = self.random.unit();
            let value = middle_ms * (0.6 + 0.5 * unit + 0.02 / (1.0002 - unit));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            histogram.record((value * 1e6) as u64).unwrap();
        }
        histogram
    }

    /// Ends the run.
    pub(crate) fn end(&mut self, interrupted: bool) {
        self.records.push(Record::End(End {
            took_s: 754.0,
            interrupted,
        }));
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for record in &self.records {
            let _ = writeln!(out, "{}", serde_json::to_string(record).unwrap());
        }
        out
    }

    /// Writes the file into `folder`.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("result.jsonl"), self.text()).unwrap();
    }
}

/// A start, to which samples are added.
pub(crate) struct Here<'a> {
    pub(crate) result: &'a mut Synthetic,
    id: u32,
    round: u32,
    cell: Cell,
}

impl Here<'_> {
    /// A sample without more than metrics.
    pub(crate) fn sample(
        &mut self,
        workload: &str,
        point: &[(&str, &str)],
        metrics: &[(&str, f64)],
    ) -> &mut Sample {
        let pairs = |list: &[(&str, &str)]| {
            list.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        self.result.records.push(Record::Sample(Sample {
            session: self.id,
            round: self.round,
            cell: self.cell.clone(),
            workload: workload.to_owned(),
            point: pairs(point),
            metrics: metrics
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            errors: BTreeMap::new(),
            latency: None,
            series: BTreeMap::new(),
            raw: Some(format!("raw/{}-{workload}.txt", self.id)),
            partial: false,
        }));
        match self.result.records.last_mut() {
            Some(Record::Sample(sample)) => sample,
            _ => unreachable!("a sample was just added"),
        }
    }

    /// A failure.
    pub(crate) fn failure(&mut self, workload: Option<&str>, what: &str, log: &str) {
        self.result.records.push(Record::Failure(Failure {
            session: self.id,
            round: self.round,
            cell: self.cell.clone(),
            workload: workload.map(str::to_owned),
            point: BTreeMap::new(),
            what: what.to_owned(),
            log: log.to_owned(),
        }));
    }
}
