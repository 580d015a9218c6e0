// SPDX-License-Identifier: Apache-2.0
//! Names of images, and the long form of short ones.
//!
//! Source: `distribution/reference` (the grammar and the rules for docker.io that podman and docker share).

use std::fmt;
use std::str::FromStr;

use super::Digest;

/// Where short names belong.
const DOCKER: &str = "docker.io";
/// Longest name of a repository with its registry.
const NAME_MAX: usize = 255;
/// Longest tag.
const TAG_MAX: usize = 128;

/// `REGISTRY/REPOSITORY[:TAG][@DIGEST]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Host and port.
    pub registry: String,
    /// Path of the image there.
    pub repository: String,
    /// Its tag; `latest` if neither tag nor digest was given.
    pub tag: Option<String>,
    /// Its digest.
    pub digest: Option<Digest>,
}

impl Reference {
    /// The name without tag and digest.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// What a registry is asked for.
    #[must_use]
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.as_deref().unwrap_or("latest").to_owned(),
        }
    }

    /// The names under which an image that was called `text` may be kept: one without a registry first as podman names what
    /// it built (`localhost/`), then as of docker.io.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn candidates(text: &str) -> Result<Vec<Self>, String> {
        let full: Self = text.parse()?;
        if full.registry != DOCKER || text.starts_with(DOCKER) || text.starts_with("index.") {
            return Ok(vec![full]);
        }
        let local = format!("localhost/{text}").parse()?;
        Ok(vec![local, full])
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("{text:?} is no name of an image ({why}); write [REGISTRY/]NAME[:TAG|@DIGEST]")
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        // A colon behind the last slash begins a tag; one before it is that of a port.
        let name_at = rest.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match rest[name_at..].split_once(':') {
            Some((last, tag)) => (&rest[..name_at + last.len()], Some(tag)),
            None => (rest, None),
        };
        let is_registry = |first: &str| {
            first.contains(['.', ':']) || first == "localhost" || first.starts_with('[')
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_registry(first) => (first, path),
            _ => (DOCKER, name),
        };
        let registry = match registry {
            "index.docker.io" | "registry-1.docker.io" => DOCKER,
            other => other,
        };
        let repository = match registry == DOCKER && !path.contains('/') {
            true => format!("library/{path}"),
            false => path.to_owned(),
        };

        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        let begins = |c: char| c.is_ascii_alphanumeric() || c == '[';
        if !registry.starts_with(begins) || !registry.chars().all(allowed) {
            return Err(wrong("the registry is not HOST[:PORT]"));
        }
        if repository.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(wrong("names are written in lower case"));
        }
        if !repository.split('/').all(is_path_component) || name.len() > NAME_MAX {
            return Err(wrong("a name has letters, digits, and . _ - between them"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("a tag has letters, digits, . _ and -"));
        }
        let tag = match (tag, &digest) {
            (None, None) => Some("latest"),
            (tag, _) => tag,
        };
        Ok(Self {
            registry: registry.into(),
            repository,
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

fn is_path_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.starts_with(is_word)
        && text.ends_with(is_word)
        && text.chars().all(|c| is_word(c) || "._-".contains(c))
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(is_word)
        && text.len() <= TAG_MAX
        && text.chars().all(|c| is_word(c) || ".-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::Reference;

    #[test]
    fn short_names_become_long_as_with_podman() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (short, long) in [
            ("redis", "docker.io/library/redis:latest"),
            ("redis:7", "docker.io/library/redis:7"),
            ("user/app", "docker.io/user/app:latest"),
            ("index.docker.io/redis", "docker.io/library/redis:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
            ("quay.io/a/b", "quay.io/a/b:latest"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
            (
                &format!("redis@{digest}"),
                &format!("docker.io/library/redis@{digest}"),
            ),
            (
                &format!("redis:7@{digest}"),
                &format!("docker.io/library/redis:7@{digest}"),
            ),
        ] {
            assert_eq!(
                short.parse::<Reference>().map(|r| r.to_string()),
                Ok(long.to_owned())
            );
        }
        let candidates = Reference::candidates("app:1").expect("a name");
        let names: Vec<String> = candidates.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["localhost/app:1", "docker.io/library/app:1"]);
        assert_eq!(
            Reference::candidates("quay.io/app").expect("a name").len(),
            1
        );
    }

    #[test]
    fn what_is_no_name_is_said() {
        for (text, part) in [
            ("", "a name has letters"),
            ("Redis", "lower case"),
            ("a//b", "a name has letters"),
            ("redis:", "a tag has"),
            ("redis:-x", "a tag has"),
            ("a b", "a name has letters"),
            ("redis@sha256:12", "is no digest"),
            ("../x", "the registry"),
            ("ho_st.x/y", "the registry"),
        ] {
            let error = text.parse::<Reference>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
