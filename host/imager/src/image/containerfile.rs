// SPDX-License-Identifier: Apache-2.0
//! Builds what needs no other image and runs nothing: a Containerfile with `FROM scratch` and `COPY`, `ADD` (of local
//! files), `ENV`, `ARG`, `ENTRYPOINT`, `CMD`, `WORKDIR`, `USER`, `EXPOSE`, `LABEL`, `VOLUME` and `STOPSIGNAL`.
//!
//! Source: `Containerfile(5)`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use serde_json::Value;

use super::document::{Descriptor, Execution};
use super::error::ImageError;
use super::save;
use super::source::{Found, Source};
use super::store::Store;

type Result<T> = std::result::Result<T, ImageError>;

/// Files that name what is not copied; the rules are not ours to repeat.
const IGNORE_FILES: [&str; 2] = [".containerignore", ".dockerignore"];

/// Builds the image into the store and answers its manifest; `arguments` are `NAME=VALUE` for `ARG`.
///
/// # Errors
/// [`ImageError`], which names the line.
pub fn build(
    file: &Path,
    context: &Path,
    arguments: &[String],
    store: &Store,
) -> Result<Descriptor> {
    let text = fs::read_to_string(file).map_err(ImageError::reading(file))?;
    let _guard = store.begin()?;
    let layer = store.temporary()?;
    let mut build = Build {
        name: file.display().to_string(),
        line: 0,
        context,
        arguments,
        values: BTreeMap::new(),
        execution: Execution::default(),
        layer: tar::Builder::new(layer.as_file()),
        folders: Vec::new(),
        has_base: false,
    };
    for (line, words) in instructions(&text) {
        build.line = line;
        build.instruction(&words)?;
    }
    if !build.has_base {
        return Err(build.wrong("no FROM scratch"));
    }
    let failed = ImageError::writing(store.folder());
    let Build {
        execution,
        layer: mut archive,
        ..
    } = build;
    archive.finish().map_err(&failed)?;
    drop(archive);
    let mut content = layer.as_file();
    content.rewind().map_err(&failed)?;
    let layers: &mut [&mut dyn Read] = &mut [&mut content];
    save::create(store, layers, execution, None, "coracle build")
}

/// The image that was built, to be given a name.
///
/// # Errors
/// [`ImageError`].
pub fn found<'a>(store: &'a Store, image: &Descriptor) -> Result<Found<'a>> {
    let manifest = store.document("the image", &image.digest)?;
    let source: Box<dyn Source> = Box::new(store.clone());
    Ok(Found {
        name: None,
        manifest,
        source,
    })
}

/// The instructions with the numbers of their lines: comments removed, continued lines joined.
fn instructions(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (part, continues) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| is_continued) {
            Some((_, whole)) => {
                whole.push(' ');
                whole.push_str(part);
            }
            None => found.push((number, part.to_owned())),
        }
        is_continued = continues;
    }
    found
}

struct Build<'a> {
    name: String,
    line: usize,
    context: &'a Path,
    arguments: &'a [String],
    /// What `$NAME` stands for.
    values: BTreeMap<String, String>,
    execution: Execution,
    layer: tar::Builder<&'a File>,
    /// Folders that are in the layer.
    folders: Vec<String>,
    has_base: bool,
}

