// SPDX-License-Identifier: Apache-2.0
//! The life of an instance, with a script in QEMU's place.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Done, World, eventually, free_port};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn pid(value: &serde_json::Value) -> Pid {
    Pid::from_raw(i32::try_from(value.as_i64().unwrap()).unwrap())
}

#[test]
fn run_passes_output_and_exit_code_on() {
    let world = World::new();
    let mut command = world.coracle(&["run", "--name", "a", "./hello", "-p", "--rm", "--", "x"]);
    let done = Done::from(
        command
            .env("BEHAVIOUR", "exit")
            .env("CODE", "3")
            .output()
            .unwrap(),
    );
    assert_eq!(
        (done.code, done.stdout.as_str(), done.stderr.as_str()),
        (3, "out\0put", "")
    );
    assert_eq!(
        world.inspect("a", "/command"),
        serde_json::json!(["/hello", "-p", "--rm", "--", "x"])
    );
    assert_eq!(
        world.inspect("a", "/exit"),
        serde_json::json!({"reason": "exit", "code": 3})
    );
    assert_eq!(world.run("", &["logs", "a"]).stdout, "out\0put");
    assert_eq!(world.run("", &["logs", "-f", "a"]).stdout, "out\0put");
    let wait = world.run("", &["wait", "a"]);
    assert_eq!((wait.code, wait.stdout.as_str()), (0, "3\n"));
    assert_eq!(world.run("", &["ps", "-o", "name"]).stdout, "");
    assert_eq!(world.run("", &["ps", "-a", "-o", "name"]).stdout, "a\n");
    assert!(world.run("", &["ps", "-a"]).stdout.contains("Exited (3)"));
    assert_eq!(world.run("", &["rm", "a"]).stdout, "a\n");
    world.assert_clean();
}

