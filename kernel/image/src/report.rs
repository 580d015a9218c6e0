// SPDX-License-Identifier: Apache-2.0
//! What the kernel says: log lines and panics.

use core::fmt::Write;

use coracle_platform::serial::Serial;
use log::{LevelFilter, Log, Metadata, Record};

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let ns = coracle_core::time::now();
        let _ = writeln!(
            Serial,
            "[{:>5}.{:06}] {:<5} {}",
            ns / 1_000_000_000,
            ns / 1000 % 1_000_000,
            record.level(),
            record.args()
        );
    }

    fn flush(&self) {}
}

pub(crate) fn init() {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "kernel panic: {info}");
    coracle_platform::power::off()
}
