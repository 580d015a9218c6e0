// SPDX-License-Identifier: Apache-2.0

//! Recipes: `images/NAME/image.toml`. What the keys mean stands in `images/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use coracle_imager::image::Digest;
use coracle_imager::image::document::Execution;
use serde::Deserialize;
use serde_json::Value;

use crate::paths;

/// How many recipes may be based on each other.
const BASES_MAX: usize = 8;

/// A recipe as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    pub(super) description: String,
    pub(super) debian: Option<Debian>,
    pub(super) base: Option<String>,
    #[serde(default)]
    pub(super) copy: Vec<Copy>,
    #[serde(default)]
    pub(super) steps: Vec<String>,
    config: Option<Config>,
    #[serde(skip)]
    pub(super) folder: PathBuf,
}

/// Packages of Debian.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Debian {
    #[serde(default = "suite")]
    pub(super) suite: String,
    #[serde(default = "variant")]
    pub(super) variant: String,
    pub(super) packages: Vec<String>,
    #[serde(default)]
    pub(super) hooks: Vec<String>,
}

/// A file or folder of the recipe's folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Copy {
    pub(super) from: String,
    pub(super) to: String,
}

/// How the image is run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    entrypoint: Vec<String>,
    #[serde(default)]
    cmd: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    user: String,
    #[serde(default)]
    workdir: String,
    #[serde(default)]
    exposed: Vec<String>,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default)]
    stop_signal: String,
}

fn suite() -> String {
    "bookworm".into()
}

fn variant() -> String {
    "extract".into()
}

/// A recipe with those it is based on, the lowest first.
pub(super) struct Chain {
    pub(super) recipes: Vec<Recipe>,
}

impl Chain {
    /// Reads the recipe `name` and its bases.
    pub(super) fn read(name: &str) -> Result<Self> {
        let mut recipes = vec![read(name)?];
        while let Some(base) = recipes.last().and_then(|recipe| recipe.base.clone()) {
            if recipes.len() == BASES_MAX {
                bail!("images/{name}: its bases go in a circle");
            }
            recipes.push(read(&base).with_context(|| format!("the base of images/{name}"))?);
        }
        recipes.reverse();
        for recipe in &recipes {
            if recipe.debian.is_some() && recipe.base.is_some() {
                bail!(
                    "{}: give [debian] or base, not both",
                    recipe.folder.join("image.toml").display()
                );
            }
        }
        Ok(Self { recipes })
    }

    /// The packages everything starts from; none for an image that starts empty.
    pub(super) fn debian(&self) -> Option<&Debian> {
        self.recipes.first()?.debian.as_ref()
    }

    /// The recipe that was asked for.
    pub(super) fn top(&self) -> Result<&Recipe> {
        self.recipes.last().context("a chain has a recipe")
    }

    /// How the image is run: what the recipe does not say its base says.
    pub(super) fn execution(&self) -> Execution {
        let mut all = Config::default();
        let mut env = BTreeMap::new();
        for config in self
            .recipes
            .iter()
            .filter_map(|recipe| recipe.config.clone())
        {
            // As in a Containerfile, an entry point of its own makes the command of the base meaningless.
            if !config.entrypoint.is_empty() || !config.cmd.is_empty() {
                all.cmd = config.cmd;
            }
            later(&mut all.entrypoint, config.entrypoint);
            later(&mut all.user, config.user);
            later(&mut all.workdir, config.workdir);
            later(&mut all.stop_signal, config.stop_signal);
            all.exposed.extend(config.exposed);
            all.volumes.extend(config.volumes);
            for variable in config.env {
                let name = variable.split('=').next().unwrap_or_default().to_owned();
                env.insert(name, variable);
            }
        }
        let set = |names: Vec<String>| {
            let object = || Value::Object(serde_json::Map::new());
            names.into_iter().map(|name| (name, object())).collect()
        };
        Execution {
            user: all.user,
            exposed_ports: set(all.exposed),
            env: env.into_values().collect(),
            entrypoint: all.entrypoint,
            cmd: all.cmd,
            volumes: set(all.volumes),
            working_dir: all.workdir,
            stop_signal: all.stop_signal,
            ..Execution::default()
        }
    }

    /// Changes when anything of the recipes changes, or anything that their steps name by a path beginning with `../`.
    pub(super) fn key(&self, builder: &str) -> Result<String> {
        let mut text = format!("{builder}\n");
        for recipe in &self.recipes {
            let mut todo = vec![recipe.folder.clone()];
            todo.extend(recipe.sources());
            while let Some(path) = todo.pop() {
                if is_made(&path) {
                    continue;
                }
                if path.is_dir() {
                    let entries = fs::read_dir(&path)
                        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect());
                    let mut entries: Vec<PathBuf> =
                        entries.with_context(|| format!("read {}", path.display()))?;
                    entries.sort();
                    todo.extend(entries.into_iter().rev());
                    continue;
                }
                let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                text += &format!("{} {}\n", path.display(), Digest::of(&bytes));
            }
        }
        Ok(Digest::of(text.as_bytes()).to_string())
    }
}

