// SPDX-License-Identifier: Apache-2.0
//! How the program of an image is run: what the image says, and what the command line says instead.

use std::path::Path;

use coracle_imager::config::Process;
use coracle_imager::image::root::Image;
use coracle_imager::image::start::ImageRoot;

use crate::args::RunArgs;
use crate::error::Failure;
use crate::plan::{environment, search_path, working_directory};

/// Puts both together, and checks that the program can be started.
pub(crate) fn process(args: &RunArgs, image: &Image, root: &Path) -> Result<Process, Failure> {
    let root = ImageRoot::open(&image.name, root)?;
    let execution = &image.config.config;
    let user = root.user(args.user.as_deref().unwrap_or(&execution.user))?;
    let mut env = environment(args, &execution.env)?;
    // As podman does it: where nobody says, home is where the image's users have theirs.
    let home = format!("HOME={}", root.home(user)?);
    let is_said = |list: &[String]| list.iter().any(|text| text.starts_with("HOME"));
    if !is_said(&execution.env) && !is_said(&args.env) && args.env_file.is_empty() {
        env.retain(|variable| !variable.starts_with("HOME="));
        env.push(home);
    }
    let entrypoint = args.entrypoint.as_deref().map(entrypoint);
    let mut argv = root.arguments(execution, entrypoint.as_deref(), args.arguments())?;
    let cwd = match (working_directory(args)?, execution.working_dir.as_str()) {
        (Some(dir), _) => dir,
        (None, "") => "/".into(),
        (None, dir) if dir.starts_with('/') => dir.into(),
        (None, dir) => format!("/{dir}"),
    };
    argv[0] = root.program(&argv[0], &cwd, search_path(&env))?;
    Ok(Process {
        user,
        cwd,
        ..Process::new(argv, env)
    })
}

/// `--entrypoint`: a program, or a JSON list of it and its arguments, or empty: what follows the image is the program.
fn entrypoint(text: &str) -> Vec<String> {
    match serde_json::from_str(text) {
        Ok(list) => list,
        Err(_) if text.is_empty() => Vec::new(),
        Err(_) => vec![text.to_owned()],
    }
}
