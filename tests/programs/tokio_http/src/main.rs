// SPDX-License-Identifier: Apache-2.0

//! An HTTP/1.1 server as Rust services are built: tokio with hyper, static musl.
//!
//! `tokio_http PORT [WORKERS]`: `GET /` answers 14 bytes, `GET /bytes/N` answers N bytes (at most 16 MiB) of a repeating
//! alphabet, `GET /sleep/MS` answers after so many milliseconds, `POST /echo` answers the body it got (at most 16 MiB).

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

const MAX_BODY_BYTES: usize = 16 << 20;

fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

fn number_after(path: &str, prefix: &str, limit: usize) -> Option<usize> {
    let number = path.strip_prefix(prefix)?.parse().ok()?;
    (number <= limit).then_some(number)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    Ok(if request.method() == Method::POST && path == "/echo" {
        match Limited::new(request.into_body(), MAX_BODY_BYTES)
            .collect()
            .await
        {
            Ok(body) => respond(StatusCode::OK, body.to_bytes()),
            Err(_) => respond(StatusCode::PAYLOAD_TOO_LARGE, ""),
        }
    } else if path == "/" {
        respond(StatusCode::OK, "Hello, world!\n")
    } else if let Some(count) = number_after(&path, "/bytes/", MAX_BODY_BYTES) {
        respond(
            StatusCode::OK,
            (b'a'..=b'z').cycle().take(count).collect::<Vec<u8>>(),
        )
    } else if let Some(ms) = number_after(&path, "/sleep/", 60_000) {
        tokio::time::sleep(Duration::from_millis(ms as u64)).await;
        respond(StatusCode::OK, "slept\n")
    } else {
        respond(StatusCode::NOT_FOUND, "")
    })
}

async fn serve(port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    println!("tokio_http: port {port}");
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                eprintln!("tokio_http: accept: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await; // out of descriptors: let some be closed
                continue;
            }
        };
        stream.set_nodelay(true).ok(); // a connection that is gone already says so when it is served
        tokio::spawn(async move {
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            if let Err(error) = connection.await
                && !error.is_incomplete_message()
            {
                eprintln!("tokio_http: connection: {error}");
            }
        });
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|text| text.parse().ok());
    let workers = arguments.next().map_or(Some(1), |text| text.parse().ok());
    let (Some(port), Some(workers @ 1..=64), None) = (port, workers, arguments.next()) else {
        eprintln!("usage: tokio_http PORT [WORKERS 1-64]");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(serve(port))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokio_http: port {port}: {error}");
            ExitCode::FAILURE
        }
    }
}
