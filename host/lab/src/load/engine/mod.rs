// SPDX-License-Identifier: Apache-2.0

//! The engine of our own generators: one thread, epoll, many connections with one request under way on each. It speaks
//! HTTP/1.1, and DNS over UDP.
//!
//! *Open loop*: request i is due at begin + i/rate, whatever the server does. If all connections are busy it waits, and its
//! response time still counts from when it was due: a server that stalls for a second delays all that were due in that
//! second, and all of them are seen (no coordinated omission). *Closed loop*: a connection sends its next request when the
//! answer to the last one is there, and the time counts from the sending.

mod connection;
mod plan;
mod tally;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use connection::{Connection, Event, Sent, State};
pub(crate) use plan::{Pace, Plan, Protocol, Right};
pub(crate) use tally::{Tally, nanoseconds};

use super::query;
use crate::{Error, Result};

/// How often timeouts and connections that are down are looked at.
const TEND: Duration = Duration::from_millis(TEND_MS as u64);
const TEND_MS: u8 = 50;
/// When a connection that could not be made is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// How many connections are being made at a time: fewer than a usual listen backlog.
const MAKING: usize = 100;
/// The timer's event.
const TIMER: u64 = u64::MAX;

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    target: SocketAddr,
    plan: &'a Plan,
    cancel: &'a AtomicBool,
    epoll: Epoll,
    timer: TimerFd,
    /// What the timer is set to.
    armed: Option<Instant>,
    connections: Vec<Connection>,
    /// Those that the current phase may use.
    using: Range<usize>,
    /// Of those, the ones that are idle, longest first. One that was lost since may still be in it.
    idle: VecDeque<usize>,
    under_way: usize,
    /// Which request is the next one.
    next: usize,
    buffer: Vec<u8>,
}

impl<'a> Engine<'a> {
    /// Makes the connections. It is an error if they cannot be made within the plan's timeout.
    pub(crate) fn new(
        target: SocketAddr,
        count: usize,
        plan: &'a Plan,
        cancel: &'a AtomicBool,
    ) -> Result<Self> {
        allow_files(count as u64 + 100)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(host("epoll"))?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(host("timerfd"))?;
        // Edge triggered: setting it anew clears it, it need not be read.
        let watch = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        epoll
            .add(&timer, EpollEvent::new(watch, TIMER))
            .map_err(host("epoll"))?;
        let now = Instant::now();
        let mut engine = Engine {
            target,
            plan,
            cancel,
            epoll,
            timer,
            armed: None,
            connections: (0..count)
                .map(|_| Connection::new(plan.protocol, now))
                .collect(),
            using: 0..count,
            idle: VecDeque::new(),
            under_way: 0,
            next: 0,
            buffer: vec![0; 64 << 10],
        };
        if !plan.fresh {
            engine.connect_all(now)?;
        }
        Ok(engine)
    }

