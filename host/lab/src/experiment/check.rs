// SPDX-License-Identifier: Apache-2.0

//! What an experiment must keep to beyond its form: names that exist, numbers that make sense.

use super::parameters::understand;
use super::points::split;
use super::read::{Source, Step};
use super::{Experiment, Kind, Ready, Service, Workload, bytes, nearest, unknown};
use crate::load::Generator;
use crate::{Result, metric};

use Step::{Index, Key};

/// Most processors a machine may have.
const VCPUS_MAX: u32 = 64;

/// What experiments may name.
pub struct Known<'a> {
    /// Platforms, without `image:NAME`.
    pub platforms: Vec<&'static str>,
    /// Load generators.
    pub generators: &'a [Box<dyn Generator>],
}

impl Known<'_> {
    /// Names of the generators.
    #[must_use]
    pub fn tools(&self) -> Vec<&'static str> {
        self.generators.iter().map(|tool| tool.name()).collect()
    }

    /// A platform's name, or what to say of it.
    ///
    /// # Errors
    /// With the nearest known one.
    pub fn platform(&self, name: &str) -> std::result::Result<(), String> {
        let other = name.strip_prefix("image:").is_some_and(is_word);
        if other || self.platforms.contains(&name) {
            return Ok(());
        }
        let known: Vec<&str> = self
            .platforms
            .iter()
            .copied()
            .chain(["image:NAME"])
            .collect();
        Err(unknown("platform", name, &known))
    }
}

/// Checks a whole experiment.
pub(super) fn check(source: &Source<'_>, experiment: &Experiment, known: &Known<'_>) -> Result<()> {
    for (key, text) in [
        ("title", &experiment.title),
        ("question", &experiment.question),
    ] {
        if text.trim().is_empty() || text.contains('\n') {
            return Err(source.wrong(&[Key(key)], format!("{key}: want one line of text")));
        }
    }
    if !experiment.question.trim_end().ends_with('?') {
        return Err(source.wrong(
            &[Key("question")],
            "question: want a question, with a question mark",
        ));
    }
    if experiment.platforms.is_empty() {
        return Err(source.wrong(&[Key("platforms")], "platforms: name at least one"));
    }
    for (index, platform) in experiment.platforms.iter().enumerate() {
        let way = [Key("platforms"), Index(index)];
        known
            .platform(platform)
            .map_err(|what| source.wrong(&way, what))?;
        if experiment.platforms[..index].contains(platform) {
            return Err(source.wrong(&way, format!("platform {platform:?} is named twice")));
        }
    }
    machine(source, experiment)?;
    if experiment.services.is_empty() {
        return Err(source.wrong(&[], "no [[service]]; name at least one"));
    }
    for (index, one) in experiment.services.iter().enumerate() {
        service(source, experiment, index, one)?;
    }
    if experiment.workloads.is_empty() {
        return Err(source.wrong(&[], "no [[workload]]; name at least one"));
    }
    for (index, one) in experiment.workloads.iter().enumerate() {
        workload(source, experiment, index, one, known)?;
    }
    published(source, experiment, known)?;
    verdicts(source, experiment, known)
}

fn machine(source: &Source<'_>, experiment: &Experiment) -> Result<()> {
    for (key, list) in [
        ("vcpus", Some(&experiment.machine.vcpus)),
        ("quick_vcpus", experiment.machine.quick_vcpus.as_ref()),
    ] {
        let Some(list) = list else { continue };
        if list.is_empty() {
            let what = format!("{key}: name at least one number");
            return Err(source.wrong(&[Key("machine"), Key(key)], what));
        }
        for (index, count) in list.iter().enumerate() {
            if list[..index].contains(count) || !(1..=VCPUS_MAX).contains(count) {
                let way = [Key("machine"), Key(key), Index(index)];
                let what = format!("{key}: {count}: want different numbers from 1 to {VCPUS_MAX}");
                return Err(source.wrong(&way, what));
            }
        }
    }
    let way = [Key("machine"), Key("memory")];
    memory(&experiment.machine.memory).map_err(|what| source.wrong(&way, what))?;
    for (key, count) in [
        ("full", experiment.repetitions.full),
        ("quick", experiment.repetitions.quick),
    ] {
        if count == 0 {
            let way = [Key("repetitions"), Key(key)];
            return Err(source.wrong(&way, format!("{key}: must be at least 1")));
        }
    }
    Ok(())
}

