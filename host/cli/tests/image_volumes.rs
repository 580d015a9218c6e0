// SPDX-License-Identifier: Apache-2.0
//! The VOLUMEs of images: who gets a volume, and when it goes.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::fs;
use std::process::Command;

use common::{Done, World, elf};
use serde_json::Value;

/// A world with the image `app`, which has these VOLUMEs.
fn world(volumes: &str) -> World {
    let world = World::new();
    let context = world.path("context");
    fs::create_dir(&context).unwrap();
    fs::write(context.join("app"), elf::program()).unwrap();
    let file = format!("FROM scratch\nCOPY --chmod=755 app /app\n{volumes}\nCMD [\"/app\"]\n");
    fs::write(context.join("Containerfile"), file).unwrap();
    good(&world, &["build", "-t", "app", "context"]);
    world
}

/// The command, in a world without other tools.
fn coracle(world: &World, args: &[&str]) -> Command {
    let mut command = world.coracle(args);
    command
        .env("PATH", "/nonexistent")
        .env("HOME", world.path("home"));
    command
}

fn run(world: &World, behaviour: &str, args: &[&str]) -> Done {
    let mut command = coracle(world, args);
    Done::from(command.env("BEHAVIOUR", behaviour).output().unwrap())
}

fn good(world: &World, args: &[&str]) -> String {
    let done = run(world, "exit", args);
    assert_eq!(done.code, 0, "{args:?}: {done:?}");
    done.stdout
}

/// What the guest would mount, as `/dev/vdX DESTINATION`.
fn mounts(world: &World, args: &[&str]) -> Vec<String> {
    good(world, &[&["run", "--dry-run"], args].concat());
    let bundle = fs::read(world.path("cache/coracle/dry-run/bundle.cpio")).unwrap();
    let start = bundle.iter().position(|&byte| byte == b'{').unwrap();
    let mut values = serde_json::Deserializer::from_slice(&bundle[start..]).into_iter();
    let config: Value = values.next().unwrap().unwrap();
    let mounts = config["mounts"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    mounts
        .iter()
        .map(|mount| format!("{} {}", text(&mount["source"]), text(&mount["destination"])))
        .collect()
}

fn volumes(world: &World) -> Vec<Value> {
    serde_json::from_str(&good(world, &["volume", "ls", "-o", "json"])).unwrap()
}

#[test]
fn what_nothing_is_mounted_at_gets_a_volume() {
    let world = world("VOLUME /data /var/lib/app/");
    let both = ["/dev/vdb /data", "/dev/vdc /var/lib/app"];
    assert_eq!(mounts(&world, &["app"]), both);
    assert!(volumes(&world).is_empty(), "a dry run leaves none");
    let made = world.path("cache/coracle/dry-run/volumes");
    for _ in 0..2 {
        mounts(&world, &["app"]);
        assert_eq!(fs::read_dir(&made).unwrap().count(), 2, "none is heaped up");
    }
    let own = mounts(&world, &["-v", "mine:/data/", "app"]);
    assert_eq!(own, ["/dev/vdb /data/", "/dev/vdc /var/lib/app"]);
    let tmpfs = mounts(&world, &["--tmpfs", "/var/lib/app", "app"]);
    assert_eq!(tmpfs, ["/dev/vdb /data", "tmpfs /var/lib/app"]);
    let ignored = mounts(&world, &["--image-volume", "ignore", "app"]);
    assert!(ignored.is_empty(), "{ignored:?}");
    let more = mounts(&world, &["-v", "/srv", "--mount", "target=/a", "app"]);
    assert_eq!(more.len(), 4, "{more:?}");
    let names: Vec<Value> = volumes(&world);
    assert_eq!(names.len(), 1, "only the named one: {names:?}");
}

#[test]
fn volumes_go_with_those_who_said_so() {
    let world = world("VOLUME /data");
    good(&world, &["run", "--rm", "--network", "none", "app"]);
    assert!(volumes(&world).is_empty());
    for name in ["one", "two"] {
        good(&world, &["run", "--name", name, "--network", "none", "app"]);
    }
    let found = volumes(&world);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|volume| volume["anonymous"] == true));
    let told: Value = serde_json::from_str(&good(&world, &["inspect", "one"])).unwrap();
    let of_one = told[0]["volumes"][0]["name"].as_str().unwrap().to_owned();
    // Given by name to another instance, it is not that one's to remove.
    let mount = format!("{of_one}:/data");
    good(
        &world,
        &["run", "--rm", "-v", &mount, "--network", "none", "app"],
    );
    assert_eq!(volumes(&world).len(), 2);
    good(&world, &["rm", "one"]);
    assert_eq!(volumes(&world).len(), 2, "rm leaves it");
    good(&world, &["rm", "-v", "two"]);
    let found = volumes(&world);
    assert_eq!((found.len(), &found[0]["name"]), (1, &of_one.into()));
    good(&world, &["volume", "prune", "--force"]);
    assert!(volumes(&world).is_empty());

    good(
        &world,
        &[
            "run",
            "-d",
            "--rm",
            "--name",
            "three",
            "--network",
            "none",
            "app",
        ],
    );
    common::eventually("it is gone", || volumes(&world).is_empty());
}

#[test]
fn a_start_that_fails_leaves_no_volume() {
    let world = world("VOLUME /data");
    for (behaviour, code) in [("refuse", 125), ("exec", 126)] {
        for detach in [&["-d"][..], &["--rm"]] {
            let args = [&["run", "--network", "none"], detach, &["app"]].concat();
            assert_eq!(run(&world, behaviour, &args).code, code, "{args:?}");
        }
    }
    run(&world, "exit", &["run", "--name", "-", "app"]).fails(125, &["--name"]);
    assert!(volumes(&world).is_empty());
    world.assert_clean();
}

#[test]
fn wrong_and_too_many_volumes_are_said() {
    let many = world("VOLUME /1 /2 /3 /4 /5 /6 /7 /8");
    run(&many, "exit", &["run", "app"]).fails(125, &["microvm", "q35", "--image-volume ignore"]);
    assert_eq!(mounts(&many, &["--machine", "q35", "app"]).len(), 8);
    let root = world("VOLUME /");
    run(&root, "exit", &["run", "app"]).fails(125, &["app: VOLUME /", "--image-volume ignore"]);
    let above = world("VOLUME /a/../b");
    run(&above, "exit", &["run", "app"]).fails(125, &["app: VOLUME /a/../b"]);
    for world in [&many, &root, &above] {
        assert!(volumes(world).is_empty());
    }
}
