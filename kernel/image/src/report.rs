// SPDX-License-Identifier: Apache-2.0
//! What the kernel says: log lines, panics, and the state of everything when something went wrong. All of it goes to
//! the serial port.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::{PAGE_SIZE, USER_END, syscalls};
use coracle_arch::trap::Fault;
use coracle_arch::{TrapFrame, cpu, lapic, layout, paging, unwind};
use coracle_core::sync::SpinLock;
use coracle_core::{memory, thread, time};
use coracle_platform::{power, serial};
use log::{LevelFilter, Log, Metadata, Record};

use crate::{control, devices, end};

/// First line of each part of the report of a crash or a panic, by which the host finds it (decision 0002).
pub(crate) const BEGIN: &str = "crash report";
/// Its last line.
pub(crate) const END: &str = "end of crash report";

/// Target of log lines about what the program did: whoever runs it must see them.
const OF_PROGRAM: &str = "program";

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
        if record.target() == OF_PROGRAM {
            control::send_warning(record.args());
        }
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

/// Return addresses on the kernel's stack: those that lie in the kernel's code, from `stack` on. They are given as
/// linked; the host looks them up in `coracle-kernel.debug`.
fn kernel_backtrace(stack: usize) {
    let text = layout::text();
    let mut at = stack & !7;
    let mut shown = 0;
    let end = stack.saturating_add(memory::STACK_SIZE);
    let mut is_mapped = is_kernel_memory(at);
    while at < end && shown < 24 {
        if at.is_multiple_of(PAGE_SIZE) {
            // The end of the stack is the end of its last page; a stack that overflowed begins below its first.
            let was_mapped = is_mapped;
            is_mapped = is_kernel_memory(at);
            if was_mapped && !is_mapped {
                return;
            }
        }
        if is_mapped {
            // SAFETY: the page is mapped, and the word is only looked at.
            let word = unsafe { (at as *const usize).read_volatile() };
            if text.contains(&word) && is_behind_call(word) {
                let _ = writeln!(serial::Serial, "  kernel {:#x}", word - layout::slide());
                shown += 1;
            }
        }
        at += 8;
    }
}

/// Whether an address in the kernel's code follows a call.
fn is_behind_call(at: usize) -> bool {
    let before = at - unwind::CALL_BYTES;
    // SAFETY: the image begins well before its code and is mapped; the bytes are only looked at.
    layout::image().contains(&before)
        && unwind::ends_with_call(unsafe { &*(before as *const [u8; unwind::CALL_BYTES]) })
}

/// Whether the kernel can read there. Before the final tables exist there is only the image.
fn is_kernel_memory(at: usize) -> bool {
    if paging::root() == 0 {
        layout::image().contains(&at)
    } else {
        at >= USER_END && paging::query(at).is_some()
    }
}

/// The line that says how the machine ended. It needs neither heap nor stack, of which one may be what is missing.
static LAST_LINE: SpinLock<FixedLine> = SpinLock::new(FixedLine {
    bytes: [0; 2048],
    len: 0,
});

/// Failures of this report itself.
static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// Ends the machine after a failure of the kernel, at an instruction if that is known.
fn kernel_failed(what: fmt::Arguments<'_>, at: Option<usize>, stack: usize) -> ! {
    end::begin();
    if FAILURES.fetch_add(1, Ordering::Relaxed) > 0 {
        let _ = writeln!(serial::Serial, "\nkernel panic while reporting one: {what}");
        power::off();
    }
    let _ = writeln!(
        serial::Serial,
        "\n{BEGIN}\nkernel panic on CPU {}: {what}",
        cpu::index()
    );
    if let Some(at) = at {
        let _ = writeln!(serial::Serial, "  at kernel {at:#x}");
    }
    let _ = writeln!(serial::Serial, "return addresses on the stack, as linked:");
    kernel_backtrace(stack);
    let _ = writeln!(serial::Serial, "{END}");
    if let Some(mut line) = LAST_LINE.try_lock() {
        line.describe(time::now(), what);
        control::send_last(line.text());
        devices::drain_console(500_000_000);
    }
    if cpu::online() > 1 {
        lapic::ask_others();
        wait_for_others();
    }
    threads();
    power::off()
}

/// Lets the other CPUs say what they do.
fn wait_for_others() {
    let end_ns = time::now() + 200_000_000;
    while time::now() < end_ns {
        core::hint::spin_loop();
    }
}

