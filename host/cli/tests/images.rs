// SPDX-License-Identifier: Apache-2.0
//! Images from archives, registries, podman and Containerfiles, and what is said of those that are no good.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;
#[path = "common/registry.rs"]
mod registry;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Done, World, elf};
use coracle_imager::image::document::{self, Descriptor, Execution, INDEX, Index, Manifest};
use coracle_imager::image::{Store, save};
use registry::{Auth, Registry};
use serde_json::Value;

/// Users of the image, a program, one that needs a loader, scripts.
fn layer() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let program = elf::program();
    let dynamic = elf::dynamic("/lib64/ld.so");
    let large = vec![7; 100_000];
    let files: [(&str, &[u8], u32); 9] = [
        ("usr/lib/large", &large, 0o644),
        (
            "etc/passwd",
            b"root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n",
            0o644,
        ),
        ("etc/group", b"root:x:0:\nstaff:x:50:\n", 0o644),
        ("usr/bin/server", &program, 0o755),
        ("bin/other", &program, 0o755),
        ("bin/dynamic", &dynamic, 0o755),
        ("bin/script", b"#!/bin/missing -x\necho\n", 0o755),
        ("bin/good-script", b"#! /bin/other\n", 0o755),
        ("data/notes", b"text", 0o644),
    ];
    for (name, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(1);
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.into_inner().unwrap()
}

fn execution() -> Execution {
    let set = |name: &str| [(name.to_owned(), Value::Object(Default::default()))].into();
    Execution {
        user: "web".into(),
        exposed_ports: set("80/tcp"),
        env: vec!["PATH=/usr/bin:/bin".into(), "MODE=image".into()],
        entrypoint: vec!["server".into(), "--fixed".into()],
        cmd: vec!["--default".into()],
        volumes: set("/data"),
        working_dir: "/srv".into(),
        labels: [("team".to_owned(), "boats".to_owned())].into(),
        stop_signal: "SIGUSR1".into(),
        healthcheck: Some(serde_json::json!({"Test": ["CMD", "true"]})),
    }
}

/// A store with one image, and its manifest.
fn stored(folder: &Path) -> (Store, Descriptor) {
    let store = Store::new(folder);
    let layer = layer();
    let layers: &mut [&mut dyn std::io::Read] = &mut [&mut layer.as_slice()];
    let image = save::create(&store, layers, execution(), None, "test").unwrap();
    (store, image)
}

/// The image as an OCI archive.
fn archive(world: &World, name: &str) -> PathBuf {
    let (store, image) = stored(&world.path("made"));
    let path = world.path("image.tar");
    save::archive(&store, &image, Some(name), &File::create(&path).unwrap()).unwrap();
    path
}

/// The command, in a world without other tools and without credentials.
fn coracle(world: &World, args: &[&str]) -> Command {
    let mut command = world.coracle(args);
    command
        .env("PATH", "/nonexistent")
        .env("HOME", world.path("home"))
        .env("XDG_DATA_HOME", world.path("data"))
        .env_remove("REGISTRY_AUTH_FILE")
        .env_remove("DOCKER_CONFIG")
        .env_remove("XDG_RUNTIME_DIR");
    command
}

fn run(world: &World, args: &[&str]) -> Done {
    Done::from(
        coracle(world, args)
            .env("BEHAVIOUR", "exit")
            .output()
            .unwrap(),
    )
}

fn good(world: &World, args: &[&str]) -> String {
    let done = run(world, args);
    assert_eq!(done.code, 0, "{args:?}: {done:?}");
    done.stdout
}

/// The configuration a guest would get.
fn config(world: &World, args: &[&str]) -> Value {
    good(world, &[&["run", "--dry-run"], args].concat());
    let bundle = fs::read(world.path("cache/coracle/dry-run/bundle.cpio")).unwrap();
    let start = bundle.iter().position(|&byte| byte == b'{').unwrap();
    let mut values = serde_json::Deserializer::from_slice(&bundle[start..]).into_iter();
    values.next().unwrap().unwrap()
}

