// SPDX-License-Identifier: Apache-2.0

//! The file of a scenario: users, and what each of them asks.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use serde::Deserialize;

use super::template::{Filling, Template};
use crate::load::http;
use crate::{Error, Result};

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    order: Order,
    /// Milliseconds between an answer and the next request: from, to.
    #[serde(default)]
    think_ms: (u64, u64),
    /// `name:password`, a template, for all requests that have none of their own.
    basic: Option<String>,
    /// Numbers drawn anew for each request: name -> from, to.
    #[serde(default)]
    values: BTreeMap<String, (u64, u64)>,
    /// Asked once by each user before the measurement.
    #[serde(default)]
    prepare: Vec<RequestText>,
    /// What is asked.
    request: Vec<RequestText>,
}

/// In which order a user asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Drawn by weight.
    #[default]
    Weighted,
    /// One after the other, each `times`, and then from the begin.
    Sequence,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestText {
    name: String,
    method: Option<String>,
    path: String,
    body: Option<String>,
    /// The body is a JSON array of this many numbers, from the highest down to 1.
    descending: Option<u64>,
    content_type: Option<String>,
    basic: Option<String>,
    /// Right status codes; empty: 200 to 399.
    #[serde(default)]
    status: Vec<u16>,
    #[serde(default)]
    check: Check,
    weight: Option<u64>,
    times: Option<u64>,
}

/// What the body of a right answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Check {
    /// Anything.
    #[default]
    None,
    /// JSON.
    Json,
    /// A JSON array of the numbers that were sent, in rising order.
    Sorted,
}

/// A scenario, ready to be run.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) order: Order,
    pub(super) think_ms: (u64, u64),
    pub(super) values: BTreeMap<String, (u64, u64)>,
    pub(super) prepare: Vec<Request>,
    pub(super) requests: Vec<Request>,
}

/// One kind of request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) weight: u64,
    pub(super) times: u64,
    pub(super) check: Check,
    /// How many numbers a sorted answer must have.
    pub(super) numbers: u64,
    method: String,
    path: Template,
    body: Option<Template>,
    content_type: Option<String>,
    basic: Option<Template>,
    status: Vec<u16>,
}

impl Scenario {
    /// Reads the file.
    pub(super) fn read(path: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
        Scenario::parse(&text)
            .map_err(|why| Error::Input(format!("{}: {}", path.display(), why.trim_end())))
    }

    pub(super) fn parse(text: &str) -> std::result::Result<Scenario, String> {
        let text: Text = toml::from_str(text).map_err(|why| why.to_string())?;
        for (name, (from, to)) in text
            .values
            .iter()
            .map(|(name, range)| (name.as_str(), range))
            .chain([("think_ms", &text.think_ms)])
        {
            if from > to {
                return Err(format!(
                    "`{name}` must be [least, most], not [{from}, {to}]"
                ));
            }
        }
        let mut known: Vec<&str> = vec!["user", "count"];
        known.extend(text.values.keys().map(String::as_str));
        let request = |request| Request::parse(request, &known, text.basic.as_deref(), text.order);
        let requests: Vec<Request> = text
            .request
            .into_iter()
            .map(request)
            .collect::<std::result::Result<_, _>>()?;
        let prepare = text
            .prepare
            .into_iter()
            .map(request)
            .collect::<std::result::Result<_, _>>()?;
        if requests.is_empty() {
            return Err("a scenario needs a [[request]]".to_owned());
        }
        let mut names: Vec<&str> = requests
            .iter()
            .map(|request| request.name.as_str())
            .collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two requests have the name `{}`", twice[0]));
        }
        Ok(Scenario {
            order: text.order,
            think_ms: text.think_ms,
            values: text.values,
            prepare,
            requests,
        })
    }
}