fn service(
    source: &Source<'_>,
    experiment: &Experiment,
    index: usize,
    service: &Service,
) -> Result<()> {
    let wrong = |key: &'static str, what: String| {
        source.wrong(&[Key("service"), Index(index), Key(key)], what)
    };
    name(&service.name).map_err(|what| wrong("name", what))?;
    if experiment.services[..index]
        .iter()
        .any(|one| one.name == service.name)
    {
        return Err(wrong(
            "name",
            format!("service {:?} is there twice", service.name),
        ));
    }
    if service.image.is_empty() {
        return Err(wrong("image", "image: want a path".to_owned()));
    }
    if service.port == Some(0) {
        return Err(wrong("port", "port: want 1 to 65535".to_owned()));
    }
    let needs_port = !matches!(service.ready, Ready::Exit | Ready::Ping);
    if needs_port && service.port.is_none() {
        return Err(wrong(
            "ready",
            format!(
                "service {:?} has no port to ask whether it is ready; add port, or ready = \"exit\"",
                service.name
            ),
        ));
    }
    match &service.ready {
        Ready::Http(path) if !path.starts_with('/') => {
            return Err(wrong(
                "ready",
                format!("ready: the path {path:?} must begin with /"),
            ));
        }
        Ready::Dns(host) if !is_host(host) => {
            return Err(wrong(
                "ready",
                format!("ready: {host:?} is no name of a host"),
            ));
        }
        _ => {}
    }
    if let Some(limit) = service.ready_limit_s
        && !(limit > 0.0 && limit <= 86_400.0)
    {
        return Err(wrong(
            "ready_limit_s",
            format!("{limit}: want seconds, at most a day"),
        ));
    }
    for volume in &service.volumes {
        if !volume.starts_with('/') {
            return Err(wrong("volumes", format!("{volume:?} must begin with /")));
        }
    }
    if let Some(memory) = &service.memory {
        self::memory(memory).map_err(|what| wrong("memory", what))?;
    }
    Ok(())
}

