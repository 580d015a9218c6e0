// SPDX-License-Identifier: Apache-2.0

//! What is measured, in which order. The platforms take turns, round after round, so that whatever drifts on the host meets
//! all of them; who comes first is drawn from the seed.

use std::collections::BTreeMap;

use super::random::Random;
use crate::experiment::parameters::{Work, understand};
use crate::experiment::{Experiment, Kind, number, split, unknown};
use crate::load::Point;
use crate::record::{Cell, Selection};
use crate::{Error, Result};

/// All sessions of a run, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of the platforms that take part.
    pub platforms: Vec<String>,
    /// How often each combination is measured.
    pub rounds: u32,
    /// The sessions.
    pub sessions: Vec<Planned>,
}

/// One start of a service on a platform, and what is done to it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// From 0.
    pub round: u32,
    /// Where.
    pub cell: Cell,
    /// Index of the service in the experiment.
    pub service: usize,
    /// Work in order. None: it is started and looked at.
    pub tasks: Vec<Task>,
}

/// One point of a workload.
#[derive(Clone, Debug)]
pub struct Task {
    /// Index of the workload in the experiment.
    pub workload: usize,
    /// Its name.
    pub name: String,
    /// What names the point in results.
    pub label: BTreeMap<String, String>,
    /// The runner's parameters.
    pub work: Work,
    /// The generator's.
    pub point: Point,
}

impl std::fmt::Display for Task {
    /// `stress connections=40`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        for (name, value) in &self.label {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

impl Planned {
    /// Whether it needs instances of its own making instead of one that is started for it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        matches!(self.tasks.first(), Some(task) if is_alone(&task.work))
    }

    /// Seconds it should take, by what it says of itself; a guess where it says nothing.
    #[must_use]
    pub fn expected_s(&self) -> f64 {
        const START_AND_STOP_S: f64 = 4.0;
        START_AND_STOP_S + self.tasks.iter().map(Task::expected_s).sum::<f64>()
    }
}

impl Task {
    /// As [`Planned::expected_s`].
    #[must_use]
    pub fn expected_s(&self) -> f64 {
        /// Loads that are given by a number of requests.
        const UNKNOWN_S: f64 = 5.0;
        match &self.work {
            Work::Start => 0.0,
            Work::Load { .. } => {
                let length = self.point.get("duration_s").and_then(number);
                length.unwrap_or(UNKNOWN_S) + self.warmup().as_secs_f64()
            }
            Work::Ramp(ramp) => {
                let steps = 1.0 + (ramp.max_per_s - ramp.start_per_s) / ramp.step_per_s;
                steps * (ramp.step + ramp.pause).as_secs_f64() + ramp.warmup.as_secs_f64()
            }
            Work::Endurance(endurance) => (endurance.duration + endurance.warmup).as_secs_f64(),
            Work::Batch { timeout } => timeout.as_secs_f64().min(UNKNOWN_S),
            Work::Storm(storm) => storm.duration.as_secs_f64() + f64::from(storm.instances),
            Work::Density(density) => f64::from(density.max_instances),
            // Eight starts, of which half fail.
            Work::Smallest(smallest) => 8.0 + 4.0 * smallest.limit.as_secs_f64(),
        }
    }

    /// How long a load runs before it counts.
    #[must_use]
    pub fn warmup(&self) -> std::time::Duration {
        use std::time::Duration;
        match &self.work {
            Work::Load {
                warmup: Some(warmup),
            } => *warmup,
            Work::Load { warmup: None } => {
                let length = self
                    .point
                    .get("duration_s")
                    .and_then(number)
                    .unwrap_or(10.0);
                Duration::from_secs_f64((length / 10.0).clamp(0.0, 5.0))
            }
            Work::Ramp(ramp) => ramp.warmup,
            Work::Endurance(endurance) => endurance.warmup,
            _ => Duration::ZERO,
        }
    }
}

fn is_alone(work: &Work) -> bool {
    matches!(
        work,
        Work::Batch { .. } | Work::Storm(_) | Work::Density(_) | Work::Smallest(_)
    )
}

