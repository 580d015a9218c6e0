// SPDX-License-Identifier: Apache-2.0
//! Registries: pulling and pushing images over HTTP.
//!
//! Source: OCI distribution specification 1.1; Docker's token authentication (`distribution/docs/spec/auth/token.md`), RFC
//! 7235 for the challenge. Credentials go to the registry and the token server it names, never along with a redirect.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::Response;
use ureq::{Agent, Body, SendBody};

use super::auth::Credentials;
use super::document::{DOCKER_LIST, DOCKER_MANIFEST, DOCUMENT_MAX, Descriptor, INDEX, MANIFEST};
use super::error::ImageError;
use super::reference::Reference;
use super::root::Image;
use super::source::{self, Found, Source};
use super::store::Store;

type Result<T> = std::result::Result<T, ImageError>;

/// How long a connection may take to come about, and an answer to begin.
const CONNECT: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(120);

/// How a registry is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Who we are there.
    pub credentials: Option<Credentials>,
    /// Whether plain HTTP and certificates nobody vouches for are accepted.
    pub insecure: bool,
}

/// Is told of each blob: what it is, bytes so far, bytes in all.
pub type Progress<'a> = &'a dyn Fn(&Descriptor, u64, u64);

/// An image's repository on a registry.
pub struct Registry<'a> {
    reference: Reference,
    agent: Agent,
    /// `https://HOST` or `http://HOST`.
    base: String,
    access: Access,
    /// The header that was accepted last.
    authorization: RefCell<Option<String>>,
    progress: Progress<'a>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// What is sent.