#[test]
fn standard_input_and_its_end_reach_the_guest() {
    let world = World::new();
    let mut command = world.coracle(&["run", "--rm", "./hello"]);
    command
        .env("BEHAVIOUR", "echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"a line\n")
        .unwrap();
    let done = Done::from(child.wait_with_output().unwrap());
    let want = "read a line then {\"op\":\"eof\",\"bytes\":7}\n";
    assert_eq!((done.code, done.stdout.as_str()), (0, want));
    world.assert_clean();
}

#[test]
fn a_detached_instance_is_listed_asked_and_stopped() {
    let world = World::new();
    let publish = format!("127.0.0.1:{}:80", free_port());
    let started = world.run(
        "serve",
        &["run", "-d", "--name", "web", "-p", &publish, "./hello"],
    );
    assert_eq!(
        (started.code, started.stdout.as_str()),
        (0, "web\n"),
        "{started:?}"
    );
    let ps = world.run("", &["ps"]).stdout;
    assert!(
        ps.contains("web") && ps.contains("Up ") && ps.contains(&publish),
        "{ps}"
    );
    assert_eq!(
        world
            .run(
                "",
                &["ps", "-o", "name", "-f", "name=we", "-f", "accel=tcg"]
            )
            .stdout,
        "web\n"
    );
    assert_eq!(
        world
            .run("", &["ps", "-o", "name", "-f", "status=exited"])
            .stdout,
        ""
    );
    assert_eq!(world.inspect("web", "/boot_ns"), 1000);
    assert!(
        !world
            .path("state/coracle/instances/web/bundle.cpio")
            .exists(),
        "the bundle goes when the guest is up"
    );

    let stats: serde_json::Value =
        serde_json::from_str(&world.run("", &["stats", "-o", "json", "web"]).stdout).unwrap();
    assert_eq!(stats, serde_json::json!({"syscalls": 42}));
    world
        .run("", &["rm", "web"])
        .fails(125, &["running", "rm -f"]);
    assert_eq!(world.run("", &["kill", "-s", "USR1", "web"]).code, 0);
    eventually("the signal arrives", || {
        world.run("", &["logs", "web"]).stdout == "serving\nsignal 10\n"
    });

    assert_eq!(world.run("", &["stop", "web"]).stdout, "web\n");
    assert_eq!(world.inspect("web", "/exit/reason"), "exit");
    assert_eq!(
        world.run("", &["stop", "web"]).code,
        0,
        "to stop what has ended is no error"
    );
    assert_eq!(world.run("", &["rm", "web"]).code, 0);
    world.assert_clean();
}

#[test]
fn the_control_socket_is_for_its_owner_only() {
    let world = World::new();
    assert_eq!(
        world
            .run(
                "serve",
                &["run", "-d", "--read-only", "--name", "s", "./hello"]
            )
            .code,
        0
    );
    let security: serde_json::Value =
        serde_json::from_str(&world.run("", &["inspect", "--security", "s"]).stdout).unwrap();
    assert_eq!(security[0]["control_socket_mode"], "0600");
    assert_eq!(security[0]["folder_mode"], "0700");
    assert_eq!(security[0]["vmm_no_new_privileges"], true);
    assert_eq!(security[0]["guest_root_read_only"], true);
    assert_eq!(world.run("", &["rm", "-f", "s"]).code, 0);
    world.assert_clean();
}

#[test]
fn stop_kills_a_guest_that_does_not_listen() {
    let world = World::new();
    assert_eq!(
        world
            .run("deaf", &["run", "-d", "--name", "deaf", "./hello"])
            .code,
        0
    );
    let started = Instant::now();
    assert_eq!(world.run("", &["stop", "-t", "1", "deaf"]).code, 0);
    assert!(
        started.elapsed() >= Duration::from_secs(1) && started.elapsed() < Duration::from_secs(9)
    );
    assert_eq!(world.inspect("deaf", "/exit/code"), 137);
    assert_eq!(world.inspect("deaf", "/exit/reason"), "signal");
}

#[test]
fn kill_and_wait_agree_on_the_signal() {
    let world = World::new();
    assert_eq!(
        world
            .run("serve", &["run", "-d", "--rm", "--name", "k", "./hello"])
            .code,
        0
    );
    let waiting = world
        .coracle(&["wait", "-o", "json", "k"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(world.run("", &["kill", "k"]).code, 0);
    let answer: serde_json::Value =
        serde_json::from_slice(&waiting.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        (&answer["code"], &answer["reason"]),
        (&137.into(), &"signal".into()),
        "{answer}"
    );
    world.assert_clean();
}

#[test]
fn reasons_reach_the_user() {
    let world = World::new();
    let oom = world.run("oom", &["run", "--name", "o", "./hello"]);
    oom.fails(137, &["out-of-memory", "8 MiB were there", "try -m 512M"]);
    assert_eq!(
        world
            .run("", &["ps", "-o", "name", "-f", "reason=out-of-memory"])
            .stdout,
        "o\n"
    );
    let crash = world.run("crash", &["run", "--name", "c", "./hello"]);
    crash.fails(125, &["vmm", "signal 11"]);
    let reset = world.run("reset", &["run", "--name", "r", "./hello"]);
    reset.fails(125, &["vmm", "before the kernel was up"]);
}

#[test]
fn a_guest_killed_from_outside_is_reported_as_vmm() {
    let world = World::new();
    assert_eq!(
        world
            .run("serve", &["run", "-d", "--name", "v", "./hello"])
            .code,
        0
    );
    kill(pid(&world.inspect("v", "/vmm/pid")), Signal::SIGKILL).unwrap();
    let wait = world.run("", &["wait", "v"]);
    assert_eq!(wait.stdout, "125\n");
    assert!(
        wait.stderr.contains("vmm") && wait.stderr.contains("killed from outside"),
        "{}",
        wait.stderr
    );
    assert_eq!(world.inspect("v", "/exit/reason"), "vmm");
    assert_eq!(world.run("", &["rm", "v"]).code, 0);
    world.assert_clean();
}

#[test]
fn the_vmm_dies_with_its_monitor() {
    let world = World::new();
    assert_eq!(
        world
            .run("serve", &["run", "-d", "--name", "m", "./hello"])
            .code,
        0
    );
    let vmm = pid(&world.inspect("m", "/vmm/pid"));
    kill(pid(&world.inspect("m", "/monitor/pid")), Signal::SIGKILL).unwrap();
    eventually("the VMM is gone", || kill(vmm, None).is_err());
    assert_eq!(world.inspect("m", "/status"), "exited");
    assert_eq!(world.inspect("m", "/exit/reason"), "vmm");
    assert_eq!(world.run("", &["wait", "m"]).stdout, "125\n");
    assert_eq!(world.run("", &["rm", "m"]).code, 0);
    world.assert_clean();
}

#[test]
fn a_pid_used_again_is_not_taken_for_the_monitor() {
    let world = World::new();
    assert_eq!(
        world.run("exit", &["run", "--name", "p", "./hello"]).code,
        0
    );
    let path = world.path("state/coracle/instances/p/state.json");
    let mut state: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["status"] = "running".into();
    state["monitor"] = serde_json::json!({"pid": std::process::id(), "start_ticks": 1});
    std::fs::write(&path, state.to_string()).unwrap();
    assert_eq!(world.inspect("p", "/status"), "exited");
    assert_eq!(world.run("", &["rm", "p"]).code, 0);
}

#[test]
fn interrupt_goes_to_the_guest_and_the_second_one_kills() {
    let world = World::new();
    let start = |behaviour: &str| {
        let mut command = world.coracle(&["run", "--rm", "./hello"]);
        let mut child = command
            .env("BEHAVIOUR", behaviour)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if behaviour == "serve" {
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap())
                .read_line(&mut line)
                .unwrap();
            assert_eq!(line, "serving\n");
        } else {
            std::thread::sleep(Duration::from_millis(300));
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        (child, pid)
    };
    let (child, pid) = start("serve");
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(Done::from(child.wait_with_output().unwrap()).code, 130);

    let (mut child, pid) = start("deaf");
    kill(pid, Signal::SIGINT).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        child.try_wait().unwrap().is_none(),
        "one interrupt is a request only"
    );
    kill(pid, Signal::SIGINT).unwrap();
    assert_eq!(Done::from(child.wait_with_output().unwrap()).code, 137);
    world.assert_clean();
}

#[test]
fn logs_follow_until_the_end() {
    let world = World::new();
    assert_eq!(
        world
            .run("serve", &["run", "-d", "--name", "f", "./hello"])
            .code,
        0
    );
    let mut follow = world
        .coracle(&["logs", "-f", "f"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(follow.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "serving\n");
    assert_eq!(world.run("", &["kill", "-s", "10", "f"]).code, 0);
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "signal 10\n");
    assert_eq!(world.run("", &["rm", "-f", "f"]).code, 0);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(follow.wait().unwrap().success());
}

#[test]
fn a_half_made_instance_can_be_removed() {
    let world = World::new();
    std::fs::create_dir_all(world.path("state/coracle/instances/half")).unwrap();
    world
        .run("exit", &["run", "--name", "half", "./hello"])
        .fails(125, &["half-made", "coracle rm -f half"]);
    assert_eq!(world.run("", &["ps", "-a", "-o", "name"]).stdout, "");
    assert_eq!(world.run("", &["rm", "-f", "half", "never-there"]).code, 0);
    world.assert_clean();
}

#[test]
fn the_monitor_starts_an_instance_once_only() {
    let world = World::new();
    assert_eq!(
        world
            .run("exit", &["run", "--name", "once", "./hello"])
            .code,
        0
    );
    world
        .run("exit", &["monitor", "once"])
        .fails(125, &["once", "started before"]);
    assert_eq!(world.inspect("once", "/exit/code"), 0);
}
