// SPDX-License-Identifier: Apache-2.0

//! The figures of a result: medians with intervals, ratios within a substrate, and what the study published beside them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::{sweeps, words};
use crate::experiment::{Experiment, Kind, Published};
use crate::metric::METRICS;
use crate::record::{Cell, Recorded};
use crate::statistics::{Estimate, Ratio, Rounds, estimate, ratio};

/// The point of a workload's matrix.
pub(super) type Point = BTreeMap<String, String>;

/// What a figure is of, on whatever platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) workload: String,
    pub(super) service: String,
    pub(super) vcpus: u32,
    pub(super) point: Point,
    pub(super) metric: String,
}

/// One platform's figure.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) estimate: Option<Estimate>,
    /// Starts or measurements that failed.
    pub(super) failures: usize,
    pub(super) published: Vec<Published>,
    /// Against the group's baseline.
    pub(super) ratio: Option<Ratio>,
}

/// A figure on all platforms of a group.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    /// As [`Group::platforms`].
    pub(super) cells: Vec<Measured>,
}

/// Platforms that can be compared: they share the substrate.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) substrate: String,
    pub(super) platforms: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Group {
    /// The platform the others are compared with; none if it is alone.
    pub(super) fn baseline(&self) -> Option<&str> {
        (self.platforms.len() > 1).then(|| self.platforms[0].as_str())
    }
}

/// The figures of one result.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) loaded: &'a Recorded,
    /// The experiment as it was, if this lab can read it.
    pub(super) experiment: Option<Experiment>,
    figures: BTreeMap<Key, BTreeMap<String, Rounds>>,
    /// The main group first.
    pub(super) groups: Vec<Group>,
    /// The workloads that were measured, in order.
    pub(super) workloads: Vec<String>,
    /// How many services were measured.
    pub(super) services: usize,
    /// How many numbers of processors were measured.
    pub(super) sizes: usize,
    /// What a reader must know about the result file.
    pub(super) remarks: Vec<String>,
}

