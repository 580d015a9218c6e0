// SPDX-License-Identifier: Apache-2.0
//! Commands about the host and the command line itself, with a script in QEMU's place.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use common::{Done, World, free_port};

#[test]
fn dry_run_prints_the_command_line_and_starts_nothing() {
    let world = World::new();
    let port = free_port();
    let done = world.run(
        "exit",
        &[
            "run",
            "--dry-run",
            "-m",
            "64M",
            "--cpus",
            "2",
            "-p",
            &format!("{port}:80/udp"),
            "./hello",
        ],
    );
    assert_eq!(done.code, 0, "{done:?}");
    for part in [
        "-M microvm",
        "-m 64M",
        "-smp 2",
        &format!("hostfwd=udp::{port}-10.0.2.15:80"),
        "name=org.coracle.control",
        "-sandbox on",
    ] {
        assert!(
            done.stdout.contains(part),
            "{part} is not in {}",
            done.stdout
        );
    }
    let q35 = world
        .run(
            "exit",
            &[
                "run",
                "--dry-run",
                "--machine",
                "q35",
                "--network",
                "none",
                "./hello",
            ],
        )
        .stdout;
    assert!(
        q35.contains("virtio-serial-pci,disable-legacy=on") && !q35.contains("netdev"),
        "{q35}"
    );
    world.assert_clean();
}

#[test]
fn settings_come_from_flag_environment_and_file_in_this_order() {
    let world = World::new();
    std::fs::create_dir_all(world.path("config/coracle")).unwrap();
    std::fs::write(
        world.path("config/coracle/config.toml"),
        "memory = \"32M\"\ncpus = 2\n",
    )
    .unwrap();
    let mut command = world.coracle(&["config", "--resolved"]);
    let done = Done::from(command.env("CORACLE_MEMORY", "48M").output().unwrap());
    let line = |key: &str| {
        let line = done
            .stdout
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap();
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("memory"), "48M CORACLE_MEMORY");
    assert!(
        line("cpus").starts_with("2 ") && line("cpus").ends_with("config.toml: cpus"),
        "{}",
        line("cpus")
    );
    let flag = Done::from(
        world
            .coracle(&["run", "--dry-run", "-m", "16M", "./hello"])
            .env("CORACLE_MEMORY", "48M")
            .output()
            .unwrap(),
    );
    assert!(
        flag.stdout.contains("-m 16M -bios") && flag.stdout.contains("-smp 2"),
        "{}",
        flag.stdout
    );
}

#[test]
fn doctor_names_what_is_missing_and_its_repair() {
    let world = World::new();
    let fine = world.run("", &["doctor"]);
    assert_eq!(fine.code, 0, "{fine:?}");
    assert!(
        fine.stdout.contains("ok    QEMU 8.1") && fine.stdout.contains("software emulation"),
        "{}",
        fine.stdout
    );
    let old = Done::from(
        world
            .coracle(&["doctor"])
            .env("FAKE_VERSION", "5.0.0")
            .output()
            .unwrap(),
    );
    assert_eq!(old.code, 0, "the version of a known program is remembered");
    std::fs::remove_dir_all(world.path("cache")).unwrap();
    let old = Done::from(
        world
            .coracle(&["doctor"])
            .env("FAKE_VERSION", "5.0.0")
            .output()
            .unwrap(),
    );
    assert_eq!(old.code, 1);
    assert!(
        old.stdout.contains("MISS  ")
            && old.stdout.contains("too old")
            && old.stdout.contains("repair: "),
        "{}",
        old.stdout
    );
}

#[test]
fn system_calls_are_listed_by_level() {
    let world = World::new();
    let list = |args: &[&str]| -> Vec<serde_json::Value> {
        let done = world.run("", &[&["syscalls", "-o", "json"], args].concat());
        serde_json::from_str(&done.stdout).unwrap()
    };
    let all = list(&[]);
    assert!(
        all.iter()
            .any(|call| call["name"] == "read" && call["number"] == 0 && call["level"] == "full")
    );
    assert!(all.is_sorted_by_key(|call| call["number"].as_u64()));
    let count = |level| list(&["--level", level]).len();
    assert_eq!(
        count("full") + count("partial") + count("refused"),
        all.len()
    );
    assert!(
        list(&["--level", "missing"])
            .iter()
            .any(|call| call["name"] == "ptrace")
    );
    assert_eq!(list(&["--missing"]), list(&["--level", "missing"]));
    let named = list(&["ptrace", "read"]);
    let levels: Vec<_> = named.iter().map(|call| &call["level"]).collect();
    assert_eq!(levels, ["full", "missing"]);
    let table = world.run("", &["syscalls"]).stdout;
    assert!(table.starts_with("NUMBER  NAME"), "{table}");
    let names = world
        .run("", &["syscalls", "-o", "name", "-l", "refused"])
        .stdout;
    assert!(names.lines().any(|name| name == "fork"), "{names}");
    world
        .run("", &["syscalls", "red"])
        .fails(125, &["red", "no system call", "-o name"]);
}

#[test]
fn an_executable_is_packed_once_until_it_changes() {
    let world = World::new();
    let roots = || {
        let entries = std::fs::read_dir(world.path("cache/coracle/roots")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(world.run("exit", &["run", "--rm", "./hello"]).code, 0);
    let first = roots();
    assert_eq!(
        world
            .run("exit", &["run", "--rm", "-e", "A=b", "./hello", "argument"])
            .code,
        0
    );
    assert_eq!(roots(), first, "other arguments, the same files");

    std::fs::write(
        world.path("hello"),
        [common::elf::program(), vec![1; 10]].concat(),
    )
    .unwrap();
    assert_eq!(world.run("exit", &["run", "--rm", "./hello"]).code, 0);
    assert_eq!(roots().len(), 2);
    for number in 0..20 {
        let name = format!("hello{number}");
        std::fs::write(world.path(&name), common::elf::program()).unwrap();
        assert_eq!(
            world
                .run(
                    "exit",
                    &["run", "--rm", world.path(&name).to_str().unwrap()]
                )
                .code,
            0
        );
    }
    assert_eq!(roots().len(), 16, "what was used last is kept");
    assert!(roots().iter().any(|name| name.starts_with("hello19-")));

    // A cache that cannot be written costs time only.
    std::fs::remove_dir_all(world.path("cache/coracle/roots")).unwrap();
    std::fs::write(world.path("cache/coracle/roots"), "").unwrap();
    assert_eq!(world.run("exit", &["run", "--rm", "./hello"]).code, 0);
}

#[test]
fn a_folder_becomes_a_disk_unless_it_is_small() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let app = world.path("root/app");
    std::fs::create_dir(world.path("root")).unwrap();
    std::fs::write(&app, common::elf::program()).unwrap();
    std::fs::set_permissions(&app, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = |warning: &str| {
        let done = world.run("exit", &["run", "--dry-run", "root", "/app"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stderr.contains(warning), "{done:?}");
        assert_eq!(done.stderr.is_empty(), warning.is_empty(), "{done:?}");
        done.stdout
    };
    let is_disk = |line: &str| line.contains("cache/coracle/folders/");
    assert!(!is_disk(&line("")));
    let large = std::fs::File::create(world.path("root/large")).unwrap();
    large.set_len(5 << 20).unwrap();
    assert!(is_disk(&line("")));
    // A cache that cannot be written costs memory only.
    std::fs::remove_dir_all(world.path("cache/coracle/folders")).unwrap();
    std::fs::write(world.path("cache/coracle/folders"), "").unwrap();
    assert!(!is_disk(&line("put into the guest's memory")));
}
