// SPDX-License-Identifier: Apache-2.0

//! The lab's platforms, with the command and the kernel in `build/`: each starts a small server and Redis from its image,
//! and leaves nothing behind. `cargo test -p coracle-lab` has those that need no guest.

use anyhow::Result;

use super::report::Report;
use super::{STEP_LIMIT, rust_results};
use crate::{build, images, paths, sh};

/// The image that is started on every platform.
const IMAGE: &str = "redis";

/// Runs the tests whose names contain one of `only`; all of them if that is empty.
pub(crate) fn run(report: &mut Report, only: &[&str]) -> Result<()> {
    println!("platforms of the lab");
    images::run(&[IMAGE])?;
    let mut command = build::cargo([
        "test",
        "-p",
        "coracle-lab",
        "--test",
        "platforms",
        "--",
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .args(only)
        .env("CORACLE", paths::build()?.join("coracle"))
        .env(
            "LAB_IMAGE",
            paths::build()?.join("images").join(format!("{IMAGE}.tar")),
        );
    let result = sh::output_within(&mut command, STEP_LIMIT)?;
    // What was skipped is said there too, with its reason.
    println!("{}", result.stdout.trim());
    let (passed, failed) = rust_results(&result.stdout);
    if !result.success() {
        println!("{}", result.stderr.trim());
    }
    // A crate that does not compile has no result line of its own.
    let broken = usize::from(!result.success() && failed == 0);
    report.add("platforms of the lab", passed, failed + broken);
    Ok(())
}