enum Content<'a> {
    Nothing,
    Bytes(&'a [u8]),
    File(&'a File),
}

impl<'a> Registry<'a> {
    /// Finds out how the registry can be spoken to.
    ///
    /// # Errors
    /// [`ImageError::Registry`] if it cannot be reached.
    pub fn connect(reference: &Reference, access: Access, progress: Progress<'a>) -> Result<Self> {
        let host = match reference.registry.as_str() {
            "docker.io" => "registry-1.docker.io",
            other => other,
        };
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .disable_verification(access.insecure)
            .build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build()
            .new_agent();
        let mut registry = Self {
            reference: reference.clone(),
            agent,
            base: format!("https://{host}"),
            access,
            authorization: RefCell::new(None),
            progress,
        };
        // As with docker, a registry on this machine needs no certificate.
        let may_be_plain = registry.access.insecure || is_loopback(host);
        let url = format!("{}/v2/", registry.base);
        if let Err(error) = registry.agent.get(&url).call() {
            if !may_be_plain {
                return Err(registry.unreachable(&error));
            }
            registry.base = format!("http://{host}");
            let url = format!("{}/v2/", registry.base);
            let answer = registry.agent.get(&url).call();
            answer.map_err(|error| registry.unreachable(&error))?;
        }
        Ok(registry)
    }

    /// The image for this machine.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn find(self) -> Result<Found<'a>> {
        let name = self.reference.to_string();
        let version = self.reference.version();
        let mut answer = self.get(&format!("manifests/{version}"))?;
        if answer.status().as_u16() == 404 {
            let remedy = format!("see which there are on {}", self.reference.registry);
            return Err(ImageError::Missing { name, remedy });
        }
        self.expect(&answer, &[200], "give its manifest")?;
        let mut bytes = Vec::new();
        let body = answer.body_mut().as_reader().take(DOCUMENT_MAX);
        let mut body = body;
        body.read_to_end(&mut bytes)
            .map_err(|source| ImageError::Fetch {
                name: name.clone(),
                source,
            })?;
        // What a digest names must have it; what a tag names has whatever digest it has.
        let mut first = Descriptor::of(MANIFEST, &bytes);
        if let Some(digest) = &self.reference.digest
            && *digest != first.digest
        {
            return Err(ImageError::Digest {
                name,
                expected: digest.clone(),
                found: first.digest,
            });
        }
        first.media_type.clear();
        let first = Fetched {
            registry: &self,
            first: (first, bytes),
        };
        let manifest = source::manifest(&name, first.first.0.clone(), &first)?;
        Ok(Found {
            name: Some(name),
            manifest,
            source: Box::new(self),
        })
    }

    /// Sends an image of a store.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn push(&self, store: &Store, image: &Image) -> Result<()> {
        let contents = image.manifest.layers.iter().chain([&image.manifest.config]);
        for content in contents {
            self.push_blob(store, content)?;
        }
        let bytes = store.document(&image.name, &image.descriptor.digest)?;
        let version = self.reference.version();
        let url = self.url(&format!("manifests/{version}"));
        let media_type = &image.descriptor.media_type;
        let sent = self.call(
            "PUT",
            &url,
            &[("content-type", media_type)],
            Content::Bytes(&bytes),
        )?;
        self.expect(&sent, &[201, 202], "take the manifest")
    }

    fn push_blob(&self, store: &Store, content: &Descriptor) -> Result<()> {
        let there = self.url(&format!("blobs/{}", content.digest));
        if self.call("HEAD", &there, &[], Content::Nothing)?.status() == 200 {
            (self.progress)(content, content.size, content.size);
            return Ok(());
        }
        let begun = self.call("POST", &self.url("blobs/uploads/"), &[], Content::Nothing)?;
        self.expect(&begun, &[202], "take the image")?;
        let location = begun
            .headers()
            .get("location")
            .and_then(|l| l.to_str().ok());
        let location =
            location.ok_or_else(|| self.problem("does not say where to send content"))?;
        // It may be relative to the registry, and may have a query already.
        let location = match location.starts_with('/') {
            true => format!("{}{location}", self.base),
            false => location.to_owned(),
        };
        let join = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{join}digest={}", content.digest);
        let path = store.blob(&content.digest);
        let file = File::open(&path).map_err(ImageError::reading(&path))?;
        let size = content.size.to_string();
        let headers = [
            ("content-type", "application/octet-stream"),
            ("content-length", size.as_str()),
        ];
        let sent = self.call("PUT", &url, &headers, Content::File(&file))?;
        self.expect(&sent, &[201], "take the content")?;
        (self.progress)(content, content.size, content.size);
        Ok(())
    }

    fn url(&self, what: &str) -> String {
        format!("{}/v2/{}/{what}", self.base, self.reference.repository)
    }

    fn get(&self, what: &str) -> Result<Response<Body>> {
        let accepted = [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_LIST].join(", ");
        self.call(
            "GET",
            &self.url(what),
            &[("accept", &accepted)],
            Content::Nothing,
        )
    }

    /// Asks, and if told so says who we are and asks again.
    fn call(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        content: Content<'_>,
    ) -> Result<Response<Body>> {
        let is_ours = url.starts_with(&format!("{}/", self.base));
        let once = || {
            let mut request = ureq::http::Request::builder().method(method).uri(url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(value) = self.authorization.borrow().as_ref().filter(|_| is_ours) {
                request = request.header("authorization", value);
            }
            let answer = match content {
                Content::Nothing => request.body(()).map(|request| self.agent.run(request)),
                Content::Bytes(bytes) => request.body(bytes).map(|request| self.agent.run(request)),
                Content::File(mut file) => {
                    use std::io::Seek;
                    file.rewind().map_err(|error| self.problem(error))?;
                    let body = SendBody::from_owned_reader(
                        file.try_clone().map_err(|error| self.problem(error))?,
                    );
                    request.body(body).map(|request| self.agent.run(request))
                }
            };
            let answer = answer.map_err(|error| self.problem(error))?;
            answer.map_err(|error| self.unreachable(&error))
        };
        let answer = once()?;
        if answer.status().as_u16() != 401 || !is_ours {
            return Ok(answer);
        }
        let challenge = answer.headers().get("www-authenticate");
        let challenge = challenge.and_then(|value| value.to_str().ok());
        let wants_push = method != "GET";
        let value = self.answer(challenge.unwrap_or_default(), wants_push)?;
        *self.authorization.borrow_mut() = Some(value);
        once()
    }

    /// What is to be said to a challenge.
    fn answer(&self, challenge: &str, wants_push: bool) -> Result<String> {
        let basic = self.access.credentials.as_ref().map(Credentials::basic);
        let Some((scheme, rest)) = challenge.split_once(' ') else {
            return Err(self.denied());
        };
        if scheme.eq_ignore_ascii_case("basic") {
            return basic.ok_or_else(|| self.denied());
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(self.problem(format!("asks for authentication by {scheme:?}")));
        }
        let parameters = parameters(rest);
        let get = |name: &str| parameters.iter().find(|(key, _)| key == name);
        let (_, realm) = get("realm").ok_or_else(|| self.denied())?;
        let is_safe = realm.starts_with("https://") || self.base.starts_with("http://");
        if !is_safe {
            return Err(self.problem("asks to send credentials without encryption"));
        }
        let actions = if wants_push { "pull,push" } else { "pull" };
        let scope = format!("repository:{}:{actions}", self.reference.repository);
        let mut request = self.agent.get(realm).query("scope", scope);
        if let Some((_, service)) = get("service") {
            request = request.query("service", service);
        }
        if let Some(basic) = basic {
            request = request.header("authorization", basic);
        }
        let mut answer = request.call().map_err(|error| self.unreachable(&error))?;
        if answer.status() != 200 {
            return Err(self.denied());
        }
        let mut text = Vec::new();
        let mut body = answer.body_mut().as_reader().take(DOCUMENT_MAX);
        body.read_to_end(&mut text)
            .map_err(|error| self.problem(error))?;
        let token: Token = serde_json::from_slice(&text).map_err(|error| self.problem(error))?;
        let token = token.token.or(token.access_token);
        token
            .map(|token| format!("Bearer {token}"))
            .ok_or_else(|| self.denied())
    }

    fn expect(&self, answer: &Response<Body>, statuses: &[u16], what: &str) -> Result<()> {
        match answer.status().as_u16() {
            status if statuses.contains(&status) => Ok(()),
            401 | 403 => Err(self.denied()),
            429 => Err(self.problem("has had too many requests from here; wait or log in")),
            status => Err(self.problem(format!("does not {what}: status {status}"))),
        }
    }

    fn problem(&self, problem: impl std::fmt::Display) -> ImageError {
        ImageError::Registry {
            name: self.reference.to_string(),
            problem: format!("{} {problem}", self.reference.registry),
        }
    }

    fn denied(&self) -> ImageError {
        let registry = &self.reference.registry;
        let who = match self.access.credentials {
            Some(_) => "denies access with the credentials there are for it",
            None => "denies access, or there is no such image",
        };
        self.problem(format!("{who}; log in: podman login {registry}"))
    }

    fn unreachable(&self, error: &ureq::Error) -> ImageError {
        let text = "cannot be reached";
        let hint = match self.access.insecure {
            true => "",
            false => "; for a registry without a certificate: --tls-verify=false",
        };
        self.problem(format!("{text}: {error}{hint}"))
    }
}

