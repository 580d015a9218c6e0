// SPDX-License-Identifier: Apache-2.0

//! The platform `unikernel`: the image in Coracle, started as a user starts it, by `coracle run -d`. The time of that
//! command is part of the start, its monitor process is counted apart from the VMM.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coracle_imager::image::Digest;
use coracle_vmm::client::Connection;
use coracle_vmm::{Event, Op, State, Status, Store};

use super::cgroup::Cgroup;
use super::spawn::{Place, spawn};
use super::tool::{bytes_on_disk, output, shown, tail, text_of};
use super::vmm::{MACHINE, Vmm};
use super::{Ended, Image, Instance, Order, Platform, Prepared, Processes, end_child, folders};
use crate::experiment::Service;
use crate::network::{Link, Wanted};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// How long the monitor may take to write down how its VMM ended.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long a guest may take to answer a question.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How the names of the lab's instances begin; the process follows that started them.
const NAMES: &str = "lab-";

/// Coracle.
#[derive(Debug)]
pub(crate) struct Unikernel {
    vmm: Vmm,
    program: PathBuf,
    store: Store,
    /// The kernel that `coracle run` takes, where it is known.
    kernel: Option<PathBuf>,
    images: BTreeMap<String, Image>,
}

impl Unikernel {
    pub(crate) fn find() -> Result<Unikernel> {
        let program = program()?;
        Ok(Unikernel {
            vmm: Vmm::find()?,
            kernel: kernel(&program),
            program,
            store: Store::new(&folders::state()?),
            images: BTreeMap::new(),
        })
    }

    /// `coracle run` with machine and environment, without name, network and image.
    fn run(&self, service: &Service, vcpus: u32, memory_bytes: u64) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "run",
                "--accel",
                &self.vmm.accel.to_string(),
                "--machine",
                MACHINE,
            ])
            .args(["-m", &format!("{}M", memory_bytes >> 20)])
            .args(["--cpus", &vcpus.to_string()])
            // Only what the experiment calls a volume is one, as on the other platforms.
            .args(["--image-volume", "ignore"]);
        for (name, value) in &service.env {
            command.args(["-e", &format!("{name}={value}")]);
        }
        command
    }
}

/// The `coracle` command: `CORACLE`, this program itself, or one beside it or in PATH.
fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CORACLE") {
        return std::path::absolute(&path).map_err(Error::file(PathBuf::from(path)));
    }
    let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    if own.file_name().is_some_and(|name| name == "coracle") {
        return Ok(own);
    }
    let beside = own.with_file_name("coracle");
    if beside.is_file() {
        return Ok(beside);
    }
    crate::network::find_tool("coracle").ok_or_else(|| {
        Error::Host(
            "no `coracle` command: build it (cargo xtask build) or set CORACLE to it".into(),
        )
    })
}

/// Where `coracle run` looks for its kernel; [`Unikernel::prepare`] learns from the command itself which one it took.
fn kernel(program: &Path) -> Option<PathBuf> {
    let given = std::env::var_os("CORACLE_KERNEL").map(PathBuf::from);
    let folder = program.parent()?;
    let beside = ["", "../share/coracle", "../x86_64-unknown-none/kernel"]
        .map(|relative| folder.join(relative).join("coracle-kernel"));
    given.into_iter().chain(beside).find(|path| path.is_file())
}

/// Removes instances that a run left whose process `is_dead`. Answers their names.
pub(crate) fn remove_where(is_dead: impl Fn(u32) -> bool) -> Vec<String> {
    let store = folders::state().map(|state| Store::new(&state));
    let (Ok(store), Ok(program)) = (store, program()) else {
        return Vec::new();
    };
    let instances = store.list().unwrap_or_default().into_iter();
    let names = instances.map(|instance| instance.name).filter(|name| {
        let pid = name
            .strip_prefix(NAMES)
            .and_then(|rest| rest.split('-').next());
        pid.and_then(|pid| pid.parse().ok()).is_some_and(&is_dead)
    });
    names
        .filter(|name| output(Command::new(&program).args(["rm", "-f", "-v", name])).is_ok())
        .collect()
}

