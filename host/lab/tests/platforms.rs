// SPDX-License-Identifier: Apache-2.0

//! Every platform starts the same service, and leaves nothing behind.
//!
//! Those of the host run with `cargo test`; those that boot a guest by `cargo xtask test lab`, which knows the command and
//! the kernel (`CORACLE`, `CORACLE_KERNEL`).

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use coracle_lab::experiment::{Ready, Service};
use coracle_lab::meter::Meter;
use coracle_lab::network::{self, Link, Network, Wanted};
use coracle_lab::platform::{self, Ended, Image, Instance, Order, Platform};

const PORT: u16 = 8080;
const MEMORY: u64 = 128 << 20;
/// A guest in an emulator on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn service(args: &[&str]) -> Service {
    Service {
        name: "server".into(),
        image: "server".into(),
        make: None,
        args: args.iter().map(ToString::to_string).collect(),
        env: [("LAB_TEST".to_owned(), "yes".to_owned())].into(),
        port: Some(PORT),
        ready: Ready::Tcp,
        ready_limit_s: None,
        volumes: Vec::new(),
        memory: None,
    }
}

/// The server, compiled.
fn server(folder: &Path) -> Image {
    let path = folder.join("server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server.c");
    let status = Command::new("gcc")
        .args(["-static", "-O1", "-Wall", "-o"])
        .args([&path, &source])
        .status();
    assert!(status.unwrap().success());
    let digest = coracle_imager::image::Digest::of(&std::fs::read(&path).unwrap());
    Image {
        path,
        digest: digest.to_string(),
    }
}

fn get(to: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(100))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut bytes = [0; 512];
    let count = stream.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// Waits for the first answer.
fn first_answer(instance: &mut dyn Instance, to: SocketAddr) -> Duration {
    let start = Instant::now();
    loop {
        match get(to) {
            Ok(answer) => {
                assert!(answer.ends_with("hello"), "{answer}");
                return start.elapsed();
            }
            Err(error) => {
                if let Some(ended) = instance.ended() {
                    panic!("{ended:?}\n{}", instance.log());
                }
                assert!(start.elapsed() < LIMIT, "{error}\n{}", instance.log());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Everything that a platform could leave behind of the process `pid`.
fn traces_of(pid: u32) -> BTreeSet<String> {
    let own = format!("clab{pid}");
    let mut found = BTreeSet::new();
    let mut look = |folder: &Path| {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                found.insert(entry.path().display().to_string());
            }
        }
    };
    for folder in ["/sys/class/net", "/run/netns"] {
        look(Path::new(folder));
    }
    // Control groups: below our own in each hierarchy of version 1, at the top of version 2.
    let own_groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    for line in own_groups.lines() {
        let (controllers, path) = line.split_once(':').unwrap().1.split_once(':').unwrap();
        let path = path.trim_start_matches('/');
        look(&Path::new("/sys/fs/cgroup").join(controllers).join(path));
        look(&Path::new("/sys/fs/cgroup").join(path));
    }
    look(Path::new("/sys/fs/cgroup"));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = |line: &&str| line.contains("/labtest");
    found.extend(mounts.lines().filter(ours).map(str::to_owned));
    // Processes whose command line names our folder or instance.
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let instance = format!("lab-{pid}-");
        if line.contains(&own) || line.contains(&instance) {
            found.insert(format!("process: {line}"));
        }
    }
    found
}

fn traces() -> BTreeSet<String> {
    traces_of(std::process::id())
}

/// One test at a time: each looks at what the process has left.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Bench {
    folder: tempfile::TempDir,
    image: Image,
    network: Network,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::Builder::new()
            .prefix("labtest")
            .tempdir()
            .unwrap();
        let image = server(folder.path());
        network::remove_leftovers().unwrap();
        Bench {
            image,
            folder,
            network: Network::create().unwrap(),
        }
    }

    /// A start of `service` with one processor that is not pinned.
    fn order<'a>(&self, service: &'a Service, link: &'a Link, name: &'a str) -> Order<'a> {
        Order {
            service,
            vcpus: 1,
            memory_bytes: MEMORY,
            pin: None,
            link,
            name,
            folder: self.instance_folder(),
        }
    }

    fn instance_folder(&self) -> PathBuf {
        let folder = self.folder.path().join("instance");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::create_dir(&folder).unwrap();
        folder
    }
}

