// SPDX-License-Identifier: Apache-2.0
//! Who we are to a registry: from the files that `podman login` and `docker login` write.
//!
//! Source: `containers-auth.json(5)`, and Docker's credential helper protocol.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::error::ImageError;
use super::reference::Reference;

/// How docker names the registry of docker.io in its file.
const DOCKER_KEYS: [&str; 2] = ["https://index.docker.io/v1/", "index.docker.io"];

/// User and password, or the name `<token>` and a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    secret: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials of {:?}", self.user)
    }
}

impl Credentials {
    /// The value of an `Authorization` header.
    pub(super) fn basic(&self) -> String {
        let plain = format!("{}:{}", self.user, self.secret);
        format!("Basic {}", STANDARD.encode(plain))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AuthFile {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

/// The credentials for an image: from `file`, or from the first of the usual files that has some.
///
/// # Errors
/// [`ImageError`] for a file that was named and cannot be read, or one that is damaged.
pub fn credentials(
    reference: &Reference,
    file: Option<PathBuf>,
) -> Result<Option<Credentials>, ImageError> {
    let is_named = file.is_some();
    for path in file.map_or_else(usual_files, |file| vec![file]) {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if is_named => return Err(ImageError::reading(&path)(error)),
            Err(_) => continue,
        };
        let file: AuthFile = serde_json::from_slice(&text).map_err(|error| {
            let text = format!("not a file of podman login or docker login ({error})");
            ImageError::unsupported(&path.display().to_string(), text)
        })?;
        if let Some(found) = in_file(&file, reference) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Where `containers-auth.json(5)` and docker look, in this order.
fn usual_files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("HOME");
    let below = |folder: &str| home.as_ref().map(|home| home.join(folder));
    [
        variable("REGISTRY_AUTH_FILE"),
        variable("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json")),
        variable("XDG_CONFIG_HOME")
            .or_else(|| below(".config"))
            .map(|folder| folder.join("containers/auth.json")),
        variable("DOCKER_CONFIG")
            .or_else(|| below(".docker"))
            .map(|folder| folder.join("config.json")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn in_file(file: &AuthFile, reference: &Reference) -> Option<Credentials> {
    // The longest name first: a file may have several identities for one registry.
    let mut key = reference.name();
    let mut keys = vec![key.clone()];
    while let Some(at) = key.rfind('/') {
        key.truncate(at);
        keys.push(key.clone());
    }
    if reference.registry == "docker.io" {
        keys.extend(DOCKER_KEYS.map(str::to_owned));
    }
    for key in &keys {
        let helper = file.cred_helpers.get(key);
        if let Some(found) = helper.and_then(|helper| helped(helper, key)) {
            return Some(found);
        }
        if let Some(found) = file.auths.get(key).and_then(|auth| decode(&auth.auth)) {
            return Some(found);
        }
    }
    let store = file.creds_store.as_ref()?;
    let listed = keys.iter().rev().find(|key| file.auths.contains_key(*key));
    helped(store, listed.unwrap_or(&reference.registry))
}

fn decode(auth: &str) -> Option<Credentials> {
    let plain = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
    let (user, secret) = plain.split_once(':')?;
    Some(Credentials {
        user: user.into(),
        // docker pads what it wrote.
        secret: secret.trim_end_matches('\0').into(),
    })
}

/// Asks a credential helper, `docker-credential-NAME`.
fn helped(helper: &str, registry: &str) -> Option<Credentials> {
    if helper.contains('/') {
        return None;
    }
    let mut child = Command::new(format!("docker-credential-{helper}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(registry.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    let found: Helped = serde_json::from_slice(&output.stdout).ok()?;
    Some(Credentials {
        user: found.username,
        secret: found.secret,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_decides() {
        let auth = |text: &str| STANDARD.encode(text);
        let text = format!(
            r#"{{"auths": {{"quay.io": {{"auth": "{}"}}, "quay.io/team": {{"auth": "{}"}},
                "https://index.docker.io/v1/": {{"auth": "{}"}}, "empty.io": {{}}}}}}"#,
            auth("all:1"),
            auth("team:2:3"),
            auth("docker:4")
        );
        let file: AuthFile = serde_json::from_str(&text).expect("an auth file");
        for (name, expected) in [
            ("quay.io/other/app", Some(("all", "1"))),
            ("quay.io/team/app", Some(("team", "2:3"))),
            ("redis", Some(("docker", "4"))),
            ("empty.io/app", None),
            ("elsewhere.io/app", None),
        ] {
            let found = in_file(&file, &name.parse().expect("a name"));
            let found = found.as_ref().map(|c| (c.user.as_str(), c.secret.as_str()));
            assert_eq!(found, expected, "{name}");
        }
        let credentials = decode(&auth("u:p")).expect("credentials");
        assert_eq!(credentials.basic(), "Basic dTpw");
        assert!(!format!("{credentials:?}").contains('p'.to_string().repeat(2).as_str()));
    }
}
