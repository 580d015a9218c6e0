// SPDX-License-Identifier: Apache-2.0

//! The ABI tests: each family is an ordinary Linux program that runs on this machine's Linux first, then in the guest on
//! one and on two vCPUs. Linux is the oracle: a case passes when the guest prints what Linux printed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::guest::{Guests, Job, Outcome, in_parallel};
use super::report::Report;
use crate::{paths, sh};

/// The most a family may take, on Linux and in a guest.
const FAMILY_LIMIT: Duration = Duration::from_secs(240);
/// Memory of the guests, MiB.
const MEMORY_MIB: u32 = 256;
/// Numbers of vCPUs the guests have.
const VCPUS: [u32; 2] = [1, 2];

/// Runs the families named, or all, and counts their cases.
pub(crate) fn run(report: &mut Report, only: &[&str]) -> Result<()> {
    let families = build()?;
    let names: Vec<&String> = families.iter().map(|(name, _)| name).collect();
    if let Some(unknown) = only
        .iter()
        .find(|wanted| !names.iter().any(|name| name == *wanted))
    {
        bail!("no ABI family {unknown}; there are: {names:?}");
    }
    let chosen: Vec<_> = families
        .iter()
        .filter(|(name, _)| only.is_empty() || only.contains(&name.as_str()))
        .collect();

    let mut oracles = HashMap::new();
    for (name, program) in &chosen {
        let result = sh::output_within(&mut sh::cmd(program, [""; 0]), FAMILY_LIMIT)?;
        let (passed, failed) = count(&cases(&result.stdout));
        let broken = usize::from(failed == 0 && !result.success());
        if failed + broken > 0 {
            println!("{}{}", result.stdout, result.stderr);
        }
        report.add(&format!("abi {name} on Linux"), passed, failed + broken);
        oracles.insert(name.as_str(), result.stdout);
    }

    let guests = Guests::new()?;
    let jobs: Vec<(&str, &Path, u32)> = chosen
        .iter()
        .flat_map(|(name, program)| VCPUS.map(|vcpus| (name.as_str(), program.as_path(), vcpus)))
        .collect();
    let outcomes = in_parallel(&jobs, |(_, program, vcpus)| {
        guests.run(&Job {
            program,
            args: &[],
            machine: "microvm",
            vcpus: *vcpus,
            memory_mib: MEMORY_MIB,
            limit: FAMILY_LIMIT,
        })
    })?;
    for ((name, _, vcpus), outcome) in jobs.iter().zip(outcomes) {
        compare(
            report,
            &format!("abi {name} on {vcpus} vCPU"),
            &oracles[name],
            &outcome,
        );
    }
    Ok(())
}

/// Builds the programs; returns names and paths, by name.
fn build() -> Result<Vec<(String, PathBuf)>> {
    let folder = paths::build()?.join("abi");
    let source = paths::in_root("tests/abi");
    let build = format!("BUILD={}", folder.display());
    sh::output(sh::cmd("make", ["-s", "-j2", "-C"]).arg(&source).arg(build))?;
    let mut families = Vec::new();
    for entry in std::fs::read_dir(&source).with_context(|| format!("read {}", source.display()))? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .map(str::to_owned);
        if let (Some(name), Some("c")) = (
            name,
            path.extension().and_then(|extension| extension.to_str()),
        ) {
            families.push((name.clone(), folder.join(name)));
        }
    }
    families.sort();
    if families.is_empty() {
        bail!("no ABI tests in {}", source.display());
    }
    Ok(families)
}

/// One case of a family: its name, and the lines it printed, the verdict first.
type Case<'a> = (&'a str, Vec<&'a str>);

/// The cases in a family's output.
fn cases(output: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in output.lines().map(|line| line.trim_end_matches('\r')) {
        let verdict = line
            .strip_prefix("ok ")
            .or_else(|| line.strip_prefix("FAIL "));
        if let Some(rest) = verdict {
            let name = rest.split(' ').next().unwrap_or(rest);
            cases.push((name, vec![line]));
        } else if let (true, Some(case)) = (line.starts_with("  "), cases.last_mut()) {
            case.1.push(line);
        }
    }
    cases
}

/// Passed and failed cases.
fn count(cases: &[Case<'_>]) -> (usize, usize) {
    let failed = cases
        .iter()
        .filter(|case| case.1[0].starts_with("FAIL "))
        .count();
    (cases.len() - failed, failed)
}

/// Counts the cases in which the guest printed what Linux printed, and shows the others.
fn compare(report: &mut Report, title: &str, linux: &str, guest: &Outcome) {
    let oracle = cases(linux);
    let printed: HashMap<&str, Vec<&str>> = cases(&guest.output).into_iter().collect();
    let (mut differing, mut missing) = (Vec::new(), Vec::new());
    for (name, wanted) in &oracle {
        match printed.get(name) {
            Some(got) if got == wanted => {}
            Some(got) => {
                let (wanted, got) = (wanted.join("\n         "), got.join("\n         "));
                differing.push(format!("  Linux: {wanted}\n  guest: {got}"));
            }
            None => missing.push(*name),
        }
    }
    let failed = differing.len() + missing.len();
    if let [first, rest @ ..] = &missing[..] {
        differing.push(format!(
            "  no result from {first} and {} further cases",
            rest.len()
        ));
    }
    let passed = oracle.len() - failed;
    // The program must also end as on Linux: everything passed, exit code 0.
    let ended_badly = failed == 0 && guest.code != Some(0);
    if failed > 0 || ended_badly {
        println!("{title}:\n{}", differing.join("\n"));
    }
    if !missing.is_empty() || ended_badly {
        println!("{}", guest.story);
    }
    report.add(title, passed, failed + usize::from(ended_badly));
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Report, cases, compare, count};

    const LINUX: &str = "ok one\n  seen 1\nok two\nok three\n3 passed, 0 failed\n";

    fn guest(output: &str, code: Option<i32>) -> Outcome {
        Outcome {
            output: output.to_owned(),
            code,
            exit: serde_json::Value::Null,
            story: String::new(),
        }
    }

    #[test]
    fn output_splits_into_cases() {
        let all = cases(
            "noise\nok one\n  seen 1\nFAIL two f.c:3: x == y (errno 0)\n1 passed, 1 failed\n",
        );
        assert_eq!(all[0], ("one", vec!["ok one", "  seen 1"]));
        assert_eq!(all[1].0, "two");
        assert_eq!(count(&all), (1, 1));
    }

    #[test]
    fn the_same_output_passes() {
        let mut report = Report::default();
        compare(&mut report, "t", LINUX, &guest(LINUX, Some(0)));
        assert!(report.finish().is_ok());
    }

    #[test]
    fn any_difference_fails() {
        for (output, code) in [
            (LINUX, Some(1)),
            (LINUX, None),
            (&LINUX.replace("seen 1", "seen 2"), Some(0)),
            (&LINUX.replace("ok two\n", ""), Some(0)),
            (&LINUX.replace("ok two", "FAIL two x"), Some(1)),
            ("", Some(0)),
        ] {
            let mut report = Report::default();
            compare(&mut report, "t", LINUX, &guest(output, code));
            assert!(report.finish().is_err(), "{output:?} {code:?}");
        }
    }
}
