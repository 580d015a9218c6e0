// SPDX-License-Identifier: Apache-2.0
//! Documents as engines write them, and each key with a wrong value.

use super::{MountConfig, MountKind, NetworkConfig, RootDisk, parse};
use core::net::{IpAddr, Ipv4Addr};
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};

fn document() -> Value {
    json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 100, "additionalGids": [5] },
            "args": ["/bin/app", "-v", ""],
            "env": ["PATH=/bin", "EMPTY="],
            "cwd": "/srv",
            "rlimits": [ { "type": "RLIMIT_NOFILE", "hard": 4096, "soft": 1024 } ]
        },
        "root": { "path": "rootfs", "readonly": true, "source": { "type": "erofs", "device": 2 } },
        "hostname": "boat",
        "mounts": [
            { "destination": "/data", "type": "9p", "source": "v0", "options": ["ro", "nosuid"] },
            { "destination": "/f", "type": "9p", "source": "v1", "options": ["file=x"] },
            { "destination": "/v", "type": "ext4", "source": "/dev/vdb" },
            { "destination": "/t", "type": "tmpfs", "options": ["size=64m", "mode=0700"] }
        ],
        "coracle": {
            "network": [
                {
                    "mac": "52:54:00:12:34:56",
                    "ipv4": "10.0.2.15/24", "gateway": "10.0.2.2",
                    "ipv6": "fd00::15/64", "gateway6": "fd00::2",
                    "dns": ["10.0.2.3", "fd00::3"]
                },
                { "dhcp": true }
            ],
            "trace": true,
            "startedNs": 1_800_000_000_123_456_789_u64
        }
    })
}

