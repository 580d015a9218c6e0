// SPDX-License-Identifier: Apache-2.0
//! `coracle volume`: create, ls, rm, inspect and prune

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use coracle_vmm::{Status, Store as Instances};
use coracle_volume::{DEFAULT_BYTES, Store, Use, Volume};
use serde::Serialize;

use crate::args::Format;
use crate::error::Failure;
use crate::{folders, output, quantity};

#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
enum VolumeCommand {
    /// Make an empty volume and print its name
    Create(CreateArgs),
    /// List volumes
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Remove volumes with their content
    Rm(RmArgs),
    /// Show everything known about volumes
    Inspect(InspectArgs),
    /// Remove the volumes that no instance has
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Size of the file system, from 16M to 8192G; the host stores what is written [default: 10G]
    #[arg(long)]
    size: Option<String>,
    /// Name of the volume [default: a random one]
    name: Option<String>,
}

#[derive(Debug, Args)]
struct LsArgs {
    /// How the list is written
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
struct RmArgs {
    /// A name that is not there is no error
    #[arg(short, long)]
    force: bool,
    /// Names of volumes
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct InspectArgs {
    /// Names of volumes
    #[arg(required = true)]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct PruneArgs {
    /// Really remove them
    #[arg(short, long)]
    force: bool,
}

/// A volume as `volume ls -o json` and `volume inspect` show it.
#[derive(Debug, Serialize)]
struct View {
    name: String,
    disk: PathBuf,
    size_bytes: u64,
    stored_bytes: u64,
    created_s: u64,
    anonymous: bool,
    /// `free`, `read` or `written`.
    #[serde(rename = "use")]
    in_use: &'static str,
    /// Instances that were started with it, those that have ended included.
    instances: Vec<String>,
}

/// Does what the verb says.
pub(crate) fn volume(args: &VolumeArgs) -> Result<u8, Failure> {
    match &args.command {
        VolumeCommand::Create(args) => create(args),
        VolumeCommand::Ls(args) => ls(args),
        VolumeCommand::Rm(args) => rm(args),
        VolumeCommand::Inspect(args) => inspect(args),
        VolumeCommand::Prune(args) => prune(args),
    }
}

/// The volumes of this user.
pub(crate) fn store() -> Result<Store, Failure> {
    Ok(Store::new(&folders::data()?))
}

fn create(args: &CreateArgs) -> Result<u8, Failure> {
    let size_bytes = match &args.size {
        Some(text) => {
            quantity::bytes(text).map_err(|error| Failure::new(format!("--size {error}")))?
        }
        None => DEFAULT_BYTES,
    };
    let store = store()?;
    let volume = match &args.name {
        Some(name) => store.create(name, size_bytes)?,
        None => store.create(&store.unnamed().name, size_bytes)?,
    };
    output::line(&volume.name);
    Ok(0)
}

fn ls(args: &LsArgs) -> Result<u8, Failure> {
    let used = users()?;
    let volumes = store()?.list()?;
    let views = volumes
        .iter()
        .map(|volume| view(volume, &used))
        .collect::<Result<Vec<_>, _>>()?;
    match args.output {
        Format::Json => output::json(&views)?,
        Format::Name => {
            let names: String = views
                .iter()
                .map(|view| format!("{}\n", view.name))
                .collect();
            output::print(&names);
        }
        Format::Table => {
            let row = |view: &View| {
                vec![
                    view.name.clone(),
                    quantity::human(view.size_bytes),
                    quantity::human(view.stored_bytes),
                    view.in_use.to_owned(),
                    view.instances.join(", "),
                ]
            };
            let head = ["NAME", "SIZE", "STORED", "USE", "INSTANCES"];
            output::table(&head, views.iter().map(row).collect());
        }
    }
    Ok(0)
}

fn rm(args: &RmArgs) -> Result<u8, Failure> {
    let store = store()?;
    for name in &args.names {
        match store.open(name) {
            Ok(volume) => volume.remove()?,
            Err(coracle_volume::VolumeError::NotFound { .. }) if args.force => continue,
            Err(error) => return Err(error.into()),
        }
        output::line(name);
    }
    Ok(0)
}

fn inspect(args: &InspectArgs) -> Result<u8, Failure> {
    let (store, used) = (store()?, users()?);
    let views = args
        .names
        .iter()
        .map(|name| view(&store.open(name)?, &used))
        .collect::<Result<Vec<_>, _>>()?;
    output::json(&views)?;
    Ok(0)
}

fn prune(args: &PruneArgs) -> Result<u8, Failure> {
    let used = users()?;
    let mut unused = store()?.list()?;
    unused.retain(|volume| {
        !used.contains_key(&volume.disk()) && matches!(volume.in_use(), Ok(Use::Free))
    });
    if !args.force && !unused.is_empty() {
        let names: Vec<&str> = unused.iter().map(|volume| volume.name.as_str()).collect();
        return Err(Failure::new(format!(
            "volume prune would remove {} with all that is in them; say so: coracle volume prune --force",
            names.join(", ")
        )));
    }
    for volume in unused {
        let name = volume.name.clone();
        volume.remove()?;
        output::line(&name);
    }
    Ok(0)
}

/// The instances that were started with each disk.
fn users() -> Result<BTreeMap<PathBuf, Vec<String>>, Failure> {
    let mut users: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for instance in Instances::new(&folders::state()?).list()? {
        let Ok(state) = instance.load() else { continue };
        if state.remove && state.status == Status::Exited {
            continue; // it is about to be removed
        }
        for disk in &state.spec.disks {
            users
                .entry(disk.path.clone())
                .or_default()
                .push(instance.name.clone());
        }
    }
    Ok(users)
}

fn view(volume: &Volume, users: &BTreeMap<PathBuf, Vec<String>>) -> Result<View, Failure> {
    let (size_bytes, stored_bytes) = volume.sizes()?;
    let disk = volume.disk();
    Ok(View {
        name: volume.name.clone(),
        size_bytes,
        stored_bytes,
        created_s: volume.created_s()?,
        anonymous: volume.is_anonymous(),
        in_use: match volume.in_use()? {
            Use::Free => "free",
            Use::Read => "read",
            Use::Written => "written",
        },
        instances: users.get(&disk).cloned().unwrap_or_default(),
        disk,
    })
}