/// Files in a VMM's command line by what they are: kernel; everything else it loads, maps or has as a disk.
fn files_of(line: &str) -> (Option<PathBuf>, Vec<PathBuf>) {
    let (mut kernel, mut others, mut before) = (None, Vec::new(), "");
    for word in line.split_whitespace() {
        match before {
            "-kernel" => kernel = Some(PathBuf::from(word)),
            "-bios" | "-initrd" => others.push(PathBuf::from(word)),
            _ => {}
        }
        for value in word.split(',') {
            if word.starts_with("loader,")
                && let Some(path) = value.strip_prefix("file=")
            {
                kernel = Some(PathBuf::from(path));
            }
            for key in ["mem-path=", "file.filename="] {
                others.extend(value.strip_prefix(key).map(PathBuf::from));
            }
        }
        before = word;
    }
    (kernel, others)
}

impl Platform for Unikernel {
    fn name(&self) -> &'static str {
        "unikernel"
    }

    fn facts(&self) -> PlatformFacts {
        let version = output(Command::new(&self.program).arg("--version")).unwrap_or_default();
        let about = [
            ("command", self.program.display().to_string()),
            ("version", version.trim().to_owned()),
            (
                "started by",
                "coracle run -d, whose time is part of the start".to_owned(),
            ),
        ];
        let mut about: BTreeMap<String, String> =
            about.map(|(key, value)| (key.to_owned(), value)).into();
        // Results of two kernels must be told apart.
        let kernel = self
            .kernel
            .as_ref()
            .and_then(|path| std::fs::read(path).ok());
        if let Some(bytes) = kernel {
            about.insert("kernel".into(), Digest::of(&bytes).to_string());
        }
        PlatformFacts {
            name: self.name().into(),
            substrate: self.vmm.substrate(),
            about,
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted::Tap
    }

    fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared> {
        self.images.insert(service.name.clone(), image.clone());
        // Also makes the root of an image, which the first start would do otherwise.
        let mut command = self.run(service, 1, 256 << 20);
        command.args(["--network", "none", "--dry-run"]);
        command.arg(&image.path).args(&service.args);
        let line = output(&mut command)?;
        let (kernel, others) = files_of(&line);
        self.kernel = kernel.or(self.kernel.take());
        let kernel = self.kernel.as_deref().map_or(0, bytes_on_disk);
        let others: u64 = others.iter().map(|path| bytes_on_disk(path)).sum();
        Ok(Prepared {
            image_bytes: kernel + others,
            shared_bytes: kernel,
        })
    }

    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        let image = super::prepared(&self.images, order.service)?;
        let cgroup = Cgroup::without_limits(&super::cgroup_name(order));
        let name = format!("{NAMES}{}-{}", std::process::id(), order.name);
        let mut command = self.run(order.service, order.vcpus, order.memory_bytes);
        command.args(["-d", "--name", &name]);
        match order.link {
            Link::Tap {
                interface,
                host,
                guest,
                prefix,
                guest_mac,
            } => {
                let network =
                    format!("tap={interface},ip={guest}/{prefix},gw={host},mac={guest_mac}");
                command.args(["--network", &network]);
            }
            Link::User { host_port, port } => {
                let publish = format!("127.0.0.1:{host_port}:{port}");
                command.args(["--network", "user", "-p", &publish]);
                command.args(["-p", &format!("{publish}/udp")]);
            }
            Link::None => {
                command.args(["--network", "none"]);
            }
            Link::Namespace { .. } => return Err(super::wrong_link(self.name())),
        }
        // Volumes that nobody named; `rm -v` removes them.
        for path in &order.service.volumes {
            command.args(["-v", path]);
        }
        command.arg(&image.path).args(&order.service.args);
        let stderr_path = order.folder.join("coracle.stderr");
        let (stdout, stderr) = super::streams(&order.folder, "coracle")?;
        let line = shown(&command);
        let place = Place {
            cpus: order.pin.as_deref().unwrap_or_default(),
            cgroup: cgroup.as_ref(),
            ..Place::default()
        };
        let child = spawn(&mut command, place, stdout, stderr);
        // Whatever happens now, Drop removes the instance.
        let mut instance = Running {
            child: None,
            program: self.program.clone(),
            store: self.store.clone(),
            name,
            stderr: stderr_path,
            address: order.link.address(),
            memory_bytes: order.memory_bytes,
            vmm: None,
            line,
            _cgroup: cgroup,
        };
        instance.child = Some(child?);
        Ok(Box::new(instance))
    }
}

