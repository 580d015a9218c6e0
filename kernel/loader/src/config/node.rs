// SPDX-License-Identifier: Apache-2.0
//! A place in the document that knows the way to it, so that every error can say where it is.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde_json::{Map, Value};

/// What is wrong with the configuration and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The way to the key, such as `process.args[0]`; empty for the whole document.
    pub path: String,
    /// What is wrong, as the rest of a sentence that begins with the path.
    pub problem: String,
}

impl ConfigError {
    pub(super) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("config.json: ")?;
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl core::error::Error for ConfigError {}

/// A value and the way to it.
pub(super) struct Node<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self {
            value,
            path: String::new(),
        }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::new(self.path.clone(), problem)
    }

    /// The member `key`; `None` if it is absent or null.
    pub(super) fn optional(&self, key: &str) -> Result<Option<Node<'a>>, ConfigError> {
        let member = self.object()?.get(key).filter(|value| !value.is_null());
        Ok(member.map(|value| Node {
            value,
            path: self.path_of(key),
        }))
    }

    pub(super) fn required(&self, key: &str) -> Result<Node<'a>, ConfigError> {
        self.optional(key)?
            .ok_or_else(|| ConfigError::new(self.path_of(key), "is missing"))
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, ConfigError> {
        self.value
            .as_object()
            .ok_or_else(|| self.expected("an object"))
    }

    pub(super) fn list<T>(
        &self,
        item: impl Fn(&Node<'a>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let values = self
            .value
            .as_array()
            .ok_or_else(|| self.expected("a list"))?;
        let node = |(index, value)| Node {
            value,
            path: format!("{}[{index}]", self.path),
        };
        values
            .iter()
            .enumerate()
            .map(|entry| item(&node(entry)))
            .collect()
    }

    pub(super) fn str(&self) -> Result<&'a str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.expected("a string"))
    }

    pub(super) fn bool(&self) -> Result<bool, ConfigError> {
        self.value
            .as_bool()
            .ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn u64(&self) -> Result<u64, ConfigError> {
        self.value
            .as_u64()
            .ok_or_else(|| self.expected("a whole number that is not negative"))
    }

    pub(super) fn u32(&self) -> Result<u32, ConfigError> {
        u32::try_from(self.u64()?).map_err(|_| self.error("does not fit in 32 bits"))
    }

    fn expected(&self, what: &str) -> ConfigError {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.error(format!("should be {what}, not {found}"))
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.into()
        } else {
            format!("{}.{key}", self.path)
        }
    }
}
