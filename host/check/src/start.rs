// SPDX-License-Identifier: Apache-2.0
//! From the entry point of an image to the program that will run: through scripts, `env` and `exec`.

use coracle_loader::script::{self as script_line, HEAD_BYTES, is_script};

use crate::files::{Files, Node, find_program, resolve};
use crate::report::{Finding, Subject, Verdict};
use crate::script::{self, Child};

/// Where programs are looked for if the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Scripts that lead to scripts; Linux stops at five as well.
const MAX_SCRIPTS: usize = 8;

/// What is started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// The program and its arguments: entry point and command of an image.
    pub args: Vec<String>,
    /// The environment, `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The working directory.
    pub directory: String,
}

/// What [`follow`] found.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) commands: Vec<Vec<String>>,
    /// Path of the ELF file, or of what should be one.
    pub(crate) program: Option<String>,
}

/// Follows the commands until one is no script.
pub(crate) fn follow(files: &dyn Files, start: &Start, findings: &mut Vec<Finding>) -> Begun {
    let search = start
        .environment
        .iter()
        .find_map(|e| e.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    let mut begun = Begun {
        commands: Vec::new(),
        program: None,
    };
    let mut args = start.args.clone();
    for _ in 0..MAX_SCRIPTS {
        let Some(name) = args.first().cloned() else {
            let message = "there is nothing to run: the image has neither entry point nor command";
            findings.push(
                Finding::new(Verdict::CannotRun, Subject::Program, message)
                    .remedy("name a program behind the image"),
            );
            return begun;
        };
        begun.commands.push(args.clone());
        let Some(path) = find_program(files, &name, search, &start.directory) else {
            findings.push(not_found(files, &name));
            return begun;
        };
        let real = resolve(files, &path).unwrap_or(path.clone());
        let base = real.rsplit('/').next().unwrap_or_default().to_string();
        let start = files.read(&real, HEAD_BYTES).unwrap_or_default();
        if is_script(&start) {
            let mut head = [0; HEAD_BYTES];
            head[..start.len()].copy_from_slice(&start);
            let script = match script_line::parse(&head) {
                Ok(script) => script,
                Err(error) => {
                    let message = format!("{path}: {error}");
                    findings.push(Finding::new(Verdict::CannotRun, Subject::Script, message));
                    return begun;
                }
            };
            let interpreter = &*String::from_utf8_lossy(script.interpreter);
            if resolve(files, interpreter).is_none() {
                findings.push(
                    Finding::new(
                        Verdict::CannotRun,
                        Subject::Script,
                        format!("{path} is a script for {interpreter}, which is missing"),
                    )
                    .remedy("add the interpreter to the image, or name the program itself"),
                );
                return begun;
            }
            let mut next = vec![interpreter.to_string()];
            next.extend(
                script
                    .argument
                    .map(|argument| String::from_utf8_lossy(argument).into_owned()),
            );
            next.push(path);
            next.extend(args.drain(1..));
            args = next;
            continue;
        }
        match base.as_str() {
            // `env` sets variables and becomes the program.
            "env" => {
                let rest = args[1..]
                    .iter()
                    .skip_while(|a| a.starts_with('-') || a.contains('='));
                args = rest.cloned().collect();
                continue;
            }
            "sh" | "dash" | "bash" | "ash" | "busybox" | "ksh" | "zsh" => {
                match shell(files, &base, &args, findings) {
                    Some(next) => {
                        args = next;
                        continue;
                    }
                    None => {
                        begun.program = Some(real);
                        return begun;
                    }
                }
            }
            _ => {}
        }
        begun.program = Some(real);
        return begun;
    }
    let message = "its scripts lead from one to the next without end";
    findings.push(Finding::new(Verdict::CannotRun, Subject::Script, message));
    begun
}

fn not_found(files: &dyn Files, name: &str) -> Finding {
    let there = name.contains('/').then(|| resolve(files, name)).flatten();
    let (message, remedy) = match there.and_then(|real| files.node(&real)) {
        Some(Node::File { .. }) => (
            format!("{name} is not executable"),
            "set its mode: chmod +x",
        ),
        Some(_) => (format!("{name} is no program"), ""),
        None => (
            format!("{name} is not in the image"),
            "check the name and the PATH of the image",
        ),
    };
    Finding::new(Verdict::CannotRun, Subject::Program, message).remedy(remedy)
}

/// Looks at what a shell is to do. Returns the command it ends in, if there is one.
fn shell(
    files: &dyn Files,
    base: &str,
    args: &[String],
    findings: &mut Vec<Finding>,
) -> Option<Vec<String>> {
    let (text, name, positional) = match args.iter().position(|a| a == "-c") {
        Some(n) => (
            args.get(n + 1)?.clone(),
            "the command of sh -c".to_string(),
            args.get(n + 3..).unwrap_or_default().to_vec(),
        ),
        None => {
            let at = (1..args.len()).find(|n| !args[*n].starts_with('-'));
            let Some(at) = at else {
                findings.push(
                    Finding::new(
                        Verdict::MayFail,
                        Subject::Script,
                        "it is a shell: its own commands work, other programs only with exec",
                    )
                    .remedy("name the program to run instead of the shell"),
                );
                return None;
            };
            let real = resolve(files, &args[at])?;
            let bytes = files.read(&real, 1 << 20)?;
            (
                String::from_utf8_lossy(&bytes).into_owned(),
                args[at].clone(),
                args[at + 1..].to_vec(),
            )
        }
    };
    let script = script::read(&text);
    // `sh -c 'program'`: shells become the last command of such a line without starting a process.
    let only = args.iter().any(|a| a == "-c")
        && script.execs.is_empty()
        && script.children.len() == 1
        && !text.contains(['|', '&', ';', '\n', '`', '('])
        && matches!(base, "bash" | "dash" | "sh" | "busybox" | "ash");
    if only {
        return Some(text.split_whitespace().map(String::from).collect());
    }
    if let Some(finding) = children(&name, &script.children, base == "bash") {
        findings.push(finding);
    }
    let next = script.execs.last()?;
    Some(
        next.iter()
            .flat_map(|word| match word.as_str() {
                "$@" | "$*" | "${@}" => positional.clone(),
                _ => vec![word.clone()],
            })
            .collect(),
    )
}

/// What a script needs other processes for. bash goes on when it cannot start a command, the other shells end.
fn children(name: &str, children: &[Child], goes_on: bool) -> Option<Finding> {
    const SHOWN: usize = 4;
    let certain = children.iter().filter(|c| c.certain);
    let possible = children.iter().filter(|c| !c.certain);
    let mut told: Vec<String> = certain
        .chain(possible)
        .map(|c| format!("{} (line {})", c.what, c.line))
        .collect();
    let more = told.len().saturating_sub(SHOWN);
    told.truncate(SHOWN);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    let verdict = match (
        children.is_empty(),
        goes_on,
        children.iter().any(|c| c.certain),
    ) {
        (true, ..) => return None,
        (_, false, true) => Verdict::CannotRun,
        _ => Verdict::MayFail,
    };
    let message = format!(
        "{name} needs processes of their own for {}",
        told.join(", ")
    );
    Some(
        Finding::new(verdict, Subject::Script, message)
            .remedy("do such work when the image is built, and let the script end in exec"),
    )
}
