// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzers' corpora on the stable compiler: what a fuzzer once found stays fixed. See fuzz/README.md.

#[path = "../../../fuzz/targets/image.rs"]
mod image;
#[path = "../../../fuzz/targets/layer.rs"]
mod layer;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;

#[test]
fn layers() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "layer", layer::run);
}

#[test]
fn documents() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "image", image::run);
}
