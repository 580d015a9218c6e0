// SPDX-License-Identifier: Apache-2.0

//! A run of an experiment: each service on each platform, round after round, in an order drawn from a recorded seed. What
//! fails is recorded and the run goes on; what is measured is in the result file before the next thing begins.

mod batch;
mod density;
mod endurance;
pub mod host;
mod image;
pub mod leftovers;
mod load;
pub mod pin;
pub mod plan;
pub mod probe;
pub mod progress;
mod ramp;
pub mod random;
mod session;
mod smallest;
mod storm;
#[cfg(test)]
mod tests;
pub mod time;
mod usage;
pub mod watch;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use self::plan::{Plan, Planned, Task};
use self::progress::Progress;
use self::watch::Watch;
use self::world::World;
use crate::experiment::{Experiment, Kind, Loaded};
use crate::record::{
    Cell, End, Failure, Record, Recorded, Resumed, Run, Sample, Selection, Writer,
};
use crate::{Error, Result};

/// How much of a log is kept, bytes.
const LOG_MAX: usize = 16 << 10;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts of the experiment.
    pub selection: Selection,
    /// The short form.
    pub quick: bool,
    /// Of all order.
    pub seed: u64,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// How a run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Measurements written, those before `--resume` not counted.
    pub samples: usize,
    /// Failures written.
    pub failures: usize,
    /// It ended before everything was measured.
    pub interrupted: bool,
}

/// Runs an experiment from the begin, with its result in `folder`.
///
/// # Errors
/// When it cannot begin, or the result cannot be written any more. Failures of what is measured are none.
pub fn run(
    loaded: &Loaded,
    options: &Options,
    base: &Path,
    world: &mut World,
    folder: &Path,
    watch: &Watch,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let plan = plan::plan(
        &loaded.experiment,
        &options.selection,
        options.quick,
        options.seed,
    )?;
    let description = world.describe(&loaded.experiment, options.quick);
    let run = Run {
        schema: crate::record::SCHEMA,
        experiment: loaded.name.clone(),
        text: loaded.text.clone(),
        quick: options.quick,
        selection: options.selection.clone(),
        seed: options.seed,
        started: time::rfc3339(SystemTime::now()),
        command: options.command.clone(),
        commit: host::commit(base),
        host: description.host,
        tools: description.tools,
        platforms: description.platforms,
        images: description.images,
        remarks: description.remarks,
    };
    let writer = Writer::create(folder, run)?;
    let runner = Runner::new(loaded, options.seed, world, writer, watch, progress)?;
    runner.run(&plan, &BTreeSet::new())
}

/// Goes on with a result: measures what is missing. The experiment is the one recorded in it.
///
/// # Errors
/// As [`run`]; and when an image has changed since.
pub fn resume(
    recorded: &Recorded,
    loaded: &Loaded,
    command: Vec<String>,
    base: &Path,
    world: &mut World,
    watch: &Watch,
    progress: &mut dyn Progress,
) -> Result<Outcome> {
    let run = &recorded.run;
    let plan = plan::plan(&loaded.experiment, &run.selection, run.quick, run.seed)?;
    let description = world.describe(&loaded.experiment, run.quick);
    for (service, image) in &run.images {
        let now = description.images.get(service);
        if let Some(now) = now.filter(|now| now.digest != image.digest) {
            return Err(Error::Input(format!(
                "{}: the image of {service} has changed since ({} then, {} now); begin a new run",
                recorded.folder.display(),
                image.digest,
                now.digest
            )));
        }
    }
    let commit = host::commit(base);
    let mut remarks = Vec::new();
    if commit != run.commit {
        let name = |commit: &Option<String>| commit.clone().unwrap_or_else(|| "unknown".to_owned());
        remarks.push(format!(
            "went on at another commit: {} before, {} now",
            name(&run.commit),
            name(&commit)
        ));
    }
    for platform in &run.platforms {
        let now = description
            .platforms
            .iter()
            .find(|now| now.name == platform.name);
        if let Some(now) = now.filter(|now| now.about != platform.about) {
            remarks.push(format!(
                "{} is not the same as before: {:?}",
                now.name, now.about
            ));
        }
    }
    let (recorded, mut writer) = Writer::resume(&recorded.folder)?;
    writer.write(vec![Record::Resumed(Resumed {
        at: time::rfc3339(SystemTime::now()),
        command,
        commit,
        remarks,
    })])?;
    let mut runner = Runner::new(loaded, run.seed, world, writer, watch, progress)?;
    runner.next_session = recorded
        .sessions
        .iter()
        .map(|one| one.id + 1)
        .max()
        .unwrap_or(0);
    // A run that was killed has no end.
    let last = recorded
        .sessions
        .iter()
        .map(|one| one.at_s)
        .fold(0.0, f64::max);
    let before = recorded.end.as_ref().map_or(last, |end| end.took_s);
    runner.before = Duration::try_from_secs_f64(before).unwrap_or_default();
    runner.run(&plan, &done(&recorded, &loaded.experiment))
}

/// A measurement that is there: round, cell, workload, point.
type Key = (u32, Cell, String, Vec<(String, String)>);

