// SPDX-License-Identifier: Apache-2.0
//! From flags to a plan that can be carried out: everything that can be checked is checked before anything is made.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use coracle_imager::config::{NetworkConfig, Process, RootSource, User};
use coracle_imager::image::folder_root;
use coracle_imager::image::start::ImageRoot;
use coracle_imager::root::DEFAULT_PATH;
use coracle_imager::{Bundle, Config, Root};
use coracle_vmm::accel::Accel;
use coracle_vmm::network::{USER_DNS, USER_GATEWAY, USER_GUEST};
use coracle_vmm::{Boot, Disk, Host, Network, PortForward, Qemu, Spec};
use coracle_volume::Store;

use crate::args::{ImageVolume, RunArgs};
use crate::config::{self, Settings};
use crate::error::Failure;
use crate::images::find::{self, Lookup, Subject};
use crate::{folders, images, lifecycle, quantity, volume, volumes};

/// File name of the kernel.
const KERNEL: &str = "coracle-kernel";
/// Most vCPUs the kernel starts.
const CPUS_MAX: u32 = 8;

/// What is to be run, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) bundle: Bundle,
    /// Where it came from: a path, or the name of an image.
    pub(crate) image: PathBuf,
    /// The signal that asks the application to end, if it is not SIGTERM.
    pub(crate) stop_signal: Option<String>,
    pub(crate) spec: Spec,
    /// Volumes that the instance gets for itself; they are made when it is.
    pub(crate) volumes: Vec<coracle_volume::Volume>,
    pub(crate) accel_warning: Option<String>,
}

/// Checks everything and makes the plan. Leaves nothing behind but the cache of what was found out about the host.
pub(crate) fn plan(args: &RunArgs) -> Result<Plan, Failure> {
    let settings = Settings::load()?;
    let memory_bytes = settings
        .get(config::MEMORY, args.memory.as_deref())
        .parse(quantity::memory)?;
    let cpus = settings
        .get(config::CPUS, args.cpus.as_deref())
        .parse(cpus)?;
    let machine = settings
        .get(config::MACHINE, args.machine.as_deref())
        .parse(str::parse)?;
    let choice = settings
        .get(config::ACCEL, args.accel.as_deref())
        .parse(str::parse::<coracle_vmm::AccelChoice>)?;
    let networks = networks(args, &settings)?;
    let ports = args
        .publish
        .iter()
        .map(|text| text.parse())
        .collect::<Result<Vec<PortForward>, _>>()?;

    let mut volumes = volumes::volumes(&args.volume, &args.tmpfs, &args.mount)?;
    let (mut bundle, origin) = bundle(args, &networks)?;
    if args.image_volume == ImageVolume::Anonymous {
        volumes::add_image_volumes(&mut volumes, &args.command[0], &origin.volumes)?;
    }
    coracle_vmm::network::check(&networks, &ports)?;

    let qemu = Qemu::find(settings.get(config::QEMU, None).path())?;
    let mut host = Host::load(&folders::cache()?);
    qemu.check(host.qemu_version(&qemu)?)?;
    let chosen = choice.choose(&mut host, &qemu)?;
    let tsc_khz = (chosen.accel == Accel::Tcg)
        .then(|| host.tsc_khz())
        .flatten();
    let kernel = kernel(settings.get(config::KERNEL, None).path())?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| random_name(&bundle.config.process.args[0]));

    let mut disks = match &bundle.root {
        Root::Image(path) => vec![Disk {
            path: absolute(path)?,
            read_only: true,
            locked: false,
        }],
        Root::Executable(_) | Root::Directory(_) => Vec::new(),
    };
    let (mounts, shares) = volumes::shares(&volumes, disks.len())?;
    bundle.config.mounts = mounts;
    // A command line that is only shown gets volumes of its own, which the next one replaces.
    let store = match args.dry_run {
        false => volume::store()?,
        true => Store::new(&folders::dry_run()?),
    };
    // Last, since it may make them.
    let (more, new) = volumes::disks(&volumes, &store)?;
    disks.extend(more);
    let spec = Spec {
        name,
        qemu: qemu.path,
        machine,
        accel: chosen.accel,
        cpus,
        memory_bytes,
        kernel,
        bundle: Vec::new(), // written later
        boot: Boot::Firmware,
        networks,
        ports,
        disks,
        shares,
        tcg_buffer_mib: 0, // with the bundle's size, in boot::prepare
        tsc_khz,
        log_level: args.trace.then(|| "trace".to_owned()),
        sandbox: true,
    };
    if !spec.fits() {
        return Err(Failure::new(
            "more volumes than microvm has places for; use --machine q35, or --image-volume ignore if they are the image's",
        ));
    }
    Ok(Plan {
        bundle,
        image: origin.name,
        stop_signal: origin.stop_signal,
        spec,
        volumes: new,
        accel_warning: chosen.warning,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn cpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(cpus) if (1..=CPUS_MAX).contains(&cpus) => Ok(cpus),
        _ => Err(format!("{text}: give a whole number from 1 to {CPUS_MAX}")),
    }
}

