// SPDX-License-Identifier: Apache-2.0
//! The control channel: lines of JSON both ways (decision 0002).

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use coracle_abi::PollEvents;
use coracle_abi::signal::{SI_USER, SigInfo, Signal};
use coracle_core::device::CharDevice;
use coracle_core::memory::{self, space};
use coracle_core::poll::Waiter;
use coracle_core::sync::{Once, SpinLock};
use coracle_core::{cache, futex, signal, thread, time};
use coracle_drivers::Port;
use coracle_syscall::Show;

use crate::{boot, console, entry, interrupts, network, report};

static PORT: Once<Arc<Port>> = Once::new();

/// Longest line; a longer one is dropped.
const LINE_MAX: usize = 4096;

struct Reader {
    line: SpinLock<Vec<u8>>,
}

/// Opens the channel, if the machine has one.
pub(crate) fn init(port: Option<Arc<Port>>) {
    let Some(port) = port else { return };
    let reader = Arc::new(Reader {
        line: SpinLock::new(Vec::new()),
    });
    port.poll_source()
        .attach(reader.clone(), PollEvents::IN, false);
    let _ = PORT.set(port);
    coracle_syscall::set_trace_sink(send_if_room);
    // What came before the reader was attached.
    reader.notify(PollEvents::IN);
}

impl Waiter for Reader {
    fn notify(&self, _: PollEvents) -> bool {
        let Some(port) = PORT.get() else { return false };
        let mut chunk = [0; 256];
        // Another CPU that reads already will see what we came for.
        let Some(mut line) = self.line.try_lock() else {
            return false;
        };
        while let Ok(count) = port.read(&mut chunk) {
            if count == 0 {
                break;
            }
            for byte in &chunk[..count] {
                if *byte != b'\n' {
                    if line.len() < LINE_MAX {
                        line.push(*byte);
                    }
                    continue;
                }
                obey(&line);
                line.clear();
            }
        }
        true
    }
}

/// Does what a line says; a line that makes no sense is logged.
fn obey(line: &[u8]) {
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(line);
    let Ok(value) = parsed else {
        return log::warn!("control: not JSON: {}", line.escape_ascii());
    };
    match value.get("op").and_then(serde_json::Value::as_str) {
        Some("signal") => {
            let number = value.get("number").and_then(serde_json::Value::as_u64);
            match number
                .and_then(|n| u32::try_from(n).ok())
                .and_then(Signal::new)
            {
                Some(signal) => {
                    let info = SigInfo::from_process(signal, SI_USER, 0, 0);
                    if let Err(error) = signal::send_to_process(info) {
                        log::warn!("control: {}: {error}", signal.name());
                    }
                }
                None => log::warn!("control: no such signal: {}", line.escape_ascii()),
            }
        }
        Some("eof") => match value.get("bytes").and_then(serde_json::Value::as_u64) {
            Some(bytes) => console::end_input(bytes),
            None => log::warn!("control: no number of bytes: {}", line.escape_ascii()),
        },
        Some("counters") => send(&counters()),
        Some("trace") => match value.get("show").and_then(serde_json::Value::as_str) {
            Some("calls") => coracle_syscall::show(Show::Calls),
            Some("counts") => coracle_syscall::show(Show::Counts),
            Some("missing") => coracle_syscall::show(Show::Missing),
            Some("nothing") => coracle_syscall::show_nothing(),
            _ => log::warn!("control: no such trace: {}", line.escape_ascii()),
        },
        Some("threads") => report::threads(),
        _ => log::warn!("control: unknown: {}", line.escape_ascii()),
    }
}

/// Room in the port that lines of the trace leave to others, in bytes.
const RESERVE: usize = 4096;

/// Held while a line is sent in parts, so that no other one comes in between.
static SENDING: SpinLock<()> = SpinLock::new(());

/// Sends a line if the port takes it at once.
fn send_if_room(line: &str) -> bool {
    let (Some(port), Some(_sending)) = (PORT.get(), SENDING.try_lock()) else {
        return false;
    };
    line.len() < LINE_MAX && port.write_whole(line.as_bytes(), RESERVE)
}

