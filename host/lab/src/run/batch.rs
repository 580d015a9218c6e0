// SPDX-License-Identifier: Apache-2.0

//! Programs that measure by themselves: they print JSON lines and end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Runner;
use super::plan::{Planned, Task};
use super::session::{sample, with_log};
use crate::metric;
use crate::record::Sample;
use crate::{Error, Result};

/// Figures of one point.
type Points = BTreeMap<BTreeMap<String, String>, BTreeMap<String, f64>>;

impl Runner<'_> {
    /// Starts the program, waits for its end and keeps what it printed.
    pub(super) fn batch(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        timeout: Duration,
    ) -> Result<()> {
        let pins = self.world.processors.pins(planned.cell.vcpus);
        let mut live = self.launch(id, planned, Some(&pins), None)?;
        let result = self.wait_until_up(planned, &mut live, Some(timeout));
        let output = live.instance.output();
        let points = read(&output).map_err(|error| with_log(error, live.instance.as_mut()))?;
        let raw = self.writer.raw(
            &format!("{id:05}-{}-{}.txt", planned.cell.service, task.name),
            &output,
        );
        let mut samples: Vec<Sample> = Vec::new();
        for (labels, metrics) in points {
            let mut point = task.label.clone();
            point.extend(labels);
            samples.push(Sample {
                metrics,
                raw: raw.clone(),
                // What a program printed before it failed is shown, not counted.
                partial: result.is_err(),
                ..sample(id, planned, &task.name, point)
            });
        }
        let is_empty = samples.is_empty();
        self.say(planned, Some(task), &format!("{} points", samples.len()));
        self.samples(samples)?;
        match result {
            Ok(_) if is_empty => Err(with_log(
                Error::Input("the program printed no figure".to_owned()),
                live.instance.as_mut(),
            )),
            result => result.map(drop),
        }
    }
}

/// The lines `{"metric": NAME, "value": NUMBER, ...point}`. Other lines are the program's own business.
fn read(output: &str) -> Result<Points> {
    let mut points = Points::new();
    for line in output.lines() {
        let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(line.trim()) else {
            continue;
        };
        let Some(serde_json::Value::String(name)) = fields.remove("metric") else {
            continue;
        };
        let wrong = |what: &str| Error::Input(format!("the program printed {line:?}: {what}"));
        let value = fields.remove("value").and_then(|value| value.as_f64());
        let value = value.ok_or_else(|| wrong("value is no number"))?;
        if metric::find(&name).is_none() && metric::unit_of(&name).is_none() {
            return Err(wrong(
                "the metric's name does not end in a unit, such as _ns or _per_s",
            ));
        }
        let labels = fields.into_iter().map(|(name, value)| match value {
            serde_json::Value::String(text) => (name, text),
            other => (name, other.to_string()),
        });
        points
            .entry(labels.collect())
            .or_default()
            .insert(name, value);
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_point_are_one_sample() {
        let points = read(
            "hello\n{\"metric\":\"getpid_ns\",\"value\":151.2}\n{\"metric\":\"read_ns\",\"value\":9}\n\
             {\"metric\":\"copy_mbit_s\",\"value\":1e3,\"size\":4096}\n[1]\n{\"a\":1}\n",
        )
        .unwrap();
        assert_eq!(points.len(), 2);
        assert_eq!(points[&BTreeMap::new()]["getpid_ns"], 151.2);
        let size = BTreeMap::from([("size".to_owned(), "4096".to_owned())]);
        assert_eq!(points[&size]["copy_mbit_s"], 1000.0);
    }

    #[test]
    fn a_figure_without_number_or_unit_is_an_error() {
        for line in [
            r#"{"metric":"getpid_ns"}"#,
            r#"{"metric":"getpid_ns","value":"fast"}"#,
            r#"{"metric":"getpid","value":1}"#,
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
