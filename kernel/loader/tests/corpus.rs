// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzers' corpora on the stable compiler: what a fuzzer once found stays fixed. See fuzz/README.md.

#[path = "../../../fuzz/targets/cmdline.rs"]
mod cmdline;
#[path = "../../../fuzz/targets/config.rs"]
mod config;
#[path = "../../../fuzz/targets/cpio.rs"]
mod cpio;
#[path = "../../../fuzz/targets/elf.rs"]
mod elf;
#[path = "../../../fuzz/targets/pvh.rs"]
mod pvh;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;
#[path = "../../../fuzz/targets/symbols.rs"]
mod symbols;
#[path = "../../../fuzz/targets/vdso.rs"]
mod vdso;

/// One test for each target of this crate.
macro_rules! replay {
    ($($target:ident)*) => {
        $(
            #[test]
            fn $target() {
                replay::replay(env!("CARGO_MANIFEST_DIR"), stringify!($target), $target::run);
            }
        )*
    };
}

replay!(cmdline config cpio elf pvh symbols vdso);
