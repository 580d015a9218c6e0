// SPDX-License-Identifier: Apache-2.0
//! A registry for tests: enough of the OCI distribution specification to push and pull, with the kinds of authentication
//! there are, and with faults.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use coracle_imager::image::Digest;

/// What a client must say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    None,
    /// `user:secret`
    Basic,
    /// A token, for which the same is asked.
    Token,
}

/// `user:secret` as an `Authorization` header has it.
const BASIC: &str = "Basic dXNlcjpzZWNyZXQ=";
const BEARER: &str = "Bearer good-token";

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Manifests by tag and digest, with their types, and blobs by digest.
    pub(crate) content: HashMap<String, (String, Vec<u8>)>,
    /// Blobs whose answer ends early.
    pub(crate) cut: Option<String>,
    /// Every request line.
    pub(crate) requests: Vec<String>,
}

/// A registry on a port of this machine; its thread ends with the test.
pub(crate) struct Registry {
    pub(crate) port: u16,
    pub(crate) state: Arc<Mutex<State>>,
}

impl Registry {
    pub(crate) fn start(auth: Auth) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(connection, auth, port, &state));
            }
        });
        Self { port, state }
    }

    /// The name of an image here.
    pub(crate) fn name(&self, path: &str) -> String {
        format!("127.0.0.1:{}/{path}", self.port)
    }

    /// Puts content there, and a manifest under a tag too.
    pub(crate) fn put(&self, media_type: &str, bytes: &[u8], tag: Option<&str>) -> Digest {
        let digest = Digest::of(bytes);
        let mut state = self.state.lock().unwrap();
        let entry = (media_type.to_owned(), bytes.to_vec());
        state.content.insert(digest.to_string(), entry.clone());
        if let Some(tag) = tag {
            state.content.insert(tag.to_owned(), entry);
        }
        digest
    }

    /// How many requests began like that.
    pub(crate) fn count(&self, start: &str) -> usize {
        let state = self.state.lock().unwrap();
        let requests = state.requests.iter();
        requests.filter(|line| line.starts_with(start)).count()
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    authorization: String,
    content_type: String,
    body: Vec<u8>,
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut request = Request {
        method,
        path: path.into(),
        query: query.into(),
        authorization: String::new(),
        content_type: String::new(),
        body: Vec::new(),
    };
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = value.into(),
            "content-type" => request.content_type = value.into(),
            "content-length" => length = value.parse().ok()?,
            "transfer-encoding" => is_chunked = true,
            "expect" => reader
                .get_ref()
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .ok()?,
            _ => {}
        }
    }
    if is_chunked {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            request.body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else {
        request.body.resize(length, 0);
        reader.read_exact(&mut request.body).ok()?;
    }
    Some(request)
}

fn serve(connection: TcpStream, auth: Auth, port: u16, state: &Mutex<State>) {
    let mut reader = BufReader::new(connection);
    while let Some(request) = read(&mut reader) {
        let mut state = state.lock().unwrap();
        state
            .requests
            .push(format!("{} {}", request.method, request.path));
        let (status, headers, mut body) = answer(&request, auth, port, &mut state);
        let length = body.len();
        if state
            .cut
            .as_ref()
            .is_some_and(|cut| request.path.ends_with(cut.as_str()))
        {
            body.truncate(length / 2);
        }
        drop(state);
        let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        let body = if request.method == "HEAD" {
            &[][..]
        } else {
            &body
        };
        let stream = reader.get_mut();
        let sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body));
        if sent.is_err() || (body.len() < length && request.method != "HEAD") {
            return;
        }
    }
}

type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

fn answer(request: &Request, auth: Auth, port: u16, state: &mut State) -> Answer {
    let status = |status: u16| (status, Vec::new(), Vec::new());
    if request.path == "/token" {
        return match request.authorization == BASIC && request.query.contains("repository%3A") {
            true => (200, Vec::new(), br#"{"token":"good-token"}"#.to_vec()),
            false => status(401),
        };
    }
    let wanted = match auth {
        Auth::None => "",
        Auth::Basic => BASIC,
        Auth::Token => BEARER,
    };
    if !wanted.is_empty() && request.authorization != wanted {
        let challenge = match auth {
            Auth::Token => format!(
                "Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"test\",scope=\"repository:x:pull\""
            ),
            _ => "Basic realm=\"test\"".to_owned(),
        };
        return (401, vec![("www-authenticate", challenge)], Vec::new());
    }
    let last = request
        .path
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    match request.method.as_str() {
        "GET" | "HEAD" if request.path == "/v2/" => status(200),
        "GET" | "HEAD" => match state.content.get(&last) {
            Some((kind, bytes)) => (200, vec![("content-type", kind.clone())], bytes.clone()),
            None => status(404),
        },
        "POST" => (
            202,
            vec![("location", "/v2/upload?state=1".to_owned())],
            Vec::new(),
        ),
        "PUT" if request.path == "/v2/upload" => {
            let digest = request.query.split("digest=").nth(1).unwrap_or_default();
            let digest = digest.replace("%3A", ":");
            if Digest::of(&request.body).to_string() != digest {
                return status(400);
            }
            let entry = ("application/octet-stream".to_owned(), request.body.clone());
            state.content.insert(digest, entry);
            status(201)
        }
        "PUT" => {
            let entry = (request.content_type.clone(), request.body.clone());
            let digest = Digest::of(&request.body).to_string();
            state.content.insert(digest, entry.clone());
            state.content.insert(last, entry);
            status(201)
        }
        _ => status(405),
    }
}