/// The error after the value at `pointer` (RFC 6901) was replaced.
fn error_with(pointer: &str, value: Value) -> String {
    let mut document = document();
    *document
        .pointer_mut(pointer)
        .unwrap_or_else(|| panic!("{pointer}")) = value;
    parse(document.to_string().as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn everything_is_read() {
    let config = parse(document().to_string().as_bytes()).unwrap();
    assert_eq!(config.args, ["/bin/app", "-v", ""]);
    assert_eq!(config.env, ["PATH=/bin", "EMPTY="]);
    assert_eq!((&*config.cwd, config.uid, config.gid), ("/srv", 1000, 100));
    assert_eq!(
        (&*config.hostname, config.read_only, config.trace),
        ("boat", true, true)
    );
    assert_eq!(config.started_ns, Some(1_800_000_000_123_456_789));
    assert_eq!(config.root_disk, Some(RootDisk { device: 2 }));
    assert_eq!(config.rlimits, [("RLIMIT_NOFILE".into(), 1024, 4096)]);
    let mount = |destination: &str, kind, read_only| MountConfig {
        destination: destination.into(),
        kind,
        read_only,
    };
    let share = |tag: &str, file: Option<&str>| MountKind::Share {
        tag: tag.into(),
        file: file.map(Into::into),
    };
    let memory = MountKind::Memory {
        size_bytes: Some(64 << 20),
        mode: 0o700,
    };
    let disk = MountKind::Ext {
        device: "/dev/vdb".into(),
    };
    let expected = [
        mount("/data", share("v0", None), true),
        mount("/f", share("v1", Some("x")), false),
        mount("/v", disk, false),
        mount("/t", memory, false),
    ];
    assert_eq!(config.mounts, expected);
    let first = NetworkConfig {
        mac: Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
        ipv4: Some((Ipv4Addr::new(10, 0, 2, 15), 24)),
        gateway: Some(Ipv4Addr::new(10, 0, 2, 2)),
        ipv6: Some(("fd00::15".parse().unwrap(), 64)),
        gateway6: Some("fd00::2".parse().unwrap()),
        dhcp: false,
        dns: vec![
            IpAddr::V4(Ipv4Addr::new(10, 0, 2, 3)),
            "fd00::3".parse().unwrap(),
        ],
    };
    assert_eq!(
        config.network,
        [
            first,
            NetworkConfig {
                dhcp: true,
                ..NetworkConfig::default()
            }
        ]
    );
}

#[test]
fn only_the_arguments_are_needed() {
    let config = parse(br#"{"process":{"args":["app"],"env":null}}"#).unwrap();
    assert_eq!(
        (&*config.cwd, config.uid, &*config.hostname),
        ("/", 0, "coracle")
    );
    assert!(
        config.env.is_empty() && config.network.is_empty() && !config.read_only && !config.trace
    );
}

#[test]
fn errors_name_the_key() {
    let expect = |pointer: &str, value: Value, message: &str| {
        assert_eq!(
            error_with(pointer, value),
            format!("config.json: {message}")
        );
    };
    expect("", json!([]), "should be an object, not a list");
    expect("/process", Value::Null, "process is missing");
    expect(
        "/process/args",
        json!([]),
        "process.args the program to run is missing",
    );
    expect(
        "/process/args/1",
        json!(3),
        "process.args[1] should be a string, not a number",
    );
    expect(
        "/process/args/1",
        json!("a\0b"),
        "process.args[1] contains a NUL character",
    );
    expect(
        "/process/env/0",
        json!("=x"),
        "process.env[0] is not of the form NAME=value",
    );
    expect(
        "/process/cwd",
        json!("srv"),
        "process.cwd is not an absolute path",
    );
    expect(
        "/process/user",
        json!(7),
        "process.user should be an object, not a number",
    );
    expect(
        "/process/user/uid",
        json!(-1),
        "process.user.uid should be a whole number that is not negative, not a number",
    );
    expect(
        "/process/user/gid",
        json!(1u64 << 32),
        "process.user.gid does not fit in 32 bits",
    );
    expect(
        "/process/rlimits/0/soft",
        json!(5000),
        "process.rlimits[0] has a soft limit above the hard limit",
    );
    expect(
        "/process/rlimits/0/hard",
        Value::Null,
        "process.rlimits[0].hard is missing",
    );
    expect(
        "/root/readonly",
        json!("yes"),
        "root.readonly should be true or false, not a string",
    );
    expect(
        "/root/source/type",
        json!("ext4"),
        "root.source.type is not a kind of root file system that is known (erofs)",
    );
    expect(
        "/root/source/device",
        json!(-1),
        "root.source.device should be a whole number that is not negative, not a number",
    );
    expect(
        "/mounts/0/type",
        json!("nfs"),
        "mounts[0].type is not a file system that can be mounted (9p, ext4, tmpfs)",
    );
    expect(
        "/mounts/3/options/0",
        json!("size=big"),
        "mounts[3].options[0] is not a size such as size=64m",
    );
    expect(
        "/mounts/1/destination",
        json!("f"),
        "mounts[1].destination is not an absolute path",
    );
    expect(
        "/hostname",
        json!(""),
        "hostname is empty or longer than 64 bytes",
    );
    expect(
        "/coracle/trace",
        json!([]),
        "coracle.trace should be true or false, not a list",
    );
    for address in [
        "10.0.2.15",
        "10.0.2.15/33",
        "10.0.2/24",
        "10.0.2.15/+4",
        "10.0.2.15/",
        "fd00::1/64",
    ] {
        let message = "coracle.network[0].ipv4 is not ADDRESS/PREFIX with a prefix of at most 32";
        expect("/coracle/network/0/ipv4", json!(address), message);
    }
    for mac in [
        "",
        "52:54:00:12:34",
        "52:54:00:12:34:56:78",
        "5:54:00:12:34:56",
        "+5:54:00:12:34:56",
        "ff:ff:ff:ff:ff:ff",
    ] {
        let message = "coracle.network[0].mac is not a MAC address such as 52:54:00:12:34:56";
        expect("/coracle/network/0/mac", json!(mac), message);
    }
    expect(
        "/coracle/network/0/dns/1",
        json!("one"),
        "coracle.network[0].dns[1] is not an address of the expected kind",
    );
}

#[test]
fn what_is_not_json() {
    let message = parse(b"{\"process\": ").unwrap_err().to_string();
    assert!(
        message.starts_with("config.json: not JSON: ") && message.contains("line 1"),
        "{message}"
    );
    assert!(parse(&[0xff, 0xfe]).is_err());
    assert!(parse(&b"[".repeat(100_000)).is_err(), "depth is bounded");
}

proptest! {
    #[test]
    fn damage_never_panics(edits in proptest::collection::vec((0..800usize, any::<u8>()), 0..4)) {
        let mut bytes = document().to_string().into_bytes();
        for (at, value) in edits {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let _ = parse(&bytes);
    }
}
