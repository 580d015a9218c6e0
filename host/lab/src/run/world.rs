// SPDX-License-Identifier: Apache-2.0

//! What a run works with: platforms, generators, images and the network of this host, found before anything is started.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::host;
use super::pin::Processors;
use super::plan::{Plan, tools};
use super::progress::Progress;
use crate::experiment::{Experiment, Ready, Service};
use crate::load::Generator;
use crate::network::Network;
use crate::platform::{self, Image, Platform, Prepared};
use crate::record::{ImageFacts, PlatformFacts, Selection};
use crate::{Error, Result, load};

/// All of it.
pub struct World {
    /// The platforms that take part.
    pub platforms: Vec<Box<dyn Platform>>,
    /// The generators that are used, with their versions.
    pub generators: Vec<(Box<dyn Generator>, String)>,
    /// Images by service.
    pub images: BTreeMap<String, Image>,
    /// By platform and service.
    pub prepared: BTreeMap<(String, String), Prepared>,
    /// The way to instances.
    pub network: Network,
    /// Of this host.
    pub processors: Processors,
    /// How long an instance is left alone before its idle memory is looked at.
    pub settle: Duration,
    /// What the reader must know.
    pub remarks: Vec<String>,
}

/// A second: a service that answers has done its start by then.
const SETTLE: Duration = Duration::from_secs(1);

/// For the record.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) host: BTreeMap<String, String>,
    pub(super) tools: BTreeMap<String, String>,
    pub(super) platforms: Vec<PlatformFacts>,
    pub(super) images: BTreeMap<String, ImageFacts>,
    pub(super) remarks: Vec<String>,
}

/// How [`World::find`] goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// The folder that holds `experiments/`.
    pub base: &'a Path,
    /// Missing load tools are installed from the distribution's packages.
    pub install: bool,
    /// Becomes true when the user wants it to end.
    pub cancel: &'a AtomicBool,
}

impl World {
    /// Finds and prepares what `plan` needs. A platform that the experiment names but this host lacks is left out, with a
    /// remark; one that the user named is an error.
    ///
    /// # Errors
    /// When something is missing, with what to do.
    pub fn find(
        experiment: &Experiment,
        plan: &Plan,
        selection: &Selection,
        means: Means<'_>,
        progress: &mut dyn Progress,
    ) -> Result<World> {
        let mut world = World {
            platforms: Vec::new(),
            generators: Vec::new(),
            images: BTreeMap::new(),
            prepared: BTreeMap::new(),
            network: Network::create()?,
            processors: Processors::here(),
            settle: SETTLE,
            remarks: Vec::new(),
        };
        for name in tools(experiment, plan) {
            let generator = load::generator(name)?;
            let version = find_tool(generator.as_ref(), means, progress)?;
            world.generators.push((generator, version));
        }
        for name in &plan.platforms {
            match platform::find(name, means.base) {
                Ok(platform) => world.platforms.push(platform),
                Err(Error::Host(what)) if !selection.platforms.contains(name) => {
                    progress.say(&format!("without {name}: {what}"));
                    world.remarks.push(format!("{name} is left out: {what}"));
                }
                Err(error) => return Err(error),
            }
        }
        if world.platforms.is_empty() {
            return Err(Error::Host(format!(
                "none of the platforms can run here: {}",
                world.remarks.join("; ")
            )));
        }
        for service in &experiment.services {
            let is_used = plan
                .sessions
                .iter()
                .any(|session| session.cell.service == service.name);
            if is_used {
                world.prepare(service, plan, means, progress)?;
            }
        }
        Ok(world)
    }

    /// The image of a service, made ready on each platform that runs it.
    fn prepare(
        &mut self,
        service: &Service,
        plan: &Plan,
        means: Means<'_>,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        progress.now(&format!("prepare {}", service.name));
        let image = super::image::find(service, means.base, means.cancel)?;
        for platform in &mut self.platforms {
            let name = platform.name().to_owned();
            let runs = |session: &super::plan::Planned| {
                session.cell.service == service.name && session.cell.platform == name
            };
            if !plan.sessions.iter().any(runs) {
                continue;
            }
            if means.cancel.load(Ordering::SeqCst) {
                return Err(Error::Interrupted);
            }
            progress.now(&format!("prepare {} on {name}", service.name));
            let prepared = platform.prepare(service, &image)?;
            self.prepared.insert((name, service.name.clone()), prepared);
        }
        if service.ready == Ready::Tcp && !self.network.is_bridged() {
            self.remarks.push(format!(
                "{}: without root the VMM accepts connections before the guest does, so first answers are not seen",
                service.name
            ));
        }
        self.images.insert(service.name.clone(), image);
        Ok(())
    }

    /// For the record.
    pub(super) fn describe(&self, experiment: &Experiment, quick: bool) -> Description {
        let mut facts = host::facts(&self.processors);
        facts.insert("network".to_owned(), self.network.description().to_owned());
        let mut tools = BTreeMap::new();
        for (generator, version) in &self.generators {
            tools.insert(generator.name().to_owned(), version.clone());
            tools.insert(
                format!("{}, method", generator.name()),
                generator.method().to_owned(),
            );
        }
        let mut remarks = host::remarks(&self.processors, experiment.machine.vcpus(quick));
        remarks.extend(self.remarks.iter().cloned());
        let images = self.images.iter().map(|(service, image)| {
            let reference = experiment.services.iter().find(|one| one.name == *service);
            let facts = ImageFacts {
                reference: reference.map(|one| one.image.clone()).unwrap_or_default(),
                digest: image.digest.clone(),
            };
            (service.clone(), facts)
        });
        Description {
            host: facts,
            tools,
            platforms: self
                .platforms
                .iter()
                .map(|platform| platform.facts())
                .collect(),
            images: images.collect(),
            remarks,
        }
    }

    /// The generator of that name.
    pub(super) fn generator(&self, name: &str) -> Result<&dyn Generator> {
        let found = self
            .generators
            .iter()
            .find(|(generator, _)| generator.name() == name);
        found
            .map(|(generator, _)| generator.as_ref())
            .ok_or_else(|| Error::Host(format!("{name} was not looked for before the run")))
    }
}

fn find_tool(
    generator: &dyn Generator,
    means: Means<'_>,
    progress: &mut dyn Progress,
) -> Result<String> {
    match generator.find() {
        Err(Error::Host(_)) if means.install => {
            progress.say(&format!("install {}", generator.name()));
            load::install(generator.name(), means.cancel)?;
            generator.find()
        }
        found => found,
    }
}