/// Sends a line; to the serial port if there is no channel.
pub(crate) fn send(line: &str) {
    match PORT.get() {
        Some(port) => {
            let _sending = SENDING.lock();
            let mut rest = line.as_bytes();
            // The port's buffer is larger than a line; when it is full for long the line is lost.
            for _ in 0..1000 {
                match port.write(rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(_) => crate::devices::drain_console(1_000_000),
                }
                if rest.is_empty() {
                    return;
                }
            }
        }
        None => report::serial(line),
    }
}

/// Longest wait for the port at the end of the machine, when its lock may be held by a CPU that stopped.
const LAST_WAIT_NS: u64 = 1_000_000_000;

/// Sends the last line, whatever state the kernel is in.
pub(crate) fn send_last(line: &str) {
    match PORT.get() {
        Some(port) => {
            let sent = port.write_in_crash(line.as_bytes(), LAST_WAIT_NS);
            if sent < line.len() {
                report::serial(line);
            }
        }
        None => report::serial(line),
    }
}

/// Text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// The kernel is up and starts the program.
pub(crate) fn send_booted() {
    let mut laps = String::new();
    for (name, (_, at)) in boot::STEPS.iter().zip(&boot::LAPS) {
        let comma = if laps.is_empty() { "" } else { "," };
        let _ = write!(laps, "{comma}[\"{name}\",{}]", at.load(Ordering::Relaxed));
    }
    send(&alloc::format!(
        "{{\"event\":\"booted\",\"t_ns\":{},\"laps\":[{laps}],\"kernel\":\"{}\"}}\n",
        time::now(),
        env!("CARGO_PKG_VERSION"),
    ));
}

/// The application listens.
pub(crate) fn send_listening(proto: &str, port: u16) {
    send(&alloc::format!(
        "{{\"event\":\"listening\",\"t_ns\":{},\"proto\":\"{proto}\",\"port\":{port}}}\n",
        time::now()
    ));
}

/// Something the user must know while the program goes on.
pub(crate) fn send_warning(text: &core::fmt::Arguments<'_>) {
    send(&alloc::format!(
        "{{\"event\":\"warning\",\"t_ns\":{},\"text\":{}}}\n",
        time::now(),
        quoted(&alloc::format!("{text}"))
    ));
}

fn counters() -> String {
    let page = coracle_abi::PAGE_SIZE as u64;
    let (reads, read_pages) = cache::reads();
    let mut cpu_ns = 0;
    thread::for_each(|t| cpu_ns += t.cpu_ns());
    let mut line = alloc::format!(
        "{{\"event\":\"counters\",\"t_ns\":{},\"memory_total_bytes\":{},\"memory_free_bytes\":{},\
         \"heap_bytes\":{},\"cached_bytes\":{},\"cache_reads\":{reads},\"cache_read_bytes\":{},\
         \"cache_given_back_bytes\":{},\"resident_bytes\":{},\"threads\":{},\"futex_waiters\":{},\"cpu_ns\":{cpu_ns},\
         \"system_calls\":{},\"page_faults\":{},\"context_switches\":{},\
         \"timer_interrupts\":{},\"cpu_interrupts\":{},\"device_interrupts\":{},\"timer_settings\":{}",
        time::now(),
        memory::total_frames() * page,
        memory::free_frames() * page,
        memory::heap_bytes(),
        cache::cached_pages() * page,
        read_pages * page,
        cache::evicted_pages() * page,
        space::resident_pages() as u64 * page,
        thread::thread_count(),
        futex::waiting(),
        entry::SYSTEM_CALLS.load(Ordering::Relaxed),
        entry::PAGE_FAULTS.load(Ordering::Relaxed),
        thread::context_switches(),
        interrupts::COUNTS[0].load(Ordering::Relaxed),
        interrupts::COUNTS[1].load(Ordering::Relaxed),
        interrupts::COUNTS[2].load(Ordering::Relaxed),
        thread::timer_settings(),
    );
    if let Some(stack) = network::stack() {
        stack.counters().for_each(|name, value| {
            let _ = write!(line, ",\"net_{name}\":{value}");
        });
    }
    line.push_str("}\n");
    line
}
