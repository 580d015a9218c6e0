// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzer's corpus on the stable compiler: what a fuzzer once found stays fixed. See fuzz/README.md.

#[path = "../../../fuzz/targets/replay.rs"]
mod replay;
#[path = "../../../fuzz/targets/virtio.rs"]
mod virtio;

#[test]
fn virtio() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "virtio", virtio::run);
}
