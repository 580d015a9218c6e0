// SPDX-License-Identifier: Apache-2.0
//! libFuzzer's entry to `targets/layer.rs`.
#![no_main]

#[path = "../targets/layer.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
