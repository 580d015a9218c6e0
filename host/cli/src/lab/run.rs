// SPDX-License-Identifier: Apache-2.0
//! `coracle lab run`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use clap::Args;
use coracle_lab::experiment::{Experiments, Known, Loaded};
use coracle_lab::record::{self, Recorded, Selection};
use coracle_lab::run::progress::Progress;
use coracle_lab::run::watch::Watch;
use coracle_lab::run::world::{Means, World};
use coracle_lab::run::{self, Options, Outcome, leftovers, plan, time};
use coracle_lab::{Error, load, network, report};

use super::Place;
use super::progress::Shown;
use crate::error::{Failure, OWN_ERROR};
use crate::output;

/// Something failed on the way; it is in the report.
const SOME_FAILED: u8 = 1;
/// Ended by Ctrl-C, as a shell says it: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all was measured, 1 something failed and the rest was measured, 125 an error of coracle or \
    of the input, 130 interrupted (what was measured is kept: --resume)."
)]
pub(super) struct RunArgs {
    /// Names of experiments, as in coracle lab list
    #[arg(conflicts_with_all = ["all", "resume"])]
    names: Vec<String>,
    /// Run all experiments and write one report
    #[arg(long, conflicts_with = "resume")]
    all: bool,
    /// The short form of each experiment
    #[arg(long, conflicts_with = "resume")]
    quick: bool,
    /// Only these platforms, also ones the experiment does not name
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with = "resume"
    )]
    platforms: Vec<String>,
    /// Only these services
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with = "resume"
    )]
    services: Vec<String>,
    /// Only these workloads
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with = "resume"
    )]
    workloads: Vec<String>,
    /// How often each combination is measured [default: as the experiment says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "resume")]
    repetitions: Option<u32>,
    /// Seed of the order [default: a new one, recorded in the result]
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    seed: Option<u64>,
    /// Folder of the result [default: results/NAME-DATE beside experiments]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    output: Option<PathBuf>,
    /// Go on with a result that was interrupted
    #[arg(long, value_name = "RESULT")]
    resume: Option<PathBuf>,
    /// Install missing load tools from the distribution's packages
    #[arg(long)]
    install: bool,
    /// Print what would be measured, in order, instead of measuring
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    place: Place,
}

/// Runs experiments and writes a report on all of them.
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let generators = load::generators();
    let known = super::known(&generators);
    if let Some(result) = &args.resume {
        return resume(args, result, &known);
    }
    if args.names.is_empty() && !args.all {
        return Err(Failure::new(
            "name an experiment of `coracle lab list`, or run --all of them",
        ));
    }
    let experiments = args.place.find()?;
    let selection = selection(args, &known)?;
    let names = if args.all {
        experiments.names().map_err(Failure::new)?
    } else {
        args.names.clone()
    };
    let mut loaded = names
        .iter()
        .map(|name| experiments.load(name, &known).map_err(Failure::new))
        .collect::<Result<Vec<Loaded>, _>>()?;
    let options = Options {
        selection,
        quick: args.quick,
        seed: args.seed.unwrap_or_else(new_seed),
        command: std::env::args().collect(),
    };
    if args.all {
        // Not every experiment has the services and workloads that were asked for.
        loaded.retain(|one| {
            let Options {
                selection,
                quick,
                seed,
                ..
            } = &options;
            plan::plan(&one.experiment, selection, *quick, *seed).is_ok()
        });
    }
    if loaded.is_empty() {
        let folder = experiments.folder.display();
        return Err(Failure::new(format!("{folder}: no experiment for this")));
    }
    if args.dry_run {
        return dry_run(&loaded, &options);
    }
    let folder = args.output.clone().unwrap_or_else(|| {
        let name = match &loaded[..] {
            [only] => only.name.as_str(),
            _ if args.all => "all",
            _ => "several",
        };
        let stamp = time::stamp(SystemTime::now());
        experiments
            .base
            .join("results")
            .join(format!("{name}-{stamp}"))
    });
    let runs: Vec<Run> = loaded
        .into_iter()
        .map(|loaded| Run {
            folder: if names.len() == 1 {
                folder.clone()
            } else {
                folder.join(&loaded.name)
            },
            loaded,
            recorded: None,
        })
        .collect();
    for run in &runs {
        if record::find(&run.folder).is_ok() {
            let folder = run.folder.display();
            return Err(Failure::new(format!(
                "{folder}: there is a result already; name another --output, or go on with --resume {folder}"
            )));
        }
    }
    Session {
        args,
        base: &experiments.base,
        options,
        several: args.all || names.len() > 1,
    }
    .all(runs, &folder)
}

