// SPDX-License-Identifier: Apache-2.0

//! One session: an instance is started, answers, rests, is loaded, and stops.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::pin::{Pins, list};
use super::plan::{Planned, Task};
use super::probe::Question;
use super::{Runner, usage};
use crate::experiment::parameters::Work;
use crate::experiment::{Ready, Service, bytes};
use crate::meter;
use crate::network::Attachment;
use crate::platform::{Instance, Order};
use crate::record::{Cell, Record, Sample, Session};
use crate::{Error, Result};

/// The workload's name of what is measured at every start.
pub(super) const START: &str = "start";
/// How often a service is started before what is left of its session is given up.
const STARTS: u32 = 3;
/// How long the start command itself may take.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a service may take to be up, unless it says so.
const READY_LIMIT_S: f64 = 60.0;
/// How long a service may take to end before it is made to.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long all of its end may take.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long a service may be silent after a failed load and still count as up.
const STILL_UP: Duration = Duration::from_secs(5);

/// An instance that was started. Parts are dropped in this order.
pub(super) struct Live {
    pub(super) instance: Box<dyn Instance>,
    pub(super) question: Question,
    /// Just before the start command.
    pub(super) since: Instant,
    /// From then to the first answer.
    pub(super) took: Duration,
    pub(super) attachment: Attachment,
    _folder: tempfile::TempDir,
}

