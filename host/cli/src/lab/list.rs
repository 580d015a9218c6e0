// SPDX-License-Identifier: Apache-2.0
//! `coracle lab list`

use clap::Args;
use coracle_lab::load;
use serde::Serialize;

use super::Place;
use crate::args::Format;
use crate::error::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// How the list is written
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// Only those with name=PART, study=NUMBER or platform=NAME
    #[arg(short, long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
}

/// One experiment in the list.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    title: String,
    question: String,
    study: Option<String>,
    platforms: Vec<String>,
    services: Vec<String>,
    workloads: Vec<String>,
    /// Rounds of a full run and of a quick one.
    repetitions: [u32; 2],
}

/// Lists the experiments. One that cannot be read is an error after the others.
pub(super) fn list(args: &ListArgs) -> Result<u8, Failure> {
    let experiments = args.place.find()?;
    let filters: Vec<Filter<'_>> = args
        .filter
        .iter()
        .map(|text| filter(text))
        .collect::<Result<_, _>>()?;
    let generators = load::generators();
    let known = super::known(&generators);
    let (mut entries, mut wrong) = (Vec::new(), None);
    for name in experiments.names().map_err(Failure::new)? {
        match experiments.load(&name, &known) {
            Ok(loaded) => {
                let experiment = loaded.experiment;
                entries.push(Entry {
                    name,
                    title: experiment.title,
                    question: experiment.question,
                    study: experiment.study,
                    platforms: experiment.platforms,
                    services: experiment
                        .services
                        .into_iter()
                        .map(|one| one.name)
                        .collect(),
                    workloads: experiment
                        .workloads
                        .into_iter()
                        .map(|one| one.name)
                        .collect(),
                    repetitions: [experiment.repetitions.full, experiment.repetitions.quick],
                });
            }
            Err(error) => wrong = wrong.or(Some(Failure::new(error))),
        }
    }
    entries.retain(|entry| filters.iter().all(|filter| filter.fits(entry)));
    match args.output {
        Format::Table => table(&entries),
        Format::Json => output::json(&entries)?,
        Format::Name => entries.iter().for_each(|entry| output::line(&entry.name)),
    }
    wrong.map_or(Ok(0), Err)
}

fn table(entries: &[Entry]) {
    let rows = entries.iter().map(|entry| {
        vec![
            entry.name.clone(),
            entry.study.clone().unwrap_or_else(|| "-".to_owned()),
            entry.platforms.join(","),
            entry.title.clone(),
        ]
    });
    output::table(&["NAME", "STUDY", "PLATFORMS", "TITLE"], rows.collect());
}

/// What an entry must have to be listed.
#[derive(Debug)]
enum Filter<'a> {
    Name(&'a str),
    Study(&'a str),
    Platform(&'a str),
}

impl Filter<'_> {
    fn fits(&self, entry: &Entry) -> bool {
        match self {
            Filter::Name(part) => entry.name.contains(part),
            Filter::Study(study) => entry.study.as_deref() == Some(study),
            Filter::Platform(name) => entry.platforms.iter().any(|one| one == name),
        }
    }
}

fn filter(text: &str) -> Result<Filter<'_>, Failure> {
    match text.split_once('=') {
        Some(("name", part)) => Ok(Filter::Name(part)),
        Some(("study", study)) => Ok(Filter::Study(study)),
        Some(("platform", name)) => Ok(Filter::Platform(name)),
        _ => Err(Failure::new(format!(
            "--filter {text}: want name=PART, study=NUMBER or platform=NAME"
        ))),
    }
}