impl Build<'_> {
    fn wrong(&self, problem: impl std::fmt::Display) -> ImageError {
        let problem = format!(
            "{problem}; without buildah, podman or docker only FROM scratch with COPY, ADD, ENV, ARG, ENTRYPOINT, CMD, \
             WORKDIR, USER, EXPOSE, LABEL, VOLUME and STOPSIGNAL can be built"
        );
        ImageError::unsupported(&format!("{}:{}", self.name, self.line), problem)
    }

    fn instruction(&mut self, text: &str) -> Result<()> {
        let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (keyword, rest) = (keyword.to_ascii_uppercase(), rest.trim());
        if rest.is_empty() {
            return Err(self.wrong(format!("{keyword} of nothing")));
        }
        if !self.has_base && !matches!(keyword.as_str(), "FROM" | "ARG") {
            return Err(self.wrong(format!("{keyword} before FROM")));
        }
        match keyword.as_str() {
            "FROM" if self.has_base => return Err(self.wrong("a second stage")),
            "FROM" if rest.eq_ignore_ascii_case("scratch") => self.has_base = true,
            "FROM" => return Err(self.wrong(format!("FROM {rest}"))),
            "ARG" => self.argument(rest)?,
            "ENV" => {
                for (key, value) in self.pairs(rest)? {
                    let prefix = format!("{key}=");
                    self.execution
                        .env
                        .retain(|known| !known.starts_with(&prefix));
                    self.execution.env.push(format!("{key}={value}"));
                    self.values.insert(key, value);
                }
            }
            "LABEL" => {
                let labels = self.pairs(rest)?;
                self.execution.labels.extend(labels);
            }
            // A new entry point makes a command that was meant for another one meaningless.
            "ENTRYPOINT" => {
                self.execution.entrypoint = self.command(rest)?;
                self.execution.cmd.clear();
            }
            "CMD" => self.execution.cmd = self.command(rest)?,
            "WORKDIR" => {
                let folder = self.unquoted(rest)?;
                self.execution.working_dir = match folder.starts_with('/') {
                    true => folder,
                    false => format!("{}/{folder}", self.working_dir().trim_end_matches('/')),
                };
                let folder = self.execution.working_dir.clone();
                self.folder(&folder)?;
            }
            "USER" => self.execution.user = self.unquoted(rest)?,
            "STOPSIGNAL" => self.execution.stop_signal = self.unquoted(rest)?,
            "EXPOSE" => {
                for port in self.words(rest)? {
                    let port = if port.contains('/') {
                        port
                    } else {
                        format!("{port}/tcp")
                    };
                    self.execution.exposed_ports.insert(port, empty());
                }
            }
            "VOLUME" => {
                let volumes = match json_list(rest) {
                    Some(list) => list,
                    None => self.words(rest)?,
                };
                let volumes = volumes.into_iter().map(|volume| (volume, empty()));
                self.execution.volumes.extend(volumes);
            }
            "COPY" | "ADD" => self.copy(rest, keyword == "ADD")?,
            _ => return Err(self.wrong(keyword)),
        }
        Ok(())
    }

    fn argument(&mut self, rest: &str) -> Result<()> {
        let (name, default) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(self.unquoted(value)?)),
            None => (rest, None),
        };
        let prefix = format!("{name}=");
        let given = self
            .arguments
            .iter()
            .find_map(|text| text.strip_prefix(&prefix));
        let value = given.map(str::to_owned).or(default);
        self.values
            .insert(name.to_owned(), value.unwrap_or_default());
        Ok(())
    }

    fn working_dir(&self) -> &str {
        match self.execution.working_dir.as_str() {
            "" => "/",
            known => known,
        }
    }

    /// `["a", "b"]`, or the words of a shell's command line.
    fn command(&self, rest: &str) -> Result<Vec<String>> {
        if let Some(list) = json_list(rest) {
            return Ok(list);
        }
        Ok(vec!["/bin/sh".into(), "-c".into(), rest.to_owned()])
    }

    /// `A=1 B="2 3"`, or `A 1`.
    fn pairs(&self, rest: &str) -> Result<Vec<(String, String)>> {
        let first = rest.split(char::is_whitespace).next().unwrap_or_default();
        if !first.contains('=') {
            let Some((key, value)) = rest.split_once(char::is_whitespace) else {
                return Err(self.wrong(format!("{rest} is not NAME=VALUE")));
            };
            return Ok(vec![(key.into(), self.unquoted(value.trim())?)]);
        }
        let pair = |word: String| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(self.wrong(format!("{word:?} is not NAME=VALUE"))),
        };
        self.words(rest)?.into_iter().map(pair).collect()
    }

    fn unquoted(&self, text: &str) -> Result<String> {
        Ok(self.words(text)?.join(" "))
    }

    /// Words with quotes and variables as a shell has them.
    fn words(&self, text: &str) -> Result<Vec<String>> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote = None;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match (quote, c) {
                (None, ' ' | '\t') => words.extend(word.take()),
                (None, '"' | '\'') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (Some(open), c) if c == open => quote = None,
                (None | Some('"'), '\\') => {
                    word.get_or_insert_default().extend(rest.next());
                }
                (None | Some('"'), '$') => {
                    let is_braced = rest.next_if_eq(&'{').is_some();
                    let is_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
                    let mut name = String::new();
                    while let Some(c) = rest.next_if(is_name) {
                        name.push(c);
                    }
                    if is_braced && rest.next() != Some('}') {
                        return Err(self.wrong(format!("${{{name}… with an operator")));
                    }
                    let value = self.values.get(&name).map_or("", String::as_str);
                    word.get_or_insert_default().push_str(value);
                }
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        if quote.is_some() {
            return Err(self.wrong("a quote without its end"));
        }
        words.extend(word);
        Ok(words)
    }

    fn copy(&mut self, rest: &str, is_add: bool) -> Result<()> {
        if let Some(name) = IGNORE_FILES
            .iter()
            .find(|name| self.context.join(name).exists())
        {
            return Err(self.wrong(format!("COPY with a {name}")));
        }
        let mut owner = (0, 0);
        let mut mode = None;
        let mut rest = rest;
        while let Some((flag, after)) = rest.strip_prefix("--").and_then(|r| r.split_once(' ')) {
            let parsed = match flag.split_once('=') {
                Some(("chown", value)) => ids(value).map(|ids| owner = ids),
                Some(("chmod", value)) => u32::from_str_radix(value, 8)
                    .ok()
                    .map(|value| mode = Some(value & 0o7777)),
                _ => None,
            };
            parsed.ok_or_else(|| self.wrong(format!("--{flag} (only numbers are understood)")))?;
            rest = after.trim_start();
        }
        let mut words = match json_list(rest) {
            Some(list) => list,
            None => self.words(rest)?,
        };
        let to = words.pop().unwrap_or_default();
        if words.is_empty() {
            return Err(self.wrong("COPY needs what and where"));
        }
        let to = match to.starts_with('/') {
            true => to,
            false => format!("{}/{to}", self.working_dir().trim_end_matches('/')),
        };
        let several = words.len() > 1;
        if several && !to.ends_with('/') {
            return Err(self.wrong("several files need a folder: a path that ends in /"));
        }
        for word in words {
            if is_add && (word.contains("://") || is_archive(&word)) {
                return Err(self.wrong(format!("ADD {word}")));
            }
            if word.contains(['*', '?', '[']) {
                return Err(self.wrong(format!("the pattern {word}")));
            }
            let inside = |part: Component<'_>| !matches!(part, Component::ParentDir);
            let relative = word.trim_start_matches('/');
            if !Path::new(relative).components().all(inside) {
                return Err(self.wrong(format!("{word} is outside of the context")));
            }
            let source = self.context.join(relative);
            // A link could lead out of the context.
            let real = source
                .canonicalize()
                .map_err(ImageError::reading(&source))?;
            let context = self.context.canonicalize();
            let context = context.map_err(ImageError::reading(self.context))?;
            if !real.starts_with(&context) {
                return Err(self.wrong(format!("{word} leads out of the context")));
            }
            let name = match (to.ends_with('/') && !real.is_dir(), real.file_name()) {
                (true, Some(_)) => {
                    let name = Path::new(relative).file_name().unwrap_or_default();
                    format!("{to}{}", name.to_string_lossy())
                }
                _ => to.clone(),
            };
            self.add(&real, &name, owner, mode)?;
        }
        Ok(())
    }

    /// Adds a file, or a folder with what is in it.
    fn add(
        &mut self,
        source: &Path,
        name: &str,
        owner: (u64, u64),
        mode: Option<u32>,
    ) -> Result<()> {
        let reading = ImageError::reading(source);
        let meta = source.symlink_metadata().map_err(&reading)?;
        let parent = Path::new(name).parent().unwrap_or(Path::new("/"));
        self.folder(&parent.to_string_lossy())?;
        let mut header = header(meta.permissions().mode(), owner, mode);
        let path = name.trim_matches('/').to_owned();
        if meta.is_dir() {
            if !path.is_empty() && !self.folders.contains(&path) {
                header.set_entry_type(tar::EntryType::Directory);
                self.append(&mut header, &path, &mut std::io::empty())?;
                self.folders.push(path.clone());
            }
            let entries = fs::read_dir(source).map_err(&reading)?;
            let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
            let mut names = names
                .collect::<std::io::Result<Vec<_>>>()
                .map_err(&reading)?;
            names.sort();
            for name in names {
                let inner = match std::str::from_utf8(OsStr::as_bytes(&name)) {
                    Ok(name) => format!("/{path}/{name}"),
                    Err(_) => return Err(self.wrong("a name that is not UTF-8")),
                };
                self.add(&source.join(&name), &inner, owner, mode)?;
            }
            return Ok(());
        }
        if meta.is_symlink() {
            let target = fs::read_link(source).map_err(&reading)?;
            header.set_entry_type(tar::EntryType::Symlink);
            let added = self.layer.append_link(&mut header, &path, &target);
            return added.map_err(|error| self.wrong(error));
        }
        if !meta.is_file() {
            return Err(self.wrong(format!("{} is no file", source.display())));
        }
        header.set_size(meta.len());
        let mut file = File::open(source).map_err(&reading)?.take(meta.len());
        self.append(&mut header, &path, &mut file)
    }

    /// Makes a folder and those it is in.
    fn folder(&mut self, path: &str) -> Result<()> {
        let mut at = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if !at.is_empty() {
                at.push('/');
            }
            at.push_str(part);
            if self.folders.contains(&at) {
                continue;
            }
            let mut header = header(0o755, (0, 0), None);
            header.set_entry_type(tar::EntryType::Directory);
            let path = at.clone();
            self.append(&mut header, &path, &mut std::io::empty())?;
            self.folders.push(path);
        }
        Ok(())
    }

    fn append(&mut self, header: &mut tar::Header, path: &str, from: &mut dyn Read) -> Result<()> {
        let added = self.layer.append_data(header, path, from);
        added.map_err(|error| match super::error::is_full(&error) {
            true => ImageError::writing(self.context)(error),
            false => self.wrong(error),
        })?;
        let flushed = self.layer.get_mut().flush();
        flushed.map_err(ImageError::writing(self.context))
    }
}

/// The same bytes for the same files: neither times nor owners of this machine.
fn header(permissions: u32, owner: (u64, u64), mode: Option<u32>) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode.unwrap_or(permissions & 0o7777));
    header.set_uid(owner.0);
    header.set_gid(owner.1);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn ids(text: &str) -> Option<(u64, u64)> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

fn is_archive(name: &str) -> bool {
    let ends = [".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"];
    ends.iter().any(|end| name.ends_with(end))
}

fn json_list(text: &str) -> Option<Vec<String>> {
    text.starts_with('[')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}
