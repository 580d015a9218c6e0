// SPDX-License-Identifier: Apache-2.0
//! What the kernel says about an application that died: who, of what, where, how it came there, and its last system
//! calls. The host takes the report from the serial port (decision 0002).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;

use coracle_abi::signal::{SI_KERNEL, SigInfo, Signal};
use coracle_abi::{Errno, PAGE_SIZE, syscalls};
use coracle_arch::{TrapFrame, unwind};
use coracle_core::memory::space::{self, Protection};
use coracle_core::thread::{self, Thread};
use coracle_core::user;
use coracle_platform::serial::Serial;
use coracle_syscall::symbols;

use crate::report;

/// Most frames that are shown.
const FRAMES: usize = 32;
/// How much of the stack is searched for return addresses where code keeps no frame pointers, in words.
const SEARCHED_WORDS: usize = 1024;
/// A touch this close to the stack pointer is a stack that is full.
const STACK_REACH: usize = 16 * PAGE_SIZE;

/// Says in one line how the running thread died; writes the report if the signal is one of crashes.
pub(crate) fn describe(signal: Signal, info: &SigInfo, frame: &TrapFrame) -> String {
    let thread = thread::current();
    let name = thread.name();
    let name = String::from_utf8_lossy(&name);
    let mut detail = format!(
        "thread {} ({}): {}",
        thread.tid(),
        name.trim_end_matches('\0'),
        signal.name()
    );
    if info.code > 0 && info.code != SI_KERNEL {
        let address = info.fields[0];
        let _ = write!(detail, " for address {address:#x}");
        if is_full_stack(signal, address, frame) {
            detail += " (the stack is full)";
        }
    }
    let code = code();
    let (frames, is_sure) = backtrace(frame, &code);
    let places = symbols::describe(&frames);
    let _ = write!(detail, " at {}", places[0]);
    if signal.is_crash() {
        let _ = write_report(thread, frame, &detail, &places, is_sure);
        report::threads();
    }
    detail
}

fn is_full_stack(signal: Signal, address: u64, frame: &TrapFrame) -> bool {
    let below = coracle_abi::convert::u64_from(frame.stack().saturating_sub(STACK_REACH));
    let above = coracle_abi::convert::u64_from(frame.stack().saturating_add(PAGE_SIZE));
    signal == Signal::SIGSEGV && (below..above).contains(&address)
}

fn write_report(
    thread: &Thread,
    frame: &TrapFrame,
    detail: &str,
    places: &[String],
    is_sure: bool,
) -> core::fmt::Result {
    writeln!(Serial, "{}\n{detail}", report::BEGIN)?;
    let from = if is_sure { "from" } else { "perhaps from" };
    for place in &places[1..] {
        writeln!(Serial, "  {from} {place}")?;
    }
    writeln!(Serial, "registers")?;
    for row in frame.registers().chunks(3) {
        for (name, value) in row {
            write!(Serial, "  {name:<5} {value:016x}")?;
        }
        writeln!(Serial)?;
    }
    writeln!(Serial, "last system calls of the thread")?;
    let mut result = Ok(());
    thread.recent_calls.for_each(|number, value| {
        let name = u32::try_from(number).map_or("?", syscalls::name);
        let line = match Errno::from_return_value(value) {
            Some(error) => writeln!(Serial, "  {name} = {error}"),
            None if value < 4096 => writeln!(Serial, "  {name} = {value}"),
            None => writeln!(Serial, "  {name} = {value:#x}"),
        };
        result = result.and(line);
    });
    result?;
    writeln!(Serial, "{}", report::END)
}

/// Where code of the application lies.
fn code() -> Vec<Range<usize>> {
    let mut code = Vec::new();
    space::for_each_area(|range, area| {
        if area.protection.contains(Protection::EXECUTE) {
            code.push(range);
        }
    });
    code
}

fn word_at(at: usize) -> Option<usize> {
    let mut bytes = [0; size_of::<usize>()];
    (at.is_multiple_of(bytes.len()) && user::read_bytes(&mut bytes, at) == 0)
        .then(|| usize::from_le_bytes(bytes))
}

/// The instruction and the return addresses behind it, and whether these were found by frame pointers. Most C programs
/// keep none; their stack is searched for what looks like a return address, which also finds those of earlier calls.
fn backtrace(frame: &TrapFrame, code: &[Range<usize>]) -> (Vec<usize>, bool) {
    let is_code = |at: &usize| code.iter().any(|range| range.contains(at));
    let is_return = |at: &usize| is_code(at) && is_behind_call(*at);
    let mut frames = alloc::vec![frame.instruction()];
    // A function that calls none needs no frame, and no function has one at its first instruction.
    frames.extend(word_at(frame.stack()).filter(is_return));
    let mut at = frame.frame_pointer();
    while frames.len() < FRAMES
        && let (Some(above), Some(from)) =
            (word_at(at), word_at(at.wrapping_add(size_of::<usize>())))
        && is_code(&from)
    {
        if frames.last() != Some(&from) {
            frames.push(from);
        }
        if above <= at {
            break;
        }
        at = above;
    }
    if frames.len() > 2 {
        return (frames, true);
    }
    frames.truncate(1);
    let words =
        (0..SEARCHED_WORDS).filter_map(|n| word_at((frame.stack() & !7) + n * size_of::<usize>()));
    frames.extend(words.filter(is_return).take(FRAMES / 2));
    (frames, false)
}

fn is_behind_call(at: usize) -> bool {
    let mut before = [0; unwind::CALL_BYTES];
    user::read_bytes(&mut before, at.wrapping_sub(unwind::CALL_BYTES)) == 0
        && unwind::ends_with_call(&before)
}