/// One experiment that is to be run.
struct Run {
    loaded: Loaded,
    folder: PathBuf,
    /// What is there of it already.
    recorded: Option<Recorded>,
}

/// One call of the command.
struct Session<'a> {
    args: &'a RunArgs,
    base: &'a Path,
    options: Options,
    several: bool,
}

impl Session<'_> {
    /// Runs them one after the other and writes the report.
    fn all(&self, runs: Vec<Run>, folder: &Path) -> Result<u8, Failure> {
        begin();
        let interrupted = Arc::new(AtomicBool::new(false));
        catch_interrupts(&interrupted)?;
        let watch = Watch::new(Arc::clone(&interrupted));
        let mut progress = Shown::new();
        let (mut code, mut results) = (0, Vec::new());
        for run in &runs {
            let outcome = self.one(run, &watch, &interrupted, &mut progress);
            if record::find(&run.folder).is_ok() {
                results.push(run.folder.clone());
            }
            match outcome {
                Ok(Outcome {
                    interrupted: true, ..
                })
                | Err(Error::Interrupted) => {
                    code = INTERRUPTED;
                    break;
                }
                Ok(Outcome { failures: 0, .. }) => {}
                Ok(_) => code = code.max(SOME_FAILED),
                // One experiment that cannot be run here does not keep the others from it; a full disk does.
                Err(error @ Error::Record(_)) => {
                    progress.finish();
                    return Err(Failure::new(error));
                }
                Err(error) if self.several => {
                    progress.say(&format!("FAILED {}: {error}", run.loaded.name));
                    code = code.max(SOME_FAILED);
                }
                Err(error) => {
                    progress.finish();
                    return Err(Failure::new(error));
                }
            }
        }
        progress.finish();
        if code == INTERRUPTED && !results.is_empty() {
            let folder = folder.display();
            eprintln!("interrupted; go on with: coracle lab run --resume {folder}");
        }
        if results.is_empty() {
            return Ok(if code == 0 { OWN_ERROR } else { code });
        }
        let written = report::write(&results, folder).map_err(Failure::new)?;
        output::line(&written.page.display().to_string());
        Ok(code)
    }

    fn one(
        &self,
        run: &Run,
        watch: &Watch,
        interrupted: &Arc<AtomicBool>,
        progress: &mut Shown,
    ) -> Result<Outcome, Error> {
        if run.recorded.as_ref().is_some_and(Recorded::is_complete) {
            return Ok(Outcome::default());
        }
        let loaded = &run.loaded;
        let (selection, quick, seed) = match &run.recorded {
            Some(recorded) => (
                &recorded.run.selection,
                recorded.run.quick,
                recorded.run.seed,
            ),
            None => (
                &self.options.selection,
                self.options.quick,
                self.options.seed,
            ),
        };
        let plan = plan::plan(&loaded.experiment, selection, quick, seed)?;
        let means = Means {
            base: self.base,
            install: self.args.install,
            cancel: interrupted,
        };
        let mut world = World::find(&loaded.experiment, &plan, selection, means, progress)?;
        match &run.recorded {
            Some(recorded) => {
                let command = self.options.command.clone();
                run::resume(
                    recorded, loaded, command, self.base, &mut world, watch, progress,
                )
            }
            None => run::run(
                loaded,
                &self.options,
                self.base,
                &mut world,
                &run.folder,
                watch,
                progress,
            ),
        }
    }
}

