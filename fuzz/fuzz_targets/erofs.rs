// SPDX-License-Identifier: Apache-2.0
//! libFuzzer's entry to `targets/erofs.rs`.
#![no_main]

#[path = "../targets/erofs.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
