// SPDX-License-Identifier: Apache-2.0
//! Wrong input: each is answered by one line that names the file or value and the remedy, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Done, World, elf};

/// Runs an executable of these bytes.
fn run_file(bytes: &[u8]) -> Done {
    let world = World::new();
    fs::write(world.path("program"), bytes).unwrap();
    let done = world.run("exit", &["run", "./program"]);
    world.assert_clean();
    done
}

#[test]
fn a_file_that_is_not_elf() {
    run_file(b"#!/bin/sh\n").fails(126, &["./program", "not an ELF executable", "a folder"]);
    run_file(b"").fails(126, &["./program", "the file is empty"]);
    run_file(&[0; 5000]).fails(126, &["./program", "not an ELF executable"]);
}

#[test]
fn a_program_for_another_architecture() {
    run_file(&elf::for_machine(183)).fails(126, &["./program", "arm64", "x86-64"]);
    run_file(&elf::for_machine(243)).fails(126, &["RISC-V"]);
    run_file(&elf::for_machine(4711)).fails(126, &["ELF machine 4711"]);
}

#[test]
fn a_32_bit_program() {
    run_file(&elf::class32()).fails(126, &["./program", "32-bit", "x86-64"]);
}

#[test]
fn a_truncated_program() {
    let whole = elf::program();
    for length in [4, 16, 40, 63, 64, 100, whole.len() - 1] {
        run_file(&whole[..length]).fails(126, &["./program", "truncated", "build it again"]);
    }
}

