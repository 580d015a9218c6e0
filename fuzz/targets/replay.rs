// SPDX-License-Identifier: Apache-2.0
//! Runs a target over its corpus on the stable compiler, as an ordinary test.

use std::path::Path;

/// Calls `run` with every file of `fuzz/corpus/<target>`; the name of the file at fault is printed before a panic.
/// `manifest_dir` is `env!("CARGO_MANIFEST_DIR")` of a crate two folders below the root.
pub(crate) fn replay(manifest_dir: &str, target: &str, run: fn(&[u8])) {
    let corpus = Path::new(manifest_dir)
        .join("../../fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display()));
    let mut count = 0;
    for file in files {
        let path = file.expect("the corpus can be listed").path();
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("the corpus can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", corpus.display());
}
