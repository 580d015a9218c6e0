// SPDX-License-Identifier: Apache-2.0

//! A platform and a load generator of the tests' own: the service is a thread that answers HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::experiment::{Known, Loaded, Service, parse};
use crate::load::{Generator, Job, Outcome, Point, Row};
use crate::network::{Link, Network, Wanted};
use crate::platform::{Ended, Image, Instance, Order, Platform, Prepared, Processes};
use crate::record::PlatformFacts;
use crate::run::pin::Processors;
use crate::run::world::World;
use crate::{Error, Result};

/// What instances of a platform do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Serves,
    /// The start command fails.
    Refuses,
    /// It runs, and nothing answers.
    Silent,
    /// It ends when the load with this number (from 0) of the platform reaches it.
    DiesUnderLoad(u32),
    /// It prints these lines and ends with this code.
    Prints(&'static str, i32),
}

pub(super) struct FakePlatform {
    name: &'static str,
    behaviour: Behaviour,
    loads: Arc<AtomicU32>,
    pub(super) alive: Arc<AtomicU32>,
}

/// Takes a port and refuses connections to it, so that no server of a test beside this one gets it and answers.
fn hold(port: u16) -> std::os::fd::OwnedFd {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
    use std::os::fd::AsRawFd;
    let held = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(held.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)).unwrap();
    held
}

impl Platform for FakePlatform {
    fn name(&self) -> &str {
        self.name
    }
    fn facts(&self) -> PlatformFacts {
        PlatformFacts {
            name: self.name.into(),
            substrate: "host".into(),
            about: BTreeMap::new(),
        }
    }
    fn wanted(&self) -> Wanted {
        Wanted::Tap
    }
    fn prepare(&mut self, _: &Service, _: &Image) -> Result<Prepared> {
        Ok(Prepared {
            image_bytes: 100,
            shared_bytes: 40,
        })
    }
    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        if self.behaviour == Behaviour::Refuses {
            return Err(Error::Platform {
                what: "no luck today".into(),
                log: "it said so".into(),
            });
        }
        let server = match (self.behaviour, order.link) {
            (Behaviour::Silent | Behaviour::Prints(..), _) => None,
            (_, Link::User { host_port, .. }) => Some(Server::start(
                *host_port,
                self.behaviour,
                Arc::clone(&self.loads),
            )),
            _ => panic!("a link of the wrong kind"),
        };
        let held = match order.link {
            Link::User { host_port, .. } if server.is_none() => Some(hold(*host_port)),
            _ => None,
        };
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FakeInstance {
            behaviour: self.behaviour,
            _held: held,
            server,
            alive: Arc::clone(&self.alive),
        }))
    }
}

struct FakeInstance {
    /// The port of one that serves nothing.
    _held: Option<std::os::fd::OwnedFd>,
    behaviour: Behaviour,
    server: Option<Server>,
    alive: Arc<AtomicU32>,
}

impl Instance for FakeInstance {
    fn commands(&self) -> Vec<String> {
        vec!["fake".into()]
    }
    fn address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
    fn ended(&mut self) -> Option<Ended> {
        let code = match (self.behaviour, &self.server) {
            (Behaviour::Prints(_, code), _) => code,
            (_, Some(server)) if server.over.load(Ordering::SeqCst) => 139,
            _ => return None,
        };
        Some(Ended {
            code: Some(code),
            reason: format!("exit code {code}"),
        })
    }
    fn processes(&self) -> Processes {
        Processes::default()
    }
    fn output(&mut self) -> String {
        match self.behaviour {
            Behaviour::Prints(text, _) => text.into(),
            _ => String::new(),
        }
    }
    fn log(&mut self) -> String {
        "the fake's log".into()
    }
    fn stop(self: Box<Self>, _: Duration) -> Result<Option<Ended>> {
        Ok(None)
    }
    fn counters(&mut self) -> BTreeMap<String, f64> {
        BTreeMap::from([("boot.kernel_ms".into(), 7.0), ("exits".into(), 9.0)])
    }
}