impl Source for Registry<'_> {
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>> {
        let kind =
            match content.media_type.contains("manifest") || content.media_type.contains("index") {
                true => "manifests",
                false => "blobs",
            };
        let answer = self.get(&format!("{kind}/{}", content.digest))?;
        self.expect(&answer, &[200], "give a part of the image")?;
        Ok(Box::new(Counted {
            inner: answer.into_body().into_reader(),
            content: content.clone(),
            done: 0,
            progress: self.progress,
        }))
    }
}

/// The document that was fetched first, and the registry for what it leads to.
struct Fetched<'r, 'a> {
    registry: &'r Registry<'a>,
    first: (Descriptor, Vec<u8>),
}

impl Source for Fetched<'_, '_> {
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>> {
        if content.digest == self.first.0.digest {
            return Ok(Box::new(self.first.1.as_slice()));
        }
        self.registry.open(content)
    }
}

struct Counted<'a, R> {
    inner: R,
    content: Descriptor,
    done: u64,
    progress: Progress<'a>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done += count as u64;
        (self.progress)(&self.content, self.done, self.content.size);
        Ok(count)
    }
}

/// Whether a host is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// `key="value"` pairs of a challenge.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        let key = key.trim_matches([' ', ',']).to_ascii_lowercase();
        found.push((key, value.to_owned()));
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_understood() {
        let text = r#"realm="https://auth/token",service="reg, with comma",scope=x"#;
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let expected = [
            ("realm", "https://auth/token"),
            ("service", "reg, with comma"),
            ("scope", "x"),
        ];
        assert_eq!(parameters(text), expected.map(pair));
        assert_eq!(parameters(""), []);
    }

    #[test]
    fn this_machine_is_known() {
        for here in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:1",
            "127.1.2.3",
            "[::1]:5000",
        ] {
            assert!(is_loopback(here), "{here}");
        }
        for there in ["example.org", "10.0.0.1:5000", "localhost.example.org"] {
            assert!(!is_loopback(there), "{there}");
        }
    }
}
