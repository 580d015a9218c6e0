// SPDX-License-Identifier: Apache-2.0
//! What is known of certain programs and cannot be read from their code: which ones are built from several processes,
//! and with which options they do without.

use crate::files::{Files, resolve};
use crate::report::{Finding, Subject, Verdict};

/// What is known of a program.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The language or runtime.
    pub(crate) runtime: Option<&'static str>,
    /// It starts other processes only when what it runs asks for it.
    pub(crate) forks_on_request: bool,
    /// Memory it needs above its own data, in MiB: measured, rounded up.
    pub(crate) memory_mib: u64,
    /// What speaks against it.
    pub(crate) findings: Vec<Finding>,
    /// Folders with further libraries that it loads itself.
    pub(crate) extra_libraries: Vec<String>,
}

/// Looks a program up. `program` is its path with links resolved, `args` are its arguments without its name.
pub(crate) fn known(files: &dyn Files, program: &str, args: &[String], directory: &str) -> Known {
    let name = program.rsplit('/').next().unwrap_or(program);
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    match base {
        "redis-server" | "redis-check-rdb" | "valkey-server" | "valkey-check-rdb" => {
            redis(files, args)
        }
        "nginx" => nginx(files, args),
        "apache" | "httpd" => apache(args),
        "python" | "pypy" => python(files, args, directory),
        "node" | "nodejs" => runtime("Node.js", 72),
        "java" => java(program),
        "perl" => runtime("Perl", 8),
        "ruby" => runtime("Ruby", 24),
        "php" => runtime("PHP", 16),
        "postgres" | "postmaster" | "pg_ctl" | "initdb" => many(
            "PostgreSQL runs each connection and its own upkeep in processes of their own",
            "run it in a container or Linux VM, and let the program that needs it connect over the network",
        ),
        "sshd" | "dropbear" => many("it runs each connection in a process of its own", ""),
        "php-fpm" => many(
            "PHP-FPM answers requests in worker processes",
            "use a server with threads or an event loop, such as php -S for small loads",
        ),
        "uwsgi" if !args.iter().any(|a| a == "--master") => Known::default(),
        "uwsgi" => many(
            "uWSGI with --master answers requests in worker processes",
            "leave --master out",
        ),
        "beam.smp" | "erlexec" | "erl" => many(
            "the Erlang runtime starts a helper process (erl_child_setup) before anything else",
            "",
        ),
        "tini" | "dumb-init" | "catatonit" | "s6-svscan" | "runsv" | "runsvdir" | "supervisord"
        | "runit" | "cron" | "crond" => many(
            "it starts the programs it looks after as processes of their own",
            "name the program itself as entry point: the kernel forwards signals and needs no init",
        ),
        _ => Known::default(),
    }
}

fn runtime(name: &'static str, memory_mib: u64) -> Known {
    Known {
        runtime: Some(name),
        forks_on_request: true,
        memory_mib,
        ..Known::default()
    }
}

fn many(message: &str, remedy: &str) -> Known {
    Known {
        findings: vec![process(Verdict::CannotRun, message, remedy)],
        ..Known::default()
    }
}

fn process(verdict: Verdict, message: &str, remedy: &str) -> Finding {
    Finding::new(verdict, Subject::Process, message).remedy(remedy)
}

fn text(files: &dyn Files, path: &str) -> Option<String> {
    let real = resolve(files, path)?;
    Some(String::from_utf8_lossy(&files.read(&real, 1 << 20)?).into_owned())
}

/// The value of `--name`, or of `--name=value`.
fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(n, arg)| {
        if arg == name {
            args.get(n + 1).map(String::as_str)
        } else {
            arg.strip_prefix(name)?.strip_prefix('=')
        }
    })
}

fn redis(files: &dyn Files, args: &[String]) -> Known {
    let config = args
        .first()
        .filter(|a| !a.starts_with('-'))
        .and_then(|path| text(files, path))
        .unwrap_or_default();
    // The command line wins over the file; the last line of a file wins.
    let setting = |name: &str| -> Option<String> {
        option(args, &format!("--{name}"))
            .map(String::from)
            .or_else(|| {
                config
                    .lines()
                    .rev()
                    .find_map(|line| Some(line.trim().strip_prefix(name)?.trim().to_string()))
            })
    };
    let mut findings = Vec::new();
    if setting("daemonize").as_deref() == Some("yes") {
        findings.push(process(
            Verdict::CannotRun,
            "its configuration says daemonize yes: it would go on in another process",
            "add --daemonize no",
        ));
    }
    let is_off = |value: &str| value.is_empty() || value == "\"\"" || value == "''";
    if !setting("save").is_some_and(|value| is_off(&value)) {
        findings.push(process(
            Verdict::MayFail,
            "it saves snapshots (BGSAVE) in another process; that will fail, and then it refuses writes",
            "add --save '' (append-only files work, without rewriting: --auto-aof-rewrite-percentage 0)",
        ));
    } else if setting("appendonly").as_deref() == Some("yes")
        && setting("auto-aof-rewrite-percentage").as_deref() != Some("0")
    {
        findings.push(process(
            Verdict::MayFail,
            "it rewrites its append-only file in another process; that will fail, and the file grows",
            "add --auto-aof-rewrite-percentage 0",
        ));
    }
    Known {
        forks_on_request: true,
        memory_mib: 4,
        findings,
        ..Known::default()
    }
}