impl Request {
    fn parse(
        text: RequestText,
        known: &[&str],
        basic: Option<&str>,
        order: Order,
    ) -> std::result::Result<Request, String> {
        let name = text.name;
        let wrong = |what: String| format!("request `{name}`: {what}");
        let template = |text: &str| Template::parse(text, known).map_err(wrong);
        if !text.path.starts_with('/') || text.path.contains(|c: char| c.is_whitespace()) {
            return Err(wrong(
                "`path` must begin with / and have no spaces".to_owned(),
            ));
        }
        if text.body.is_some() && text.descending.is_some() {
            return Err(wrong("either `body` or `descending`".to_owned()));
        }
        match order {
            Order::Weighted if text.times.is_some() => {
                return Err(wrong(
                    "`times` needs `order = \"sequence\"`; did you mean `weight`?".to_owned(),
                ));
            }
            Order::Sequence if text.weight.is_some() => {
                return Err(wrong(
                    "`weight` needs `order = \"weighted\"`; did you mean `times`?".to_owned(),
                ));
            }
            _ => {}
        }
        if text.weight == Some(0) || text.times == Some(0) {
            return Err(wrong("`weight` and `times` must be above 0".to_owned()));
        }
        if text.check == Check::Sorted && text.descending.is_none() {
            return Err(wrong("`check = \"sorted\"` needs `descending`".to_owned()));
        }
        if text.descending.is_some_and(|count| count > 10_000_000) {
            return Err(wrong("`descending` must be at most 10000000".to_owned()));
        }
        let body = match text.descending {
            // Digits and commas hold no places.
            Some(count) => Some(Template::parse(&descending(count), &[]).map_err(wrong)?),
            None => text.body.as_deref().map(template).transpose()?,
        };
        let content_type = text
            .content_type
            .or_else(|| body.as_ref().map(|_| "application/json".to_owned()));
        Ok(Request {
            weight: text.weight.unwrap_or(1),
            times: text.times.unwrap_or(1),
            check: text.check,
            numbers: text.descending.unwrap_or(0),
            method: text
                .method
                .unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned()),
            path: template(&text.path)?,
            basic: text.basic.as_deref().or(basic).map(template).transpose()?,
            body,
            content_type,
            status: text.status,
            name,
        })
    }

    /// The bytes of one such request.
    pub(super) fn bytes(&self, host: std::net::SocketAddr, filling: &Filling<'_>) -> Vec<u8> {
        let mut headers = Vec::new();
        if let Some(basic) = &self.basic {
            let credentials = base64::engine::general_purpose::STANDARD.encode(basic.fill(filling));
            headers.push(("Authorization".to_owned(), format!("Basic {credentials}")));
        }
        if let Some(content_type) = &self.content_type {
            headers.push(("Content-Type".to_owned(), content_type.clone()));
        }
        let body = self.body.as_ref().map(|body| body.fill(filling));
        http::request(
            &self.method,
            &self.path.fill(filling),
            host,
            &headers,
            body.as_deref().map(str::as_bytes),
        )
    }

    /// The kind of error of an answer, or `None` for a right one.
    pub(super) fn judge(&self, status: u16, body: &[u8]) -> Option<String> {
        let right = if self.status.is_empty() {
            (200..400).contains(&status)
        } else {
            self.status.contains(&status)
        };
        if !right {
            return Some(format!("status {status}"));
        }
        let right = match self.check {
            Check::None => true,
            Check::Json => serde_json::from_slice::<serde_json::Value>(body).is_ok(),
            Check::Sorted => serde_json::from_slice::<Vec<u64>>(body)
                .is_ok_and(|numbers| numbers.into_iter().eq(1..=self.numbers)),
        };
        (!right).then(|| "wrong body".to_owned())
    }
}

/// `[N,N-1,...,1]`
fn descending(count: u64) -> String {
    let numbers: Vec<String> = (1..=count).rev().map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Filling, Scenario};

    const FILE: &str = r#"
        think_ms = [1, 2]
        basic = "user{user}:secret"
        values = { device = [0, 29] }

        [[request]]
        name = "device"
        path = "/users/{user}/devices/{device}"

        [[request]]
        name = "sort"
        weight = 3
        path = "/sort"
        descending = 3
        check = "sorted"
        status = [200]
    "#;

    #[test]
    fn requests_are_made() {
        let scenario = Scenario::parse(FILE).unwrap();
        let values = BTreeMap::from([("device".to_owned(), 4)]);
        let filling = Filling {
            user: 2,
            count: 0,
            values: &values,
        };
        let host = "10.0.0.2:80".parse().unwrap();
        let text =
            |at: usize| String::from_utf8(scenario.requests[at].bytes(host, &filling)).unwrap();
        assert_eq!(
            text(0),
            "GET /users/2/devices/4 HTTP/1.1\r\nHost: 10.0.0.2:80\r\nAuthorization: Basic dXNlcjI6c2VjcmV0\r\n\r\n"
        );
        assert!(text(1).starts_with("POST /sort "));
        assert!(text(1).ends_with("Content-Length: 7\r\n\r\n[3,2,1]"));
    }

    #[test]
    fn answers_are_judged() {
        let scenario = Scenario::parse(FILE).unwrap();
        let sort = &scenario.requests[1];
        assert_eq!(sort.judge(200, b"[1, 2, 3]"), None);
        for body in ["[3,2,1]", "[1,2]", "[1,2,3,4]", "", "{}", "[1,2,3"] {
            assert_eq!(sort.judge(200, body.as_bytes()).unwrap(), "wrong body");
        }
        assert_eq!(sort.judge(204, b"").unwrap(), "status 204");
        assert_eq!(scenario.requests[0].judge(301, b""), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |from: &str, to: &str| Scenario::parse(&FILE.replace(from, to)).unwrap_err();
        assert!(why("weight", "wait").contains("unknown field `wait`"));
        assert!(why("{device}\"", "{devise}\"").contains("did you mean \"device\""));
        assert!(why("[0, 29]", "[29, 0]").contains("[least, most]"));
        assert!(why("weight = 3", "times = 3").contains("did you mean `weight`"));
        assert!(why("\"device\"\n", "\"sort\"\n").contains("two requests"));
        assert!(why("descending = 3", "body = '[1]'").contains("needs `descending`"));
        assert!(Scenario::parse("").is_err());
    }
}
