// SPDX-License-Identifier: Apache-2.0
//! Boot archives: entries lie inside the archive, in order, and all ways of reading agree.

use coracle_loader::cpio::Archive;

pub(crate) fn run(data: &[u8]) {
    let archive = Archive::new(data);
    let mut reached = 0;
    let mut failed = false;
    let mut names = Vec::new();
    for entry in archive.iter() {
        assert!(!failed, "nothing follows an error");
        match entry {
            Ok(entry) => {
                assert!(!entry.name.is_empty() && !entry.name.contains(&0));
                assert!(reached < entry.data.start && entry.data.start <= entry.data.end);
                assert!(entry.data.is_empty() || entry.data.end <= data.len());
                assert_eq!(archive.data(&entry).len(), entry.data.len());
                reached = entry.data.start;
                names.push(entry.name);
            }
            Err(error) => {
                assert!(error.offset >= reached && !error.to_string().is_empty());
                failed = true;
            }
        }
    }
    assert_eq!(archive.entries().is_err(), failed);
    for name in names.iter().take(4) {
        assert_eq!(
            archive.find(name).ok().flatten().map(|e| e.name),
            Some(*name)
        );
    }
}
