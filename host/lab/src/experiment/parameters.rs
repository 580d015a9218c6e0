// SPDX-License-Identifier: Apache-2.0

//! The runner's parameters of each kind of work, understood.

use std::time::Duration;

use super::points::number;
use super::{Kind, nearest, unknown};
use crate::load::Point;

/// Most instances of a boot storm or a density run: what a /24 holds, without network, host and broadcast.
pub const INSTANCES_MAX: u32 = 250;

/// What a point asks of the runner.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Nothing beyond the start.
    Start,
    /// See [`Kind::Load`].
    Load {
        /// None: a tenth of the length, at most 5 s.
        warmup: Option<Duration>,
    },
    /// See [`Kind::Ramp`].
    Ramp(Ramp),
    /// See [`Kind::Endurance`].
    Endurance(Endurance),
    /// See [`Kind::Batch`].
    Batch {
        /// The most it may take.
        timeout: Duration,
    },
    /// See [`Kind::BootStorm`].
    Storm(Storm),
    /// See [`Kind::Density`].
    Density(Density),
    /// See [`Kind::SmallestMemory`].
    Smallest(Smallest),
}

/// Parameters of a ramp.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    /// The first rate.
    pub start_per_s: f64,
    /// What is added from step to step.
    pub step_per_s: f64,
    /// The last rate.
    pub max_per_s: f64,
    /// Length of a step.
    pub step: Duration,
    /// Rest between steps.
    pub pause: Duration,
    /// It keeps up while it answers at least this share of what is offered.
    pub stop_below: f64,
    /// ... and while p99 is below this.
    pub stop_latency_ms: Option<f64>,
    /// Before the first step, at its rate.
    pub warmup: Duration,
}

/// Parameters of an endurance run.
#[derive(Clone, Debug, PartialEq)]
pub struct Endurance {
    /// Length.
    pub duration: Duration,
    /// One point of the series.
    pub slice: Duration,
    /// Before it.
    pub warmup: Duration,
}

/// Parameters of a boot storm.
#[derive(Clone, Debug, PartialEq)]
pub struct Storm {
    /// Instances at once.
    pub instances: u32,
    /// How long one after the other is killed.
    pub duration: Duration,
    /// Rest after each restart.
    pub pause: Duration,
    /// An answer to a ping counts, instead of the service's own answer.
    pub ping: bool,
}

/// Parameters of a density run.
#[derive(Clone, Debug, PartialEq)]
pub struct Density {
    /// It ends there at the latest.
    pub max_instances: u32,
    /// The most any instance may take to answer.
    pub latency: Duration,
    /// It ends when this share of the host's memory is in use.
    pub memory_share: f64,
}

/// Parameters of the search for the smallest memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Smallest {
    /// The most a start may take: one that thrashes does not serve.
    pub limit: Duration,
    /// So many answers show that it serves.
    pub answers: u32,
}

/// A parameter that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which; it may be missing.
    pub key: String,
    /// Why.
    pub what: String,
}

/// Understands the runner's part of a point.
///
/// # Errors
/// The first parameter that is missing or of no use.
pub fn understand(kind: Kind, point: &Point) -> Result<Work, Wrong> {
    let get = Reader { point };
    Ok(match kind {
        Kind::Start => Work::Start,
        Kind::Load => Work::Load {
            warmup: get.seconds_or_none("warmup_s")?,
        },
        Kind::Ramp => Work::Ramp(ramp(&get)?),
        Kind::Endurance => {
            let endurance = Endurance {
                duration: get.positive_seconds("duration_s")?,
                slice: get.positive_seconds("slice_s")?,
                warmup: get.seconds("warmup_s", 1.0)?,
            };
            if endurance.slice > endurance.duration {
                return Err(wrong("slice_s", "longer than duration_s"));
            }
            Work::Endurance(endurance)
        }
        Kind::Batch => Work::Batch {
            timeout: get.seconds("timeout_s", 300.0)?,
        },
        Kind::BootStorm => Work::Storm(Storm {
            instances: get.count("instances")?,
            duration: get.positive_seconds("duration_s")?,
            pause: get.seconds("pause_s", 5.0)?,
            ping: get.choice("probe", &["ready", "ping"])? == "ping",
        }),
        Kind::Density => Work::Density(Density {
            max_instances: get.count("max_instances")?,
            latency: get.seconds("latency_ms", 1e6)? / 1000,
            memory_share: get.share("memory_share", 0.9)?,
        }),
        Kind::SmallestMemory => Work::Smallest(Smallest {
            limit: get.seconds("limit_s", 10.0)?,
            answers: get.count_or("answers", 100)?,
        }),
    })
}

fn ramp(get: &Reader<'_>) -> Result<Ramp, Wrong> {
    let start_per_s = get.positive("start_per_s")?;
    let max_per_s = get.positive("max_per_s")?;
    if max_per_s < start_per_s {
        return Err(wrong("max_per_s", "less than start_per_s"));
    }
    Ok(Ramp {
        start_per_s,
        step_per_s: get.positive("step_per_s")?,
        max_per_s,
        step: get.positive_seconds("step_s")?,
        pause: get.seconds("pause_s", 0.0)?,
        stop_below: get.share("stop_below", 0.95)?,
        stop_latency_ms: get
            .point
            .get("stop_latency_ms")
            .map(|_| get.positive("stop_latency_ms"))
            .transpose()?,
        warmup: get.seconds("warmup_s", 1.0)?,
    })
}

struct Reader<'a> {
    point: &'a Point,
}

