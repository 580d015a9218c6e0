// SPDX-License-Identifier: Apache-2.0
//! The command lines with the real QEMU, which accepts each of them or does not.
//!
//! The guest is made by hand: a few instructions that print their kernel command line on the serial port and reset.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{Done, World, free_port};

/// Runs the hand-made guest with these flags and answers what it printed.
fn serial_of(flags: &[&str]) -> String {
    let world = World::new();
    let mut args = vec!["run", "--name", "real"];
    args.extend(flags);
    args.push("./hello");
    let done = Done::from(
        world
            .coracle(&args)
            .env_remove("CORACLE_QEMU")
            .output()
            .unwrap(),
    );
    done.fails(125, &["vmm", "before the kernel was up"]);
    assert_eq!(world.inspect("real", "/exit/reason"), "vmm");
    let serial = world.run("", &["logs", "--serial", "real"]).stdout;
    assert_eq!(world.run("", &["rm", "real"]).code, 0);
    world.assert_clean();
    serial
}

#[test]
fn microvm_starts_and_tells_the_kernel_its_devices() {
    let publish = format!("127.0.0.1:{}:80", free_port());
    let serial = serial_of(&[
        "-p",
        &publish,
        "-p",
        &format!("{publish}/udp"),
        "--cpus",
        "2",
        "-m",
        "64M",
    ]);
    assert_eq!(
        serial.matches("virtio_mmio.device=").count(),
        3,
        "random, serial and network: {serial}"
    );
}

#[test]
fn microvm_without_a_network_has_two_devices_and_eight_mebibytes_suffice() {
    let serial = serial_of(&["--network", "none", "-m", "8M", "--cpus", "8"]);
    assert_eq!(serial.matches("virtio_mmio.device=").count(), 2, "{serial}");
}

#[test]
fn q35_starts_and_gets_the_log_level() {
    let publish = format!("127.0.0.1:{}:80", free_port());
    let serial = serial_of(&["--machine", "q35", "--trace", "-p", &publish]);
    assert!(serial.contains("loglevel=trace"), "{serial}");
    assert!(!serial.contains("virtio_mmio"), "{serial}");
}

#[test]
fn the_frequency_of_the_counter_is_told_where_it_is_steady() {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    let steady = cpuinfo.contains("constant_tsc") && cpuinfo.contains("nonstop_tsc");
    assert_eq!(
        serial_of(&["--network", "none"]).contains("tsc_khz="),
        steady
    );
}

/// Needs the right to make an interface, so it does nothing for other users.
#[test]
fn a_tap_network_starts_for_its_owner_only() {
    let ip = |args: &[&str]| {
        Command::new("ip")
            .args(args)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let name = format!("corT{}", std::process::id() % 100_000);
    if !ip(&["tuntap", "add", &name, "mode", "tap"]) {
        eprintln!("skipped: this user may make no TAP interface");
        return;
    }
    let network = format!("tap={name},ip=10.99.0.2/24,gw=10.99.0.1");
    let open_to_all = fs::metadata("/dev/net/tun").unwrap().permissions().mode() & 0o6 == 0o6;
    let result = std::panic::catch_unwind(|| {
        let down = World::new();
        down.run("exit", &["run", "--network", &network, "./hello"])
            .fails(125, &[&name, "is down", "ip link set"]);
        assert!(ip(&["link", "set", &name, "up"]));

        let serial = serial_of(&["--network", &network]);
        assert_eq!(serial.matches("virtio_mmio.device=").count(), 3, "{serial}");

        // Another user has no right to it, and hears so before anything is started.
        let world = World::new();
        let mut command = Command::new("setpriv");
        let coracle = world.coracle(&[]);
        let path = world.path("");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let program = world.path("coracle");
        fs::copy(env!("CARGO_BIN_EXE_coracle"), &program).unwrap();
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(program)
            .args(["run", "--network", &network, "./hello"])
            .current_dir(path)
            .envs(
                coracle
                    .get_envs()
                    .filter_map(|(variable, value)| Some((variable, value?))),
            );
        let done = Done::from(command.output().unwrap());
        // Where everybody may open /dev/net/tun the interface is what keeps them out.
        done.fails(
            125,
            &[
                &name,
                if open_to_all {
                    "no right to use it"
                } else {
                    "/dev/net/tun"
                },
            ],
        );
        world.assert_clean();
    });
    assert!(ip(&["tuntap", "del", &name, "mode", "tap"]));
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
