// SPDX-License-Identifier: Apache-2.0
//! What the kernel says: log lines, panics, and the state of everything when something went wrong. All of it goes to
//! the serial port.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use coracle_abi::syscalls;
use coracle_arch::trap::Fault;
use coracle_arch::{TrapFrame, layout};
use coracle_core::{memory, thread, time, user};
use coracle_platform::{power, serial};
use log::{LevelFilter, Log, Metadata, Record};

use crate::{control, devices, end};

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let ns = time::now();
        let (seconds, micros) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
        let _ = writeln!(
            serial::Serial,
            "[{seconds:>5}.{micros:06}] {:<5} {}",
            record.level(),
            record.args()
        );
    }

    fn flush(&self) {}
}

/// Makes log lines appear: warnings and errors, until the command line says otherwise.
pub(crate) fn init() {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Sets which log lines appear.
pub(crate) fn set_level(level: LevelFilter) {
    log::set_max_level(level);
}

/// Writes a line that has no better place.
pub(crate) fn serial(text: &str) {
    serial::write(text.as_bytes());
}

/// Writes the state of every thread.
pub(crate) fn threads() {
    let _ = thread::report(&mut serial::Serial, syscalls::name);
}

/// An address of the application, with the range it lies in.
pub(crate) fn application_symbol(at: usize) -> String {
    let mut text = format!("{at:#x}");
    let program = coracle_syscall::exec::program();
    if program.code.contains(&at) {
        let path = String::from_utf8_lossy(&program.path).into_owned();
        let _ = write!(text, " ({path}+{:#x})", at - program.code.start);
    }
    text
}

/// Follows the application's frame pointers.
pub(crate) fn application_backtrace(frame: &TrapFrame) {
    let mut at = frame.rbp;
    for _ in 0..32 {
        let mut words = [0u8; 16];
        if !at.is_multiple_of(8) || user::read_bytes(&mut words, at) != 0 {
            return;
        }
        let word = |n: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&words[n * 8..n * 8 + 8]);
            usize::from_le_bytes(eight)
        };
        if word(1) == 0 || word(0) <= at {
            return;
        }
        log::error!("  called from {}", application_symbol(word(1)));
        at = word(0);
    }
}

/// Return addresses on the kernel's stack: those that lie in the kernel's code, from `stack` on. They are given as
/// linked, to be looked up in `coracle-kernel.debug`.
fn kernel_backtrace(stack: usize) {
    let text = layout::text();
    let mut shown = 0;
    for n in 0..512 {
        let at = stack + n * 8;
        if at.is_multiple_of(memory::STACK_SIZE) && n > 0 {
            break;
        }
        // SAFETY: the scan goes upwards from a live stack pointer; a stack ends at its guard page's multiple, and one
        // that is not aligned so is followed by mapped image or another stack's guard, at which the fault ends it.
        let word = unsafe { (at as *const usize).read_volatile() };
        if text.contains(&word) {
            let _ = writeln!(serial::Serial, "  {:#x}", word - layout::slide());
            shown += 1;
            if shown == 24 {
                break;
            }
        }
    }
}

fn kernel_failed(what: &str, stack: usize) -> ! {
    if !end::is_first() {
        coracle_arch::cpu::stop();
    }
    let _ = writeln!(
        serial::Serial,
        "\nkernel panic on CPU {}: {what}",
        coracle_arch::cpu::index()
    );
    let _ = writeln!(serial::Serial, "return addresses on the stack, as linked:");
    kernel_backtrace(stack);
    threads();
    let now = time::now();
    // Without a frame left, the panic is about memory, whatever it says.
    let line = if memory::free_frames() == 0 && memory::total_frames() > 0 {
        const OUT: &str = "\"reason\":\"out-of-memory\",\"code\":137,\"detail\":\"out of memory in the kernel; give the guest more with -m\"";
        let mut line = FixedLine::new();
        let _ = writeln!(line, "{{\"event\":\"exit\",\"t_ns\":{now},{OUT}}}");
        line
    } else {
        let mut line = FixedLine::new();
        let _ = write!(
            line,
            "{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"panic\",\"code\":134,\"detail\":\""
        );
        for c in what
            .chars()
            .take(1024)
            .flat_map(char::escape_default)
            .filter(|c| *c != '\'')
        {
            let _ = line.write_char(if c == '\\' { '/' } else { c });
        }
        let _ = line.write_str("\"}\n");
        line
    };
    control::send(line.text());
    devices::drain_console(500_000_000);
    power::off()
}

/// A line that needs no heap.
struct FixedLine {
    bytes: [u8; 2048],
    len: usize,
}

impl FixedLine {
    const fn new() -> Self {
        Self {
            bytes: [0; 2048],
            len: 0,
        }
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for FixedLine {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        // Three bytes are kept for the end of the line.
        let room = self.bytes.len() - self.len;
        let room = if text == "\"}\n" {
            room
        } else {
            room.saturating_sub(3)
        };
        let text = text.get(..text.len().min(room)).unwrap_or("");
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = FixedLine::new();
    if let Some(place) = info.location() {
        let _ = write!(line, "{}:{}: ", place.file(), place.line());
    }
    let _ = write!(line, "{}", info.message());
    let here = 0usize;
    kernel_failed(line.text(), (&raw const here) as usize & !7)
}

/// A fault in the kernel's own code, or an NMI.
#[unsafe(no_mangle)]
fn on_kernel_fault(frame: &TrapFrame, fault: Fault) -> ! {
    let mut line = FixedLine::new();
    let _ = write!(
        line,
        "{fault:x?} at {:#x} (as linked {:#x}), stack {:#x}",
        frame.rip,
        frame.rip.wrapping_sub(layout::slide()),
        frame.rsp
    );
    kernel_failed(line.text(), frame.rsp & !7)
}
