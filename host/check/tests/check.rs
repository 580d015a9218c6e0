// SPDX-License-Identifier: Apache-2.0
//! Images made up of the host's own programs and of small ones built here, and what the check says of them.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use coracle_check::files::{Alone, Folder};
use coracle_check::{Report, Start, Subject, Verdict, check};

/// A root folder in a temporary place.
struct Image(tempfile::TempDir);

impl Image {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, at: &str, content: &str) {
        let path = self.path().join(at.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Builds a C program into the image.
    fn build(&self, at: &str, source: &str, options: &[&str]) -> PathBuf {
        let out = self.path().join(at.trim_start_matches('/'));
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        let code = self.path().join("source.c");
        fs::write(&code, source).unwrap();
        let status = Command::new("cc")
            .args(["-O1", "-o"])
            .args([&out, &code])
            .args(options)
            .status()
            .expect("a C compiler");
        assert!(status.success());
        out
    }

    /// Copies a file of the host with its path.
    fn take(&self, path: &str) {
        let to = self.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }

    fn check(&self, args: &[&str]) -> Report {
        check(
            &Folder::new(self.path()),
            &Start {
                args: args.iter().map(|a| (*a).into()).collect(),
                environment: Vec::new(),
                directory: "/".into(),
            },
        )
    }
}

fn messages(report: &Report, verdict: Verdict) -> Vec<&str> {
    let findings = report.findings.iter().filter(|f| f.verdict == verdict);
    findings.map(|f| f.message.as_str()).collect()
}

const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n";

#[test]
fn a_static_program_fits_and_its_calls_are_known() {
    let image = Image::new();
    let path = image.build("hello", HELLO, &["-static"]);
    let alone = Alone::new(&path);
    let start = Start {
        args: vec![alone.path().into()],
        ..Start::default()
    };
    let report = check(&alone, &start);
    assert_eq!(report.verdict, Verdict::Fits, "{:?}", report.findings);
    assert!(report.system_calls.iter().any(|c| c.name == "write"));
    assert!(report.system_calls.iter().any(|c| c.name == "exit_group"));
}

#[test]
fn libraries_are_found_or_named() {
    let image = Image::new();
    image.build("app", HELLO, &[]);
    let report = image.check(&["/app"]);
    assert_eq!(report.verdict, Verdict::CannotRun);
    assert!(messages(&report, Verdict::CannotRun)[0].contains("dynamic loader /lib64/ld-linux"));

    fs::create_dir_all(image.path().join("lib64")).unwrap();
    image.take("/lib64/ld-linux-x86-64.so.2");
    let report = image.check(&["/app"]);
    assert_eq!(
        messages(&report, Verdict::CannotRun),
        ["libc.so.6, needed by /app, is missing"]
    );

    let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    image.take(libc.iter().find(|p| Path::new(p).exists()).unwrap());
    let report = image.check(&["app"]);
    assert_eq!(
        messages(&report, Verdict::CannotRun),
        ["app is not in the image"]
    );
    let report = image.check(&["/app"]);
    assert_eq!(report.verdict, Verdict::Fits, "{:?}", report.findings);
    let write = report.system_calls.iter().find(|c| c.name == "write");
    assert!(
        write
            .unwrap()
            .way
            .iter()
            .any(|f| f.starts_with("libc.so.6"))
    );
}

#[test]
fn a_program_that_starts_others_may_fail() {
    let image = Image::new();
    let source = "#include <stdlib.h>\nint main(void) { return system(\"ls\"); }\n";
    image.build("app", source, &["-static"]);
    let report = image.check(&["/app"]);
    assert_eq!(report.verdict, Verdict::MayFail);
    let finding = &report.findings[0];
    assert_eq!(finding.subject, Subject::Process);
    assert!(
        finding.message.contains("(posix_spawn, system)"),
        "{}",
        finding.message
    );
}

#[test]
fn a_call_that_is_missing_is_named_with_its_caller() {
    let image = Image::new();
    let source =
        "#define _GNU_SOURCE\n#include <sched.h>\nint main(void) { return setns(0, 0); }\n";
    image.build("app", source, &["-static"]);
    let report = image.check(&["/app"]);
    assert_eq!(
        report
            .system_calls
            .iter()
            .find(|c| c.name == "setns")
            .unwrap()
            .level,
        "missing"
    );
    // By its number as well.
    let source = "#include <unistd.h>\n#include <sys/syscall.h>\nint main(void) { return (int)syscall(SYS_setns, 0, 0); }\n";
    image.build("app", source, &["-static"]);
    let report = image.check(&["/app"]);
    let call = report
        .system_calls
        .iter()
        .find(|c| c.name == "setns")
        .unwrap();
    assert!(
        call.way.iter().any(|f| f.ends_with(": main")),
        "{:?}",
        call.way
    );
}

#[test]
fn scripts_are_followed() {
    let image = Image::new();
    image.build("bin/sh", HELLO, &["-static"]);
    image.build("app", HELLO, &["-static"]);
    image.put("/start", "#!/bin/sh\nset -e\nexport A=1\nexec \"$@\"\n");
    let report = image.check(&["/start", "/app", "-v"]);
    assert_eq!(report.verdict, Verdict::Fits, "{:?}", report.findings);
    assert_eq!(report.commands.last().unwrap(), &["/app", "-v"]);

    image.put("/start", "#!/bin/sh\nmkdir -p /data\nexec /app\n");
    let report = image.check(&["/start"]);
    assert_eq!(report.verdict, Verdict::CannotRun);
    assert!(messages(&report, Verdict::CannotRun)[0].contains("mkdir (line 2)"));

    image.put("/start", "#!/usr/bin/lua\n");
    let report = image.check(&["/start"]);
    assert!(messages(&report, Verdict::CannotRun)[0].contains("/usr/bin/lua, which is missing"));

    symlink("/start", image.path().join("again")).unwrap();
    image.put("/start", "#!/again\n");
    assert_eq!(image.check(&["/start"]).verdict, Verdict::CannotRun);
}

#[test]
fn programs_of_several_processes_are_known() {
    let image = Image::new();
    let server = |name: &str| image.build(name, HELLO, &["-static"]);
    server("usr/sbin/nginx");
    server("usr/sbin/apache2");
    server("usr/lib/postgresql/15/bin/postgres");
    server("usr/bin/redis-server");
    let verdict = |args: &[&str]| image.check(args).verdict;
    assert_eq!(verdict(&["nginx"]), Verdict::CannotRun);
    assert_eq!(
        verdict(&["nginx", "-g", "daemon off; master_process off;"]),
        Verdict::Fits
    );
    image.put(
        "/etc/nginx/nginx.conf",
        "daemon off;\n# master_process off;\n",
    );
    assert_eq!(verdict(&["nginx"]), Verdict::CannotRun);
    assert_eq!(
        verdict(&["nginx", "-g", "master_process off;"]),
        Verdict::Fits
    );
    assert_eq!(verdict(&["apache2", "-DFOREGROUND"]), Verdict::CannotRun);
    assert_eq!(
        verdict(&["/usr/lib/postgresql/15/bin/postgres"]),
        Verdict::CannotRun
    );
    assert_eq!(verdict(&["redis-server"]), Verdict::MayFail);
    assert_eq!(verdict(&["redis-server", "--save", ""]), Verdict::Fits);
    image.put("/r.conf", "save 900 1\ndaemonize yes\n");
    assert_eq!(verdict(&["redis-server", "/r.conf"]), Verdict::CannotRun);
    assert_eq!(
        verdict(&["redis-server", "/r.conf", "--daemonize", "no", "--save", ""]),
        Verdict::Fits
    );
}

#[test]
fn gunicorn_fits_with_its_worker_in_the_first_process() {
    let image = Image::new();
    image.build("usr/bin/python3", HELLO, &["-static"]);
    image.put("/usr/bin/gunicorn", "#!/usr/bin/python3\n");
    assert_eq!(
        image.check(&["gunicorn", "app:app"]).verdict,
        Verdict::CannotRun
    );
    image.put(
        "/conf.py",
        "import os\n\ndef pre_fork(server, worker):\n    pass\n",
    );
    let verdict = |args: &[&str]| image.check(args).verdict;
    assert_eq!(
        verdict(&["gunicorn", "-c", "/conf.py", "app:app"]),
        Verdict::Fits
    );
    assert_eq!(
        verdict(&["gunicorn", "-c", "conf.py", "app:app"]),
        Verdict::Fits
    );
    image.put("/conf.py", "# def pre_fork(\n");
    assert_eq!(
        verdict(&["gunicorn", "-c", "/conf.py", "app:app"]),
        Verdict::CannotRun
    );
}

#[test]
fn what_is_no_program_is_said() {
    let image = Image::new();
    image.put("/text", "hello\n");
    let report = image.check(&["/text"]);
    assert!(messages(&report, Verdict::CannotRun)[0].contains("no ELF file"));
    let mut elf = fs::read(image.build("app", HELLO, &["-static"])).unwrap();
    elf[18] = 183;
    fs::write(image.path().join("app"), &elf).unwrap();
    let report = image.check(&["/app"]);
    assert!(messages(&report, Verdict::CannotRun)[0].contains("is for arm64"));
    // Cut anywhere, it is damaged and nothing worse.
    elf[18] = 62;
    for len in [5, 16, 64, 100, 4096, elf.len() / 2] {
        fs::write(image.path().join("app"), &elf[..len]).unwrap();
        assert_eq!(image.check(&["/app"]).verdict, Verdict::CannotRun);
    }
}