impl Reader<'_> {
    fn number(&self, key: &str) -> Result<Option<f64>, Wrong> {
        let Some(value) = self.point.get(key) else {
            return Ok(None);
        };
        match number(value) {
            Some(value) if (0.0..=1e9).contains(&value) => Ok(Some(value)),
            _ => Err(wrong(key, format!("{value} is no number from 0 to 10^9"))),
        }
    }

    fn positive(&self, key: &str) -> Result<f64, Wrong> {
        match self.number(key)? {
            Some(value) if value > 0.0 => Ok(value),
            Some(_) => Err(wrong(key, "must be more than 0")),
            None => Err(missing(key)),
        }
    }

    fn seconds_or_none(&self, key: &str) -> Result<Option<Duration>, Wrong> {
        Ok(self.number(key)?.map(Duration::from_secs_f64))
    }

    fn seconds(&self, key: &str, default: f64) -> Result<Duration, Wrong> {
        let value = self.number(key)?.unwrap_or(default);
        Ok(Duration::from_secs_f64(value))
    }

    fn positive_seconds(&self, key: &str) -> Result<Duration, Wrong> {
        self.positive(key).map(Duration::from_secs_f64)
    }

    fn share(&self, key: &str, default: f64) -> Result<f64, Wrong> {
        let share = self.number(key)?.unwrap_or(default);
        if share <= 0.0 || share > 1.0 {
            return Err(wrong(
                key,
                format!("{share} is no share: more than 0, at most 1"),
            ));
        }
        Ok(share)
    }

    fn count(&self, key: &str) -> Result<u32, Wrong> {
        let value = self.point.get(key).ok_or_else(|| missing(key))?;
        let count = value
            .as_integer()
            .and_then(|count| u32::try_from(count).ok());
        match count {
            Some(count) if (1..=INSTANCES_MAX).contains(&count) => Ok(count),
            _ => Err(wrong(
                key,
                format!("{value} is no whole number from 1 to {INSTANCES_MAX}"),
            )),
        }
    }

    fn count_or(&self, key: &str, default: u32) -> Result<u32, Wrong> {
        if self.point.contains_key(key) {
            self.count(key)
        } else {
            Ok(default)
        }
    }

    /// One of the words, the first if nothing is said.
    fn choice(&self, key: &str, words: &[&'static str]) -> Result<&'static str, Wrong> {
        let Some(value) = self.point.get(key) else {
            return Ok(words.first().copied().unwrap_or_default());
        };
        let text = value.as_str().unwrap_or_default();
        words
            .iter()
            .find(|word| **word == text)
            .copied()
            .ok_or_else(|| wrong(key, unknown("value", text, words)))
    }
}

fn wrong(key: &str, what: impl Into<String>) -> Wrong {
    Wrong {
        key: key.to_owned(),
        what: what.into(),
    }
}

fn missing(key: &str) -> Wrong {
    wrong(key, "is missing")
}

/// Whether the runner's own parameter was probably meant by an unknown one.
#[must_use]
pub fn meant(kind: Kind, key: &str) -> Option<&'static str> {
    nearest(key, kind.parameters().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(text: &str) -> Point {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        assert_eq!(
            understand(Kind::Load, &point("")),
            Ok(Work::Load { warmup: None })
        );
        let Ok(Work::Storm(storm)) =
            understand(Kind::BootStorm, &point("instances = 10\nduration_s = 1200"))
        else {
            panic!("a storm")
        };
        assert_eq!((storm.pause.as_secs(), storm.ping), (5, false));
        let Ok(Work::Density(density)) = understand(Kind::Density, &point("max_instances = 9"))
        else {
            panic!("a density run")
        };
        assert_eq!(
            (density.latency.as_secs(), density.memory_share),
            (1000, 0.9)
        );
        let ramp = "start_per_s = 100\nstep_per_s = 50.5\nmax_per_s = 900\nstep_s = 5";
        let Ok(Work::Ramp(ramp)) = understand(Kind::Ramp, &point(ramp)) else {
            panic!("a ramp")
        };
        assert_eq!((ramp.stop_below, ramp.stop_latency_ms), (0.95, None));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (kind, text, key) in [
            (Kind::Load, "warmup_s = -1", "warmup_s"),
            (Kind::Load, "warmup_s = 'a'", "warmup_s"),
            (Kind::Load, "warmup_s = nan", "warmup_s"),
            (Kind::Ramp, "", "start_per_s"),
            (
                Kind::Ramp,
                "start_per_s = 9\nmax_per_s = 1\nstep_per_s = 1\nstep_s = 1",
                "max_per_s",
            ),
            (
                Kind::Ramp,
                "start_per_s = 1\nmax_per_s = 2\nstep_per_s = 0\nstep_s = 1",
                "step_per_s",
            ),
            (
                Kind::Ramp,
                "start_per_s = 1\nmax_per_s = 2\nstep_per_s = 1\nstep_s = 1\nstop_below = 1.5",
                "stop_below",
            ),
            (Kind::Endurance, "duration_s = 1\nslice_s = 2", "slice_s"),
            (Kind::BootStorm, "instances = 0", "instances"),
            (Kind::BootStorm, "instances = 1000", "instances"),
            (Kind::BootStorm, "instances = 2.5", "instances"),
            (
                Kind::BootStorm,
                "instances = 1\nduration_s = 1\nprobe = 'pong'",
                "probe",
            ),
            (Kind::Density, "", "max_instances"),
            (Kind::SmallestMemory, "limit_s = -1", "limit_s"),
            (Kind::SmallestMemory, "answers = 0", "answers"),
        ] {
            assert_eq!(
                understand(kind, &point(text)).unwrap_err().key,
                key,
                "{text}"
            );
        }
    }
}
