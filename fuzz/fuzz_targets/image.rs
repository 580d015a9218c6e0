// SPDX-License-Identifier: Apache-2.0
//! libFuzzer's entry to `targets/image.rs`.
#![no_main]

#[path = "../targets/image.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
