// SPDX-License-Identifier: Apache-2.0
//! epoll(7): level, edge, one-shot, exclusive, nested; descriptors that are closed; several CPUs.

use super::*;
use crate::eventfd::EventFd;
use crate::pipe::{Pipe, PipeEnd};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::poll::Waiter;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const IN: u32 = g::EPOLLIN;
const OUT: u32 = g::EPOLLOUT;
const ET: u32 = g::EPOLLET;
const ONESHOT: u32 = g::EPOLLONESHOT;

fn open(file: Arc<dyn File>) -> Arc<OpenFile> {
    OpenFile::new(file, g::O_RDWR)
}

fn pipe() -> (Arc<OpenFile>, Arc<OpenFile>, Arc<PipeEnd>) {
    let (reader, writer) = Pipe::pair();
    (open(reader), open(writer.clone()), writer)
}

fn interest(flags: u32, data: u64) -> Interest {
    Interest { flags, data }
}

fn wait(epoll: &Epoll) -> Vec<(u32, u64)> {
    take_events(epoll, 64)
        .iter()
        .map(|e| (e.events.bits(), e.data))
        .collect()
}

fn take_events(epoll: &Epoll, max: usize) -> Vec<Event> {
    let mut out = Vec::new();
    let count = epoll.wait(max, |event| {
        out.push(event);
        true
    });
    assert_eq!(count, out.len());
    out
}

fn put(file: &OpenFile, bytes: &[u8]) {
    file.file().write(&mut IoSrc::kernel(bytes)).unwrap();
}

fn take(file: &OpenFile) -> usize {
    file.file()
        .read(&mut IoDst::kernel(&mut [0; 4096]))
        .unwrap_or(0)
}

#[test]
fn level_is_reported_until_it_is_gone() {
    let (r, w, _) = pipe();
    let epoll = Epoll::new();
    epoll.add(3, &r, interest(IN, 7)).unwrap();
    assert_eq!(wait(&epoll), []);
    put(&w, b"ab");
    assert_eq!(wait(&epoll), [(IN, 7)]);
    assert_eq!(wait(&epoll), [(IN, 7)]);
    take(&r);
    assert_eq!(wait(&epoll), []);
    assert_eq!(epoll.poll(), PollEvents::empty());
}

#[test]
fn an_edge_is_reported_once_per_change() {
    let (r, w, _) = pipe();
    let epoll = Epoll::new();
    put(&w, b"early");
    epoll.add(3, &r, interest(IN | ET, 7)).unwrap();
    assert_eq!(wait(&epoll), [(IN, 7)], "ready when it was added");
    assert_eq!(wait(&epoll), []);
    put(&w, b"x");
    put(&w, b"y");
    assert_eq!(wait(&epoll), [(IN, 7)]);
    assert_eq!(wait(&epoll), []);
    epoll.modify(3, &r, interest(IN | ET, 8)).unwrap();
    assert_eq!(wait(&epoll), [(IN, 8)], "modifying looks again");
    put(&w, b"z");
    take(&r);
    assert_eq!(wait(&epoll), [], "it was read before the wait");
    drop(w);
    assert_eq!(
        wait(&epoll),
        [(g::EPOLLHUP, 8)],
        "a hang-up needs no asking for"
    );
}

#[test]
fn one_shot_sleeps_until_it_is_armed_again() {
    let (r, w, _) = pipe();
    let epoll = Epoll::new();
    epoll.add(3, &r, interest(IN | ONESHOT, 1)).unwrap();
    put(&w, b"x");
    assert_eq!(wait(&epoll), [(IN, 1)]);
    put(&w, b"y");
    assert_eq!(wait(&epoll), []);
    epoll.modify(3, &r, interest(IN | ONESHOT, 2)).unwrap();
    assert_eq!(wait(&epoll), [(IN, 2)]);
    assert_eq!(wait(&epoll), []);
}

#[test]
fn a_refused_event_is_not_lost() {
    let events = [EventFd::new(1, false), EventFd::new(1, false)];
    let opens = events.clone().map(|event| open(event));
    for flags in [IN, IN | ET, IN | ONESHOT] {
        let epoll = Epoll::new();
        for (fd, file) in (0..).zip(&opens) {
            epoll.add(fd, file, interest(flags, fd.into())).unwrap();
        }
        assert_eq!(epoll.wait(8, |_| false), 0);
        let mut first = true;
        let half = epoll.wait(8, |_| core::mem::replace(&mut first, false));
        assert_eq!(half, 1, "{flags:#x}");
        let rest = wait(&epoll);
        assert!(rest.contains(&(IN, 1)), "{flags:#x}: {rest:?}");
    }
}

