// SPDX-License-Identifier: Apache-2.0
//! libFuzzer's entry to `targets/ext.rs`.
#![no_main]

#[path = "../targets/ext.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
