// SPDX-License-Identifier: Apache-2.0
//! The page cache over a device that is a rule: page n holds n in its first bytes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The clock is shared by all caches, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn fill(first: u64, pages: &[Page]) -> Result<()> {
    for (index, page) in (first..).zip(pages) {
        page.write(0, &index.to_le_bytes());
    }
    Ok(())
}

fn number(page: &Page) -> u64 {
    let mut bytes = [0; 8];
    page.read(0, &mut bytes);
    u64::from_le_bytes(bytes)
}

#[test]
fn a_window_is_read_once() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let cache = PageCache::new();
    let mut asked = Vec::new();
    let mut read = |first, pages: &[Page]| {
        asked.push((first, pages.len()));
        fill(first, pages)
    };
    assert!(cache.get(70).is_none());
    assert_eq!(number(&cache.fetch(70, 60..100, &mut read).unwrap()), 70);
    assert_eq!(number(&cache.fetch(61, 0..200, &mut read).unwrap()), 61);
    assert_eq!(number(&cache.fetch(30, 20..200, &mut read).unwrap()), 30);
    assert_eq!(asked, [(60, 40), (20, 40)]);
    cache.remove(62..70);
    assert!(cache.get(61).is_some() && cache.get(62).is_none() && cache.get(70).is_some());
    let other = Page::zeroed().unwrap();
    other.write(0, &7u64.to_le_bytes());
    cache.insert(70, other);
    assert_eq!(number(&cache.get(70).unwrap()), 7);
}

#[test]
fn a_defect_spoils_only_its_own_page() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let cache = PageCache::new();
    let mut read = |first: u64, pages: &[Page]| {
        if (first..first + u64_from(pages.len())).contains(&5) {
            return Err(Errno::EIO);
        }
        fill(first, pages)
    };
    assert_eq!(number(&cache.fetch(3, 0..10, &mut read).unwrap()), 3);
    assert_eq!(cache.fetch(5, 0..10, &mut read).err(), Some(Errno::EIO));
    assert_eq!(cache.fetch(5, 0..10, &mut read).err(), Some(Errno::EIO));
    assert_eq!(number(&cache.fetch(6, 6..10, &mut read).unwrap()), 6);
}

#[test]
fn many_wait_for_one_request() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let cache = PageCache::new();
    let requests = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for index in 0..8 {
            let (cache, requests) = (&cache, &requests);
            s.spawn(move || {
                let mut read = |first, pages: &[Page]| {
                    requests.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    fill(first, pages)
                };
                let page = cache.fetch(index, 0..8, &mut read).unwrap();
                assert_eq!(number(&page), index);
            });
        }
    });
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[test]
fn the_clock_takes_what_nobody_uses() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let cache = PageCache::new();
    let before = cached_pages();
    for first in [0, 64, 128] {
        cache.fetch(first, first..first + 64, &mut fill).unwrap();
    }
    assert_eq!(cached_pages() - before, 192);
    let held = cache.get(100).unwrap();
    let hot = 10;
    assert!(cache.get(hot).is_some());
    assert_eq!(reclaim(50), 50);
    assert!(cache.contains(hot), "it was used a moment ago");
    assert_eq!(reclaim(1000), 141, "all but the page that is held");
    assert_eq!(number(&held), 100);
    assert!(cache.contains(100) && !cache.contains(99));
    drop(held);
    drop(cache);
    assert_eq!(cached_pages(), before);
    assert_eq!(reclaim(1), 0);
}

#[test]
fn windows_follow_the_use() {
    let ahead = ReadAhead::default();
    assert_eq!(ahead.for_read(0, 1, 1000), 0..4, "the start of a file");
    assert_eq!(ahead.for_read(4, 5, 1000), 4..12);
    assert_eq!(ahead.for_read(12, 13, 1000), 12..28);
    assert_eq!(ahead.for_read(28, 29, 1000), 28..60);
    assert_eq!(ahead.for_read(60, 61, 1000), 60..124);
    assert_eq!(ahead.for_read(124, 125, 130), 124..130);
    assert_eq!(ahead.for_read(500, 501, 1000), 500..504);
    assert_eq!(ahead.for_read(700, 760, 1000), 700..760, "one large read");
    assert_eq!(ahead.for_touch(77, 1000), 64..96);
    assert_eq!(
        ahead.for_touch(96, 1000),
        96..160,
        "the next touch in order"
    );
    assert_eq!(ahead.for_touch(5, 20), 0..20);
}