#[derive(Debug)]
struct Running {
    /// The command that starts the guest.
    child: Option<Child>,
    program: PathBuf,
    store: Store,
    name: String,
    stderr: PathBuf,
    address: IpAddr,
    memory_bytes: u64,
    /// The VMM's process, once it is known.
    vmm: Option<u32>,
    line: String,
    /// Removed last, with what should still be in it.
    _cgroup: Option<Cgroup>,
}

impl Running {
    fn coracle(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null());
        command
    }

    fn state(&self) -> Option<State> {
        self.store.open(&self.name).ok()?.load().ok()
    }

    /// The VMM's process.
    fn find_vmm(&mut self) -> Option<u32> {
        if self.vmm.is_none() {
            self.vmm = self.state()?.vmm.map(|process| process.pid.cast_unsigned());
        }
        self.vmm
    }

    /// How the guest ended, as its monitor wrote it down.
    fn exit(&self) -> Ended {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            let state = self.state();
            if let Some(exit) = state.as_ref().and_then(|state| state.exit.as_ref()) {
                let detail = exit.detail.as_deref().map(|detail| format!(": {detail}"));
                return Ended {
                    code: Some(i32::from(exit.code)),
                    reason: format!("{}{}", exit.reason, detail.unwrap_or_default()),
                };
            }
            if state.is_none_or(|state| state.status == Status::Exited) || Instant::now() > deadline
            {
                return Ended {
                    code: None,
                    reason: "the VMM is gone without a word".into(),
                };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log_file(&self, pick: impl Fn(&coracle_vmm::Instance) -> PathBuf) -> String {
        self.store
            .open(&self.name)
            .map_or_else(|_| String::new(), |instance| text_of(&pick(&instance)))
    }
}

impl Instance for Running {
    fn commands(&self) -> Vec<String> {
        vec![self.line.clone()]
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn ended(&mut self) -> Option<Ended> {
        // Of the command: it ends as soon as it has started the guest.
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return None,
                Ok(Some(status)) if status.success() => self.child = None,
                Ok(Some(status)) => {
                    return Some(Ended {
                        code: status.code(),
                        reason: format!("coracle run: {}", text_of(&self.stderr).trim()),
                    });
                }
                Err(error) => {
                    return Some(Ended {
                        code: None,
                        reason: error.to_string(),
                    });
                }
            }
        }
        match self.find_vmm() {
            Some(pid) if Path::new(&format!("/proc/{pid}")).exists() => None,
            _ => Some(self.exit()),
        }
    }

    fn processes(&self) -> Processes {
        let state = self.state();
        let pid = |process: Option<coracle_vmm::process::ProcessId>| {
            process
                .map(|process| process.pid.cast_unsigned())
                .into_iter()
                .collect()
        };
        Processes {
            payload: pid(state.as_ref().and_then(|state| state.vmm)),
            runtime: pid(state.as_ref().and_then(|state| state.monitor)),
            guest_memory_bytes: Some(self.memory_bytes),
            cgroup: None,
        }
    }

    fn output(&mut self) -> String {
        self.log_file(coracle_vmm::Instance::console_log)
    }

    fn log(&mut self) -> String {
        let parts = [
            text_of(&self.stderr),
            self.log_file(coracle_vmm::Instance::vmm_log),
            self.log_file(coracle_vmm::Instance::serial_log),
            self.log_file(coracle_vmm::Instance::console_log),
        ];
        tail(parts.concat())
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Result<Option<Ended>> {
        if let Some(ended) = self.ended() {
            return Ok(Some(ended));
        }
        let grace_s = grace.as_secs_f64().ceil().to_string();
        output(&mut self.coracle(&["stop", "-t", &grace_s, &self.name.clone()]))?;
        Ok(Some(self.exit()))
    }

    fn counters(&mut self) -> BTreeMap<String, f64> {
        let mut counters = BTreeMap::new();
        let Ok(instance) = self.store.open(&self.name) else {
            return counters;
        };
        if let Ok(State {
            boot_ns: Some(ns),
            boot_laps,
            ..
        }) = instance.load()
        {
            counters.extend(phases(&boot_laps));
            counters.insert(
                "boot.kernel_ms".into(),
                Duration::from_nanos(ns).as_secs_f64() * 1e3,
            );
        }
        let Ok(mut connection) = Connection::open(&instance) else {
            return counters;
        };
        let deadline = Instant::now() + ANSWER_LIMIT;
        if connection.send(Op::Counters).is_err() {
            return counters;
        }
        while let Ok(Some(event)) = connection.next_event(Some(deadline)) {
            if let Event::Counters { values, .. } = event {
                for (name, value) in &values {
                    flatten(name, value, &mut counters);
                }
                break;
            }
        }
        counters
    }
}

/// How long each boot step took, from the times of their ends. A step that had no end yet is left out.
fn phases(laps: &[(String, u64)]) -> BTreeMap<String, f64> {
    let mut phases = BTreeMap::new();
    let mut begin = 0;
    for (name, end) in laps {
        if let Some(ns) = end.checked_sub(begin).filter(|_| *end > 0) {
            phases.insert(
                format!("boot.{name}_ms"),
                Duration::from_nanos(ns).as_secs_f64() * 1e3,
            );
            begin = *end;
        }
    }
    phases
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end_child(child);
        }
        // One that never came up is no error for `rm -f`.
        let quiet =
            |mut command: Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if let Err(error) = quiet(self.coracle(&["rm", "-f", "-v", &self.name])) {
            eprintln!("coracle lab: {} rm: {error}", self.program.display());
        }
    }
}

