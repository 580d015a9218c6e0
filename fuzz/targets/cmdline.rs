// SPDX-License-Identifier: Apache-2.0
//! Kernel command lines: known options have usable values, errors quote the word.

use coracle_loader::cmdline::{KernelOption, options};

pub(crate) fn run(data: &[u8]) {
    for option in options(data) {
        match option {
            Ok(KernelOption::VirtioMmio(device)) => {
                assert!(device.size > 0 && device.base.checked_add(device.size).is_some());
            }
            Ok(KernelOption::TscKhz(khz)) => assert!(khz > 0),
            Ok(KernelOption::LogLevel(_)) => {}
            Err(error) => {
                assert!(
                    data.windows(error.word.len())
                        .any(|part| part == error.word)
                );
                assert!(error.to_string().contains(error.expected));
            }
        }
    }
}
