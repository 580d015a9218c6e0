// SPDX-License-Identifier: Apache-2.0
//! `coracle doctor`: what this machine lacks, in plain words, and the one line that repairs it.

use std::fs::File;
use std::path::Path;

use coracle_vmm::kvm::Verdict;
use coracle_vmm::{Host, Qemu};

use crate::config::{self, Settings};
use crate::error::Failure;
use crate::{folders, output, plan};

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Fine,
    /// Works without, slower or with fewer possibilities.
    Less,
    /// Nothing runs without.
    Needed,
}

struct Finding {
    level: Level,
    text: String,
    repair: String,
}

/// Prints all findings; answers 1 when something needed is missing.
pub(crate) fn doctor() -> Result<u8, Failure> {
    let settings = Settings::load()?;
    let mut findings = Vec::new();
    match Qemu::find(settings.get(config::QEMU, None).path()) {
        Ok(qemu) => about_qemu(&qemu, &mut findings)?,
        Err(error) => findings.push(needed(&error.to_string())),
    }
    findings.push(
        match plan::kernel(settings.get(config::KERNEL, None).path()) {
            Ok(path) => fine(format!("kernel: {}", path.display())),
            Err(error) => needed(&error.message),
        },
    );
    findings.push(tun());
    findings.push(state_folder(&folders::state()?));

    let mut text = String::new();
    for finding in &findings {
        let mark = match finding.level {
            Level::Fine => "ok  ",
            Level::Less => "less",
            Level::Needed => "MISS",
        };
        text += &format!("{mark}  {}\n", finding.text);
        if !finding.repair.is_empty() {
            text += &format!("      repair: {}\n", finding.repair);
        }
    }
    output::print(&text);
    Ok(u8::from(
        findings
            .iter()
            .any(|finding| finding.level == Level::Needed),
    ))
}

fn about_qemu(qemu: &Qemu, findings: &mut Vec<Finding>) -> Result<(), Failure> {
    let mut host = Host::load(&folders::cache()?);
    let version = match host
        .qemu_version(qemu)
        .and_then(|version| qemu.check(version).map(|()| version))
    {
        Ok(version) => version,
        Err(error) => {
            findings.push(needed(&error.to_string()));
            return Ok(());
        }
    };
    findings.push(fine(format!(
        "QEMU {}.{} at {}",
        version.major,
        version.minor,
        qemu.path.display()
    )));
    findings.push(match host.kvm_again(qemu)? {
        Verdict::Works => fine("KVM runs a probe guest".to_owned()),
        verdict => Finding {
            level: Level::Less,
            text: format!(
                "guests run in software emulation, which is slower: {}",
                verdict.reason()
            ),
            repair: verdict.remedy().to_owned(),
        },
    });
    Ok(())
}

/// TAP networks need `/dev/net/tun`; the user-mode network does not.
fn tun() -> Finding {
    match File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => fine("TAP networks: /dev/net/tun can be opened".to_owned()),
        Err(error) => Finding {
            level: Level::Less,
            text: format!("TAP networks: cannot open /dev/net/tun: {error}; --network user works"),
            repair: match error.kind() {
                std::io::ErrorKind::NotFound => "sudo modprobe tun",
                _ => "sudo chmod 666 /dev/net/tun",
            }
            .to_owned(),
        },
    }
}

/// Whether instances can be recorded: a file is really written.
fn state_folder(state: &Path) -> Finding {
    let probe = state.join(format!(".doctor-{}", std::process::id()));
    let written = std::fs::create_dir_all(state).and_then(|()| std::fs::write(&probe, [0; 4096]));
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => fine(format!("instances are kept in {}", state.display())),
        Err(error) => Finding {
            level: Level::Needed,
            text: format!("cannot write to {}: {error}", state.display()),
            repair: "export XDG_STATE_HOME=/a/folder/you/may/write".to_owned(),
        },
    }
}

fn fine(text: String) -> Finding {
    Finding {
        level: Level::Fine,
        text,
        repair: String::new(),
    }
}

/// From a message of the form `what; remedy`.
fn needed(message: &str) -> Finding {
    let (text, repair) = message.rsplit_once("; ").unwrap_or((message, ""));
    let repair = repair.strip_prefix("install it: ").unwrap_or(repair);
    Finding {
        level: Level::Needed,
        text: text.to_owned(),
        repair: repair.to_owned(),
    }
}
