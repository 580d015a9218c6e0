// SPDX-License-Identifier: Apache-2.0
//! Finds the libraries of a program as its dynamic loader will: ld.so(8) for glibc, and musl's loader.

use std::collections::{BTreeSet, VecDeque};

use crate::files::{Files, resolve};
use crate::object_file::{NotUsable, ObjectFile};

/// Longest file that is read.
const LIMIT: usize = 1 << 30;

/// A library that is needed and not there, or of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) needed_by: String,
    /// Why the file that was found does not do; empty if none was found.
    pub(crate) why: String,
}

/// A file with its path.
pub(crate) type Found = (String, ObjectFile);

/// The loader's idea of where libraries are.
pub(crate) struct Search<'a> {
    files: &'a dyn Files,
    environment: Vec<String>,
    defaults: Vec<String>,
}

impl<'a> Search<'a> {
    /// The search of a program whose loader is `interpreter`.
    pub(crate) fn new(files: &'a dyn Files, interpreter: &str, environment: &[String]) -> Self {
        let is_musl = interpreter.contains("ld-musl-");
        let mut defaults = Vec::new();
        if is_musl {
            let path = read_text(files, "/etc/ld-musl-x86_64.path");
            defaults.extend(path.split(['\n', ':']).map(String::from));
            if path.is_empty() {
                defaults.extend(["/lib", "/usr/local/lib", "/usr/lib"].map(String::from));
            }
        } else {
            configured(files, "/etc/ld.so.conf", &mut defaults, 0);
            defaults.extend(
                [
                    "/lib/x86_64-linux-gnu",
                    "/usr/lib/x86_64-linux-gnu",
                    "/lib64",
                    "/usr/lib64",
                    "/lib",
                    "/usr/lib",
                ]
                .map(String::from),
            );
        }
        let environment = environment
            .iter()
            .find_map(|e| e.strip_prefix("LD_LIBRARY_PATH="))
            .map(|p| p.split(':').map(String::from).collect())
            .unwrap_or_default();
        Self {
            files,
            environment,
            defaults,
        }
    }

    /// Loads everything that `first` needs, breadth first as the loader does.
    pub(crate) fn closure(&self, first: Vec<Found>) -> (Vec<Found>, Vec<Missing>) {
        let mut loaded: Vec<Found> = first;
        let mut missing = Vec::new();
        let mut known: BTreeSet<String> = BTreeSet::new();
        for (path, object) in &loaded {
            known.extend(object.soname.clone());
            known.extend(path.rsplit('/').next().map(String::from));
        }
        let mut queue: VecDeque<usize> = (0..loaded.len()).collect();
        while let Some(index) = queue.pop_front() {
            for name in loaded[index].1.needed.clone() {
                if !known.insert(name.clone()) {
                    continue;
                }
                let (path, object) = &loaded[index];
                match self.find(&name, path, object) {
                    Ok(found) => {
                        known.extend(found.1.soname.clone());
                        queue.push_back(loaded.len());
                        loaded.push(found);
                    }
                    Err(why) => missing.push(Missing {
                        name,
                        needed_by: path.clone(),
                        why,
                    }),
                }
            }
        }
        (loaded, missing)
    }

    fn find(&self, name: &str, user: &str, object: &ObjectFile) -> Result<Found, String> {
        if name.contains('/') {
            return load(self.files, name).map_err(|e| e.unwrap_or_default());
        }
        let origin = user.rsplit_once('/').map_or("", |(folder, _)| folder);
        let rpath = if object.runpath.is_empty() {
            &object.rpath
        } else {
            &Vec::new()
        };
        let folders = rpath
            .iter()
            .chain(&self.environment)
            .chain(&object.runpath)
            .chain(&self.defaults);
        let mut why = String::new();
        for folder in folders.filter(|f| !f.is_empty()) {
            let folder = folder
                .replace("${ORIGIN}", origin)
                .replace("$ORIGIN", origin);
            match load(self.files, &format!("{folder}/{name}")) {
                Ok(found) => return Ok(found),
                // As the loader: a library for another machine is passed over.
                Err(Some(reason)) => why = reason,
                Err(None) => {}
            }
        }
        Err(why)
    }
}

/// Reads the object at `path`. The error says what is wrong with it; `None` if it is not there.
pub(crate) fn load(files: &dyn Files, path: &str) -> Result<Found, Option<String>> {
    let real = resolve(files, path).ok_or(None)?;
    let bytes = files.read(&real, LIMIT).ok_or(None)?;
    match ObjectFile::parse(&bytes) {
        Ok(object) => Ok((real, object)),
        Err(NotUsable::Machine(machine)) => Err(Some(format!("{real} is for {machine}"))),
        Err(NotUsable::NotElf) => Err(Some(format!("{real} is no ELF file"))),
        Err(NotUsable::Damaged(why)) => Err(Some(format!("{real} is damaged: {why}"))),
    }
}

fn read_text(files: &dyn Files, path: &str) -> String {
    resolve(files, path)
        .and_then(|real| {
            files
                .read(&real, 1 << 20)
                .map(|b| String::from_utf8_lossy(&b).into_owned())
        })
        .unwrap_or_default()
}

/// Folders of `ld.so.conf` with its `include` lines.
fn configured(files: &dyn Files, path: &str, out: &mut Vec<String>, depth: u32) {
    if depth > 4 {
        return;
    }
    for line in read_text(files, path).lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            let pattern = pattern.trim();
            let (folder, name) = pattern.rsplit_once('/').unwrap_or(("/etc", pattern));
            let suffix = name.strip_prefix('*').unwrap_or(name);
            let mut names = resolve(files, folder)
                .map(|f| files.list(&f))
                .unwrap_or_default();
            names.sort();
            for entry in names.iter().filter(|n| n.ends_with(suffix)) {
                configured(files, &format!("{folder}/{entry}"), out, depth + 1);
            }
        } else if !line.is_empty() {
            out.push(line.to_string());
        }
    }
}