#[test]
fn interest_filters_events() {
    let (r, w, end) = pipe();
    let epoll = Epoll::new();
    epoll.add(4, &w, interest(IN, 1)).unwrap();
    assert_eq!(wait(&epoll), []);
    epoll.modify(4, &w, interest(OUT, 1)).unwrap();
    assert_eq!(wait(&epoll), [(OUT, 1)]);
    epoll.modify(4, &w, interest(0, 1)).unwrap();
    assert_eq!(wait(&epoll), []);
    drop(r);
    assert_eq!(wait(&epoll), [(g::EPOLLERR, 1)]);
    assert!(end.poll().contains(PollEvents::OUT));
}

#[test]
fn errors_of_the_manual_page() {
    let (r, _w, _) = pipe();
    let epoll = Epoll::new();
    let me = open(epoll.clone());
    let plain = open(
        crate::tmpfs::TmpFs::new(4096, 0).unnamed_file(&crate::vfs::NewNode {
            kind: crate::vfs::NewKind::File,
            mode: 0,
            uid: 0,
            gid: 0,
        }),
    );
    assert_eq!(epoll.add(9, &plain, interest(IN, 0)), Err(Errno::EPERM));
    assert_eq!(epoll.add(9, &me, interest(IN, 0)), Err(Errno::EINVAL));
    assert_eq!(epoll.modify(3, &r, interest(IN, 0)), Err(Errno::ENOENT));
    assert_eq!(epoll.remove(3, &r), Err(Errno::ENOENT));
    epoll.add(3, &r, interest(IN, 0)).unwrap();
    assert_eq!(epoll.add(3, &r, interest(IN, 0)), Err(Errno::EEXIST));
    epoll.add(4, &r, interest(IN, 0)).unwrap(); // a duplicate is another key
    assert_eq!(epoll.watched(), 2);
    let exclusive = IN | g::EPOLLEXCLUSIVE;
    assert_eq!(
        epoll.add(5, &r, interest(exclusive | ONESHOT, 0)),
        Err(Errno::EINVAL)
    );
    epoll.add(5, &r, interest(exclusive, 0)).unwrap();
    assert_eq!(epoll.modify(5, &r, interest(IN, 0)), Err(Errno::EINVAL));
    assert_eq!(
        epoll.modify(4, &r, interest(exclusive, 0)),
        Err(Errno::EINVAL)
    );
}

#[test]
fn removed_and_closed_files_are_silent() {
    let (r, w, _) = pipe();
    let epoll = Epoll::new();
    epoll.add(3, &r, interest(IN, 1)).unwrap();
    put(&w, b"x");
    epoll.remove(3, &r).unwrap();
    assert_eq!(wait(&epoll), [], "queued, but removed");
    epoll.add(3, &r, interest(IN, 2)).unwrap();
    let duplicate = r.clone();
    drop(r);
    assert_eq!(wait(&epoll), [(IN, 2)], "the description is still open");
    drop(duplicate);
    assert_eq!((wait(&epoll), epoll.watched()), (vec![], 0));
    // The number is used again for another file, while the dead item was never looked at.
    let (r, _w, _) = pipe();
    epoll.add(3, &r, interest(IN, 3)).unwrap();
    drop(r);
    let (r, w, _) = pipe();
    epoll.add(3, &r, interest(IN, 4)).unwrap();
    assert_eq!(epoll.watched(), 1);
    put(&w, b"x");
    assert_eq!(wait(&epoll), [(IN, 4)]);
}

#[test]
fn a_full_result_leaves_the_rest_for_later_and_is_fair() {
    let files: Vec<_> = (0..40).map(|_| EventFd::new(1, false)).collect();
    let opens: Vec<_> = files.iter().map(|f| open(f.clone())).collect();
    let epoll = Epoll::new();
    for (fd, file) in (0..).zip(&opens) {
        epoll.add(fd, file, interest(IN, fd.into())).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let out = take_events(&epoll, 10);
        assert_eq!(out.len(), 10);
        seen.extend(out.iter().map(|e| e.data));
    }
    assert_eq!(seen.len(), 40, "each got its turn");
}

#[test]
fn nested_instances_report_and_cannot_make_loops() {
    let (r, w, _) = pipe();
    let chain: Vec<_> = (0..6).map(|_| Epoll::new()).collect();
    let opens: Vec<_> = chain.iter().map(|e| open(e.clone())).collect();
    chain[0].add(3, &r, interest(IN, 1)).unwrap();
    for i in 1..5 {
        chain[i].add(10, &opens[i - 1], interest(IN, 2)).unwrap();
    }
    assert_eq!(
        chain[5].add(10, &opens[4], interest(IN, 2)),
        Err(Errno::ELOOP),
        "six in a row"
    );
    assert_eq!(
        chain[0].add(11, &opens[4], interest(IN, 2)),
        Err(Errno::ELOOP),
        "a loop"
    );
    assert_eq!(
        chain[0].add(11, &opens[5], interest(IN, 2)),
        Err(Errno::ELOOP),
        "six from below"
    );
    assert_eq!(wait(&chain[4]), []);
    put(&w, b"x");
    assert_eq!(wait(&chain[4]), [(IN, 2)]);
    assert_eq!(wait(&chain[0]), [(IN, 1)]);
    take(&r);
    assert_eq!(wait(&chain[4]), []);
    chain[4].remove(10, &opens[3]).unwrap();
    chain[5].add(10, &opens[4], interest(IN, 2)).unwrap();
}

