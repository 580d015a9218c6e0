// SPDX-License-Identifier: Apache-2.0
//! What is found out about this host once and remembered, because finding out takes longer than a guest takes to boot.
//!
//! The file is `$XDG_CACHE_HOME/coracle/host.json`. It is valid for one boot of the host and one QEMU program file; losing
//! it costs time only, so nothing that goes wrong with it is an error.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kvm::{self, Verdict};
use crate::qemu::{Identity, Qemu, QemuError, Version};
use crate::tsc;

/// The host as guests see it.
#[derive(Debug)]
pub struct Host {
    file: PathBuf,
    facts: Facts,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    boot_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qemu: Option<QemuFacts>,
    /// Outer `None`: not measured yet; inner `None`: not steady.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nested")]
    tsc_khz: Option<Option<u64>>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct QemuFacts {
    identity: Identity,
    version: Version,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kvm: Option<Verdict>,
}

/// `Some(None)` is written as 0.
mod nested {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Option<u64>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.flatten().unwrap_or(0))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<Option<u64>>, D::Error> {
        let khz = u64::deserialize(from)?;
        Ok(Some((khz != 0).then_some(khz)))
    }
}

impl Host {
    /// Loads what is remembered in `cache`, the folder of Coracle's caches.
    #[must_use]
    pub fn load(cache: &Path) -> Self {
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot_id = boot_id.trim().to_owned();
        let file = cache.join("host.json");
        let remembered = std::fs::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Facts>(&bytes).ok());
        let facts = remembered.filter(|facts| !boot_id.is_empty() && facts.boot_id == boot_id);
        Self {
            file,
            facts: facts.unwrap_or_else(|| Facts {
                boot_id,
                ..Facts::default()
            }),
        }
    }

    /// The version of `qemu`.
    ///
    /// # Errors
    /// [`QemuError::NoVersion`].
    pub fn qemu_version(&mut self, qemu: &Qemu) -> Result<Version, QemuError> {
        Ok(self.qemu_facts(qemu)?.version)
    }

    /// Whether KVM works with `qemu`.
    ///
    /// # Errors
    /// [`QemuError::NoVersion`].
    pub fn kvm(&mut self, qemu: &Qemu) -> Result<Verdict, QemuError> {
        if let Some(verdict) = &self.qemu_facts(qemu)?.kvm {
            return Ok(verdict.clone());
        }
        self.kvm_again(qemu)
    }

    /// Like [`Host::kvm`], but asks again.
    ///
    /// # Errors
    /// [`QemuError::NoVersion`].
    pub fn kvm_again(&mut self, qemu: &Qemu) -> Result<Verdict, QemuError> {
        let verdict = kvm::probe(&qemu.path);
        let facts = self.qemu_facts(qemu)?;
        // Rights change without a new boot: such an answer is quick to find again and not remembered.
        facts.kvm = matches!(verdict, Verdict::Works | Verdict::Broken(_)).then(|| verdict.clone());
        self.save();
        Ok(verdict)
    }

    /// Frequency of the time-stamp counter in kHz, where it is steady.
    pub fn tsc_khz(&mut self) -> Option<u64> {
        if let Some(known) = self.facts.tsc_khz {
            return known;
        }
        let khz = tsc::khz();
        self.facts.tsc_khz = Some(khz);
        self.save();
        khz
    }

    fn qemu_facts(&mut self, qemu: &Qemu) -> Result<&mut QemuFacts, QemuError> {
        let identity = qemu.identity().ok_or_else(|| QemuError::NotAProgram {
            path: qemu.path.clone(),
        })?;
        let known = self
            .facts
            .qemu
            .take()
            .filter(|facts| facts.identity == identity);
        let facts = match known {
            Some(facts) => facts,
            None => QemuFacts {
                identity,
                version: qemu.version()?,
                kvm: None,
            },
        };
        let fresh = facts.kvm.is_none();
        self.facts.qemu = Some(facts);
        if fresh {
            self.save();
        }
        Ok(self.facts.qemu.as_mut().expect("stored two lines above"))
    }

    fn save(&self) {
        let Some(dir) = self.file.parent() else {
            return;
        };
        let Ok(bytes) = serde_json::to_vec_pretty(&self.facts) else {
            return;
        };
        // Written aside and renamed: another process reads the old file or the new one, never half of one.
        let aside = dir.join(format!("host.json.{}", std::process::id()));
        let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&aside, bytes));
        if written
            .and_then(|()| std::fs::rename(&aside, &self.file))
            .is_err()
        {
            let _ = std::fs::remove_file(&aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_the_process_but_not_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = Host::load(dir.path());
        let khz = host.tsc_khz();
        assert_eq!(Host::load(dir.path()).facts.tsc_khz, Some(khz));

        let text = std::fs::read_to_string(dir.path().join("host.json")).unwrap();
        let other = text.replace(&host.facts.boot_id, "another boot");
        std::fs::write(dir.path().join("host.json"), other).unwrap();
        assert_eq!(Host::load(dir.path()).facts.tsc_khz, None);

        std::fs::write(dir.path().join("host.json"), "{damaged").unwrap();
        assert_eq!(Host::load(dir.path()).facts.tsc_khz, None);
    }
}