fn nginx(files: &dyn Files, args: &[String]) -> Known {
    let path = option(args, "-c").unwrap_or("/etc/nginx/nginx.conf");
    let mut config = text(files, path).unwrap_or_default();
    for (n, arg) in args.iter().enumerate() {
        if arg == "-g" {
            config.push_str(&format!("\n{}", args.get(n + 1).map_or("", String::as_str)));
        }
    }
    let is_off = |name: &str| {
        config
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .flat_map(|line| line.split(';'))
            .any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(name) && words.next() == Some("off")
            })
    };
    let findings = if is_off("daemon") && is_off("master_process") {
        Vec::new()
    } else {
        vec![process(
            Verdict::CannotRun,
            "its configuration asks for a master process with workers",
            "add -g 'daemon off; master_process off;'",
        )]
    };
    Known {
        forks_on_request: true,
        memory_mib: 4,
        findings,
        ..Known::default()
    }
}

fn apache(args: &[String]) -> Known {
    if args.iter().any(|a| a == "-X") {
        return Known {
            forks_on_request: true,
            ..Known::default()
        };
    }
    many(
        "Apache answers requests in child processes, with every one of its multi-processing modules",
        "use nginx with 'daemon off; master_process off;', or for tests httpd -X, which serves one request at a time",
    )
}

fn python(files: &dyn Files, args: &[String], directory: &str) -> Known {
    let mut known = runtime("Python", 24);
    for folder in ["/usr/lib", "/usr/local/lib"] {
        for name in resolve(files, folder)
            .map(|f| files.list(&f))
            .unwrap_or_default()
        {
            if name.starts_with("python3.") {
                known
                    .extra_libraries
                    .push(format!("{folder}/{name}/lib-dynload"));
            }
        }
    }
    // `python3 /usr/bin/gunicorn ...` and `python3 -m gunicorn ...`.
    let script = args
        .iter()
        .position(|a| a == "-m")
        .and_then(|n| args.get(n + 1))
        .or_else(|| args.iter().find(|a| !a.starts_with('-')));
    match script.map(|s| s.rsplit('/').next().unwrap_or(s)) {
        Some("gunicorn") if has_pre_fork(files, args, directory) => known.findings.push(process(
            Verdict::Fits,
            "gunicorn forks its workers, but its configuration has a hook pre_fork, which can run one in the first process",
            "",
        )),
        Some("gunicorn") => known.findings.push(process(
            Verdict::CannotRun,
            "gunicorn answers requests in worker processes, even with one worker",
            "run the worker in the first process by a hook pre_fork (docs/runtimes/python.md), or use waitress, cheroot, \
             or uvicorn without --workers",
        )),
        Some("celery") if option(args, "--pool").is_none() && option(args, "-P").is_none() => {
            known.findings.push(process(
                Verdict::CannotRun,
                "Celery runs tasks in worker processes",
                "add --pool=threads or --pool=solo",
            ));
        }
        Some("uvicorn" | "hypercorn" | "flask" | "django-admin" | "manage.py")
            if option(args, "--workers").is_some_and(|n| n != "1")
                || args.iter().any(|a| a == "--reload") =>
        {
            known.findings.push(process(
                Verdict::CannotRun,
                "with --workers or --reload the server runs in processes of its own",
                "leave the option out",
            ));
        }
        _ => {}
    }
    known
}

/// Whether gunicorn's configuration has a function `pre_fork`. It is read, not run.
fn has_pre_fork(files: &dyn Files, args: &[String], directory: &str) -> bool {
    let given = option(args, "-c").or_else(|| option(args, "--config"));
    let path = given.unwrap_or("gunicorn.conf.py");
    let path = match path.strip_prefix("file:").unwrap_or(path) {
        absolute if absolute.starts_with('/') => absolute.to_string(),
        relative => format!("{directory}/{relative}"),
    };
    text(files, &path).is_some_and(|config| config.contains("\ndef pre_fork("))
}

fn java(program: &str) -> Known {
    let mut known = runtime("Java", 96);
    if let Some(home) = program.strip_suffix("/bin/java") {
        known.extra_libraries.push(format!("{home}/lib/server"));
        known.extra_libraries.push(format!("{home}/lib"));
    }
    known
}