    fn connect_all(&mut self, begin: Instant) -> Result<()> {
        let mut tally = Tally::new(begin, self.plan.timeout);
        loop {
            let now = Instant::now();
            let up = |connection: &&Connection| matches!(connection.state, State::Idle);
            let up = self.connections.iter().filter(up).count();
            if up == self.connections.len() {
                return Ok(());
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if now.duration_since(begin) > self.plan.timeout {
                return Err(Error::Platform {
                    what: format!(
                        "only {up} of {} connections to {} could be made within {:.1} s",
                        self.connections.len(),
                        self.target,
                        self.plan.timeout.as_secs_f64()
                    ),
                    log: String::new(),
                });
            }
            self.tend(now, &mut tally);
            self.wait(None, &mut tally)?;
        }
    }

    /// Loads over the connections `using` until all answers are there or are late. Returns the counts, and the time that
    /// they are about.
    pub(crate) fn run(&mut self, pace: Pace, using: Range<usize>) -> Result<(Tally, Duration)> {
        let begin = Instant::now();
        let (length, total) = match pace {
            Pace::Rate(per_s, length) => (length, due(per_s, length)),
            Pace::Closed(count, length) => (length, count),
            Pace::OnceEach(_) => (Duration::MAX, using.len() as u64),
        };
        let mut tally = Tally::new(begin, length.min(Duration::from_secs(86_400)));
        self.using = using.clone();
        self.idle = using.clone().collect();
        let mut each: VecDeque<usize> = using.collect();
        let mut issued: u64 = 0;
        let mut tended = begin;
        let mut over = false;
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let now = Instant::now();
            let since = now.duration_since(begin);
            let may = match pace {
                // What was due before the end may still go out in the round that finds the end, but not later.
                _ if over => issued,
                Pace::Rate(per_s, _) => due(per_s, since).saturating_add(1).min(total),
                Pace::Closed(..) if since >= length => issued,
                Pace::Closed(..) => total,
                Pace::OnceEach(most) => {
                    total.min(issued + most.saturating_sub(self.under_way) as u64)
                }
            };
            while issued < may {
                let next = match pace {
                    Pace::OnceEach(_) => each.pop_front(),
                    _ => self.next_idle(),
                };
                let Some(at) = next else {
                    break;
                };
                let start = match pace {
                    Pace::Rate(per_s, _) => begin + time_of(per_s, issued),
                    _ => now,
                };
                issued += 1;
                self.send(at, start, &mut tally);
            }
            over = issued >= total || since >= length;
            if over && self.under_way == 0 {
                break;
            }
            if now >= tended + TEND {
                tended = now;
                self.tend(now, &mut tally);
                // Loads of a count have no other end when the server is gone.
                let quiet = now.saturating_duration_since(tally.last) > self.plan.timeout;
                if self.under_way == 0 && length == Duration::MAX && quiet {
                    tally.error("unsent", total - issued);
                    break;
                }
            }
            let next = match pace {
                Pace::Rate(per_s, _) if !over && !self.idle.is_empty() => {
                    Some(begin + time_of(per_s, issued))
                }
                Pace::Rate(..) | Pace::Closed(..) if !over => begin.checked_add(length),
                _ => None,
            };
            self.wait(next, &mut tally)?;
        }
        let drained = tally.last.saturating_duration_since(begin);
        let took = match pace {
            Pace::Rate(..) => {
                let unsent = total - issued;
                tally.error("unsent", unsent);
                // A server that kept up answered within the time, but for the last requests' own time.
                if unsent > 0 {
                    drained.max(length)
                } else {
                    length
                }
            }
            _ => drained,
        };
        Ok((tally, took))
    }

    /// The connection that has been idle for longest.
    fn next_idle(&mut self) -> Option<usize> {
        loop {
            let at = self.idle.pop_front()?;
            match self.connections.get(at)?.state {
                State::Idle => return Some(at),
                State::Down(_) if self.plan.fresh => return Some(at),
                _ => {}
            }
        }
    }

    fn send(&mut self, at: usize, start: Instant, tally: &mut Tally) {
        let now = Instant::now();
        let sent = Sent { start, at: now };
        let connection = &mut self.connections[at];
        // When it became free, if that was after the start, the request could not go out before.
        let earliest = start.max(connection.free);
        tally
            .delay
            .saturating_record(nanoseconds(now.saturating_duration_since(earliest)));
        self.under_way += 1;
        connection.request = self.next;
        self.next = (self.next + 1) % self.plan.requests.len();
        let event = if matches!(connection.state, State::Idle) {
            connection.send(&self.plan.requests[connection.request], sent)
        } else {
            self.open(at, Some(sent), now)
        };
        self.take(at, event, tally);
    }

    fn open(&mut self, at: usize, first: Option<Sent>, now: Instant) -> Event {
        let connection = &mut self.connections[at];
        let opened = connection.open(self.target, first, now);
        let data = u64::from(connection.generation) << 32 | at as u64;
        let watch = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        let watched = match (opened, &connection.socket) {
            (Ok(()), Some(socket)) => self.epoll.add(socket, EpollEvent::new(watch, data)).is_ok(),
            _ => false,
        };
        if watched {
            Event::None
        } else {
            Event::Lost(first, "connect")
        }
    }