struct Sleeper(AtomicBool, AtomicUsize);
impl Waiter for Sleeper {
    fn notify(&self, _: PollEvents) -> bool {
        self.1.fetch_add(1, Ordering::SeqCst);
        !self.0.swap(true, Ordering::SeqCst)
    }
}

#[test]
fn exclusive_items_wake_one_instance() {
    let event = EventFd::new(0, false);
    let file = open(event.clone());
    let sleepers: Vec<_> = (0..3)
        .map(|_| Arc::new(Sleeper(AtomicBool::new(false), AtomicUsize::new(0))))
        .collect();
    let epolls: Vec<_> = sleepers
        .iter()
        .map(|sleeper| {
            let epoll = Epoll::new();
            epoll
                .add(1, &file, interest(IN | g::EPOLLEXCLUSIVE, 0))
                .unwrap();
            epoll
                .poll_source()
                .unwrap()
                .attach(sleeper.clone(), PollEvents::IN, true);
            epoll
        })
        .collect();
    event.add(1).unwrap();
    let woken = || {
        sleepers
            .iter()
            .filter(|s| s.1.load(Ordering::SeqCst) > 0)
            .count()
    };
    assert_eq!(woken(), 1);
    event.add(1).unwrap();
    assert_eq!(woken(), 2, "the first is awake already");
    assert_eq!(wait(&epolls[0]), [(IN, 0)]);
}

#[test]
fn closing_the_instance_lets_go_of_everything() {
    let event = EventFd::new(1, false);
    let file = open(event.clone());
    let epoll = Epoll::new();
    let weak = Arc::downgrade(&epoll.ready);
    let instance = open(epoll.clone());
    epoll.add(1, &file, interest(IN, 0)).unwrap();
    drop(instance);
    assert!(event.poll_source().unwrap().is_empty());
    drop(epoll);
    event.add(1).unwrap();
    assert!(weak.upgrade().is_none(), "no cycle keeps the list alive");
}

#[test]
fn edges_are_not_lost_between_cpus() {
    // Two waiters, two writers: every count that was added is found by somebody, though only edges are told.
    let epoll = Epoll::new();
    let events: Vec<_> = (0..8).map(|_| EventFd::new(0, false)).collect();
    let opens: Vec<_> = events.iter().map(|e| open(e.clone())).collect();
    for (fd, file) in (0..).zip(&opens) {
        epoll.add(fd, file, interest(IN | ET, fd.into())).unwrap();
    }
    const EACH: u64 = 20_000;
    let found = AtomicUsize::new(0);
    let wanted = usize::try_from(2 * EACH).unwrap();
    let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
    std::thread::scope(|s| {
        for writer in 0..2usize {
            let events = &events;
            s.spawn(move || {
                for i in 0..usize::try_from(EACH).unwrap() {
                    events[(i * 3 + writer) % 8].add(1).unwrap();
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                while found.load(Ordering::SeqCst) < wanted {
                    assert!(std::time::Instant::now() < late, "an edge was lost");
                    let out = take_events(&epoll, 8);
                    if out.is_empty() {
                        std::thread::yield_now();
                    }
                    for event in &out {
                        let mut count = [0; 8];
                        let file = &events[usize::try_from(event.data).unwrap()];
                        if file.read(&mut IoDst::kernel(&mut count)).is_ok() {
                            let n = usize::try_from(u64::from_ne_bytes(count)).unwrap();
                            found.fetch_add(n, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(found.load(Ordering::SeqCst), wanted);
}

#[test]
fn one_shot_is_given_to_one_waiter_and_ctl_races_are_harmless() {
    let epoll = Epoll::new();
    let event = EventFd::new(1, false);
    let file = open(event.clone());
    epoll.add(0, &file, interest(IN | ONESHOT, 0)).unwrap();
    let rounds = 5_000;
    let taken = AtomicUsize::new(0);
    let busy = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while taken.load(Ordering::SeqCst) < rounds {
                    if epoll.wait(1, |_| true) == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    assert!(
                        !busy.swap(true, Ordering::SeqCst),
                        "two threads got the same shot"
                    );
                    taken.fetch_add(1, Ordering::SeqCst);
                    busy.store(false, Ordering::SeqCst);
                    epoll.modify(0, &file, interest(IN | ONESHOT, 0)).unwrap();
                }
            });
        }
        s.spawn(|| {
            let other = open(EventFd::new(1, false));
            while taken.load(Ordering::SeqCst) < rounds {
                epoll.add(1, &other, interest(0, 1)).unwrap();
                event.add(0).unwrap();
                epoll.remove(1, &other).unwrap();
            }
        });
    });
}
