// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzer's corpus on the stable compiler: what a fuzzer once found stays fixed. See fuzz/README.md.

#[path = "../../../fuzz/targets/ninep.rs"]
mod ninep;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;

#[test]
fn ninep() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "ninep", ninep::run);
}
