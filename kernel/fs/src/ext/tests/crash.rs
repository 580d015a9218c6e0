// SPDX-License-Identifier: Apache-2.0
//! The machine ends at any moment: after each write, and with any part of what was not flushed lost.

use std::collections::BTreeMap;

use super::disk::Event;
use super::*;

/// What must be readable after a crash: the content of files when they were last synced, `None` for one that was removed
/// and the removal synced. Files may also have newer content.
type Promised = BTreeMap<String, Vec<u8>>;

/// A history of operations that marks each completed sync, with what is promised from then on.
fn history(disk: &Arc<Disk>, seed: u64) -> Vec<Promised> {
    let m = mount(disk);
    disk.record();
    let mut promises = vec![Promised::new()];
    let mut promised = Promised::new();
    let promise = |promises: &mut Vec<Promised>, promised: &Promised| {
        promises.push(promised.clone());
        disk.mark(promises.len() - 1);
    };
    let mut random = pattern(seed, 4096).into_iter().map(usize::from);
    let mut next = move |below: usize| random.next().unwrap() % below;
    m.make("d", NewKind::Directory).unwrap();
    for step in 0..40 {
        let name = format!("d/file{}", next(6));
        match next(6) {
            // A file that grows by small synced steps.
            0 | 1 => {
                let open = m.open(&name, g::O_RDWR | g::O_CREAT).unwrap();
                let mut content = m.get(&name).unwrap();
                for n in 0..=next(3) {
                    let part = pattern(seed + step + n as u64, 100 + next(256) * 8);
                    write(&open, content.len() as u64, &part).unwrap();
                    content.extend(part);
                    open.file().sync_data().unwrap();
                    promised.insert(name.clone(), content.clone());
                    promise(&mut promises, &promised);
                }
            }
            // A large file, synced.
            2 => {
                promised.remove(&name);
                promise(&mut promises, &promised);
                let content = pattern(seed + step, 50_000 + next(256) * 1000);
                m.put(&name, &content).unwrap();
                let open = m.open(&name, g::O_RDWR).unwrap();
                sync(&open);
                promised.insert(name.clone(), content);
                promise(&mut promises, &promised);
            }
            // The usual way to replace a file: write another one, sync it, rename it over the first.
            3 => {
                let content = pattern(seed + step, next(256) * 40);
                m.put("d/new", &content).unwrap();
                let open = m.open("d/new", g::O_RDWR).unwrap();
                sync(&open);
                // From here on either content may be found under the name.
                let before = promised.remove(&name);
                promise(&mut promises, &promised);
                m.rename("d/new", &name, Rename::Replace).unwrap();
                let directory = m.open("d", g::O_RDONLY | g::O_DIRECTORY).unwrap();
                sync(&directory);
                drop(before);
                promised.insert(name.clone(), content);
                promise(&mut promises, &promised);
            }
            // Unsynced work, which may be there or not.
            4 => {
                let other = format!("d/loose{}", next(4));
                m.put(&other, &pattern(step, next(256) * 300)).unwrap();
                if next(2) == 0 {
                    m.make(&format!("d/dir{step}"), NewKind::Directory).unwrap();
                }
            }
            _ => {
                promised.remove(&name);
                promise(&mut promises, &promised);
                let _ = m.remove(&name);
                let _ = m.remove(&format!("d/loose{}", next(4)));
                if next(3) == 0 {
                    m.volume.sync_all().unwrap();
                }
            }
        }
    }
    promises
}

/// The disk after the first `cut` events; of the writes after the last flush before that only those for which `keep` says
/// yes, each block by itself. Returns the promise in force as well.
fn after_crash(
    base: &Disk,
    events: &[Event],
    cut: usize,
    keep: &mut dyn FnMut() -> bool,
) -> (Arc<Disk>, usize) {
    let disk = base.snapshot();
    let flushed = events[..cut]
        .iter()
        .rposition(|e| matches!(e, Event::Flush))
        .unwrap_or(0);
    let mut promise = 0;
    for (n, event) in events[..cut].iter().enumerate() {
        match event {
            Event::Mark(mark) => promise = *mark,
            Event::Flush => {}
            Event::Write(first, blocks) if n < flushed => disk.apply(*first, blocks),
            Event::Write(first, blocks) => {
                for (at, block) in (*first..).zip(blocks) {
                    if keep() {
                        disk.apply(at, std::slice::from_ref(block));
                    }
                }
            }
        }
    }
    (disk, promise)
}

fn check_promises(disk: &Arc<Disk>, promised: &Promised, place: &str) {
    let m = mount(disk);
    for (name, content) in promised {
        let found = m
            .get(name)
            .unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        // Appended and not synced yet: the beginning is what counts.
        assert!(
            found.len() >= content.len() && found[..content.len()] == content[..],
            "{place}: {name}: {} bytes, promised {}",
            found.len(),
            content.len()
        );
    }
    // Everything can be read and removed: nothing leads astray.
    let names = if m.open("d", g::O_RDONLY).is_ok() {
        m.names("d")
    } else {
        Vec::new()
    };
    for name in names {
        let path = format!("d/{name}");
        if m.get(&path).is_ok() {
            m.remove(&path).unwrap();
        }
    }
    m.volume.settle().unwrap();
}

/// All prefixes of a history, whole and with parts of what was not flushed lost. `fsck`: every how many e2fsck is asked.
fn crash_everywhere(seed: u64, fsck: usize) {
    let disk = Disk::formatted(16);
    let base = disk.snapshot();
    let promises = history(&disk, seed);
    let events = disk.events();
    let mut random = pattern(seed ^ 77, 1 << 22).into_iter();
    for cut in 1..=events.len() {
        for lost in 0..3 {
            let mut keep = || match lost {
                0 => true,
                1 => random.next().unwrap() & 1 == 0,
                _ => random.next().unwrap() & 7 != 0,
            };
            let (crashed, promise) = after_crash(&base, &events, cut, &mut keep);
            let place = format!("seed {seed}, {cut} of {} events, loss {lost}", events.len());
            if (cut * 3 + lost) % fsck == 0 {
                crashed.check(true);
            }
            check_promises(&crashed, &promises[promise], &place);
            if (cut * 3 + lost) % fsck == 0 {
                crashed.check(false);
            }
        }
    }
}

#[test]
fn what_was_synced_survives_a_crash_at_any_moment() {
    crash_everywhere(1, 101);
}

/// The same with many more histories, and e2fsck after each crash: minutes.
#[test]
#[ignore = "takes minutes: cargo test -p coracle-fs --release -- --ignored crash"]
fn what_was_synced_survives_a_crash_at_any_moment_at_length() {
    for seed in 100..130 {
        crash_everywhere(seed, 1);
    }
}

#[test]
fn a_crash_while_the_journal_is_replayed_does_no_harm() {
    let disk = Disk::formatted(16);
    let base = disk.snapshot();
    let promises = history(&disk, 9);
    let events = disk.events();
    let (crashed, promise) = after_crash(&base, &events, events.len(), &mut || true);
    let again = crashed.snapshot();
    again.record();
    drop(mount(&again));
    let replay = again.events();
    assert!(replay.len() > 3);
    let mut random = pattern(5, 1 << 16).into_iter();
    for cut in 1..=replay.len() {
        let mut keep = || random.next().unwrap() & 1 == 0;
        let (twice, _) = after_crash(&crashed, &replay, cut, &mut keep);
        check_promises(&twice, &promises[promise], &format!("replay cut at {cut}"));
        twice.check(false);
    }
}
