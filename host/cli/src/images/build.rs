// SPDX-License-Identifier: Apache-2.0
//! `coracle build`: by buildah, podman or docker when one is there, else by ourselves, as far as that goes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coracle_imager::image::import;
use coracle_imager::image::{Reference, Store, containerfile, local, source};

use super::args::BuildArgs;
use super::progress::Progress;
use super::store;
use crate::error::Failure;
use crate::output;

/// The tools, in the order in which they are taken.
const TOOLS: [&str; 3] = ["buildah", "podman", "docker"];

/// Builds an image and takes it into the store.
pub(crate) fn build(args: &BuildArgs) -> Result<u8, Failure> {
    // As with podman, what is built here and names no registry belongs to none.
    let names = Reference::candidates(&args.tag).map_err(Failure::new)?;
    let name = names.first().expect("a name has a first form").to_string();
    if !args.context.is_dir() {
        return Err(Failure::new(format!(
            "{}: no such folder; give the folder with the files of the image",
            args.context.display()
        )));
    }
    let file = recipe(args)?;
    let store = store()?;
    let progress = Progress::new(args.quiet);
    let tool = TOOLS.into_iter().find(|tool| works(tool));
    let image = match tool {
        Some(tool) => {
            progress.say(&format!("Building with {tool}"));
            with_tool(tool, &name, &file, args, &store)?
        }
        None => {
            progress
                .say("Building without buildah, podman or docker: only what FROM scratch needs");
            let descriptor = containerfile::build(&file, &args.context, &args.build_arg, &store)?;
            let found = containerfile::found(&store, &descriptor)?;
            import::import(&store, &name, &found, None)?
        }
    };
    image.root(&store, &store)?;
    output::line(image.id().hex());
    Ok(0)
}

fn recipe(args: &BuildArgs) -> Result<PathBuf, Failure> {
    if let Some(file) = &args.file {
        return match file.is_file() {
            true => Ok(file.clone()),
            false => Err(Failure::new(format!("{}: no such file", file.display()))),
        };
    }
    let candidates = ["Containerfile", "Dockerfile"].map(|name| args.context.join(name));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(format!(
            "{}: neither Containerfile nor Dockerfile there; name the recipe with -f",
            args.context.display()
        ))
    })
}

fn works(tool: &str) -> bool {
    let mut command = Command::new(tool);
    // docker answers without its daemon, which a build needs.
    command.arg(if tool == "docker" {
        "info"
    } else {
        "--version"
    });
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn with_tool(
    tool: &'static str,
    name: &str,
    file: &Path,
    args: &BuildArgs,
    store: &Store,
) -> Result<coracle_imager::image::root::Image, Failure> {
    let mut words: Vec<OsString> = vec!["build".into(), "-t".into(), name.into(), "-f".into()];
    words.push(file.into());
    for value in &args.build_arg {
        words.extend(["--build-arg".into(), value.into()]);
    }
    if args.quiet {
        words.push("-q".into());
    }
    words.push(args.context.clone().into());
    // What the tool says of its progress is progress: standard output is for the id.
    let mut command = Command::new(tool);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    run(tool, &mut command)?;
    if tool != "buildah" {
        let built = local::find(name)
            .ok_or_else(|| Failure::new(format!("{tool} built {name} but does not have it")))?;
        let found = built.save(store)?;
        return Ok(import::import(store, name, &found, Some(built.tool()))?);
    }
    let _guard = store.begin()?;
    let file = store.temporary()?;
    let mut command = Command::new(tool);
    let mut to = OsString::from("oci-archive:");
    to.push(file.path());
    command
        .args(["push", "-q", name])
        .arg(to)
        .stdin(Stdio::null());
    run(tool, &mut command)?;
    let found = source::find(file.path(), store, None)?;
    let found = found.ok_or_else(|| Failure::new(format!("{tool} gave no image")))?;
    Ok(import::import(store, name, &found, None)?)
}

fn run(tool: &str, command: &mut Command) -> Result<(), Failure> {
    let status = command.status();
    let status = status.map_err(|error| Failure::new(format!("cannot run {tool}: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{tool} failed; its messages are above"
        ))),
    }
}