/// What is known of the root that the configuration of the guest does not say.
struct Origin {
    name: PathBuf,
    stop_signal: Option<String>,
    /// Paths of VOLUMEs.
    volumes: Vec<String>,
}

/// One network for each interface. The first comes from flag, environment, file or default, as other settings do.
fn networks(args: &RunArgs, settings: &Settings) -> Result<Vec<Network>, Failure> {
    let first = args.network.first().map(String::as_str);
    let first: Network = settings.get(config::NETWORK, first).parse(str::parse)?;
    let mut networks = vec![first];
    for text in args.network.iter().skip(1) {
        networks.push(text.parse()?);
    }
    if networks.len() > 1 && networks.contains(&Network::None) {
        return Err(Failure::new(
            "--network none: there are others; give none alone",
        ));
    }
    networks.retain(|network| *network != Network::None);
    Ok(networks)
}

fn bundle(args: &RunArgs, networks: &[Network]) -> Result<(Bundle, Origin), Failure> {
    let lookup = Lookup::new(&args.lookup);
    let absolute = || std::path::absolute(args.image()).unwrap_or_else(|_| args.image().into());
    let (root, mut config, origin) = match find::subject(&args.command[0], &lookup)? {
        Subject::Image(image, path) => {
            let process = images::start::process(args, &image, &path)?;
            let config = Config::with_process(process);
            let execution = image.config.config;
            let stop_signal = execution.stop_signal;
            if !stop_signal.is_empty() {
                // Better now than when the guest is to end.
                lifecycle::signal(&stop_signal).map_err(|failure| {
                    Failure::new(format!("{}: STOPSIGNAL: {}", image.name, failure.message))
                })?;
            }
            let origin = Origin {
                name: PathBuf::from(image.name),
                stop_signal: (!stop_signal.is_empty()).then_some(stop_signal),
                volumes: execution.volumes.into_keys().collect(),
            };
            (Root::Image(path), config, origin)
        }
        Subject::Root(root) => {
            let config = Config::with_process(process(args, &root)?);
            let root = on_disk(root)?;
            let origin = Origin {
                name: absolute(),
                stop_signal: None,
                volumes: Vec::new(),
            };
            (root, config, origin)
        }
    };
    config.root.source = matches!(root, Root::Image(_)).then(|| RootSource {
        kind: "erofs".into(),
        device: 0,
    });
    config.root.readonly = args.read_only;
    config.coracle.trace = args.trace;
    config.coracle.started_ns = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|time| u64::try_from(time.as_nanos()).ok());
    config.coracle.network = networks.iter().filter_map(network_config).collect();
    if let Some(name) = &args.name {
        config.hostname.clone_from(name);
    }
    Ok((Bundle { root, config }, origin))
}

/// A folder becomes a disk, as images are, unless it is small. Without a usable cache it goes into the guest's memory.
fn on_disk(root: Root) -> Result<Root, Failure> {
    let Root::Directory(path) = &root else {
        return Ok(root);
    };
    match folder_root::root(path, &folders::cache()?.join("folders")) {
        Ok(Some(disk)) => Ok(Root::Image(disk)),
        Ok(None) => Ok(root),
        Err(error) => {
            eprintln!("coracle: warning: {error}; the folder is put into the guest's memory");
            Ok(root)
        }
    }
}

/// How a program is run about which only the command line says something.
fn process(args: &RunArgs, root: &Root) -> Result<Process, Failure> {
    let env = environment(args, &[])?;
    let search = search_path(&env);
    let first = args.arguments().first().map(String::as_str);
    let program = match (root, first) {
        (Root::Image(path), Some(program)) => {
            let name = args.image().display().to_string();
            let cwd = args.workdir.as_deref().unwrap_or("/");
            ImageRoot::open(&name, path)?.program(program, cwd, search)?
        }
        // The root may lie in the store, under a name nobody gave it.
        (Root::Image(_), None) => Root::Image(args.image().into()).program(None, search)?,
        _ => root.program(first, search)?,
    };
    let arguments = match root {
        Root::Executable(_) => args.arguments(),
        Root::Directory(_) | Root::Image(_) => &args.arguments()[1..],
    };
    let argv = std::iter::once(program)
        .chain(arguments.iter().cloned())
        .collect();
    let user = args.user.as_deref().map(user).transpose()?;
    Ok(Process {
        user: user.unwrap_or_default(),
        cwd: working_directory(args)?.unwrap_or_else(|| "/".into()),
        ..Process::new(argv, env)
    })
}