/// Starts, asks, measures, stops.
fn serves(platform: &mut dyn Platform, bench: &Bench) {
    let mut service = service(&["8080", "/data/file"]);
    service.volumes = vec!["/data".into()];
    let prepared = platform.prepare(&service, &bench.image).unwrap();
    assert!(prepared.image_bytes > prepared.shared_bytes);
    let attachment = bench.network.attach(platform.wanted(), Some(PORT)).unwrap();
    let start = Instant::now();
    let mut instance = platform
        .start(&Order {
            pin: Some(vec![0]),
            ..bench.order(&service, attachment.link(), "serves")
        })
        .unwrap();
    let target = attachment.link().reach(PORT);
    let took = first_answer(instance.as_mut(), target);
    println!(
        "{}: first answer after {:?} ({took:?}), image {} B, shared {} B",
        platform.name(),
        start.elapsed(),
        prepared.image_bytes,
        prepared.shared_bytes
    );
    assert!(instance.ended().is_none());
    says_that_it_listens(instance.as_mut());
    assert!(!instance.commands().is_empty());
    let processes = instance.processes();
    assert!(!processes.payload.is_empty(), "{processes:?}");
    for pid in processes.payload.iter().chain(&processes.runtime) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert_eq!(allowed.unwrap().trim(), "0", "pinned: {pid}");
    }
    println!("{:?} {:?}", processes, instance.counters());
    let ended = instance.stop(LIMIT).unwrap().unwrap();
    // The server's own answer to SIGTERM.
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

/// A program that runs to its end: output, environment, exit code.
fn ends_by_itself(platform: &mut dyn Platform, bench: &Bench) {
    let service = service(&["batch", "7"]);
    platform.prepare(&service, &bench.image).unwrap();
    let attachment = bench.network.attach(platform.wanted(), None).unwrap();
    let mut instance = platform
        .start(&bench.order(&service, attachment.link(), "batch"))
        .unwrap();
    let ended = wait(instance.as_mut());
    assert_eq!(ended.code, Some(7), "{ended:?}\n{}", instance.log());
    let output = instance.output();
    assert!(
        output.contains("{\"metric\":\"answer_ns\",\"value\":42}\n"),
        "{output}"
    );
    assert!(output.contains("env yes cwd / uid 0\n"), "{output}");
    assert!(instance.log().contains("on stderr"), "{}", instance.log());
}

/// The server says so before it answers; a container runtime passes it on when it gets to it.
fn says_that_it_listens(instance: &mut dyn Instance) {
    let start = Instant::now();
    while instance.output() != "listening\n" {
        assert!(start.elapsed() < LIMIT, "{:?}", instance.output());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One that cannot start says why, and leaves nothing either.
fn fails_in_order(platform: &mut dyn Platform, bench: &Bench) {
    let service = service(&["8080", "/no/such/folder"]);
    platform.prepare(&service, &bench.image).unwrap();
    let attachment = bench.network.attach(platform.wanted(), Some(PORT)).unwrap();
    let mut instance = platform
        .start(&bench.order(&service, attachment.link(), "fails"))
        .unwrap();
    let ended = wait(instance.as_mut());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        instance.log().contains("/no/such/folder"),
        "{}",
        instance.log()
    );
    // Dropped while it runs or after its end: the same.
}

/// A start that cannot succeed: processors this host does not have, a place in the network of the wrong kind.
fn is_refused(platform: &mut dyn Platform, bench: &Bench) {
    let service = service(&["8080"]);
    platform.prepare(&service, &bench.image).unwrap();
    let attachment = bench.network.attach(platform.wanted(), Some(PORT)).unwrap();
    let other = match platform.wanted() {
        Wanted::Tap => Wanted::Namespace,
        Wanted::Namespace => Wanted::Tap,
    };
    let wrong = bench.network.attach(other, Some(PORT)).unwrap();
    for (pin, link) in [(Some(vec![1000]), attachment.link()), (None, wrong.link())] {
        let order = Order {
            pin,
            ..bench.order(&service, link, "refused")
        };
        let error = platform.start(&order).err().expect("it cannot start");
        println!("{}: {error}", platform.name());
    }
}

fn wait(instance: &mut dyn Instance) -> Ended {
    let start = Instant::now();
    loop {
        if let Some(ended) = instance.ended() {
            return ended;
        }
        assert!(start.elapsed() < LIMIT, "{}", instance.log());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All of it, and nothing is left.
fn works(name: &str) {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !network::is_privileged() {
        println!("skipped: needs root, /dev/net/tun and iproute2");
        return;
    }
    assert_eq!(traces(), BTreeSet::new());
    {
        let bench = Bench::new();
        let mut platform = match platform::find(name, Path::new("/")) {
            Ok(platform) => platform,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        println!("{:?}", platform.facts());
        serves(platform.as_mut(), &bench);
        ends_by_itself(platform.as_mut(), &bench);
        fails_in_order(platform.as_mut(), &bench);
        is_refused(platform.as_mut(), &bench);
    }
    assert_eq!(traces(), BTreeSet::new());
}

#[test]
fn a_process_works() {
    works("process");
}

/// What a run that was killed has left, the next one removes; what belongs to a living one it leaves alone.
#[test]
fn a_killed_run_is_cleaned_up_after() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !network::is_privileged() {
        println!("skipped: needs root, /dev/net/tun and iproute2");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "is_killed", "--nocapture"])
        .env("LAB_IS_KILLED", "yes")
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("serving")));
    let before = traces_of(child.id());
    // Bridge, veth, namespace, and a group in at least one hierarchy.
    assert!(before.len() >= 4, "{before:?}");
    network::remove_leftovers().unwrap();
    assert_eq!(traces_of(child.id()), before, "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(traces_of(child.id()), before, "nobody has cleaned up yet");
    let removed = network::remove_leftovers().unwrap();
    assert!(removed.len() >= 3, "{removed:?}");
    assert_eq!(traces_of(child.id()), BTreeSet::new());
}

/// Started by the test above.
#[test]
#[ignore = "started by another test"]
fn is_killed() {
    if std::env::var_os("LAB_IS_KILLED").is_none() {
        return;
    }
    let bench = Bench::new();
    let mut platform = platform::find("process", Path::new("/")).unwrap();
    let service = service(&["8080"]);
    platform.prepare(&service, &bench.image).unwrap();
    let attachment = bench.network.attach(platform.wanted(), None).unwrap();
    let mut instance = platform
        .start(&bench.order(&service, attachment.link(), "killed"))
        .unwrap();
    first_answer(instance.as_mut(), attachment.link().reach(PORT));
    println!("serving");
    std::thread::sleep(LIMIT);
}

#[test]
fn a_container_works() {
    works("container");
}

#[test]
fn crun_works_or_says_why_not() {
    works("container:crun");
}

#[test]
fn gvisor_works() {
    works("gvisor");
}

#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn a_linux_vm_works() {
    works("linux-vm");
}