    /// Ends what is late, and tries again to connect what is down.
    fn tend(&mut self, now: Instant, tally: &mut Tally) {
        let making = |connection: &&Connection| matches!(connection.state, State::Connecting(None));
        let mut making = self.connections.iter().filter(making).count();
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            let late = |since: Instant| now.saturating_duration_since(since) > self.plan.timeout;
            let event = match connection.state {
                State::Busy(sent) | State::Connecting(Some(sent)) if late(sent.at) => {
                    Event::Lost(Some(sent), "timeout")
                }
                State::Connecting(None) if late(connection.since) => {
                    making -= 1;
                    Event::Lost(None, "connect")
                }
                State::Down(retry) if retry <= now && making < MAKING && !self.plan.fresh => {
                    making += 1;
                    self.open(at, None, now)
                }
                // It was not put back when its connection could not be made.
                State::Down(retry)
                    if self.plan.fresh && connection.free < retry && retry <= now =>
                {
                    let free = connection.free;
                    self.connections[at].close(free);
                    self.idle.push_back(at);
                    continue;
                }
                _ => continue,
            };
            self.take(at, event, tally);
        }
    }

    /// Waits for something to happen, at most until `next`, and takes it.
    fn wait(&mut self, next: Option<Instant>, tally: &mut Tally) -> Result<()> {
        let mut timeout = EpollTimeout::from(TEND_MS);
        if let Some(next) = next {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                timeout = EpollTimeout::ZERO;
            } else if self.armed != Some(next) {
                let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
                self.timer
                    .set(expiration, TimerSetTimeFlags::empty())
                    .map_err(host("timerfd"))?;
                self.armed = Some(next);
            }
        }
        let mut events = [EpollEvent::empty(); 256];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(why) => return Err(host("epoll")(why)),
        };
        for event in &events[..count] {
            if event.data() == TIMER {
                continue;
            }
            let generation = event.data() >> 32;
            let Ok(at) = usize::try_from(event.data() & 0xffff_ffff) else {
                continue;
            };
            self.look(at, generation, event.events(), tally);
        }
        Ok(())
    }

    /// Something happened to the socket of connection `at`.
    fn look(&mut self, at: usize, generation: u64, flags: EpollFlags, tally: &mut Tally) {
        let of_old_socket = |connection: &Connection| {
            connection.socket.is_none() || u64::from(connection.generation) != generation
        };
        let Some(connection) = self.connections.get_mut(at) else {
            return;
        };
        if of_old_socket(connection) {
            return;
        }
        let gone = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        let request = &self.plan.requests[connection.request];
        if connection.is_writing(request) && flags.intersects(gone | EpollFlags::EPOLLOUT) {
            let event = connection.writable(request);
            self.take(at, event, tally);
        }
        let connection = &mut self.connections[at];
        if flags.intersects(gone | EpollFlags::EPOLLIN) && !of_old_socket(connection) {
            let event = connection.readable(&mut self.buffer, flags.intersects(gone));
            self.take(at, event, tally);
        }
    }

    /// Counts what came of a connection, and makes it ready for the next request.
    fn take(&mut self, at: usize, event: Event, tally: &mut Tally) {
        let now = Instant::now();
        let connection = &mut self.connections[at];
        match event {
            Event::None => return,
            Event::Connected => {}
            Event::Answer(sent, answer) => {
                self.under_way -= 1;
                if self.plan.right.has(answer.status) {
                    tally.answer(sent.start, now);
                } else {
                    let kind = match self.plan.protocol {
                        Protocol::Http => format!("status {}", answer.status),
                        Protocol::Dns => query::code(answer.status),
                    };
                    tally.error(&kind, 1);
                    tally.last = tally.last.max(now);
                }
                if answer.close || self.plan.fresh {
                    connection.close(now);
                }
            }
            Event::Lost(request, kind) => {
                if request.is_some() {
                    self.under_way -= 1;
                    tally.last = tally.last.max(now);
                }
                if !kind.is_empty() {
                    tally.error(kind, 1);
                }
                // What could not be made is left alone for a moment.
                connection.close(if kind == "connect" { now + RETRY } else { now });
            }
        }
        let connection = &mut self.connections[at];
        connection.free = now;
        if let State::Down(retry) = connection.state
            && (!self.plan.fresh || retry > now)
        {
            if retry <= now {
                let event = self.open(at, None, now);
                if matches!(event, Event::Lost(..)) {
                    tally.error("connect", 1);
                    self.connections[at].close(now + RETRY);
                }
            }
        } else if self.using.contains(&at) {
            self.idle.push_back(at);
        }
    }
}

/// How many requests are due after `since`, not counting the one at the begin.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a day at 10^7 a second is far below 2^53"
)]
fn due(per_s: f64, since: Duration) -> u64 {
    // A hair more, so that 0.1 s at 10/s is 1 and not 0.
    (since.as_secs_f64() * per_s + 1e-6) as u64
}

/// When request `number` is due, after the begin.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn time_of(per_s: f64, number: u64) -> Duration {
    Duration::from_secs_f64(number as f64 / per_s)
}

/// Raises the limit of open files if it is too low for `wanted`.
fn allow_files(wanted: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(host("RLIMIT_NOFILE"))?;
    // Other threads and pipes of the lab need some, too.
    let wanted = wanted + 256;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).map_err(|_| {
        Error::Host(format!(
            "{wanted} open files are needed, the limit is {hard}: `ulimit -Hn {wanted}` as root"
        ))
    })
}

fn host(what: &'static str) -> impl Fn(nix::errno::Errno) -> Error {
    move |why| Error::Host(format!("{what}: {why}"))
}