impl Recipe {
    /// Files and folders outside the recipe that its steps use.
    fn sources(&self) -> Vec<PathBuf> {
        let words = self
            .steps
            .iter()
            .flat_map(|step| step.split([' ', '"', '\'', '=', ';']));
        let mut found: Vec<PathBuf> = words
            .filter(|word| word.starts_with("../"))
            .map(|word| self.folder.join(word))
            .filter(|path| path.exists())
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

/// Whether a folder holds what tools make from sources.
fn is_made(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_dir()
        && (matches!(&*name, "node_modules" | "target" | "build" | "__pycache__")
            || name.starts_with('.'))
}

fn later<T: Default + PartialEq>(known: &mut T, new: T) {
    if new != T::default() {
        *known = new;
    }
}

fn folder() -> PathBuf {
    paths::in_root("images")
}

/// The names of all recipes.
pub(super) fn all() -> Result<Vec<String>> {
    let folder = folder();
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.path().join("image.toml").is_file() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

fn read(name: &str) -> Result<Recipe> {
    let folder = folder().join(name);
    let path = folder.join("image.toml");
    if !path.is_file() || name.contains(['/', '.']) {
        let known = all()?.join(", ");
        bail!("no recipe images/{name}/image.toml; there are: {known}");
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    parse(&text, folder).with_context(|| path.display().to_string())
}

fn parse(text: &str, folder: PathBuf) -> Result<Recipe> {
    let mut recipe: Recipe = toml::from_str(text)?;
    for copy in &recipe.copy {
        let inside = Path::new(&copy.from)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !inside || !copy.to.starts_with('/') {
            bail!(
                "copy {} to {}: give a path in the recipe's folder, and an absolute one",
                copy.from,
                copy.to
            );
        }
    }
    recipe.folder = folder;
    Ok(recipe)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it fails")]
mod tests {
    use super::*;

    fn chain(texts: &[&str]) -> Chain {
        let recipes = texts.iter().map(|text| parse(text, "/r".into()).unwrap());
        Chain {
            recipes: recipes.collect(),
        }
    }

    #[test]
    fn the_key_knows_what_steps_use() {
        let root = tempfile::tempdir().unwrap();
        let (folder, app) = (root.path().join("images/r"), root.path().join("apps/a"));
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(app.join("node_modules")).unwrap();
        fs::write(app.join("main.js"), "1").unwrap();
        let step = "description = 'd'\nsteps = ['cp -r \"../../apps/a\" \"$ROOT/a\"']";
        let key = || {
            let recipes = vec![parse(step, folder.clone()).unwrap()];
            Chain { recipes }.key("b").unwrap()
        };
        let first = key();
        fs::write(app.join("node_modules/made"), "x").unwrap();
        assert_eq!(key(), first);
        fs::write(app.join("main.js"), "2").unwrap();
        assert_ne!(key(), first);
    }

    #[test]
    fn what_a_recipe_does_not_say_its_base_says() {
        let base = "description = 'b'\n[debian]\npackages = ['p']\n[config]\nentrypoint = ['/e']\ncmd = ['c']\n\
                    env = ['A=1', 'B=2']\nuser = 'u'\nexposed = ['80/tcp']";
        let top = "description = 't'\nbase = 'b'\n[config]\ncmd = ['d']\nenv = ['B=3']\nexposed = ['81/tcp']";
        let both = chain(&[base, top]).execution();
        assert_eq!(
            (both.entrypoint, both.cmd),
            (vec!["/e".into()], vec!["d".into()])
        );
        assert_eq!(both.env, ["A=1", "B=3"]);
        assert_eq!(both.user, "u");
        assert_eq!(both.exposed_ports.len(), 2);
        let other = "description = 't'\nbase = 'b'\n[config]\nentrypoint = ['/f']";
        assert!(chain(&[base, other]).execution().cmd.is_empty());
    }

    #[test]
    fn wrong_recipes_are_refused() {
        let with = |line: &str| parse(&format!("description = 'x'\n{line}"), "/r".into());
        assert!(with("unknown = 1").is_err());
        assert!(with("[[copy]]\nfrom = '../x'\nto = '/x'").is_err());
        assert!(with("[[copy]]\nfrom = 'x'\nto = 'x'").is_err());
        assert!(with("[[copy]]\nfrom = 'x'\nto = '/x'").is_ok());
    }
}