/// Where programs are looked for.
pub(crate) fn search_path(env: &[String]) -> &str {
    let path = env
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="));
    path.unwrap_or(DEFAULT_PATH)
}

/// `--workdir`
pub(crate) fn working_directory(args: &RunArgs) -> Result<Option<String>, Failure> {
    match &args.workdir {
        Some(dir) if !dir.starts_with('/') => Err(Failure::new(format!(
            "--workdir {dir}: give an absolute path in the guest, such as /{dir}"
        ))),
        dir => Ok(dir.clone()),
    }
}

/// The environment: built in, then the image's, then the files, then the flags; a later value replaces an earlier one.
pub(crate) fn environment(args: &RunArgs, image: &[String]) -> Result<Vec<String>, Failure> {
    let mut env = vec![format!("PATH={DEFAULT_PATH}"), "HOME=/".to_owned()];
    let mut set = |text: &str| {
        let variable = match text.split_once('=') {
            Some(_) => text.to_owned(),
            None => match std::env::var(text) {
                Ok(value) => format!("{text}={value}"),
                Err(_) => return, // like podman: a variable that is not set here is not set there
            },
        };
        let name = variable.split('=').next().unwrap_or_default().to_owned() + "=";
        env.retain(|known| !known.starts_with(&name));
        env.push(variable);
    };
    for text in image.iter().filter(|text| text.find('=') > Some(0)) {
        set(text);
    }
    for path in &args.env_file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let path = path.display();
            Failure::new(format!(
                "--env-file {path}: {error}; give a text file of NAME=VALUE lines"
            ))
        })?;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with('=') {
                let at = at + 1;
                return Err(Failure::new(format!(
                    "{}:{at}: no name before '='; write NAME=VALUE",
                    path.display()
                )));
            }
            set(line);
        }
    }
    for text in &args.env {
        if text.is_empty() || text.starts_with('=') {
            return Err(Failure::new(format!(
                "--env {text:?}: no name; write NAME=VALUE"
            )));
        }
        set(text);
    }
    Ok(env)
}

fn user(text: &str) -> Result<User, Failure> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
    let number = |part: &str| {
        part.parse().map_err(|_| {
            Failure::new(format!(
                "--user {text}: give numbers, UID or UID:GID, such as 1000:1000"
            ))
        })
    };
    Ok(User {
        uid: number(uid)?,
        gid: number(gid)?,
    })
}

/// What the kernel is told about its interface.
fn network_config(network: &Network) -> Option<NetworkConfig> {
    let mac = network.mac().map(str::to_owned);
    match network {
        Network::User => Some(NetworkConfig {
            mac,
            ipv4: Some(format!("{USER_GUEST}/24")),
            gateway: Some(USER_GATEWAY.to_string()),
            dns: vec![USER_DNS.to_string()],
            ..NetworkConfig::default()
        }),
        Network::Tap(tap) => Some(NetworkConfig {
            mac,
            ipv4: tap.ip.map(|(ip, prefix)| format!("{ip}/{prefix}")),
            gateway: tap.gateway.map(|gateway| gateway.to_string()),
            ipv6: tap.ip6.map(|(ip, prefix)| format!("{ip}/{prefix}")),
            gateway6: tap.gateway6.map(|gateway| gateway.to_string()),
            dhcp: tap.ip.is_none(),
            ..NetworkConfig::default()
        }),
        Network::None => None,
    }
}

/// The kernel: where it was said to be, or beside this program, as installed or as built.
pub(crate) fn kernel(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return match std::path::absolute(path) {
            Ok(path) if path.is_file() => Ok(path),
            _ => Err(Failure::new(format!(
                "kernel {}: no such file; set CORACLE_KERNEL to the kernel",
                path.display()
            ))),
        };
    }
    let beside = |relative: &str| {
        Some(
            std::env::current_exe()
                .ok()?
                .parent()?
                .join(relative)
                .join(KERNEL),
        )
    };
    let built = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/x86_64-unknown-none/kernel")
        .join(KERNEL);
    let places = [
        beside(""),
        beside("../share/coracle"),
        beside("../x86_64-unknown-none/kernel"),
        Some(built),
    ];
    let found = places.into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| Failure::new("no kernel beside this program; build it (cargo xtask build) or set CORACLE_KERNEL to it"))
}

/// A name for an instance nobody named: the program's and four random digits.
pub(crate) fn random_name(program: &str) -> String {
    let base = program.rsplit('/').next().unwrap_or_default();
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let base: String = base
        .chars()
        .filter(allowed)
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(24)
        .collect();
    let base = if base.is_empty() { "app" } else { &base };
    // The standard library seeds this hasher from the system's random numbers.
    let random = RandomState::new().build_hasher().finish() & 0xffff;
    format!("{base}-{random:04x}")
}
