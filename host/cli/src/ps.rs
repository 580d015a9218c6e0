// SPDX-License-Identifier: Apache-2.0
//! `coracle ps`

use coracle_vmm::instance::now_s;
use coracle_vmm::{Exit, Reason, State, Status, Store};
use serde::Serialize;

use crate::args::{Format, PsArgs};
use crate::error::Failure;
use crate::{folders, output, quantity};

/// An instance as `ps -o json` and `inspect` show it.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) dir: std::path::PathBuf,
    #[serde(flatten)]
    pub(crate) state: State,
}

/// Lists instances.
pub(crate) fn ps(args: &PsArgs) -> Result<u8, Failure> {
    let filters = args
        .filter
        .iter()
        .map(|text| Filter::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let store = Store::new(&folders::state()?);
    let mut views = Vec::new();
    for instance in store.list()? {
        // A folder without a state yet belongs to an instance that is just being made.
        let Ok(state) = instance.load() else { continue };
        if state.remove && state.status == Status::Exited {
            // Its monitor was killed before it could do this.
            let _ = instance.remove();
            continue;
        }
        let wanted =
            args.all || state.status != Status::Exited || filters.iter().any(Filter::about_the_end);
        let view = View {
            name: instance.name,
            dir: instance.dir,
            state,
        };
        if wanted && filters.iter().all(|filter| filter.matches(&view)) {
            views.push(view);
        }
    }
    match args.output {
        Format::Json => output::json(&views)?,
        Format::Name => output::print(
            &views
                .iter()
                .map(|view| format!("{}\n", view.name))
                .collect::<String>(),
        ),
        Format::Table => {
            let head = [
                "NAME", "COMMAND", "CREATED", "STATUS", "PORTS", "ACCEL", "CPUS", "MEMORY",
            ];
            output::table(&head, views.iter().map(row).collect());
        }
    }
    Ok(0)
}

fn row(view: &View) -> Vec<String> {
    let state = &view.state;
    let spec = &state.spec;
    let ports = spec
        .ports
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let accel = match state.accel_warning {
        Some(_) => format!("{} (no KVM)", spec.accel),
        None => spec.accel.to_string(),
    };
    vec![
        view.name.clone(),
        shortened(&state.command.join(" "), 32),
        format!(
            "{} ago",
            output::span(now_s().saturating_sub(state.created_s))
        ),
        status(state),
        ports,
        accel,
        spec.cpus.to_string(),
        quantity::human(spec.memory_bytes),
    ]
}

/// `Up 3 minutes`, `Exited (0) 2 hours ago`, `Exited (137, out-of-memory) 1 second ago`.
fn status(state: &State) -> String {
    let since =
        |at: Option<u64>| output::span(now_s().saturating_sub(at.unwrap_or(state.created_s)));
    match (&state.status, &state.exit) {
        (Status::Created, _) => "Created".to_owned(),
        (Status::Running, _) => format!("Up {}", since(state.started_s)),
        (Status::Exited, Some(exit)) => {
            format!("Exited ({}) {} ago", code(exit), since(state.finished_s))
        }
        (Status::Exited, None) => "Exited".to_owned(),
    }
}

fn code(exit: &Exit) -> String {
    match exit.reason {
        Reason::Exit => exit.code.to_string(),
        reason => format!("{}, {reason}", exit.code),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// `--filter`
enum Filter {
    Name(String),
    Status(String),
    Reason(String),
    Accel(String),
}

impl Filter {
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::new(format!(
                "--filter {text}: use name=PART, status=…, reason=… or accel=…"
            ))
        };
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let one_of = |known: &[&str]| match known.contains(&value) {
            true => Ok(value.to_owned()),
            false => Err(Failure::new(format!(
                "--filter {text}: use one of {}",
                known.join(", ")
            ))),
        };
        Ok(match key {
            "name" => Self::Name(value.to_owned()),
            "status" => Self::Status(one_of(&["created", "running", "exited"])?),
            "reason" => Self::Reason(one_of(&[
                "exit",
                "signal",
                "out-of-memory",
                "panic",
                "exec",
                "vmm",
            ])?),
            "accel" => Self::Accel(one_of(&["kvm", "tcg"])?),
            _ => return Err(wrong()),
        })
    }

    /// Whether it asks for ended instances, so that `-a` goes without saying.
    fn about_the_end(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Reason(_))
    }

    fn matches(&self, view: &View) -> bool {
        let state = &view.state;
        match self {
            Self::Name(part) => view.name.contains(part.as_str()),
            Self::Status(status) => state.status.to_string() == *status,
            Self::Reason(reason) => state
                .exit
                .as_ref()
                .is_some_and(|exit| exit.reason.to_string() == *reason),
            Self::Accel(accel) => state.spec.accel.to_string() == *accel,
        }
    }
}
