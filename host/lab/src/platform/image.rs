// SPDX-License-Identifier: Apache-2.0

//! The platforms `image:NAME`: any other unikernel, or whatever else a VMM boots, described by `experiments/platforms/NAME.toml`
//! (docs/platforms.md). A description says which files stand for which service and how the VMM is called; the lab fills in
//! memory, processors, network and paths, and watches the VMM like that of its own VMs.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use coracle_vmm::Accel;
use serde::Deserialize;

use super::process;
use super::tool::{bytes_on_disk, output, tail};
use super::vmm::{Started, Vmm};
use super::{Ended, Image, Instance, Order, Platform, Prepared, Processes, end_child};
use crate::experiment::{Service, unknown};
use crate::network::{Link, Wanted, find_tool, netmask};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// The version of descriptions this lab reads.
const SCHEMA: u32 = 1;
/// Where descriptions lie, below the folder that holds `experiments/`.
const FOLDER: &str = "experiments/platforms";
/// How the names begin.
pub(super) const PREFIX: &str = "image:";

/// `experiments/platforms/NAME.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    schema: u32,
    /// One line for the record.
    title: String,
    /// The program that boots the image, in PATH.
    vmm: String,
    /// The machine it is told to be: platforms with the same VMM, machine and accelerator are compared.
    machine: String,
    /// Its arguments, with placeholders.
    arguments: Vec<String>,
    /// Files written into the instance's folder before the start: name and text, with placeholders.
    #[serde(default)]
    write: BTreeMap<String, String>,
    /// By the name of a service of experiments.
    #[serde(default)]
    service: BTreeMap<String, Files>,
}

/// What stands for a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Files {
    /// Paths below the folder that holds `experiments/`, by the name of their placeholder.
    #[serde(default)]
    files: BTreeMap<String, PathBuf>,
    /// The command that makes them when one is missing, run by `sh -c` in that folder.
    make: Option<String>,
    /// Further placeholders.
    #[serde(default)]
    values: BTreeMap<String, String>,
}

/// Another unikernel.
#[derive(Debug)]
pub(crate) struct OtherImage {
    name: String,
    base: PathBuf,
    description: Description,
    program: PathBuf,
    /// What QEMU is on this host; another VMM is its own substrate.
    vmm: Option<Vmm>,
}

impl OtherImage {
    /// Reads the description behind `image:`.
    pub(crate) fn find(name: &str, base: &Path) -> Result<OtherImage> {
        let short = name.strip_prefix(PREFIX).unwrap_or(name);
        let folder = base.join(FOLDER);
        let path = folder.join(format!("{short}.toml"));
        if !path.is_file() {
            let known = described(&folder);
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(Error::Input(unknown("image", short, &known)));
        }
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        let description = parse(&text)
            .map_err(|problem| Error::Input(format!("{}: {problem}", path.display())))?;
        let program = find_tool(&description.vmm).ok_or_else(|| {
            Error::Host(format!(
                "{name}: `{}` is missing on this host",
                description.vmm
            ))
        })?;
        let vmm = match description.vmm.starts_with("qemu-system-") {
            true => Some(Vmm::find()?),
            false => None,
        };
        Ok(OtherImage {
            name: name.into(),
            base: base.into(),
            description,
            program,
            vmm,
        })
    }

    /// What stands for the service; a service it has not is an error that names those it has.
    fn files(&self, service: &Service) -> Result<&Files> {
        self.description.service.get(&service.name).ok_or_else(|| {
            let known: Vec<&str> = self
                .description
                .service
                .keys()
                .map(String::as_str)
                .collect();
            Error::Input(format!(
                "{} has nothing for the service {:?}; it has: {}",
                self.name,
                service.name,
                known.join(", ")
            ))
        })
    }