/// An NMI: the VMM asks what a machine does that seems to hang, or a CPU that panics asks the others.
#[unsafe(no_mangle)]
fn on_nmi(frame: &TrapFrame) -> ! {
    static REPORTING: SpinLock<()> = SpinLock::new(());
    {
        // One after the other, so that lines stay whole; a CPU that stopped in between is not waited for long.
        let end_ns = time::now() + 50_000_000;
        let mut turn = REPORTING.try_lock();
        while turn.is_none() && time::now() < end_ns {
            core::hint::spin_loop();
            turn = REPORTING.try_lock();
        }
        let _ = writeln!(serial::Serial, "{BEGIN}");
        describe_cpu(frame);
        let _ = writeln!(serial::Serial, "{END}");
    }
    end::begin();
    wait_for_others();
    threads();
    if let Some(mut line) = LAST_LINE.try_lock() {
        line.describe(time::now(), format_args!("ended by an NMI"));
        control::send_last(line.text());
        devices::drain_console(500_000_000);
    }
    power::off()
}

fn describe_cpu(frame: &TrapFrame) {
    let tid = thread::try_current().map_or(0, thread::Thread::tid);
    let (index, at) = (cpu::index(), frame.instruction());
    if frame.is_kernel() {
        let at = at.wrapping_sub(layout::slide());
        let _ = writeln!(
            serial::Serial,
            "CPU {index}: thread {tid} in the kernel\n  at kernel {at:#x}\nreturn addresses on the stack, as linked:"
        );
        kernel_backtrace(frame.rsp);
    } else {
        let _ = writeln!(
            serial::Serial,
            "CPU {index}: thread {tid} in the application at {at:#x}"
        );
    }
}

/// A line of limited length.
struct FixedLine {
    bytes: [u8; 2048],
    len: usize,
}

/// What follows the detail.
const LINE_END: &str = "\"}\n";

impl FixedLine {
    /// The exit line for a panic. A panic for want of memory is the application's end by exhaustion, not a defect.
    fn describe(&mut self, now_ns: u64, what: fmt::Arguments<'_>) {
        self.len = 0;
        let _ = write!(
            self,
            "{{\"event\":\"exit\",\"t_ns\":{now_ns},\"reason\":\"panic\",\"code\":134,\"detail\":\""
        );
        let start = self.len;
        let _ = write!(Escape(self), "{what}");
        // What the standard library says when an allocation fails.
        if self.text()[start..].contains("memory allocation of ") {
            self.len = 0;
            let _ = write!(
                self,
                "{{\"event\":\"exit\",\"t_ns\":{now_ns},\"reason\":\"out-of-memory\",\"code\":137,\"detail\":\
                 \"out of memory: the kernel has no more ({} of {} KiB are free); give the guest more with -m",
                memory::free_frames() * 4,
                memory::total_frames() * 4,
            );
        }
        let _ = self.write_str(LINE_END);
    }

    fn text(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for FixedLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let room = if text == LINE_END {
            room
        } else {
            room.saturating_sub(LINE_END.len())
        };
        let text = text.get(..text.len().min(room)).unwrap_or("");
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Makes text fit into a JSON string, by showing what does not as something else.
struct Escape<'a>(&'a mut FixedLine);

impl Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            self.0.write_char(match c {
                '"' => '\'',
                '\\' => '/',
                ' '..='~' => c,
                _ => ' ',
            })
        })
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let here = 0usize;
    let stack = (&raw const here) as usize;
    let what = info.message();
    match info.location() {
        Some(place) => kernel_failed(
            format_args!("{}:{}: {what}", place.file(), place.line()),
            None,
            stack,
        ),
        None => kernel_failed(format_args!("{what}"), None, stack),
    }
}

/// A fault in the kernel's own code.
#[unsafe(no_mangle)]
fn on_kernel_fault(frame: &TrapFrame, fault: Fault) -> ! {
    let (at, stack) = (frame.rip.wrapping_sub(layout::slide()), frame.rsp);
    // A touch near the stack pointer where nothing is mapped is the guard page.
    let touched = match fault {
        Fault::Page { address, .. } => address,
        _ => stack,
    };
    let overflow = touched.abs_diff(stack) < PAGE_SIZE && !is_kernel_memory(touched);
    let kind = if overflow {
        "kernel stack overflow: "
    } else {
        ""
    };
    kernel_failed(
        format_args!("{kind}{fault:x?} at {at:#x} as linked, stack {stack:#x}"),
        Some(at),
        stack,
    )
}
