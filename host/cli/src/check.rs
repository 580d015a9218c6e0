// SPDX-License-Identifier: Apache-2.0
//! `coracle check`: whether something can run, before it does.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use coracle_check::files::{Alone, Files, Folder, Node};
use coracle_check::{Finding, Report, Start, Subject as About, Verdict};
use coracle_imager::Root;
use coracle_imager::erofs::{Found, Reader};
use coracle_imager::image::start::ImageRoot;

use crate::args::{CheckArgs, Format};
use crate::error::Failure;
use crate::images::find::{self, Lookup, Subject};
use crate::output;

/// Checks an executable, a program in a folder, or an image. The exit code is the verdict.
pub(crate) fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let (name, arguments) = args.command.split_first().expect("clap asks for one");
    let mut start = Start {
        environment: args.env.clone(),
        directory: "/".into(),
        ..Start::default()
    };
    let lookup = Lookup::new(&args.lookup);
    let files: Box<dyn Files> = match find::subject(name, &lookup)? {
        Subject::Image(image, root) => {
            let execution = &image.config.config;
            let root_of_image = ImageRoot::open(&image.name, &root)?;
            start.args = root_of_image.arguments(execution, None, arguments)?;
            // What the command line says comes first and wins.
            start.environment.extend(execution.env.iter().cloned());
            if execution.working_dir.starts_with('/') {
                start.directory.clone_from(&execution.working_dir);
            }
            Box::new(InImage::open(&root)?)
        }
        Subject::Root(Root::Image(path)) => {
            start.args = named(name, arguments)?;
            Box::new(InImage::open(&path)?)
        }
        Subject::Root(Root::Directory(path)) => {
            start.args = named(name, arguments)?;
            Box::new(Folder::new(&path))
        }
        Subject::Root(Root::Executable(path)) => {
            let alone = Alone::new(&path);
            start.args.push(alone.path().into());
            start.args.extend(arguments.iter().cloned());
            Box::new(alone)
        }
    };
    let report = coracle_check::check(&*files, &start);
    match args.output {
        Format::Json => output::json(&report)?,
        Format::Name => output::print(&format!("{}\n", verdict_word(report.verdict))),
        Format::Table => output::print(&text(name, &report, args.explain)),
    }
    Ok(report.verdict as u8)
}

/// A root has no program of its own.
fn named(root: &str, arguments: &[String]) -> Result<Vec<String>, Failure> {
    if arguments.is_empty() {
        return Err(Failure::new(format!(
            "{root}: name the program in it: coracle check {root} /path/in/it"
        )));
    }
    Ok(arguments.to_vec())
}

/// The files of an image's root.
struct InImage(Reader);

impl InImage {
    fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: String| Failure::new(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        Reader::new(file)
            .map(Self)
            .map_err(|error| failed(error.to_string()))
    }

    /// What is there; a root that is damaged at that place has nothing there.
    fn look(&self, path: &str) -> Option<Found> {
        self.0.look(path).ok().flatten()
    }
}

impl Files for InImage {
    fn node(&self, path: &str) -> Option<Node> {
        let found = self.look(path)?;
        Some(if found.is_link() {
            let text = self.0.read(&found, 0, found.size.min(4096)).ok()?;
            Node::Link(String::from_utf8(text).ok()?)
        } else if found.is_directory() {
            Node::Directory
        } else if found.is_file() {
            Node::File {
                executable: found.mode & 0o111 != 0,
            }
        } else {
            Node::Other
        })
    }

    fn read(&self, path: &str, limit: usize) -> Option<Cow<'_, [u8]>> {
        let found = self.look(path).filter(Found::is_file)?;
        let limit = u64::try_from(limit).ok()?;
        self.0.read(&found, 0, limit).ok().map(Cow::Owned)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Some(folder) = self.look(path).filter(Found::is_directory) else {
            return Vec::new();
        };
        let names = self.0.names(&folder).unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok())
            .collect()
    }
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
        About::Program => "program",
        About::Library => "library",
        About::Process => "processes",
        About::Script => "script",
        About::SystemCall => "system call",
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