#[test]
fn a_dynamic_program_without_its_loader() {
    let dynamic = elf::dynamic("/lib64/ld-linux-x86-64.so.2");
    let remedies = [
        "/lib64/ld-linux-x86-64.so.2",
        "CGO_ENABLED=0",
        "-static",
        "musl",
    ];
    run_file(&dynamic).fails(126, &remedies);

    let world = World::new();
    fs::create_dir_all(world.path("root/bin")).unwrap();
    fs::write(world.path("root/bin/app"), &dynamic).unwrap();
    fs::set_permissions(
        world.path("root/bin/app"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    world
        .run("exit", &["run", "root", "/bin/app"])
        .fails(127, &remedies);
    world.assert_clean();
    fs::create_dir(world.path("root/lib64")).unwrap();
    fs::write(
        world.path("root/lib64/ld-linux-x86-64.so.2"),
        elf::program(),
    )
    .unwrap();
    assert_eq!(world.run("exit", &["run", "--rm", "root", "app"]).code, 0);
}

#[test]
fn a_script_without_its_interpreter() {
    let world = World::new();
    fs::create_dir_all(world.path("root/bin")).unwrap();
    let script = |name: &str, text: &str| {
        let path = world.path("root").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("start", "#!/bin/app -e\n");
    script("other", "#!/start\n");
    script("empty", "#! \n");
    let run = |program: &str| world.run("exit", &["run", "--rm", "root", program]);
    run("/start").fails(127, &["/start", "script", "/bin/app is missing in"]);
    run("/other").fails(127, &["/other", "script", "/bin/app is missing in"]);
    run("/empty").fails(126, &["/empty", "names no interpreter"]);
    world.assert_clean();
    fs::write(world.path("root/bin/app"), elf::program()).unwrap();
    assert_eq!(run("/start").code, 0);
    assert_eq!(run("/other").code, 0);
}

#[test]
fn a_program_that_is_missing_or_not_executable() {
    let world = World::new();
    world
        .run("exit", &["run", "./nothing"])
        .fails(127, &["./nothing", "no such file", "give the path"]);
    fs::create_dir(world.path("root")).unwrap();
    fs::write(world.path("root/app"), elf::program()).unwrap();
    world
        .run("exit", &["run", "root"])
        .fails(125, &["root", "name the program"]);
    world
        .run("exit", &["run", "root", "/none"])
        .fails(127, &["/none", "not found in root"]);
    world
        .run("exit", &["run", "root", "/app"])
        .fails(126, &["/app", "chmod +x"]);
    world.assert_clean();
}

#[test]
fn memory_and_cpus_out_of_bounds() {
    let world = World::new();
    for memory in [
        "0",
        "7M",
        "64",
        "x",
        "1Q",
        "9000000G",
        "-1",
        "18446744073709551616",
    ] {
        world
            .run("exit", &["run", "-m", memory, "./hello"])
            .fails(125, &["--memory", memory]);
    }
    for cpus in ["0", "9", "-1", "1.5", "two"] {
        world
            .run("exit", &["run", "--cpus", cpus, "./hello"])
            .fails(125, &["--cpus", cpus, "1 to 8"]);
    }
    world.assert_clean();
}

#[test]
fn a_port_in_use() {
    let world = World::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let publish = format!("{port}:80");
    world
        .run("exit", &["run", "-p", &publish, "./hello"])
        .fails(125, &[&publish, "in use", "choose another"]);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let publish = format!("127.0.0.1:{}:53/udp", udp.local_addr().unwrap().port());
    world
        .run("exit", &["run", "-p", &publish, "./hello"])
        .fails(125, &[&publish, "in use"]);
    for wrong in [
        "80",
        "0:80",
        "80:65536",
        "a:b",
        "1:2:3:4",
        "80:80/sctp",
        "300.0.0.1:80:80",
    ] {
        world
            .run("exit", &["run", "-p", wrong, "./hello"])
            .fails(125, &[wrong, "HOSTPORT:GUESTPORT"]);
    }
    // An address for documentation (RFC 5737), which no host has.
    world
        .run("exit", &["run", "-p", "192.0.2.1:8080:80", "./hello"])
        .fails(125, &["192.0.2.1", "no address of this host"]);
    let port = common::free_port();
    let publish = format!("{port}:80");
    world
        .run(
            "exit",
            &["run", "--network", "none", "-p", &publish, "./hello"],
        )
        .fails(125, &["--network user"]);
    world
        .run(
            "exit",
            &[
                "run",
                "-p",
                &publish,
                "-p",
                &format!("{port}:81"),
                "./hello",
            ],
        )
        .fails(125, &["twice"]);
    world.assert_clean();
}

#[test]
fn a_tap_that_is_missing_or_no_tap_or_not_understood() {
    let world = World::new();
    let run = |network: &str| world.run("exit", &["run", "--network", network, "./hello"]);
    run("tap=cornone,ip=10.9.0.2/24").fails(
        125,
        &["cornone", "no such interface", "ip tuntap add cornone"],
    );
    run("tap=lo,ip=10.9.0.2/24").fails(125, &["lo", "not a TAP"]);
    for wrong in [
        "bridge",
        "tap=x",
        "tap=x,ip=10.0.0.1",
        "tap=x,ip=10.0.0.1/33",
        "tap=,ip=10.0.0.1/8",
        "tap=a/b,ip=10.0.0.1/8",
    ] {
        run(wrong).fails(125, &["--network", wrong]);
    }
    run("tap=x,ip=10.0.0.1/8,mac=01:00:00:00:00:00").fails(125, &["multicast"]);
    run("tap=x,ip=10.0.0.1/8,speed=9").fails(125, &["speed"]);
    world.assert_clean();
}

#[test]
fn no_qemu_or_one_that_is_too_old() {
    let world = World::new();
    let mut without = world.coracle(&["run", "./hello"]);
    without
        .env_remove("CORACLE_QEMU")
        .env("PATH", world.path("empty"));
    Done::from(without.output().unwrap()).fails(125, &["no qemu-system-x86_64 in PATH", "install"]);

    let mut wrong = world.coracle(&["run", "./hello"]);
    wrong.env("CORACLE_QEMU", world.path("hello"));
    Done::from(wrong.output().unwrap()).fails(125, &["hello", "not a program"]);

    let mut old = world.coracle(&["run", "./hello"]);
    old.env("FAKE_VERSION", "6.2.0");
    Done::from(old.output().unwrap()).fails(125, &["QEMU 6.2 is too old", "7.0"]);

    let mut mute = world.coracle(&["run", "./hello"]);
    mute.env("CORACLE_QEMU", "/bin/true");
    Done::from(mute.output().unwrap()).fails(125, &["/bin/true", "version"]);
    world.assert_clean();
}

#[test]
fn no_kernel() {
    let world = World::new();
    let mut command = world.coracle(&["run", "./hello"]);
    command.env("CORACLE_KERNEL", world.path("gone"));
    Done::from(command.output().unwrap()).fails(125, &["gone", "CORACLE_KERNEL"]);
    world.assert_clean();
}

#[test]
fn kvm_that_is_asked_for_and_does_not_work() {
    // The script takes QEMU's place in the probe too and fails it, wherever this machine's KVM stands.
    let world = World::new();
    world
        .run("exit", &["run", "--accel", "kvm", "./hello"])
        .fails(125, &["--accel kvm", "/dev/kvm", "; "]);
    world.assert_clean();

    let automatic = world.run("exit", &["run", "--rm", "--accel", "auto", "./hello"]);
    assert_eq!(automatic.code, 0);
    assert_eq!(automatic.stderr.lines().count(), 1, "{}", automatic.stderr);
    assert!(
        automatic.stderr.contains("software emulation"),
        "{}",
        automatic.stderr
    );
    world
        .run("exit", &["run", "--accel", "hvf", "./hello"])
        .fails(125, &["hvf", "auto, kvm or tcg"]);
}

#[test]
fn a_second_instance_of_the_same_name() {
    let world = World::new();
    assert_eq!(
        world
            .run("serve", &["run", "-d", "--name", "one", "./hello"])
            .code,
        0
    );
    world
        .run("serve", &["run", "--name", "one", "./hello"])
        .fails(125, &["one", "a running instance", "coracle rm -f one"]);
    assert_eq!(world.run("", &["stop", "one"]).code, 0);
    world
        .run("serve", &["run", "--name", "one", "./hello"])
        .fails(125, &["one", "an ended instance", "coracle rm one"]);
    assert_eq!(world.run("", &["rm", "one"]).code, 0);
    for wrong in ["", "../x", "-a", "a b", &"x".repeat(41)] {
        let flag = format!("--name={wrong}");
        world
            .run("exit", &["run", &flag, "./hello"])
            .fails(125, &["--name", "letters"]);
    }
    world.assert_clean();
}

#[test]
fn a_vmm_that_refuses_its_command_line() {
    let world = World::new();
    world
        .run("refuse", &["run", "./hello"])
        .fails(125, &["QEMU did not start", "no luck today"]);
    world
        .run("refuse", &["run", "-d", "./hello"])
        .fails(125, &["QEMU did not start", "no luck today"]);
    world.assert_clean();
}

#[test]
fn a_program_the_guest_cannot_start() {
    let world = World::new();
    let foreground = world.run("exec", &["run", "--rm", "./hello"]);
    foreground.fails(126, &["exec", "/hello: not understood"]);
    world
        .run("exec", &["run", "-d", "./hello"])
        .fails(126, &["/hello: not understood"]);
    world.assert_clean();
}

#[test]
fn wrong_flags_and_names() {
    let world = World::new();
    assert_eq!(
        world
            .run("exit", &["run", "--no-such-flag", "./hello"])
            .code,
        125
    );
    assert_eq!(world.run("exit", &["run"]).code, 125);
    world
        .run("exit", &["run", "-w", "relative", "./hello"])
        .fails(125, &["relative", "/relative"]);
    world
        .run("exit", &["run", "-u", "nobody", "./hello"])
        .fails(125, &["nobody", "1000:1000"]);
    world
        .run("exit", &["run", "-e", "=x", "./hello"])
        .fails(125, &["=x", "NAME=VALUE"]);
    world
        .run("exit", &["run", "--env-file", "gone", "./hello"])
        .fails(125, &["gone", "No such file", "NAME=VALUE"]);
    world
        .run("exit", &["run", "--machine", "pc", "./hello"])
        .fails(125, &["pc", "microvm or q35"]);
    for command in ["logs", "stop", "kill", "rm", "wait", "inspect", "stats"] {
        world
            .run("", &[command, "nobody"])
            .fails(125, &["nobody", "coracle ps -a"]);
    }
    fs::create_dir_all(world.path("config/coracle")).unwrap();
    fs::write(
        world.path("config/coracle/config.toml"),
        "memroy = \"1G\"\n",
    )
    .unwrap();
    world
        .run("exit", &["run", "./hello"])
        .fails(125, &["config.toml", "memroy", "memory"]);
    world.assert_clean();
}

/// Needs a mount, so it runs where a user namespace (or root) allows one.
#[test]
fn a_disk_that_is_full_while_starting() {
    let world = World::new();
    let mut large = elf::program();
    large.resize(2 << 20, 0);
    fs::write(world.path("large"), large).unwrap();
    fs::create_dir(world.path("tiny")).unwrap();
    let script = r#"mount -t tmpfs -o size=1m none "$TINY" || exit 77
        "$@" run -d ./large; echo "code $?"
        find "$TINY" -mindepth 1 -path '*/instances/*' -o -path '*/roots/*'"#;
    let mut command = Command::new("unshare");
    let coracle = world.coracle(&[]);
    command
        .args([
            "--mount",
            "--map-root-user",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_coracle"),
        ])
        .current_dir(world.path(""))
        .envs(
            coracle
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("XDG_STATE_HOME", world.path("tiny"))
        .env("XDG_CACHE_HOME", world.path("tiny"))
        .env("TINY", world.path("tiny"))
        .env("BEHAVIOUR", "serve");
    let done = Done::from(command.output().unwrap());
    if done.code == 77 {
        eprintln!("skipped: this machine allows no mount: {}", done.stderr);
        return;
    }
    assert_eq!(done.stdout, "code 125\n", "{done:?}");
    done.fails(0, &["disk full", "tiny", "XDG_STATE_HOME"]);
    assert!(
        !done.stdout.contains("roots/large"),
        "half a file is no cache: {done:?}"
    );
}