impl Drop for FakeInstance {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers `GET /` with 200; `GET /load` counts.
struct Server {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(port: u16, behaviour: Behaviour, loads: Arc<AtomicU32>) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let mut asked = [0; 256];
                stream.set_nonblocking(false).unwrap();
                let count = stream.read(&mut asked).unwrap_or(0);
                let is_load = asked[..count].starts_with(b"GET /load");
                if is_load
                    && behaviour == Behaviour::DiesUnderLoad(loads.fetch_add(1, Ordering::SeqCst))
                {
                    is_over.store(true, Ordering::SeqCst);
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Server {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A generator that asks once. Answers as many a second as it is told, up to `most`.
pub(super) struct FakeLoad {
    pub(super) most: f64,
    /// Becomes true at the run with this number (from 1), and then the run waits for the end.
    pub(super) interrupt: Option<(u32, Arc<AtomicBool>)>,
    /// Never ends by itself.
    pub(super) hangs: bool,
    pub(super) runs: Mutex<Vec<String>>,
}

impl FakeLoad {
    pub(super) fn new() -> FakeLoad {
        FakeLoad {
            most: 100.0,
            interrupt: None,
            hangs: false,
            runs: Mutex::default(),
        }
    }
}

impl Generator for FakeLoad {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn method(&self) -> &'static str {
        "one request"
    }
    fn find(&self) -> Result<String> {
        Ok("1".into())
    }
    fn check(&self, _: &Point) -> Result<()> {
        Ok(())
    }
    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let mut runs = self.runs.lock().unwrap();
        runs.push(format!("{:?} {:?}", job.point, job.rate_per_s));
        let number = u32::try_from(runs.len()).unwrap();
        drop(runs);
        if let Some((at, flag)) = &self.interrupt
            && *at == number
        {
            flag.store(true, Ordering::SeqCst);
        }
        let hangs = self.hangs || self.interrupt.as_ref().is_some_and(|(at, _)| *at == number);
        if hangs {
            while !job.cancel.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(Error::Interrupted);
        }
        let lost = |error: std::io::Error| Error::Platform {
            what: format!("connection lost: {error}"),
            log: "what the tool said".into(),
        };
        let mut stream = TcpStream::connect(job.target).map_err(lost)?;
        stream
            .write_all(b"GET /load HTTP/1.1\r\n\r\n")
            .map_err(lost)?;
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).map_err(lost)?;
        let rate = job.rate_per_s.unwrap_or(self.most).min(self.most);
        std::thread::sleep(job.duration.unwrap_or_default());
        let took = Duration::from_secs(100);
        let row = Row {
            label: BTreeMap::new(),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            answers: (rate * took.as_secs_f64()) as u64,
            took,
            errors: BTreeMap::new(),
            latency: None,
            metrics: BTreeMap::new(),
            series: BTreeMap::new(),
        };
        Ok(Outcome {
            rows: vec![row],
            command: "fake --load".into(),
            raw: "said".into(),
        })
    }
}

/// An experiment with two platforms.
pub(super) fn experiment(text: &str) -> Loaded {
    let text = format!(
        "schema = 1\ntitle = 'T'\nquestion = 'Q?'\nplatforms = ['a', 'b']\n\
         [repetitions]\nfull = 3\nquick = 1\n{text}"
    );
    let known = Known {
        platforms: vec!["a", "b"],
        generators: &[Box::new(FakeLoad::new())],
    };
    let experiment = parse(Path::new("experiment.toml"), &text, &known).unwrap();
    Loaded {
        name: "fake".into(),
        folder: PathBuf::from("/nonexistent"),
        text,
        experiment,
    }
}

pub(super) const SERVICE: &str = "[[service]]\nname = 'web'\nimage = 'x'\nport = 80\nready = { http = '/' }\nready_limit_s = 0.2\n";
pub(super) const LOAD: &str = "[[workload]]\nname = 'load'\nkind = 'load'\ntool = 'fake'\nwith = { size = [1, 2], warmup_s = 0 }\n";

/// A world with both platforms; and how many instances live.
pub(super) fn world(a: Behaviour, b: Behaviour, load: FakeLoad) -> (World, Arc<AtomicU32>) {
    let alive = Arc::new(AtomicU32::new(0));
    let platform = |name, behaviour| {
        Box::new(FakePlatform {
            name,
            behaviour,
            loads: Arc::default(),
            alive: Arc::clone(&alive),
        }) as Box<dyn Platform>
    };
    let image = Image {
        path: "/x".into(),
        digest: "sha256:1".into(),
    };
    let prepared = Prepared {
        image_bytes: 100,
        shared_bytes: 40,
    };
    let world = World {
        platforms: vec![platform("a", a), platform("b", b)],
        generators: vec![(Box::new(load), "1".into())],
        images: BTreeMap::from([("web".into(), image)]),
        prepared: BTreeMap::from([(("a".into(), "web".into()), prepared)]),
        network: Network::user_mode(),
        processors: Processors::here(),
        settle: Duration::ZERO,
        remarks: Vec::new(),
    };
    (world, alive)
}