fn workload(
    source: &Source<'_>,
    experiment: &Experiment,
    index: usize,
    workload: &Workload,
    known: &Known<'_>,
) -> Result<()> {
    let at = [Key("workload"), Index(index)];
    let wrong = |key: &'static str, what: String| source.wrong(&[at[0], at[1], Key(key)], what);
    name(&workload.name).map_err(|what| wrong("name", what))?;
    let twice = experiment.workloads[..index]
        .iter()
        .any(|one| one.name == workload.name);
    if twice {
        return Err(wrong(
            "name",
            format!("workload {:?} is there twice", workload.name),
        ));
    }
    if workload.name == "start" && workload.kind != Kind::Start {
        let what = "the name \"start\" is taken by what is measured at every start";
        return Err(wrong("name", what.to_owned()));
    }
    let services = names(experiment.services.iter().map(|one| &one.name));
    for (place, service) in workload.services.iter().enumerate() {
        if !services.contains(&service.as_str()) {
            let way = [at[0], at[1], Key("services"), Index(place)];
            return Err(source.wrong(&way, unknown("service", service, &services)));
        }
    }
    for (place, platform) in workload.platforms.iter().enumerate() {
        let way = [at[0], at[1], Key("platforms"), Index(place)];
        known
            .platform(platform)
            .map_err(|what| source.wrong(&way, what))?;
    }
    if workload.rounds == Some(0) {
        return Err(wrong("rounds", "rounds: must be at least 1".to_owned()));
    }
    let machine = &experiment.machine;
    for (place, count) in workload.vcpus.iter().enumerate() {
        if !machine.vcpus(false).contains(count) && !machine.vcpus(true).contains(count) {
            let way = [at[0], at[1], Key("vcpus"), Index(place)];
            let what = format!("vcpus: {count}: the machine has {:?}", machine.vcpus);
            return Err(source.wrong(&way, what));
        }
    }
    let tool = match (&workload.tool, workload.kind.has_tool()) {
        (None, false) => None,
        (None, true) => {
            return Err(wrong(
                "kind",
                format!("tool is missing; known: {}", known.tools().join(", ")),
            ));
        }
        (Some(tool), false) => {
            let what = format!("tool {tool:?}: this kind of workload uses none");
            return Err(wrong("tool", what));
        }
        (Some(tool), true) => {
            let found = known.generators.iter().find(|one| one.name() == tool);
            Some(found.ok_or_else(|| wrong("tool", unknown("tool", tool, &known.tools())))?)
        }
    };
    fits(source, experiment, index, workload)?;
    for quick in [false, true] {
        for point in workload.points(quick) {
            let (own, other) = split(workload.kind, &point);
            // Where a parameter stands: among the quick ones if it is there.
            let place = |key: &str| {
                let table = if quick && workload.quick.contains_key(key) {
                    "quick"
                } else {
                    "with"
                };
                [at[0], at[1], Key(table)]
            };
            understand(workload.kind, &own).map_err(|error| {
                let [a, b, c] = place(&error.key);
                source.wrong(
                    &[a, b, c, Key(&error.key)],
                    format!("{}: {}", error.key, error.what),
                )
            })?;
            match tool {
                Some(tool) => tool.check(&other).map_err(|error| {
                    let text = error.to_string();
                    // The generator names the parameter first, then perhaps the one that was meant.
                    let named = |key: &&String| text.find(key.as_str()).unwrap_or(usize::MAX);
                    let key = other.keys().min_by_key(named);
                    let key = key.map_or("", String::as_str);
                    let [a, b, c] = place(key);
                    source.wrong(&[a, b, c, Key(key)], text)
                })?,
                None => {
                    if let Some(key) = other.keys().next() {
                        let [a, b, c] = place(key);
                        let what = unknown("parameter", key, workload.kind.parameters());
                        return Err(source.wrong(&[a, b, c, Key(key)], what));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Whether the services can be used in that way: loads need a port, batches an end.
fn fits(
    source: &Source<'_>,
    experiment: &Experiment,
    index: usize,
    workload: &Workload,
) -> Result<()> {
    let at = [Key("workload"), Index(index), Key("kind")];
    for service in &experiment.services {
        if !workload.services.is_empty() && !workload.services.contains(&service.name) {
            continue;
        }
        let ends = service.ready == Ready::Exit;
        let what = match workload.kind {
            Kind::Batch if !ends => "a batch needs a service with ready = \"exit\"",
            Kind::Load | Kind::Ramp | Kind::Endurance if service.port.is_none() => {
                "a load needs a service with a port"
            }
            Kind::Load
            | Kind::Ramp
            | Kind::Endurance
            | Kind::BootStorm
            | Kind::Density
            | Kind::SmallestMemory
                if ends =>
            {
                "this kind needs a service that stays; it has ready = \"exit\""
            }
            _ => continue,
        };
        return Err(source.wrong(&at, format!("service {:?}: {what}", service.name)));
    }
    Ok(())
}

fn published(source: &Source<'_>, experiment: &Experiment, known: &Known<'_>) -> Result<()> {
    let services = names(experiment.services.iter().map(|one| &one.name));
    for (index, figure) in experiment.published.iter().enumerate() {
        let wrong = |key: &'static str, what: String| {
            source.wrong(&[Key("published"), Index(index), Key(key)], what)
        };
        known
            .platform(&figure.platform)
            .map_err(|what| wrong("platform", what))?;
        if let Some(service) = &figure.service
            && !services.contains(&service.as_str())
        {
            return Err(wrong("service", unknown("service", service, &services)));
        }
        is_workload(experiment, &figure.workload).map_err(|what| wrong("workload", what))?;
        is_metric(&figure.metric).map_err(|what| wrong("metric", what))?;
        if !figure.value.is_finite() {
            return Err(wrong("value", format!("{} is no figure", figure.value)));
        }
    }
    Ok(())
}

fn verdicts(source: &Source<'_>, experiment: &Experiment, known: &Known<'_>) -> Result<()> {
    for (index, verdict) in experiment.verdicts.iter().enumerate() {
        let wrong = |key: &'static str, what: String| {
            source.wrong(&[Key("verdict"), Index(index), Key(key)], what)
        };
        is_workload(experiment, &verdict.workload).map_err(|what| wrong("workload", what))?;
        is_metric(&verdict.metric).map_err(|what| wrong("metric", what))?;
        known
            .platform(&verdict.platform)
            .map_err(|what| wrong("platform", what))?;
        known
            .platform(&verdict.against)
            .map_err(|what| wrong("against", what))?;
        if verdict.platform == verdict.against {
            let what = format!("{:?} is judged against itself", verdict.platform);
            return Err(wrong("against", what));
        }
    }
    Ok(())
}

/// A size that is not nothing.
fn memory(text: &str) -> std::result::Result<(), String> {
    match bytes(text)? {
        0 => Err(format!("{text:?} is no memory at all")),
        _ => Ok(()),
    }
}

fn is_workload(experiment: &Experiment, name: &str) -> std::result::Result<(), String> {
    let mut workloads = names(experiment.workloads.iter().map(|one| &one.name));
    workloads.push("start");
    if workloads.contains(&name) {
        return Ok(());
    }
    Err(unknown("workload", name, &workloads))
}

/// A metric of the list, or a workload's own figure with a unit at its end.
fn is_metric(name: &str) -> std::result::Result<(), String> {
    if metric::find(name).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = metric::METRICS.iter().map(|metric| metric.name).collect();
    let near = nearest(name, known.iter().copied());
    // A word with a unit is a figure of the workload's own, unless it is all but a known one.
    match (metric::unit_of(name), near) {
        (Some(_), None) => Ok(()),
        (Some(_), Some(best)) if !is_slip(name, best) => Ok(()),
        (None, None) => Err(format!(
            "unknown metric {name:?}; a figure of the program's own ends in its unit, such as {name}_us"
        )),
        (_, Some(best)) => Err(format!("unknown metric {name:?}; did you mean {best:?}?")),
    }
}

/// Whether two words differ by a slip of the finger: the same letters but for two.
fn is_slip(a: &str, b: &str) -> bool {
    super::nearest::distance(a, b) <= 2
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    names.map(String::as_str).collect()
}

/// Names stand in tables, file names and interface names.
fn name(name: &str) -> std::result::Result<(), String> {
    if is_word(name) {
        return Ok(());
    }
    Err(format!(
        "{name:?}: a name has letters, digits, - and _, at most 40"
    ))
}

fn is_word(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    (1..=40).contains(&name.len()) && name.chars().all(fits) && !name.starts_with(['.', '-'])
}

/// RFC 1035, section 2.3.4: labels of 1 to 63 octets, 253 in all.
fn is_host(name: &str) -> bool {
    name.len() <= 253
        && name
            .trim_end_matches('.')
            .split('.')
            .all(|label| (1..=63).contains(&label.len()))
}
