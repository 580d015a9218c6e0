// SPDX-License-Identifier: Apache-2.0
//! Defaults of this host: flags beat environment, environment beats `config.toml`, that beats what is built in.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::args::ConfigArgs;
use crate::error::Failure;
use crate::{folders, output};

/// One key of `config.toml`.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its name, also of the flag if there is one.
    pub(crate) name: &'static str,
    /// The variable that beats it.
    pub(crate) variable: &'static str,
    /// What holds when nobody says anything; empty: looked for.
    pub(crate) default: &'static str,
}

pub(crate) const ACCEL: &Key = &KEYS[0];
pub(crate) const CPUS: &Key = &KEYS[1];
pub(crate) const KERNEL: &Key = &KEYS[2];
pub(crate) const MACHINE: &Key = &KEYS[3];
pub(crate) const MEMORY: &Key = &KEYS[4];
pub(crate) const NETWORK: &Key = &KEYS[5];
pub(crate) const QEMU: &Key = &KEYS[6];

/// All keys.
pub(crate) const KEYS: [Key; 7] = [
    key("accel", "CORACLE_ACCEL", "auto"),
    key("cpus", "CORACLE_CPUS", "1"),
    key("kernel", "CORACLE_KERNEL", ""),
    key("machine", "CORACLE_MACHINE", "microvm"),
    key("memory", "CORACLE_MEMORY", "256M"),
    key("network", "CORACLE_NETWORK", "user"),
    key("qemu", "CORACLE_QEMU", ""),
];

const fn key(name: &'static str, variable: &'static str, default: &'static str) -> Key {
    Key {
        name,
        variable,
        default,
    }
}

/// A value and who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Flag(&'static str),
    Variable(&'static str),
    File(PathBuf, &'static str),
    BuiltIn(&'static str),
}

/// The settings below the flags.
#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    file: toml::Table,
}

impl Settings {
    /// Reads `config.toml` of this user, if there is one.
    pub(crate) fn load() -> Result<Self, Failure> {
        let path = folders::config()?.join("config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::new(format!(
                    "cannot read {}: {error}",
                    path.display()
                )));
            }
        };
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, Failure> {
        let file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            Failure::new(format!("{}: {}", at(&path, text, &error), error.message()))
        })?;
        for (name, value) in &file {
            if !KEYS.iter().any(|key| key.name == name) {
                let known = KEYS.map(|key| key.name);
                return Err(Failure::new(format!(
                    "{}: {}",
                    path.display(),
                    coracle_lab::experiment::unknown("key", name, &known)
                )));
            }
            if !matches!(value, toml::Value::String(_) | toml::Value::Integer(_)) {
                return Err(Failure::new(format!(
                    "{}: {name}: use a text or a whole number",
                    path.display()
                )));
            }
        }
        Ok(Self { path, file })
    }

    /// The value in force for `key`, given what the flag says.
    pub(crate) fn get(&self, key: &'static Key, flag: Option<&str>) -> Setting {
        let setting = |value: String, source| Setting { value, source };
        if let Some(value) = flag {
            return setting(value.to_owned(), Source::Flag(key.name));
        }
        if let Ok(value) = std::env::var(key.variable)
            && !value.is_empty()
        {
            return setting(value, Source::Variable(key.variable));
        }
        match self.file.get(key.name) {
            Some(toml::Value::String(text)) => {
                setting(text.clone(), Source::File(self.path.clone(), key.name))
            }
            Some(other) => setting(other.to_string(), Source::File(self.path.clone(), key.name)),
            None => setting(key.default.to_owned(), Source::BuiltIn(key.name)),
        }
    }
}

impl Setting {
    /// Understands the value, or says whose value was not understood.
    pub(crate) fn parse<T, E: fmt::Display>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Failure> {
        parse(&self.value).map_err(|error| Failure::new(format!("{}: {error}", self.source)))
    }

    /// The value as a path; `None` when nobody said anything.
    pub(crate) fn path(&self) -> Option<&Path> {
        (!self.value.is_empty()).then(|| Path::new(&self.value))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path, key) => write!(f, "{}: {key}", path.display()),
            Self::BuiltIn(name) => write!(f, "{name} (built in)"),
        }
    }
}

/// `coracle config`: where the file is, or every value in force with who set it.
pub(crate) fn show(args: &ConfigArgs) -> Result<u8, Failure> {
    let settings = Settings::load()?;
    if !args.resolved {
        output::line(&settings.path.display().to_string());
        return Ok(0);
    }
    let rows = KEYS.iter().map(|key| {
        let Setting { value, source } = settings.get(key, None);
        let value = if value.is_empty() {
            "(looked for)".to_owned()
        } else {
            value
        };
        vec![key.name.to_owned(), value, source.to_string()]
    });
    output::table(&["KEY", "VALUE", "SET BY"], rows.collect());
    Ok(0)
}

/// File and line of an error.
fn at(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    line.map_or_else(
        || path.display().to_string(),
        |line| format!("{}:{line}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, Failure> {
        Settings::parse("/c/config.toml".into(), text)
    }

    #[test]
    fn a_flag_beats_the_file_and_the_file_beats_the_default() {
        let settings = parse("memory = \"64M\"\ncpus = 2\n").unwrap();
        assert_eq!(settings.get(MEMORY, Some("32M")).value, "32M");
        let from_file = settings.get(MEMORY, None);
        assert_eq!(
            (
                from_file.value.as_str(),
                from_file.source.to_string().as_str()
            ),
            ("64M", "/c/config.toml: memory")
        );
        assert_eq!(settings.get(CPUS, None).value, "2");
        assert_eq!(settings.get(ACCEL, None).source, Source::BuiltIn("accel"));
    }

    #[test]
    fn an_unknown_key_is_an_error_with_the_nearest_known_one() {
        assert!(
            parse("memroy = 1")
                .unwrap_err()
                .message
                .contains("did you mean \"memory\"?")
        );
        assert!(
            parse("qemu-path = 1")
                .unwrap_err()
                .message
                .contains("did you mean \"qemu\"?")
        );
        assert!(
            parse("cpus = [1]")
                .unwrap_err()
                .message
                .contains("cpus: use a text or a whole number")
        );
        assert!(
            parse("cpus = 1\nmemory =")
                .unwrap_err()
                .message
                .starts_with("/c/config.toml:2:")
        );
    }

    #[test]
    fn keys_are_in_the_order_of_their_names() {
        assert!(KEYS.is_sorted_by_key(|key| key.name));
        assert_eq!(
            [ACCEL, CPUS, KERNEL, MACHINE, MEMORY, NETWORK, QEMU].map(|k| k.name),
            KEYS.each_ref().map(|k| k.name)
        );
    }
}