/// Draws the plan.
///
/// # Errors
/// When the selection names what the experiment does not have, or leaves nothing.
pub fn plan(
    experiment: &Experiment,
    selection: &Selection,
    quick: bool,
    seed: u64,
) -> Result<Plan> {
    let platforms = if selection.platforms.is_empty() {
        &experiment.platforms
    } else {
        &selection.platforms
    };
    let services = names(experiment.services.iter().map(|one| &one.name));
    let workloads = names(experiment.workloads.iter().map(|one| &one.name));
    for (kind, chosen, known) in [
        ("service", &selection.services, &services),
        ("workload", &selection.workloads, &workloads),
    ] {
        for name in chosen {
            if !known.contains(&name.as_str()) {
                return Err(Error::Input(unknown(kind, name, known)));
            }
        }
    }
    let rounds = selection.repetitions.unwrap_or(if quick {
        experiment.repetitions.quick
    } else {
        experiment.repetitions.full
    });
    let mut groups = Vec::new();
    for (index, service) in experiment.services.iter().enumerate() {
        if !takes_part(&selection.services, &service.name) {
            continue;
        }
        for &vcpus in experiment.machine.vcpus(quick) {
            groups.extend(groups_of(experiment, selection, quick, index, vcpus)?);
        }
    }
    let mut sessions = Vec::new();
    for round in 0..rounds {
        let mut random = Random::new(seed, u64::from(round));
        let mut groups = groups.clone();
        random.shuffle(&mut groups);
        for group in groups {
            let mut order = platforms.clone();
            random.shuffle(&mut order);
            for platform in order {
                let Some(mut tasks) = group.tasks(experiment, &platform, round, quick) else {
                    continue;
                };
                random.shuffle(&mut tasks);
                sessions.push(Planned {
                    round,
                    cell: Cell {
                        platform,
                        service: experiment.services[group.service].name.clone(),
                        vcpus: group.vcpus,
                    },
                    service: group.service,
                    tasks,
                });
            }
        }
    }
    if sessions.is_empty() {
        return Err(Error::Input(
            "nothing to measure: no workload is for these services and platforms".to_owned(),
        ));
    }
    Ok(Plan {
        platforms: platforms.clone(),
        rounds,
        sessions,
    })
}

/// What all platforms do in turn.
#[derive(Clone)]
struct Group {
    service: usize,
    vcpus: u32,
    tasks: Vec<Task>,
}

impl Group {
    /// The tasks of a platform in a round; `None` if it has nothing to do here.
    fn tasks(
        &self,
        experiment: &Experiment,
        platform: &str,
        round: u32,
        quick: bool,
    ) -> Option<Vec<Task>> {
        let mut tasks = self.tasks.clone();
        tasks.retain(|task| {
            let workload = &experiment.workloads[task.workload];
            takes_part(&workload.platforms, platform) && workload.is_in_round(round, quick)
        });
        let is_there = !tasks.is_empty();
        tasks.retain(|task| task.work != Work::Start);
        is_there.then_some(tasks)
    }
}

/// One group with all that can share an instance, and one for each point that cannot.
fn groups_of(
    experiment: &Experiment,
    selection: &Selection,
    quick: bool,
    service: usize,
    vcpus: u32,
) -> Result<Vec<Group>> {
    let group = |tasks| Group {
        service,
        vcpus,
        tasks,
    };
    let (mut shared, mut groups) = (Vec::new(), Vec::new());
    for (index, workload) in experiment.workloads.iter().enumerate() {
        let name = &experiment.services[service].name;
        if !takes_part(&selection.workloads, &workload.name)
            || !takes_part(&workload.services, name)
            || !(workload.vcpus.is_empty() || workload.vcpus.contains(&vcpus))
        {
            continue;
        }
        for whole in workload.points(quick) {
            let (own, point) = split(workload.kind, &whole);
            let work = understand(workload.kind, &own).map_err(|error| {
                Error::Input(format!("{}: {}: {}", workload.name, error.key, error.what))
            })?;
            let alone = is_alone(&work);
            let task = Task {
                workload: index,
                name: workload.name.clone(),
                label: workload.label(&whole),
                work,
                point,
            };
            if alone {
                groups.push(group(vec![task]));
            } else {
                shared.push(task);
            }
        }
    }
    if !shared.is_empty() {
        groups.push(group(shared));
    }
    Ok(groups)
}

/// An empty list stands for all.
fn takes_part(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == name)
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    names.map(String::as_str).collect()
}

/// Whether any session of the plan uses a load generator; which, by the experiment's names.
#[must_use]
pub fn tools<'a>(experiment: &'a Experiment, plan: &Plan) -> Vec<&'a str> {
    let mut tools: Vec<&str> = plan
        .sessions
        .iter()
        .flat_map(|session| &session.tasks)
        .filter_map(|task| experiment.workloads.get(task.workload))
        .filter(|workload| Kind::has_tool(workload.kind))
        .filter_map(|workload| workload.tool.as_deref())
        .collect();
    tools.sort_unstable();
    tools.dedup();
    tools
}