    /// Values of all placeholders.
    fn values(&self, order: &Order<'_>) -> Result<BTreeMap<String, String>> {
        let files = self.files(order.service)?;
        let mut values = files.values.clone();
        let mut put = |name: &str, value: String| values.insert(name.to_owned(), value);
        put("memory_mib", (order.memory_bytes >> 20).to_string());
        put("memory_bytes", order.memory_bytes.to_string());
        put("vcpus", order.vcpus.to_string());
        put("folder", order.folder.display().to_string());
        put(
            "console",
            order.folder.join("console").display().to_string(),
        );
        put("args", order.service.args.join(" "));
        if let Some(vmm) = &self.vmm {
            put("accel", vmm.accel_option(order.memory_bytes));
            put("cpu", vmm.cpu().to_owned());
            put("vhost", vmm.vhost().to_owned());
            put("tsc_khz", vmm.tsc_khz.unwrap_or_default().to_string());
        }
        match order.link {
            Link::Tap {
                interface,
                host,
                guest,
                prefix,
                guest_mac,
            } => {
                put("tap", interface.clone());
                put("mac", guest_mac.clone());
                put("ip", guest.to_string());
                put("prefix", prefix.to_string());
                put("netmask", netmask(*prefix).to_string());
                put("gateway", host.to_string());
            }
            Link::None => {}
            Link::User { .. } | Link::Namespace { .. } => {
                return Err(Error::Host(format!(
                    "{} needs a TAP: run the lab as root, or leave it out",
                    self.name
                )));
            }
        }
        for (name, path) in &files.files {
            put(name, self.base.join(path).display().to_string());
        }
        Ok(values)
    }
}

/// The names of the descriptions in a folder.
pub(super) fn described(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".toml").map(str::to_owned)
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// All of them, as platforms.
pub(super) fn names(base: &Path) -> Vec<String> {
    let names = described(&base.join(FOLDER));
    names
        .into_iter()
        .map(|name| format!("{PREFIX}{name}"))
        .collect()
}

fn parse(text: &str) -> std::result::Result<Description, String> {
    let description: Description = toml::from_str(text).map_err(|error| error.to_string())?;
    if description.schema != SCHEMA {
        return Err(format!(
            "schema {} is not {SCHEMA}, which this lab reads",
            description.schema
        ));
    }
    Ok(description)
}

/// `text` with each `{name}` replaced by its value; `{{` and `}}` stand for the braces.
fn filled(text: &str, values: &BTreeMap<String, String>) -> std::result::Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        result += &rest[..at];
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            result += brace;
            rest = after;
            continue;
        }
        let name = rest.split('}').next().unwrap_or_default();
        if brace == "}" || name.len() == rest.len() {
            return Err(format!(
                "a single {brace:?} in {text:?}; write it twice, or a placeholder"
            ));
        }
        let known: Vec<&str> = values.keys().map(String::as_str).collect();
        result += values
            .get(name)
            .ok_or_else(|| unknown("placeholder", name, &known))?;
        rest = &rest[name.len() + 1..];
    }
    Ok(result + rest)
}

impl Platform for OtherImage {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> PlatformFacts {
        let machine = &self.description.machine;
        let substrate = match &self.vmm {
            Some(vmm) => format!("qemu {}, {machine}, {}", vmm.version, vmm.accel),
            None => format!("{}, {machine}", self.description.vmm),
        };
        let mut about = BTreeMap::from([("title".to_owned(), self.description.title.clone())]);
        if self.vmm.as_ref().is_some_and(|vmm| vmm.accel == Accel::Tcg) {
            about.insert("accelerator".into(), "software emulation".into());
        }
        PlatformFacts {
            name: self.name.clone(),
            substrate,
            about,
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted::Tap
    }

    fn prepare(&mut self, service: &Service, _: &Image) -> Result<Prepared> {
        let files = self.files(service)?;
        if !service.volumes.is_empty() {
            return Err(Error::Input(format!(
                "{}: the service {} wants volumes, which images of others cannot have",
                self.name, service.name
            )));
        }
        let missing = || {
            files
                .files
                .values()
                .find(|path| !self.base.join(path).exists())
        };
        if missing().is_some()
            && let Some(make) = &files.make
        {
            output(
                Command::new("sh")
                    .args(["-c", make])
                    .current_dir(&self.base),
            )?;
        }
        if let Some(path) = missing() {
            return Err(Error::Input(format!(
                "{}: there is no {}; docs/platforms.md says where images of others come from",
                self.name,
                self.base.join(path).display()
            )));
        }
        let bytes = |path: &PathBuf| bytes_on_disk(&self.base.join(path));
        let kernel = files.files.get("kernel").map_or(0, bytes);
        let all = files.files.values().map(bytes).sum();
        // Where kernel and application are one file, nothing is shared.
        let shared_bytes = if files.files.len() > 1 { kernel } else { 0 };
        Ok(Prepared {
            image_bytes: all,
            shared_bytes,
        })
    }

    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        let values = self.values(order)?;
        let fill = |text: &String| {
            filled(text, &values)
                .map_err(|problem| Error::Input(format!("{}: {problem}", self.name)))
        };
        for (name, text) in &self.description.write {
            let path = order.folder.join(name);
            fs::write(&path, fill(text)?).map_err(Error::file(&path))?;
        }
        let arguments = self.description.arguments.iter().map(fill);
        let mut command = Command::new(&self.program);
        command.args(arguments.collect::<Result<Vec<_>>>()?);
        Ok(Box::new(Running(Started::new(
            &mut command,
            order,
            Vec::new(),
        )?)))
    }
}