impl Runner<'_> {
    /// One session. What fails in it is recorded; only what ends the run is an error.
    pub(super) fn session(&mut self, planned: &Planned, rounds: u32) -> Result<()> {
        self.round = format!("round {}/{rounds}", planned.round + 1);
        self.watch.check()?;
        let expected = planned.expected_s();
        if planned.is_alone() {
            for task in &planned.tasks {
                let id = self.next_id();
                self.now(planned, Some(task));
                if let Err(error) = self.alone(id, planned, task) {
                    self.failed(id, planned, Some(task), error)?;
                }
            }
            self.progress.done(expected);
            return Ok(());
        }
        let mut left: VecDeque<&Task> = planned.tasks.iter().collect();
        let mut id = 0;
        // What never came up before is tried once in each later round, not at its full price.
        let starts = if self.given_up.contains(&planned.cell) {
            1
        } else {
            STARTS
        };
        for _ in 0..starts {
            id = self.next_id();
            self.now(planned, None);
            match self.one(id, planned, &mut left) {
                Ok(true) => {
                    self.given_up.remove(&planned.cell);
                    let tasks: f64 = planned.tasks.iter().map(Task::expected_s).sum();
                    self.progress.done(expected - tasks);
                    return Ok(());
                }
                // It went down under a load: what is left needs another.
                Ok(false) => {}
                Err(error) => self.failed(id, planned, None, error)?,
            }
        }
        self.given_up.insert(planned.cell.clone());
        for task in left {
            let what = format!("not measured: the service was not up in {starts} starts");
            self.failed(id, planned, Some(task), Error::Input(what))?;
        }
        Ok(())
    }

    /// One start and the tasks that are left, which are taken out. Answers whether all are done.
    fn one(&mut self, id: u32, planned: &Planned, left: &mut VecDeque<&Task>) -> Result<bool> {
        let pins = self.world.processors.pins(planned.cell.vcpus);
        let mut live = self.start(id, planned, Some(&pins))?;
        self.look(id, planned, &mut live)?;
        while let Some(task) = left.pop_front() {
            self.now(planned, Some(task));
            let result = match &task.work {
                Work::Ramp(ramp) => self.ramp(id, planned, task, ramp, &mut live, &pins),
                Work::Endurance(endurance) => {
                    self.endurance(id, planned, task, endurance, &mut live, &pins)
                }
                _ => self.load(id, planned, task, &mut live, &pins),
            };
            self.progress.done(task.expected_s());
            if let Err(error) = result {
                let error = with_log(error, live.instance.as_mut());
                self.failed(id, planned, Some(task), error)?;
                if !live.is_up() {
                    return Ok(left.is_empty());
                }
            }
        }
        self.stop(live)?;
        Ok(true)
    }

    /// Work that makes its own instances.
    fn alone(&mut self, id: u32, planned: &Planned, task: &Task) -> Result<()> {
        match &task.work {
            Work::Storm(storm) => self.storm(id, planned, task, storm),
            Work::Density(density) => self.density(id, planned, task, density),
            Work::Smallest(smallest) => self.smallest(id, planned, task, smallest),
            Work::Batch { timeout } => self.batch(id, planned, task, *timeout),
            _ => Ok(()),
        }
    }

    /// Starts an instance and waits until it answers.
    pub(super) fn start(
        &mut self,
        id: u32,
        planned: &Planned,
        pins: Option<&Pins>,
    ) -> Result<Live> {
        let mut live = self.launch(id, planned, pins, None)?;
        let answered = self.wait_until_up(planned, &mut live, None)?;
        live.took = answered - live.since;
        Ok(live)
    }

    /// Starts an instance. A session is recorded for it if it is not one of many.
    pub(super) fn launch(
        &mut self,
        id: u32,
        planned: &Planned,
        pins: Option<&Pins>,
        many: Option<u32>,
    ) -> Result<Live> {
        let memory_bytes = self.memory_bytes(planned)?;
        self.launch_with(id, planned, pins, many, memory_bytes)
    }

    /// The memory that the experiment gives the service.
    pub(super) fn memory_bytes(&self, planned: &Planned) -> Result<u64> {
        let memory = self.experiment.services[planned.service].memory.as_ref();
        bytes(memory.unwrap_or(&self.experiment.machine.memory)).map_err(Error::Input)
    }

    /// As [`Self::launch`], with other memory.
    pub(super) fn launch_with(
        &mut self,
        id: u32,
        planned: &Planned,
        pins: Option<&Pins>,
        many: Option<u32>,
        memory_bytes: u64,
    ) -> Result<Live> {
        let cell = &planned.cell;
        let service = &self.experiment.services[planned.service];
        let name = self.next_name();
        let folder =
            tempfile::tempdir_in(self.scratch.path()).map_err(Error::file(self.scratch.path()))?;
        let platform = self
            .world
            .platforms
            .iter_mut()
            .find(|platform| platform.name() == cell.platform)
            .ok_or_else(|| Error::Host(format!("{} is not there", cell.platform)))?;
        let attachment = self.world.network.attach(platform.wanted(), service.port)?;
        let order = Order {
            service,
            vcpus: cell.vcpus,
            memory_bytes,
            pin: pins.map(|pins| pins.server.clone()),
            link: attachment.link(),
            name: &name,
            folder: folder.path().to_owned(),
        };
        let since = Instant::now();
        let instance = self
            .watch
            .phase("start", START_LIMIT, &[], |_| platform.start(&order))?;
        let question = Question {
            target: attachment.link().reach(service.port.unwrap_or(0)),
            ready: service.ready.clone(),
        };
        if many.is_none_or(|number| number == 0) {
            let session = Session {
                id,
                round: planned.round,
                cell: cell.clone(),
                at_s: (self.before + self.started.elapsed()).as_secs_f64(),
                commands: instance.commands(),
                pinned: pins.map(pinned).unwrap_or_default(),
            };
            self.writer.write(vec![Record::Session(session)])?;
        }
        Ok(Live {
            instance,
            question,
            since,
            took: Duration::ZERO,
            attachment,
            _folder: folder,
        })
    }

    /// Waits for the first answer, or, of a program that ends, for its end.
    pub(super) fn wait_until_up(
        &self,
        planned: &Planned,
        live: &mut Live,
        limit: Option<Duration>,
    ) -> Result<Instant> {
        let service = &self.experiment.services[planned.service];
        let limit = limit.unwrap_or_else(|| ready_limit(service));
        let Live {
            instance,
            question,
            since,
            ..
        } = live;
        question.first_answer(*since, limit, instance.as_mut(), self.watch)
    }

    /// What is measured at every start: the first answer, sizes, idle memory, and what the guest says of its boot.
    fn look(&mut self, id: u32, planned: &Planned, live: &mut Live) -> Result<()> {
        let mut metrics = BTreeMap::from([("first_answer_s".to_owned(), live.took.as_secs_f64())]);
        let key = (planned.cell.platform.clone(), planned.cell.service.clone());
        if let Some(prepared) = self.world.prepared.get(&key) {
            metrics.insert("image_bytes".to_owned(), number(prepared.image_bytes));
            metrics.insert(
                "image_shared_bytes".to_owned(),
                number(prepared.shared_bytes),
            );
        }
        if live.question.ready != Ready::Exit {
            self.watch.rest(self.world.settle)?;
            metrics.extend(meter::memory(&live.instance.processes()));
            metrics.extend(usage::boot(live.instance.counters()));
        }
        let line = format!("first answer after {:.3} s", live.took.as_secs_f64());
        self.say(planned, None, &line);
        let sample = Sample {
            metrics,
            ..sample(id, planned, START, BTreeMap::new())
        };
        self.samples(vec![sample])
    }

    /// Ends an instance.
    pub(super) fn stop(&mut self, live: Live) -> Result<()> {
        let Live {
            instance,
            attachment,
            ..
        } = live;
        let ended = self
            .watch
            .phase("stop", STOP_LIMIT, &[], |_| instance.stop(STOP_GRACE));
        drop(attachment);
        match ended {
            Err(error) if !error.ends_run() => {
                self.progress
                    .say(&format!("an instance did not stop in order: {error}"));
                Ok(())
            }
            ended => ended.map(drop),
        }
    }

    fn next_id(&mut self) -> u32 {
        self.next_session += 1;
        self.next_session - 1
    }

    fn next_name(&mut self) -> String {
        self.next_instance += 1;
        format!("i{}", self.next_instance)
    }

    fn now(&mut self, planned: &Planned, task: Option<&Task>) {
        let what = format!("{}: {}", self.round, place(planned, task));
        self.progress.now(&what);
    }

    pub(super) fn say(&mut self, planned: &Planned, task: Option<&Task>, figure: &str) {
        self.progress
            .say(&format!("{}: {figure}", place(planned, task)));
    }
}

