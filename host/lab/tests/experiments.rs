// SPDX-License-Identifier: Apache-2.0

//! The experiments of this repository are in order: names, parameters in both forms, files that parameters name, READMEs.

use std::path::Path;

use coracle_lab::experiment::{Experiments, Known};
use coracle_lab::{load, platform};

#[test]
fn the_experiments_of_this_repository_are_in_order() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let experiments = Experiments::at(&base.join("experiments")).expect("the folder is there");
    let generators = load::generators();
    let known = Known {
        platforms: platform::names(),
        generators: &generators,
    };
    let names = experiments.names().expect("the folder can be read");
    assert!(names.len() >= 16, "only {names:?}");
    let mut wrong = Vec::new();
    for name in names {
        match experiments.load(&name, &known) {
            Err(error) => wrong.push(error.to_string()),
            Ok(loaded) => {
                if !loaded.folder.join("README.md").is_file() {
                    wrong.push(format!("{name}: no README.md"));
                }
                let workloads = loaded.experiment.workloads.iter();
                let points =
                    workloads.flat_map(|one| [one.points(false), one.points(true)].concat());
                for file in points.flat_map(|point| {
                    ["body_file", "query_file"].map(|key| point.get(key).cloned())
                }) {
                    let Some(toml::Value::String(file)) = file else {
                        continue;
                    };
                    if !loaded.folder.join(&file).is_file() {
                        wrong.push(format!("{name}: no file {file}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