/// Goes on with a result: of one experiment, or of several. Those of several that had not begun are run as the others were.
fn resume(args: &RunArgs, result: &Path, known: &Known<'_>) -> Result<u8, Failure> {
    let experiments = args.place.find()?;
    let files = record::find(result).map_err(Failure::new)?;
    let mut runs = Vec::new();
    for file in &files {
        let recorded = record::read(file).map_err(Failure::new)?;
        // The experiment as it was, which may have been changed since.
        let name = recorded.run.experiment.clone();
        let experiment = coracle_lab::experiment::parse(file, &recorded.run.text, known);
        runs.push(Run {
            loaded: Loaded {
                folder: experiments.folder.join(&name),
                name,
                text: recorded.run.text.clone(),
                experiment: experiment.map_err(Failure::new)?,
            },
            folder: recorded.folder.clone(),
            recorded: Some(recorded),
        });
    }
    let Some(first) = runs.iter().find_map(|run| run.recorded.as_ref()) else {
        return Err(Failure::new(format!(
            "{}: no result in it",
            result.display()
        )));
    };
    let several = result.is_dir() && !result.join(record::FILE).is_file();
    let options = Options {
        selection: first.run.selection.clone(),
        quick: first.run.quick,
        seed: first.run.seed,
        command: std::env::args().collect(),
    };
    let wanted = if several {
        asked_for(&first.run.command, &experiments)?
    } else {
        Vec::new()
    };
    for name in wanted {
        if !runs.iter().any(|run| run.loaded.name == name) {
            runs.push(Run {
                folder: result.join(&name),
                loaded: experiments.load(&name, known).map_err(Failure::new)?,
                recorded: None,
            });
        }
    }
    let folder = if several {
        result.to_owned()
    } else {
        runs[0].folder.clone()
    };
    Session {
        args,
        base: &experiments.base,
        options,
        several,
    }
    .all(runs, &folder)
}

/// The experiments that a recorded command line was for.
fn asked_for(command: &[String], experiments: &Experiments) -> Result<Vec<String>, Failure> {
    let names = experiments.names().map_err(Failure::new)?;
    if command.iter().any(|word| word == "--all") {
        return Ok(names);
    }
    Ok(names
        .into_iter()
        .filter(|name| command.contains(name))
        .collect())
}

fn selection(args: &RunArgs, known: &Known<'_>) -> Result<Selection, Failure> {
    for name in &args.platforms {
        known
            .platform(name)
            .map_err(|what| Failure::new(format!("--platforms: {what}")))?;
    }
    Ok(Selection {
        platforms: args.platforms.clone(),
        services: args.services.clone(),
        workloads: args.workloads.clone(),
        repetitions: args.repetitions,
    })
}

/// The order, without running anything.
fn dry_run(all: &[Loaded], options: &Options) -> Result<u8, Failure> {
    let mut seconds = 0.0;
    for loaded in all {
        let Options {
            selection,
            quick,
            seed,
            ..
        } = options;
        let plan = match plan::plan(&loaded.experiment, selection, *quick, *seed) {
            Ok(plan) => plan,
            Err(error) => return Err(Failure::new(format!("{}: {error}", loaded.name))),
        };
        for session in &plan.sessions {
            let expected = session.expected_s();
            seconds += expected;
            let tasks: Vec<String> = session.tasks.iter().map(ToString::to_string).collect();
            output::line(&format!(
                "{}  round {}/{}  {} on {}, {} vCPU  {expected:.0} s  {}",
                loaded.name,
                session.round + 1,
                plan.rounds,
                session.cell.service,
                session.cell.platform,
                session.cell.vcpus,
                if tasks.is_empty() {
                    "start".to_owned()
                } else {
                    tasks.join("; ")
                },
            ));
        }
    }
    output::line(&format!(
        "seed {}, about {:.0} min",
        options.seed,
        (seconds / 60.0).ceil()
    ));
    Ok(0)
}

/// Removes what killed runs left, and marks all processes of this one.
fn begin() {
    let mut removed = leftovers::remove();
    match network::remove_leftovers() {
        Ok(more) => removed.extend(more),
        Err(error) => eprintln!("coracle: left by a killed run: {error}"),
    }
    if !removed.is_empty() {
        eprintln!("removed what a killed run left: {}", removed.join(", "));
    }
    // SAFETY: the process has this one thread; the watch and the signal handler come later.
    unsafe { std::env::set_var(leftovers::VARIABLE, leftovers::mark()) };
}

/// The first Ctrl-C ends the run in order; the second one at once, and the next run cleans up.
fn catch_interrupts(interrupted: &Arc<AtomicBool>) -> Result<(), Failure> {
    let interrupted = Arc::clone(interrupted);
    ctrlc::set_handler(move || {
        if interrupted.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .map_err(|error| Failure::new(format!("Ctrl-C cannot be caught: {error}")))
}

/// A seed that is short enough to type.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| u64::from(since.subsec_nanos()) ^ since.as_secs()) % 1_000_000
}