impl Live {
    /// Whether it still answers.
    pub(super) fn is_up(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < STILL_UP {
            if self.instance.ended().is_some() {
                return false;
            }
            if self.question.ask(Duration::from_secs(1)).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

/// A sample without figures.
pub(super) fn sample(
    session: u32,
    planned: &Planned,
    workload: &str,
    point: BTreeMap<String, String>,
) -> Sample {
    Sample {
        session,
        round: planned.round,
        cell: planned.cell.clone(),
        workload: workload.to_owned(),
        point,
        metrics: BTreeMap::new(),
        errors: BTreeMap::new(),
        latency: None,
        series: BTreeMap::new(),
        raw: None,
        partial: false,
    }
}

/// `go on unikernel, 2 vCPUs: stress connections=40`
pub(super) fn place(planned: &Planned, task: Option<&Task>) -> String {
    let Cell {
        platform,
        service,
        vcpus,
    } = &planned.cell;
    let cpus = if *vcpus == 1 {
        String::new()
    } else {
        format!(", {vcpus} vCPUs")
    };
    let mut text = format!("{service} on {platform}{cpus}");
    if let Some(task) = task {
        text += &format!(": {task}");
    }
    text
}

/// How long a service may take to be up.
pub(super) fn ready_limit(service: &Service) -> Duration {
    Duration::from_secs_f64(service.ready_limit_s.unwrap_or(READY_LIMIT_S))
}

/// An error of a measurement, with what the instance said added.
pub(super) fn with_log(error: Error, instance: &mut dyn Instance) -> Error {
    if error.ends_run() {
        return error;
    }
    let what = error.to_string();
    let mut log = match error {
        Error::Platform { log, .. } => log,
        _ => String::new(),
    };
    log += &format!("\n--- the instance's log ---\n{}", instance.log());
    Error::Platform { what, log }
}

/// Bytes as a figure.
#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^53")]
pub(super) fn number(bytes: u64) -> f64 {
    bytes as f64
}

fn pinned(pins: &Pins) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("server".to_owned(), list(&pins.server)),
        ("generator".to_owned(), list(&pins.generator)),
    ])
}