#[derive(Debug)]
struct Running(Started);

impl Instance for Running {
    fn commands(&self) -> Vec<String> {
        vec![self.0.line.clone()]
    }

    fn address(&self) -> IpAddr {
        self.0.address
    }

    fn ended(&mut self) -> Option<Ended> {
        // What the VMM ends with says nothing of the application.
        let ended = self.0.child.try_wait().ok()??;
        let said = process::ended(ended, false);
        Some(Ended {
            code: None,
            reason: format!(
                "the VMM ended: {} {}",
                said.reason,
                said.code.unwrap_or_default()
            ),
        })
    }

    fn processes(&self) -> Processes {
        self.0.processes()
    }

    /// What is in the file `{console}`, or where that is not used what the VMM printed.
    fn output(&mut self) -> String {
        let name = match self.0.folder.join("console").exists() {
            true => "console",
            false => "vmm.stdout",
        };
        self.0.text(name)
    }

    fn log(&mut self) -> String {
        tail(self.0.text("vmm.stderr") + &self.output())
    }

    /// There is no way to ask that all of them know: the VMM is killed.
    fn stop(mut self: Box<Self>, _: Duration) -> Result<Option<Ended>> {
        if let Some(ended) = self.ended() {
            return Ok(Some(ended));
        }
        end_child(&mut self.0.child);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{described, filled, parse};
    use std::path::Path;

    #[test]
    fn placeholders_are_filled_and_unknown_ones_are_named() {
        let values = [("ip", "10.0.0.2"), ("gateway", "10.0.0.1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let fill = |text| filled(text, &values);
        assert_eq!(fill("a={ip},b={gateway}").unwrap(), "a=10.0.0.2,b=10.0.0.1");
        assert_eq!(fill("{{\"x\": {ip}}}").unwrap(), "{\"x\": 10.0.0.2}");
        assert!(fill("{gatewai}").unwrap_err().contains("\"gateway\""));
        assert!(fill("{ip").is_err() && fill("ip}").is_err());
    }

    #[test]
    fn the_examples_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/platforms");
        let names = described(&folder);
        for name in ["hermit", "includeos", "nanos", "osv", "rumprun", "unikraft"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        let known: std::collections::BTreeMap<String, String> = [
            "memory_mib",
            "memory_bytes",
            "vcpus",
            "folder",
            "console",
            "args",
            "accel",
            "cpu",
            "vhost",
            "tap",
            "mac",
            "ip",
            "prefix",
            "netmask",
            "gateway",
        ]
        .map(|name| (name.to_owned(), "1".to_owned()))
        .into();
        for name in names {
            let text = std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
            let description = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!description.service.is_empty(), "{name}");
            for (service, files) in &description.service {
                let mut values = known.clone();
                values.extend(files.values.clone());
                values.extend(files.files.keys().map(|key| (key.clone(), "1".to_owned())));
                for text in description
                    .arguments
                    .iter()
                    .chain(description.write.values())
                {
                    filled(text, &values)
                        .unwrap_or_else(|error| panic!("{name}, {service}: {error}"));
                }
            }
        }
        assert!(
            parse("schema = 2\ntitle = \"\"\nvmm = \"\"\nmachine = \"\"\narguments = []\n")
                .is_err()
        );
        assert!(parse("schema = 1\ntitel = \"\"\n").is_err());
    }
}
