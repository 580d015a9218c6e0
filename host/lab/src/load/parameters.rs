// SPDX-License-Identifier: Apache-2.0

//! Reading a point's parameters: known names and types only, and an error that a person can act on.

use std::time::Duration;

use super::Point;
use crate::experiment::nearest;
use crate::{Error, Result};

/// Names that belong to the kind of workload, not to a generator, and may stand in any point.
const OF_KINDS: &[&str] = &["warmup_s"];

/// The parameters of one point for one generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'a> {
    generator: &'static str,
    point: &'a Point,
}

impl<'a> Parameters<'a> {
    /// Checks that the point has no other names than `known`.
    pub(crate) fn new(
        generator: &'static str,
        known: &[&'static str],
        point: &'a Point,
    ) -> Result<Self> {
        for name in point.keys() {
            if !known.contains(&name.as_str()) && !OF_KINDS.contains(&name.as_str()) {
                return Err(Error::Input(format!(
                    "{generator} has no parameter `{name}`{}",
                    hint(name, known)
                )));
            }
        }
        Ok(Parameters { generator, point })
    }

    fn wrong(&self, name: &str, wanted: &str) -> Error {
        let found = self.point.get(name).map(ToString::to_string);
        Error::Input(format!(
            "{}: `{name}` must be {wanted}, not {}",
            self.generator,
            found.unwrap_or_default()
        ))
    }

    /// A whole number from 1 on.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.point.get(name) else {
            return Ok(None);
        };
        value
            .as_integer()
            .and_then(|value| u64::try_from(value).ok())
            .filter(|&value| value > 0)
            .map(Some)
            .ok_or_else(|| self.wrong(name, "a whole number above 0"))
    }

    /// As [`Self::count`], at most `most`.
    pub(crate) fn count_to(&self, name: &str, most: u64) -> Result<Option<u64>> {
        match self.count(name)? {
            Some(value) if value > most => {
                Err(self.wrong(name, &format!("a whole number from 1 to {most}")))
            }
            value => Ok(value),
        }
    }

    /// A number above 0.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.point.get(name) else {
            return Ok(None);
        };
        number_of(value)
            .filter(|&value| value > 0.0 && value.is_finite())
            .map(Some)
            .ok_or_else(|| self.wrong(name, "a number above 0"))
    }

    /// Seconds, at most a day.
    pub(crate) fn seconds(&self, name: &str) -> Result<Option<Duration>> {
        match self.number(name)? {
            Some(value) if value > 86_400.0 => {
                Err(self.wrong(name, "at most 86400 seconds, a day"))
            }
            value => Ok(value.map(Duration::from_secs_f64)),
        }
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.point.get(name) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.wrong(name, "a text"))
    }

    /// A text without white space and control characters: a path, a word.
    pub(crate) fn word(&self, name: &str) -> Result<Option<&'a str>> {
        match self.text(name)? {
            Some(text)
                if text.is_empty()
                    || text.contains(|c: char| c.is_whitespace() || c.is_control()) =>
            {
                Err(self.wrong(name, "a text without spaces"))
            }
            text => Ok(text),
        }
    }

    /// The path of an HTTP request; `/` if it is not given.
    pub(crate) fn path(&self) -> Result<&'a str> {
        match self.word("path")? {
            None => Ok("/"),
            Some(path) if path.starts_with('/') => Ok(path),
            Some(_) => Err(self.wrong("path", "a text that begins with /")),
        }
    }

    /// Yes or no; no if it is not given.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.point.get(name) {
            None => Ok(false),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(name, "true or false")),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a parameter that a person wrote, far below 2^53"
)]
fn number_of(value: &toml::Value) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|value| value as f64))
}

/// The end of an error line about an unknown `name`: the nearest of `known`, or all of them.
pub(crate) fn hint(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(known) => format!("; did you mean `{known}`?"),
        None => format!("; it has {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::Parameters;
    use crate::load::Point;

    const KNOWN: &[&str] = &["connections", "duration_s", "path"];

    fn point(text: &str) -> Point {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn an_unknown_parameter_names_the_nearest() {
        let text = |input| {
            Parameters::new("wrk", KNOWN, &point(input))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            text("conections = 1"),
            "wrk has no parameter `conections`; did you mean `connections`?"
        );
        assert_eq!(
            text("qqqqqqqqqqqqqqq = 1"),
            "wrk has no parameter `qqqqqqqqqqqqqqq`; it has connections, duration_s, path"
        );
    }

    #[test]
    fn values_are_checked() {
        let point = point("connections = 0\nduration_s = -1\npath = 'todos'");
        let parameters = Parameters::new("wrk", KNOWN, &point).unwrap();
        assert_eq!(
            parameters.count("connections").unwrap_err().to_string(),
            "wrk: `connections` must be a whole number above 0, not 0"
        );
        assert!(parameters.seconds("duration_s").is_err());
        assert!(parameters.path().is_err());
    }
}