/// Everything that need not be measured again: whole measurements, and what failed.
fn done(recorded: &Recorded, experiment: &Experiment) -> BTreeSet<Key> {
    let point = |point: &BTreeMap<String, String>| -> Vec<(String, String)> {
        point
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let kind = |name: &str| {
        let workload = experiment.workloads.iter().find(|one| one.name == name);
        workload.map(|workload| workload.kind)
    };
    // The steps of a ramp and the restarts of a storm come before the sample that closes them.
    let is_whole = |sample: &&Sample| {
        !sample.partial
            && match kind(&sample.workload) {
                Some(Kind::Ramp) => sample.metrics.contains_key(ramp::CLOSES),
                Some(Kind::BootStorm) => sample.metrics.contains_key(storm::CLOSES),
                _ => true,
            }
    };
    let samples = recorded.samples.iter().filter(is_whole);
    let samples = samples.map(|sample| {
        (
            sample.round,
            sample.cell.clone(),
            sample.workload.clone(),
            point(&sample.point),
        )
    });
    let failures = recorded.failures.iter().filter_map(|failure| {
        let workload = failure.workload.clone()?;
        Some((
            failure.round,
            failure.cell.clone(),
            workload,
            point(&failure.point),
        ))
    });
    samples.chain(failures).collect()
}

/// Whether a task is done. Tools with several rows add labels of their own to the task's.
fn is_done(done: &BTreeSet<Key>, planned: &Planned, task: &Task) -> bool {
    done.iter().any(|(round, cell, workload, point)| {
        let has =
            |(name, value): (&String, &String)| point.contains(&(name.clone(), value.clone()));
        *round == planned.round
            && *cell == planned.cell
            && *workload == task.name
            && task.label.iter().all(has)
    })
}

/// A run that goes.
pub(crate) struct Runner<'a> {
    experiment: &'a Experiment,
    /// The experiment's folder.
    folder: &'a Path,
    world: &'a mut World,
    writer: Writer,
    watch: &'a Watch,
    progress: &'a mut dyn Progress,
    /// For files of instances.
    scratch: tempfile::TempDir,
    started: Instant,
    /// What the run took before it was resumed.
    before: Duration,
    next_session: u32,
    /// Counts instances, for names.
    next_instance: u32,
    /// "round 1/10"
    round: String,
    name: &'a str,
    seed: u64,
    /// What did not come up in all its starts of a session.
    given_up: BTreeSet<Cell>,
    outcome: Outcome,
}

impl<'a> Runner<'a> {
    fn new(
        loaded: &'a Loaded,
        seed: u64,
        world: &'a mut World,
        writer: Writer,
        watch: &'a Watch,
        progress: &'a mut dyn Progress,
    ) -> Result<Runner<'a>> {
        Ok(Runner {
            experiment: &loaded.experiment,
            folder: &loaded.folder,
            world,
            writer,
            watch,
            progress,
            scratch: leftovers::scratch()?,
            started: Instant::now(),
            before: Duration::ZERO,
            next_session: 0,
            next_instance: 0,
            round: String::new(),
            name: &loaded.name,
            seed,
            given_up: BTreeSet::new(),
            outcome: Outcome::default(),
        })
    }

    /// All sessions that are not done; then the end.
    fn run(mut self, plan: &Plan, done: &BTreeSet<Key>) -> Result<Outcome> {
        let mut left = left(plan, done);
        // A platform that this host lacks was left out with a remark.
        left.retain(|planned| {
            let has = |name: &String| self.world.platforms.iter().any(|one| one.name() == name);
            has(&planned.cell.platform)
        });
        let seconds = left.iter().map(Planned::expected_s).sum();
        self.progress.begin(self.name, seconds);
        let result = left
            .iter()
            .try_for_each(|planned| self.session(planned, plan.rounds));
        self.outcome.interrupted = match result {
            Ok(()) => false,
            Err(Error::Interrupted) => true,
            Err(error) => return Err(error),
        };
        for name in leftovers::kill_own() {
            self.progress
                .say(&format!("{name} was still running and was killed"));
        }
        let end = End {
            took_s: (self.before + self.started.elapsed()).as_secs_f64(),
            interrupted: self.outcome.interrupted,
        };
        self.writer.write(vec![Record::End(end)])?;
        Ok(self.outcome)
    }

    /// Writes measurements.
    fn samples(&mut self, samples: Vec<Sample>) -> Result<()> {
        self.outcome.samples += samples.len();
        self.writer
            .write(samples.into_iter().map(Record::Sample).collect())
    }

    /// Writes down what failed, unless it ends the run, and goes on.
    fn failed(
        &mut self,
        session: u32,
        planned: &Planned,
        task: Option<&Task>,
        error: Error,
    ) -> Result<()> {
        if error.ends_run() {
            return Err(error);
        }
        let what = error.to_string().trim().replace('\n', "; ");
        let log = match error {
            Error::Platform { log, .. } => tail(&log),
            _ => String::new(),
        };
        let place = session::place(planned, task);
        self.progress.say(&format!("FAILED {place}: {what}"));
        self.outcome.failures += 1;
        self.writer.write(vec![Record::Failure(Failure {
            session,
            round: planned.round,
            cell: planned.cell.clone(),
            workload: task.map(|task| task.name.clone()),
            point: task.map(|task| task.label.clone()).unwrap_or_default(),
            what,
            log,
        })])
    }
}

/// Sessions with something left to measure, and only that in them.
fn left(plan: &Plan, done: &BTreeSet<Key>) -> Vec<Planned> {
    plan.sessions
        .iter()
        .filter_map(|planned| {
            let mut planned = planned.clone();
            let had_tasks = !planned.tasks.is_empty();
            let tasks = std::mem::take(&mut planned.tasks);
            planned.tasks = tasks
                .into_iter()
                .filter(|task| !is_done(done, &planned, task))
                .collect();
            let start = (
                planned.round,
                planned.cell.clone(),
                session::START.to_owned(),
                Vec::new(),
            );
            let is_over = planned.tasks.is_empty() && (had_tasks || done.contains(&start));
            (!is_over).then_some(planned)
        })
        .collect()
}

/// The end of a log.
fn tail(log: &str) -> String {
    let mut begin = log.len().saturating_sub(LOG_MAX);
    while !log.is_char_boundary(begin) {
        begin += 1;
    }
    log[begin..].to_owned()
}