#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn a_container_in_a_linux_vm_works() {
    works("linux-vm-container");
}

#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn the_unikernel_works() {
    works("unikernel");
}

/// What those without root get: VMs on their VMM's own network, a port of the host passed on. Of the others the network says
/// what to do.
#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn virtual_machines_work_without_a_bridge() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut bench = Bench::new();
    bench.network = Network::user_mode();
    let refused = bench
        .network
        .attach(Wanted::Namespace, Some(PORT))
        .err()
        .unwrap();
    assert!(refused.to_string().contains("root"), "{refused}");
    let service = service(&["8080"]);
    for name in ["linux-vm", "unikernel"] {
        let mut platform = platform::find(name, Path::new("/")).unwrap();
        platform.prepare(&service, &bench.image).unwrap();
        let attachment = bench.network.attach(platform.wanted(), Some(PORT)).unwrap();
        let mut instance = platform
            .start(&Order {
                vcpus: 2,
                ..bench.order(&service, attachment.link(), "user")
            })
            .unwrap();
        let target = attachment.link().reach(PORT);
        assert!(target.ip().is_loopback());
        first_answer(instance.as_mut(), target);
        assert_eq!(
            instance.stop(LIMIT).unwrap().unwrap().code,
            Some(3),
            "{name}"
        );
    }
}