impl<'a> Model<'a> {
    /// All figures of a result.
    pub(super) fn new(loaded: &'a Recorded) -> Model<'a> {
        let mut model = Model {
            loaded,
            experiment: toml::from_str(&loaded.run.text).ok(),
            figures: BTreeMap::new(),
            groups: Vec::new(),
            workloads: Vec::new(),
            services: 0,
            sizes: 0,
            remarks: Vec::new(),
        };
        model.note_gaps();
        let mut refused = 0;
        for sample in loaded.samples.iter().filter(|sample| !sample.partial) {
            for (metric, value) in &sample.metrics {
                let key = Key {
                    workload: sample.workload.clone(),
                    service: sample.cell.service.clone(),
                    vcpus: sample.cell.vcpus,
                    point: sample.point.clone(),
                    metric: metric.clone(),
                };
                let rounds = model.figures.entry(key).or_default();
                let rounds = rounds.entry(sample.cell.platform.clone()).or_default();
                refused += usize::from(!rounds.add(sample.round, *value));
            }
        }
        if refused > 0 {
            model.remarks.push(format!(
                "{refused} values are not finite numbers and left out"
            ));
        }
        let cut = loaded
            .samples
            .iter()
            .filter(|sample| sample.partial)
            .count();
        if cut > 0 {
            model.remarks.push(format!(
                "{cut} measurement{} cut short by an interruption: in the raw data, not in the figures",
                if cut == 1 { " was" } else { "s were" }
            ));
        }
        let keys = || model.figures.keys();
        model.services = keys()
            .map(|key| &key.service)
            .collect::<BTreeSet<_>>()
            .len();
        model.sizes = keys().map(|key| key.vcpus).collect::<BTreeSet<_>>().len();
        model.workloads = model.order_of_workloads();
        model.groups = model.group();
        model
    }

    /// Remarks on what is missing in the file.
    fn note_gaps(&mut self) {
        let loaded = self.loaded;
        if loaded.torn {
            self.remarks.push(
                "the last line of the result file is torn (a killed run, a full disk) and left out"
                    .to_owned(),
            );
        }
        match &loaded.end {
            None => self.remarks.push(
                "the run has no end: it was killed or still goes on; what it measured so far is here".to_owned(),
            ),
            Some(end) if end.interrupted => self.remarks.push(
                "the run was interrupted before everything was measured; `coracle lab run --resume` goes on".to_owned(),
            ),
            Some(_) => {}
        }
        if self.experiment.is_none() {
            self.remarks.push(
                "this lab cannot read the experiment in the result, so there are no verdicts and no published figures"
                    .to_owned(),
            );
        }
    }

    /// Whether only sizes on disk: no run differs from another.
    pub(super) fn is_exact(metric: &str) -> bool {
        matches!(metric, "image_bytes" | "image_shared_bytes")
    }

    /// The samples of a figure on a platform.
    pub(super) fn rounds(&self, key: &Key, platform: &str) -> Option<&Rounds> {
        self.figures.get(key)?.get(platform)
    }

    /// The median on a platform with its interval.
    pub(super) fn estimate(&self, key: &Key, platform: &str) -> Option<Estimate> {
        estimate(self.rounds(key, platform)?, self.loaded.run.seed)
    }

    /// The median by that of another platform with its interval.
    pub(super) fn ratio(&self, key: &Key, of: &str, by: &str) -> Option<Ratio> {
        ratio(
            self.rounds(key, of)?,
            self.rounds(key, by)?,
            true,
            self.loaded.run.seed,
        )
    }

    /// What platforms must share, as the run wrote it.
    pub(super) fn substrate(&self, platform: &str) -> &str {
        self.loaded
            .run
            .platforms
            .iter()
            .find(|facts| facts.name == platform)
            .map_or("not recorded", |facts| facts.substrate.as_str())
    }

    /// The kind of a workload; "start" is what every start measures.
    pub(super) fn kind(&self, workload: &str) -> Kind {
        let known = self
            .experiment
            .iter()
            .flat_map(|experiment| &experiment.workloads);
        known
            .filter(|known| known.name == workload)
            .map(|known| known.kind)
            .next()
            .unwrap_or(if workload == "start" {
                Kind::Start
            } else {
                Kind::Load
            })
    }

    /// Platforms in the experiment's order, then others in the order of the run.
    pub(super) fn platforms(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let asked = self
            .experiment
            .iter()
            .flat_map(|experiment| experiment.platforms.clone());
        let ran = self
            .loaded
            .run
            .platforms
            .iter()
            .map(|facts| facts.name.clone());
        let seen: BTreeSet<String> = self
            .loaded
            .samples
            .iter()
            .map(|sample| &sample.cell)
            .chain(self.loaded.failures.iter().map(|failure| &failure.cell))
            .map(|cell| cell.platform.clone())
            .collect();
        for name in asked.chain(ran).chain(seen.iter().cloned()) {
            if seen.contains(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn order_of_workloads(&self) -> Vec<String> {
        let mut names = vec!["start".to_owned()];
        let asked = self
            .experiment
            .iter()
            .flat_map(|experiment| &experiment.workloads);
        names.extend(asked.map(|workload| workload.name.clone()));
        names.extend(
            self.loaded
                .samples
                .iter()
                .map(|sample| sample.workload.clone()),
        );
        let mut seen = BTreeSet::new();
        names.retain(|name| {
            seen.insert(name.clone()) && self.figures.keys().any(|key| key.workload == *name)
        });
        names
    }

    fn group(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for platform in self.platforms() {
            let substrate = self.substrate(&platform).to_owned();
            match groups.iter_mut().find(|group| group.substrate == substrate) {
                Some(group) => group.platforms.push(platform),
                None => groups.push(Group {
                    substrate,
                    platforms: vec![platform],
                    rows: Vec::new(),
                }),
            }
        }
        // What the experiment decides, and else the unikernel, is the main matter.
        let judged = |group: &Group| {
            let verdicts = self
                .experiment
                .iter()
                .flat_map(|experiment| &experiment.verdicts);
            let named = verdicts
                .filter(|verdict| group.platforms.contains(&verdict.platform))
                .count();
            (
                named,
                group.platforms.iter().any(|name| name == "unikernel"),
                group.platforms.len(),
            )
        };
        groups.sort_by_key(|group| std::cmp::Reverse(judged(group)));
        let mut keys = self.ordered_keys();
        // A size on disk does not hang on the processors: once for each service is enough.
        let mut sized = BTreeSet::new();
        keys.retain(|key| {
            !Model::is_exact(&key.metric)
                || sized.insert((key.service.clone(), key.point.clone(), key.metric.clone()))
        });
        for group in &mut groups {
            group.rows = keys
                .iter()
                .map(|key| self.row(key, &group.platforms))
                .filter(|row| row.cells.iter().any(|cell| cell.estimate.is_some()))
                .collect();
        }
        groups
    }

    fn row(&self, key: &Key, platforms: &[String]) -> Row {
        let cell = |platform: &String| {
            let baseline = platforms.first().filter(|first| *first != platform);
            Measured {
                estimate: self.estimate(key, platform),
                failures: self.failures(key, platform),
                published: self.published(key, platform),
                ratio: baseline.and_then(|first| self.ratio(key, platform, first)),
            }
        };
        Row {
            key: key.clone(),
            cells: platforms.iter().map(cell).collect(),
        }
    }

    /// How many starts or measurements of it failed.
    pub(super) fn failures(&self, key: &Key, platform: &str) -> usize {
        let cell = Cell {
            platform: platform.to_owned(),
            service: key.service.clone(),
            vcpus: key.vcpus,
        };
        let hit = |failure: &&crate::record::Failure| {
            failure.cell == cell
                && match &failure.workload {
                    None => true,
                    Some(workload) => {
                        *workload == key.workload && is_within(&failure.point, &key.point)
                    }
                }
        };
        self.loaded.failures.iter().filter(hit).count()
    }

    /// Errors of all rounds together, a line for each platform, workload and point that has some.
    pub(super) fn errors_by_kind(&self) -> Vec<String> {
        let mut found: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
        for sample in &self.loaded.samples {
            for (kind, count) in sample.errors.iter().filter(|(_, count)| **count > 0) {
                let mut place = vec![
                    sample.cell.platform.clone(),
                    sample.cell.service.clone(),
                    words::vcpus(sample.cell.vcpus),
                    sample.workload.clone(),
                ];
                if !sample.point.is_empty() {
                    place.push(words::point(&sample.point));
                }
                *found
                    .entry(place.join(", "))
                    .or_default()
                    .entry(kind)
                    .or_default() += count;
            }
        }
        let line = |(place, kinds): (String, BTreeMap<&str, u64>)| {
            let kinds: Vec<String> = kinds
                .into_iter()
                .map(|(kind, count)| format!("{} {kind}", words::number_of(count)))
                .collect();
            format!("{place}: {}", kinds.join(", "))
        };
        found.into_iter().map(line).collect()
    }

    /// The study's figures for this one. A published point names what matters; what it leaves out fits all.
    pub(super) fn published(&self, key: &Key, platform: &str) -> Vec<Published> {
        let all = self
            .experiment
            .iter()
            .flat_map(|experiment| &experiment.published);
        all.filter(|published| {
            published.platform == platform
                && published.workload == key.workload
                && published.metric == key.metric
                && published
                    .service
                    .as_ref()
                    .is_none_or(|service| *service == key.service)
                && published.vcpus.is_none_or(|vcpus| vcpus == key.vcpus)
                && is_within(&published.point, &key.point)
        })
        .cloned()
        .collect()
    }

    fn ordered_keys(&self) -> Vec<Key> {
        let services: Vec<&str> = self
            .experiment
            .iter()
            .flat_map(|experiment| &experiment.services)
            .map(|service| service.name.as_str())
            .collect();
        // Texts stand in the order of the experiment's lists; what a tool adds, in the order of its rows.
        let workloads = self
            .experiment
            .iter()
            .flat_map(|experiment| &experiment.workloads);
        let lists =
            workloads.flat_map(|workload| workload.with.values().chain(workload.quick.values()));
        let listed = lists
            .filter_map(toml::Value::as_array)
            .flatten()
            .filter_map(toml::Value::as_str);
        let seen = self
            .loaded
            .samples
            .iter()
            .flat_map(|sample| sample.point.values())
            .map(String::as_str);
        let mut texts: Vec<&str> = Vec::new();
        for value in listed.chain(seen) {
            if sweeps::number(value).is_none() && !texts.contains(&value) {
                texts.push(value);
            }
        }
        let at = |list: &[&str], name: &str| {
            list.iter()
                .position(|known| *known == name)
                .unwrap_or(usize::MAX)
        };
        let workload = |key: &Key| self.workloads.iter().position(|name| *name == key.workload);
        let mut keys: Vec<Key> = self.figures.keys().cloned().collect();
        keys.sort_by(|a, b| {
            workload(a)
                .cmp(&workload(b))
                .then_with(|| at(&services, &a.service).cmp(&at(&services, &b.service)))
                .then_with(|| a.service.cmp(&b.service))
                .then_with(|| a.vcpus.cmp(&b.vcpus))
                .then_with(|| by_point(&a.point, &b.point, |value| at(&texts, value)))
                .then_with(|| rank(&a.metric).cmp(&rank(&b.metric)))
                .then_with(|| a.metric.cmp(&b.metric))
        });
        keys
    }
}

/// Numbers by size, texts by `place`.
fn by_point(a: &Point, b: &Point, place: impl Fn(&str) -> usize) -> Ordering {
    let mut order = Ordering::Equal;
    for ((name, left), (other, right)) in a.iter().zip(b) {
        order = order.then_with(|| name.cmp(other));
        order = order.then_with(|| match (sweeps::number(left), sweeps::number(right)) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => place(left).cmp(&place(right)).then_with(|| left.cmp(right)),
        });
    }
    order.then_with(|| a.len().cmp(&b.len()))
}

/// The place of a metric in reports: that of the list, and own ones after it.
fn rank(metric: &str) -> usize {
    METRICS
        .iter()
        .position(|known| known.name == metric)
        .unwrap_or(METRICS.len())
}

fn is_within(part: &Point, whole: &Point) -> bool {
    part.iter()
        .all(|(name, value)| whole.get(name) == Some(value))
}

/// Whether a row stands in the short tables and plots: what decides, what was published, and the usual first questions.
pub(super) fn is_main(model: &Model<'_>, row: &Row) -> bool {
    let errors = row.key.metric == "errors"
        && row
            .cells
            .iter()
            .any(|cell| cell.estimate.is_some_and(|found| found.high > 0.0));
    errors
        || is_main_key(model, &row.key)
        || row.cells.iter().any(|cell| !cell.published.is_empty())
}

/// As [`is_main`], as far as it does not hang on what was measured.
pub(super) fn is_main_key(model: &Model<'_>, key: &Key) -> bool {
    const USUAL: [&str; 11] = [
        "first_answer_s",
        "smallest_memory_bytes",
        "throughput_per_s",
        "bandwidth_mbit_s",
        "latency_p50_ms",
        "latency_p99_ms",
        "image_bytes",
        "cpu_us_per_request",
        "sustained_per_s",
        "restart_ms",
        "running_instances",
    ];
    let metric = key.metric.as_str();
    let mut verdicts = model
        .experiment
        .iter()
        .flat_map(|experiment| &experiment.verdicts);
    // What a tool counts beside its requests is context; programs that measure count nothing else.
    let is_own = crate::metric::find(metric).is_none()
        && !metric.starts_with("boot_")
        && !matches!(
            model.kind(&key.workload),
            Kind::Load | Kind::Ramp | Kind::Endurance
        );
    // Where requests are counted, their bytes are context.
    let counts_requests = || {
        let same =
            |known: &&Key| known.workload == key.workload && known.metric == "throughput_per_s";
        model.figures.keys().any(|known| same(&known))
    };
    (USUAL.contains(&metric) && !(metric == "bandwidth_mbit_s" && counts_requests()))
        // Memory is asked for once, in the idle service; under load it is context.
        || (metric == "memory_resident_bytes" && key.workload == "start")
        || is_own
        || verdicts.any(|verdict| verdict.metric == metric && verdict.workload == key.workload)
}