/// Numbers in the guest's answer by name; those of lists and groups with a dot between.
fn flatten(name: &str, value: &serde_json::Value, to: &mut BTreeMap<String, f64>) {
    match value {
        serde_json::Value::Object(group) => {
            for (key, value) in group {
                flatten(&format!("{name}.{key}"), value, to);
            }
        }
        value => to.extend(value.as_f64().map(|number| (name.to_owned(), number))),
    }
}

#[cfg(test)]
mod tests {
    use super::{files_of, phases};

    #[test]
    fn a_phase_is_the_time_since_the_one_before() {
        let laps = [
            ("memory", 2_000_000),
            ("clock", 2_500_000),
            ("cpus", 0),
            ("files", 9_000_000),
        ];
        let found = phases(&laps.map(|(name, at)| (name.to_owned(), at)));
        let wanted = [
            ("boot.clock_ms", 0.5),
            ("boot.files_ms", 6.5),
            ("boot.memory_ms", 2.0),
        ];
        assert!(
            found
                .iter()
                .map(|(name, ms)| (name.as_str(), *ms))
                .eq(wanted),
            "{found:?}"
        );
    }

    #[test]
    fn files_are_found_in_both_ways_to_boot() {
        let names = |line| {
            let (kernel, others) = files_of(line);
            let others: Vec<String> = others
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            (
                kernel.map(|path| path.display().to_string()),
                others.join(" "),
            )
        };
        let direct = "qemu -bios /a/boot.rom -device loader,file=/k -object memory-backend-file,id=p,mem-path=/a/bundle \
                      -blockdev driver=raw,node-name=disk0,file.driver=file,file.filename=/c/root";
        assert_eq!(
            names(direct),
            (Some("/k".into()), "/a/boot.rom /a/bundle /c/root".into())
        );
        assert_eq!(
            names("qemu -kernel /k -initrd /a/bundle.cpio"),
            (Some("/k".into()), "/a/bundle.cpio".into())
        );
    }
}