/// Any guest by a description: here the Linux VM's kernel and initial file system, called as if they were another's.
#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn an_image_of_others_works() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let bench = Bench::new();
    let mut linux = platform::find("linux-vm", Path::new("/")).unwrap();
    let service = service(&["8080"]);
    linux.prepare(&service, &bench.image).unwrap();
    let attachment = bench.network.attach(Wanted::Tap, Some(PORT)).unwrap();
    let instance = linux
        .start(&bench.order(&service, attachment.link(), "image"))
        .unwrap();
    let line = instance.commands().remove(0);
    drop(instance);
    let words: Vec<&str> = line.split(' ').collect();
    let after = |word| words[words.iter().position(|other| *other == word).unwrap() + 1];
    let disk = line
        .split("file=")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let base = bench.folder.path().join("base/experiments/platforms");
    std::fs::create_dir_all(&base).unwrap();
    let ports = ["stdout", "stderr", "control"].iter().zip(1..);
    let ports: String = ports
        .map(|(name, number)| {
            let file = if number == 1 { "{console}".to_owned() } else { format!("{{folder}}/{name}") };
            format!(
                "\"-chardev\", \"file,id={name},path={file}\", \"-device\", \"virtserialport,chardev={name},nr={number}\","
            )
        })
        .collect();
    let description = format!(
        r#"
schema = 1
title = "Linux, described"
vmm = "qemu-system-x86_64"
machine = "microvm"
arguments = ["-M", "microvm,isa-serial=off,auto-kernel-cmdline=off", "-nodefaults", "-no-reboot", "-display", "none",
  "-accel", "{{accel}}", "-cpu", "{{cpu}}", "-smp", "{{vcpus}}", "-m", "{{memory_mib}}M",
  "-kernel", "{{kernel}}", "-initrd", "{{root}}",
  "-append", "console= panic=-1 reboot=t tsc=reliable tsc_early_khz={{tsc_khz}} no_timer_check -- {{ip}} {{netmask}} {{gateway}}",
  "-global", "virtio-mmio.force-legacy=false", "-device", "virtio-serial-device,max_ports=4", {ports}
  "-netdev", "tap,id=net0,ifname={{tap}},script=no,downscript=no", "-device", "virtio-net-device,netdev=net0,mac={{mac}}",
  "-drive", "id=root,if=none,format=raw,snapshot=on,file={{disk}}", "-device", "virtio-blk-device,drive=root"]
[service.server]
files = {{ kernel = "{}", root = "{}", disk = "{disk}" }}
"#,
        after("-kernel"),
        after("-initrd"),
    );
    std::fs::write(base.join("linux.toml"), description).unwrap();
    let base = bench.folder.path().join("base");
    assert_eq!(platform::image_names(&base), ["image:linux"]);
    let error = platform::find("image:linus", &base).err().unwrap();
    assert!(error.to_string().contains("\"linux\"?"), "{error}");
    let mut described = platform::find("image:linux", &base).unwrap();
    assert_eq!(described.facts().substrate, linux.facts().substrate);
    let prepared = described.prepare(&service, &bench.image).unwrap();
    assert!(prepared.image_bytes > prepared.shared_bytes && prepared.shared_bytes > 1 << 20);
    let attachment = bench
        .network
        .attach(described.wanted(), Some(PORT))
        .unwrap();
    let mut instance = described
        .start(&bench.order(&service, attachment.link(), "image"))
        .unwrap();
    first_answer(instance.as_mut(), attachment.link().reach(PORT));
    says_that_it_listens(instance.as_mut());
    assert_eq!(instance.stop(LIMIT).unwrap(), None);
}

/// A whole image: layers, a user, dynamic libraries, an entry point. `LAB_IMAGE` names the archive of Redis.
#[test]
#[ignore = "boots guests: cargo xtask test lab"]
fn an_image_works_everywhere() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(path) = std::env::var_os("LAB_IMAGE").map(PathBuf::from) else {
        println!("skipped: LAB_IMAGE names no image");
        return;
    };
    let mut bench = Bench::new();
    let digest = coracle_imager::image::Digest::of(&std::fs::read(&path).unwrap());
    bench.image = Image {
        path,
        digest: digest.to_string(),
    };
    let mut service = service(&["/etc/redis/redis.conf", "--appendonly", "yes"]);
    service.port = Some(6379);
    service.volumes = vec!["/data".into()];
    for name in platform::names() {
        let mut platform = match platform::find(name, Path::new("/")) {
            Ok(platform) => platform,
            Err(error) => {
                println!("skipped: {error}");
                continue;
            }
        };
        let prepared = platform.prepare(&service, &bench.image).unwrap();
        let attachment = bench.network.attach(platform.wanted(), Some(6379)).unwrap();
        let start = Instant::now();
        let mut instance = platform
            .start(&Order {
                memory_bytes: 256 << 20,
                ..bench.order(&service, attachment.link(), "image")
            })
            .unwrap();
        let target = attachment.link().reach(6379);
        while !pong(target) {
            assert_eq!(instance.ended(), None, "{name}: {}", instance.log());
            assert!(start.elapsed() < LIMIT, "{name}: {}", instance.log());
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = start.elapsed();
        let meter = Meter::start(instance.processes());
        for _ in 0..100 {
            assert!(pong(target));
        }
        let measured = meter.stop();
        println!("{name}: {took:?} {prepared:?} {:?}", measured.metrics);
        assert!(measured.metrics["cpu_s"] > 0.0);
        let ended = instance.stop(LIMIT).unwrap().unwrap();
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    }
}

fn pong(to: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(100))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(answer == *b"+PONG\r\n")
    };
    ask().unwrap_or(false)
}