/// Files of the store that a failure must not leave behind.
fn leftovers(world: &World) -> Vec<PathBuf> {
    let files = |folder: &str| {
        let folder = world.path("data/coracle/images").join(folder);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    [files("roots"), files("temporary")].concat()
}

#[test]
fn an_image_says_how_it_is_run() {
    let world = World::new();
    let path = archive(&world, "localhost/app:1");
    let path = path.to_str().unwrap();
    assert_eq!(
        good(&world, &["load", "-i", path]),
        "Loaded image: localhost/app:1\n"
    );
    for image in [
        "app:1",
        "localhost/app:1",
        path,
        &format!("oci-archive:{path}"),
    ] {
        let config = config(&world, &[image]);
        let process = &config["process"];
        assert_eq!(
            process["args"],
            serde_json::json!(["/usr/bin/server", "--fixed", "--default"])
        );
        assert_eq!(process["user"], serde_json::json!({"uid": 33, "gid": 44}));
        assert_eq!(process["cwd"], "/srv");
        let env = process["env"].as_array().unwrap();
        for variable in ["MODE=image", "PATH=/usr/bin:/bin", "HOME=/srv"] {
            assert!(env.contains(&variable.into()), "{variable}: {env:?}");
        }
        let source = serde_json::json!({"type": "erofs", "device": 0});
        assert_eq!(config["root"]["source"], source);
    }
    let other = &[
        "-u",
        "1:staff",
        "-w",
        "/x",
        "-e",
        "MODE=mine",
        "app:1",
        "--mine",
    ];
    let process = &config(&world, other)["process"];
    assert_eq!(
        process["args"],
        serde_json::json!(["/usr/bin/server", "--fixed", "--mine"])
    );
    assert_eq!(process["user"], serde_json::json!({"uid": 1, "gid": 50}));
    assert_eq!(process["cwd"], "/x");
    let env = process["env"].as_array().unwrap();
    assert!(env.contains(&"MODE=mine".into()), "{env:?}");
    assert!(!env.contains(&"MODE=image".into()), "{env:?}");
    let process = &config(&world, &["--entrypoint", "other", "app:1"])["process"];
    assert_eq!(process["args"], serde_json::json!(["/bin/other"]));
    let process = &config(&world, &["--entrypoint", "", "app:1", "good-script", "x"])["process"];
    assert_eq!(
        process["args"],
        serde_json::json!(["/bin/good-script", "x"])
    );

    let line = good(&world, &["run", "--dry-run", "app:1"]);
    assert!(
        line.contains("virtio-blk-device") && line.contains("read-only=on"),
        "{line}"
    );
    assert!(line.contains("data/coracle/images/roots/"), "{line}");

    // A real run: the instance knows image and signal.
    good(
        &world,
        &["run", "--name", "one", "--network", "none", "app:1"],
    );
    let state: Value = serde_json::from_str(&good(&world, &["inspect", "one"])).unwrap();
    assert_eq!(
        (&state[0]["image"], &state[0]["stop_signal"]),
        (&"localhost/app:1".into(), &"SIGUSR1".into())
    );
}

#[test]
fn what_an_image_lacks_is_said_before_the_start() {
    let world = World::new();
    let path = archive(&world, "app");
    let path = path.to_str().unwrap();
    let with = |args: &[&str]| run(&world, &[&["run", "--entrypoint", ""], args].concat());
    with(&[path, "nothing"]).fails(127, &["nothing", "not found"]);
    with(&[path, "/data/notes"]).fails(126, &["/data/notes", "not executable"]);
    with(&[path, "dynamic"]).fails(127, &["/bin/dynamic", "/lib64/ld.so", "missing"]);
    with(&[path, "script"]).fails(127, &["/bin/script", "/bin/missing", "missing"]);
    with(&[path]).fails(125, &["names no program"]);
    with(&["-u", "nobody", path, "other"]).fails(125, &["nobody", "/etc/passwd"]);
    with(&["-u", "0:nobody", path, "other"]).fails(125, &["nobody", "/etc/group"]);
    with(&["./missing.tar"]).fails(127, &["./missing.tar", "no such file"]);
    run(&world, &["run", "--pull", "never", "app"]).fails(125, &["app: no such image"]);
    run(&world, &["run", "UPPER"]).fails(125, &["UPPER", "lower case"]);
    assert_eq!(world.instances(), Vec::<String>::new());
}

#[test]
fn images_are_listed_inspected_saved_and_removed() {
    let world = World::new();
    let path = archive(&world, "localhost/app:1");
    good(&world, &["load", "-i", path.to_str().unwrap()]);
    good(
        &world,
        &["load", "-i", path.to_str().unwrap(), "quay.io/team/app:2"],
    );
    assert_eq!(
        good(&world, &["images", "-o", "name"]),
        "quay.io/team/app:2\nlocalhost/app:1\n"
    );
    assert_eq!(
        good(
            &world,
            &["images", "-o", "name", "--filter", "reference=team"]
        ),
        "quay.io/team/app:2\n"
    );
    assert_eq!(
        good(&world, &["images", "-q", "-f", "label=team=ships"]),
        ""
    );
    let table = good(&world, &["images", "-f", "label=team"]);
    assert!(
        table.starts_with("REPOSITORY") && table.lines().count() == 3,
        "{table}"
    );
    let view: Value = serde_json::from_str(&good(&world, &["inspect", "app:1"])).unwrap();
    let config = &view[0]["Config"];
    assert_eq!(config["Healthcheck"]["Test"][0], "CMD");
    assert_eq!(config["ExposedPorts"], serde_json::json!({"80/tcp": {}}));
    let id = view[0]["Id"].as_str().unwrap();
    assert_eq!(
        good(&world, &["inspect", "-o", "name", &id[..12]]).trim(),
        &id[..12]
    );

    let saved = world.path("saved.tar");
    good(&world, &["save", "-o", saved.to_str().unwrap(), &id[..8]]);
    let again = World::new();
    assert!(good(&again, &["load", "-i", saved.to_str().unwrap()]).contains("team/app:2"));

    good(&world, &["run", "--rm", "--network", "none", "app:1"]);
    assert_eq!(leftovers(&world).len(), 1);
    let blobs = world.path("data/coracle/images/blobs/sha256");
    good(&world, &["rmi", "app:1"]);
    assert_eq!(fs::read_dir(&blobs).unwrap().count(), 3);
    good(&world, &["rmi", "quay.io/team/app:2"]);
    assert_eq!(fs::read_dir(&blobs).unwrap().count(), 0);
    assert_eq!(leftovers(&world), Vec::<PathBuf>::new());
    run(&world, &["rmi", "app:1"]).fails(125, &["app:1: no such image"]);
    good(&world, &["rmi", "-f", "app:1"]);
}

/// Copies an image to a registry and answers its manifest.
fn publish(world: &World, registry: &Registry, tag: Option<&str>) -> (Manifest, Vec<u8>) {
    let (store, image) = stored(&world.path("made"));
    let bytes = store.document("x", &image.digest).unwrap();
    let document::Document::Manifest(manifest) = document::document("x", &bytes).unwrap() else {
        panic!("no manifest");
    };
    for part in manifest.layers.iter().chain([&manifest.config]) {
        registry.put(
            "application/octet-stream",
            &fs::read(store.blob(&part.digest)).unwrap(),
            None,
        );
    }
    registry.put(document::MANIFEST, &bytes, tag);
    (manifest, bytes)
}

#[test]
fn a_registry_is_pulled_from_and_pushed_to() {
    for auth in [Auth::None, Auth::Basic, Auth::Token] {
        let world = World::new();
        let registry = Registry::start(auth);
        let path = archive(&world, "localhost/app:1");
        good(&world, &["load", "-i", path.to_str().unwrap()]);
        let name = registry.name("team/app:7");
        if auth != Auth::None {
            run(&world, &["push", "-q", "app:1", &name])
                .fails(125, &[&name, "denies access", "podman login"]);
            let file = format!(
                r#"{{"auths":{{"127.0.0.1:{}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#,
                registry.port
            );
            fs::create_dir_all(world.path("home/.docker")).unwrap();
            fs::write(world.path("home/.docker/config.json"), file).unwrap();
        }
        good(&world, &["push", "-q", "app:1", &name]);
        good(&world, &["rmi", "-a"]);
        let id = good(&world, &["pull", "-q", &name]);
        assert_eq!(id.trim().len(), 64);
        assert_eq!(good(&world, &["images", "-o", "name"]), format!("{name}\n"));
        let before = registry.count("GET");
        config(&world, &[&name]);
        assert_eq!(
            registry.count("GET"),
            before,
            "what is here is not asked for"
        );
        // What is there already is not sent again.
        let uploads = registry.count("POST");
        good(&world, &["push", "-q", &name]);
        assert_eq!(registry.count("POST"), uploads);
        let pulled = run(&world, &["pull", &name]);
        assert!(
            pulled.stderr.starts_with(&format!("Pulling {name}\n")),
            "{pulled:?}"
        );
    }
}

#[test]
fn a_list_of_architectures_has_ours() {
    let world = World::new();
    let registry = Registry::start(Auth::None);
    let (_, bytes) = publish(&world, &registry, None);
    let entry = |architecture: &str, bytes: &[u8]| Descriptor {
        platform: Some(document::Platform {
            architecture: architecture.into(),
            os: "linux".into(),
        }),
        ..Descriptor::of(document::MANIFEST, bytes)
    };
    let index = |manifests: Vec<Descriptor>| {
        let index = Index {
            manifests,
            ..Index::empty()
        };
        serde_json::to_vec(&index).unwrap()
    };
    let both = index(vec![entry("arm64", b"other"), entry("amd64", &bytes)]);
    let digest = registry.put(INDEX, &both, Some("both"));
    let other = index(vec![entry("arm64", b"other"), entry("riscv64", b"third")]);
    registry.put(INDEX, &other, Some("other"));
    good(&world, &["pull", "-q", &registry.name("app:both")]);
    good(
        &world,
        &["pull", "-q", &registry.name(&format!("app@{digest}"))],
    );
    run(&world, &["pull", "-q", &registry.name("app:other")]).fails(
        125,
        &["app:other", "linux/arm64, linux/riscv64", "linux/amd64"],
    );
}

#[test]
fn faults_of_a_registry_leave_nothing_behind() {
    let world = World::new();
    let registry = Registry::start(Auth::None);
    let (manifest, _) = publish(&world, &registry, Some("app"));
    let pull = |name: &str| run(&world, &["pull", "-q", &registry.name(name)]);
    pull("app:missing").fails(125, &["app:missing: no such image"]);
    let wrong = format!("app@sha256:{}", "0".repeat(64));
    pull(&wrong).fails(125, &["no such image"]);
    run(&world, &["pull", "-q", "127.0.0.1:1/app"])
        .fails(125, &["127.0.0.1:1", "cannot be reached"]);

    let layer = manifest.layers[0].digest.to_string();
    registry.state.lock().unwrap().cut = Some(layer.clone());
    let done = pull("app:app");
    done.fails(125, &["layer 1"]);
    registry.state.lock().unwrap().cut = None;

    let change = |digest: &str, content: Vec<u8>| {
        let mut state = registry.state.lock().unwrap();
        state.content.get_mut(digest).unwrap().1 = content;
    };
    let content = fs::read(world.path("made").join("blobs/sha256").join(&layer[7..])).unwrap();
    let mut damaged = content.clone();
    damaged[700] ^= 1;
    change(&layer, damaged);
    pull("app:app").fails(125, &["layer 1", "wrong digest", &layer]);
    change(&layer, content[..content.len() - 512].to_vec());
    pull("app:app").fails(125, &["layer 1", "ends after"]);
    change(&layer, content);
    let config = manifest.config.digest.to_string();
    change(&config, b"{}".to_vec());
    pull("app:app").fails(125, &["wrong digest", &config]);
    assert_eq!(leftovers(&world), Vec::<PathBuf>::new());
    assert_eq!(good(&world, &["images", "-o", "name"]), "");
    registry.put(document::MANIFEST, b"[]", Some("odd"));
    pull("app:odd").fails(125, &["app:odd", "damaged image"]);
    registry.put(
        document::MANIFEST,
        br#"{"schemaVersion":1,"fsLayers":[]}"#,
        Some("old"),
    );
    pull("app:old").fails(125, &["app:old", "schema 1"]);
}

#[test]
fn two_that_pull_the_same_share_the_work() {
    let world = World::new();
    let registry = Registry::start(Auth::None);
    let (manifest, _) = publish(&world, &registry, Some("app"));
    let name = registry.name("app:app");
    let start = || {
        let mut command = coracle(&world, &["pull", "-q", &name]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = (0..4).map(|_| start()).collect();
    for child in running {
        let done = Done::from(child.wait_with_output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
    }
    let layer = format!("GET /v2/app/blobs/{}", manifest.layers[0].digest);
    assert_eq!(registry.count(&layer), 1);
    assert_eq!(leftovers(&world).len(), 1);
    assert_eq!(good(&world, &["images", "-o", "name"]), format!("{name}\n"));
}

#[test]
fn archives_that_are_no_good() {
    let world = World::new();
    let path = archive(&world, "app");
    let bytes = fs::read(&path).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(world.path(name), bytes).unwrap();
        format!("./{name}")
    };
    let cut = write("cut.tar", &bytes[..bytes.len() - 4096]);
    run(&world, &["run", &cut]).fails(125, &[&cut, "cut short"]);
    run(&world, &["load", "-i", &cut]).fails(125, &[&cut, "cut short"]);
    // One byte of a file in the layer.
    let mut damaged = bytes.clone();
    let at = damaged
        .windows(9)
        .position(|part| part == b"web:x:33:")
        .unwrap();
    damaged[at] = b'W';
    let damaged = write("damaged.tar", &damaged);
    run(&world, &["run", &damaged]).fails(125, &["layer 1", "wrong digest"]);
    run(&world, &["load", "-i", &damaged]).fails(125, &["layer 1", "wrong digest"]);
    let other = String::from_utf8_lossy(&bytes).contains("\"architecture\":\"amd64\"");
    assert!(other, "the configuration can be found");
    let empty = write("empty.tar", &[0; 1024]);
    run(&world, &["load", "-i", &empty]).fails(125, &[&empty, "no image"]);
    let not = write("not.tar", b"hello");
    run(&world, &["load", "-i", &not]).fails(125, &[&not, "no image"]);
    assert_eq!(leftovers(&world), Vec::<PathBuf>::new());
    assert_eq!(good(&world, &["images", "-o", "name"]), "");

    // For another CPU: the same image, said to be for arm64.
    let (store, image) = stored(&world.path("arm"));
    let manifest = fs::read(store.blob(&image.digest)).unwrap();
    let document::Document::Manifest(mut manifest) = document::document("x", &manifest).unwrap()
    else {
        panic!("no manifest");
    };
    let config = fs::read_to_string(store.blob(&manifest.config.digest)).unwrap();
    let config = config.replace("amd64", "arm64");
    manifest.config = store
        .add_document(document::CONFIG, config.as_bytes())
        .unwrap();
    let manifest = serde_json::to_vec(&manifest).unwrap();
    let image = store.add_document(document::MANIFEST, &manifest).unwrap();
    let arm = world.path("arm.tar");
    save::archive(&store, &image, None, &File::create(&arm).unwrap()).unwrap();
    run(&world, &["run", "./arm.tar"]).fails(125, &["arm.tar", "linux/arm64", "linux/amd64"]);
}

#[test]
fn roots_packed_with_tar_are_run_too() {
    let world = World::new();
    fs::write(world.path("root.tar"), layer()).unwrap();
    let config = config(&world, &["./root.tar", "/bin/other", "x"]);
    assert_eq!(
        config["process"]["args"],
        serde_json::json!(["/bin/other", "x"])
    );
    assert_eq!(config["root"]["source"]["type"], "erofs");
    run(&world, &["run", "./root.tar"]).fails(125, &["root.tar", "name the program"]);
    run(&world, &["run", "./root.tar", "/bin/dynamic"]).fails(127, &["/lib64/ld.so"]);
}

/// A full disk: one line, and nothing that is half there. It takes a small tmpfs, and so the right to mount one.
#[test]
fn a_full_disk() {
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let world = World::new();
    let path = archive(&world, "app");
    let data = world.path("data");
    fs::create_dir(&data).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"])
        .arg(&data);
    match mount.output() {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("SKIPPED: cannot mount a tmpfs: {other:?}"),
    }
    let _mounted = Mounted(data);
    run(&world, &["run", path.to_str().unwrap()]).fails(125, &["disk full", "XDG_DATA_HOME"]);
    run(&world, &["load", "-i", path.to_str().unwrap()]).fails(125, &["disk full", "coracle rmi"]);
    assert_eq!(leftovers(&world), Vec::<PathBuf>::new());
}

#[test]
fn from_scratch_without_other_tools() {
    let world = World::new();
    fs::create_dir_all(world.path("context/files/deep")).unwrap();
    fs::write(world.path("context/app"), elf::program()).unwrap();
    fs::write(world.path("context/files/deep/x"), "x").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(world.path("context/app"), mode).unwrap();
    let recipe = |text: &str| fs::write(world.path("context/Containerfile"), text).unwrap();
    recipe(
        "# A comment\nARG WHERE=/opt\nFROM scratch\nENV A=\"b c\" D=$WHERE\nLABEL team=boats\n\
         WORKDIR $WHERE/run\nCOPY --chown=7:8 --chmod=755 app bin/\nADD [\"files\", \"/files/\"]\n\
         USER 7:8\nEXPOSE 80 53/udp\nVOLUME /data\nSTOPSIGNAL SIGINT\n\
         ENTRYPOINT [\"bin/app\", \\\n  \"one\"]\nCMD [\"two\"]\n",
    );
    good(&world, &["build", "-q", "-t", "made:1", "context"]);
    let process = &config(&world, &["made:1"])["process"];
    assert_eq!(
        process["args"],
        serde_json::json!(["/opt/run/bin/app", "one", "two"])
    );
    assert_eq!(process["user"], serde_json::json!({"uid": 7, "gid": 8}));
    let env = process["env"].as_array().unwrap();
    assert!(
        env.contains(&"A=b c".into()) && env.contains(&"D=/opt".into()),
        "{env:?}"
    );
    let view: Value = serde_json::from_str(&good(&world, &["inspect", "made:1"])).unwrap();
    assert_eq!(view[0]["RepoTags"][0], "localhost/made:1");
    assert_eq!(
        view[0]["Config"]["ExposedPorts"],
        serde_json::json!({"53/udp": {}, "80/tcp": {}})
    );
    let first = view[0]["Id"].clone();
    good(
        &world,
        &[
            "build",
            "-q",
            "-t",
            "made:2",
            "--build-arg",
            "WHERE=/opt",
            "context",
        ],
    );
    let view: Value = serde_json::from_str(&good(&world, &["inspect", "made:2"])).unwrap();
    assert_eq!(view[0]["Id"], first, "the same files are the same image");

    for (text, parts) in [
        ("FROM debian", ["Containerfile:1", "FROM debian"]),
        ("FROM scratch\nRUN make", ["Containerfile:2", "RUN"]),
        (
            "FROM scratch\nCOPY ../kernel /",
            ["Containerfile:2", "outside of the context"],
        ),
        ("FROM scratch\nCOPY *.c /", ["Containerfile:2", "pattern"]),
        (
            "FROM scratch\nFROM scratch",
            ["Containerfile:2", "second stage"],
        ),
        ("COPY a b", ["Containerfile:1", "before FROM"]),
        ("FROM scratch\nENV \"x", ["Containerfile:2", "NAME=VALUE"]),
    ] {
        recipe(text);
        let done = run(&world, &["build", "-q", "-t", "bad", "context"]);
        assert_eq!(done.code, 125, "{text}: {done:?}");
        for part in parts {
            assert!(
                done.stderr.contains(part),
                "{text}: {part}: {}",
                done.stderr
            );
        }
    }
    fs::remove_file(world.path("context/Containerfile")).unwrap();
    run(&world, &["build", "-q", "-t", "bad", "context"])
        .fails(125, &["Containerfile", "Dockerfile"]);
    run(&world, &["build", "-q", "-t", "bad", "nowhere"])
        .fails(125, &["nowhere", "no such folder"]);
}

/// Images that podman built, saved in both of its formats, and found in its storage.
#[test]
fn what_podman_has() {
    let world = World::new();
    fs::create_dir(world.path("context")).unwrap();
    fs::write(world.path("context/app"), elf::program()).unwrap();
    fs::write(
        world.path("context/Containerfile"),
        "FROM scratch\nCOPY --chmod=755 app /app\nCOPY app /gone/app\nENV A=b\nUSER 5:6\nENTRYPOINT [\"/app\"]\n",
    )
    .unwrap();
    // A storage of its own, for podman and for us when we ask it.
    let settings = format!(
        "[storage]\ndriver = \"vfs\"\nrunroot = \"{}\"\ngraphroot = \"{}\"\n",
        world.path("run").display(),
        world.path("graph").display()
    );
    fs::write(world.path("storage.conf"), settings).unwrap();
    let with_podman = |command: &mut Command| {
        command
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("CONTAINERS_STORAGE_CONF", world.path("storage.conf"))
            .env("BUILDAH_ISOLATION", "chroot")
            .current_dir(world.path("."))
            .output()
    };
    let podman = |args: &[&str]| {
        with_podman(
            Command::new("podman")
                .args(["--runtime", "runc"])
                .args(args),
        )
    };
    match podman(&[
        "build",
        "--isolation",
        "chroot",
        "-q",
        "-t",
        "made",
        "context",
    ]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return eprintln!(
                "SKIPPED: podman: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(error) => return eprintln!("SKIPPED: podman: {error}"),
    }
    for format in ["oci-archive", "docker-archive", "oci-dir"] {
        let saved = podman(&[
            "save",
            "-q",
            "--format",
            format,
            "-o",
            format,
            "localhost/made",
        ]);
        assert!(saved.unwrap().status.success(), "{format}");
        let process = &config(&world, &[&format!("./{format}")])["process"];
        assert_eq!(process["args"], serde_json::json!(["/app"]), "{format}");
        assert_eq!(process["user"], serde_json::json!({"uid": 5, "gid": 6}));
    }
    // From its storage: once, and again when it changed.
    let from_storage = || {
        let mut command = coracle(&world, &["run", "--rm", "--network", "none", "made"]);
        let done = Done::from(with_podman(command.env("BEHAVIOUR", "exit")).unwrap());
        assert_eq!(done.code, 0, "{done:?}");
        done.stderr.contains("Copying made from podman")
    };
    assert!(from_storage());
    assert!(!from_storage());
    let text = "FROM scratch\nCOPY --chmod=755 app /app\nENV A=c\nENTRYPOINT [\"/app\"]\n";
    fs::write(world.path("context/Containerfile"), text).unwrap();
    let built = podman(&[
        "build",
        "--isolation",
        "chroot",
        "-q",
        "-t",
        "made",
        "context",
    ]);
    assert!(built.unwrap().status.success());
    assert!(from_storage());
}

/// The guest would read zeros where the end was. The next start makes the root anew.
#[test]
fn a_root_cut_short_under_a_running_guest() {
    let world = World::new();
    let path = archive(&world, "localhost/app:1");
    good(&world, &["load", "-i", path.to_str().unwrap()]);
    let start = |name: &str| {
        let arguments = ["run", "-d", "--name", name, "app:1"];
        let mut command = coracle(&world, &arguments);
        let done = Done::from(command.env("BEHAVIOUR", "serve").output().unwrap());
        assert_eq!(done.code, 0, "{done:?}");
    };
    start("one");
    let [root] = &leftovers(&world)[..] else {
        panic!("{:?}", leftovers(&world));
    };
    let length = fs::metadata(root).unwrap().len();
    let file = File::options().write(true).open(root).unwrap();
    file.set_len(length - 4096).unwrap();
    let waited = run(&world, &["wait", "one"]);
    assert_eq!(waited.stdout, "125\n", "{waited:?}");
    let exit = world.inspect("one", "/exit");
    assert_eq!(exit["reason"], "vmm");
    let detail = exit["detail"].as_str().unwrap();
    for part in [root.to_str().unwrap(), "cut short", "start it again"] {
        assert!(detail.contains(part), "{part:?} is not in {detail:?}");
    }
    start("two");
    assert_eq!(fs::metadata(root).unwrap().len(), length);
    good(&world, &["rm", "-f", "one", "two"]);
    world.assert_clean();
}
