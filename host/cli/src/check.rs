// SPDX-License-Identifier: Apache-2.0
//! `coracle check`: whether something can run, before it does.

use std::path::Path;

use coracle_check::files::{Alone, Files, Folder};
use coracle_check::{Finding, Report, Start, Subject, Verdict};

use crate::args::{CheckArgs, Format};
use crate::error::{Failure, NOT_FOUND};
use crate::output;

/// Checks an executable, or a program in a folder. The exit code is the verdict.
pub(crate) fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let (name, arguments) = args.command.split_first().expect("clap asks for one");
    let path = Path::new(name);
    let mut start = Start {
        environment: args.env.clone(),
        directory: "/".into(),
        ..Start::default()
    };
    let files: Box<dyn Files> = if path.is_dir() {
        start.args = arguments.to_vec();
        if arguments.is_empty() {
            return Err(Failure::new(format!(
                "{name}: a folder; name the program in it: coracle check {name} /path/in/folder"
            )));
        }
        Box::new(Folder::new(path))
    } else if path.is_file() {
        let alone = Alone::new(path);
        start.args.push(alone.path().into());
        start.args.extend(arguments.iter().cloned());
        Box::new(alone)
    } else {
        return Err(Failure {
            code: NOT_FOUND,
            message: format!("{name}: no such file; give an executable or a folder"),
        });
    };
    let report = coracle_check::check(&*files, &start);
    match args.output {
        Format::Json => output::json(&report)?,
        Format::Name => output::print(&format!("{}\n", verdict_word(report.verdict))),
        Format::Table => output::print(&text(name, &report, args.explain)),
    }
    Ok(report.verdict as u8)
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::MayFail => "may-fail",
        Verdict::CannotRun => "cannot-run",
    }
}

/// The report for people: the verdict, what speaks against it, and with `explain` everything else.
fn text(name: &str, report: &Report, explain: bool) -> String {
    let mut out = match report.verdict {
        Verdict::Fits => format!("{name}: fits\n"),
        Verdict::MayFail => format!("{name}: may fail\n"),
        Verdict::CannotRun => format!("{name}: cannot run\n"),
    };
    let mut hidden = 0;
    for finding in &report.findings {
        if finding.verdict == Verdict::Fits && !explain {
            hidden += 1;
            continue;
        }
        push_finding(&mut out, finding, explain);
    }
    let megabytes = report.memory_floor_bytes >> 20;
    let missing = report.libraries.iter().filter(|l| l.path.is_none()).count();
    let runtime = report.runtime.map(|r| format!("{r}, ")).unwrap_or_default();
    let libraries = match (&report.interpreter, report.libraries.len()) {
        (None, _) => "static".to_string(),
        (Some(_), count) if missing > 0 => format!("{count} libraries, {missing} missing"),
        (Some(_), count) => format!("{count} libraries, all found"),
    };
    if !report.system_calls.is_empty() {
        let count = |level: &str| {
            let calls = report.system_calls.iter();
            calls.filter(|c| c.level == level).count()
        };
        out.push_str(&format!(
            "  {runtime}{libraries}; {} system calls in reach: {} full, {} partial, {} refused, {} missing\n",
            report.system_calls.len(),
            count("full"),
            count("partial"),
            count("refused"),
            count("missing"),
        ));
        out.push_str(&format!(
            "  needs at least about {megabytes} MiB of memory (estimate)\n"
        ));
    }
    if explain {
        explain_rest(&mut out, report);
    } else if hidden > 0 || !report.system_calls.is_empty() {
        out.push_str("  --explain shows where each finding comes from, and every system call\n");
    }
    out
}

fn push_finding(out: &mut String, finding: &Finding, explain: bool) {
    let mark = match finding.verdict {
        Verdict::Fits => "note",
        Verdict::MayFail => "may fail",
        Verdict::CannotRun => "cannot run",
    };
    let subject = match finding.subject {
        Subject::Program => "program",
        Subject::Library => "library",
        Subject::Process => "processes",
        Subject::Script => "script",
        Subject::SystemCall => "system call",
    };
    out.push_str(&format!("  {mark}: {subject}: {}\n", finding.message));
    if !finding.remedy.is_empty() {
        out.push_str(&format!("    -> {}\n", finding.remedy));
    }
    if explain && !finding.way.is_empty() {
        out.push_str(&format!("    by {}\n", finding.way.join(" > ")));
    }
}

fn explain_rest(out: &mut String, report: &Report) {
    for command in &report.commands {
        out.push_str(&format!("  runs: {}\n", command.join(" ")));
    }
    for library in &report.libraries {
        let path = library.path.as_deref().unwrap_or("missing");
        out.push_str(&format!("  library {}: {path}\n", library.name));
    }
    for call in &report.system_calls {
        let note = if call.note.is_empty() {
            String::new()
        } else {
            format!(" ({})", call.note)
        };
        out.push_str(&format!("  {} {}{note}\n", call.level, call.name));
        if call.level != "full" {
            out.push_str(&format!("    by {}\n", call.way.join(" > ")));
        }
    }
}
