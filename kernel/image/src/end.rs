// SPDX-License-Identifier: Apache-2.0
//! The end of the application or of the kernel: say why, send what is left, reset the machine.

use alloc::format;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::exit::{self, ExitReason};
use coracle_core::{memory, thread, time};
use coracle_platform::power;
use coracle_syscall::process;

use crate::{control, crash, devices, network};

/// Longest time to send what the console holds.
const DRAIN_NS: u64 = 2_000_000_000;

/// The CPU that ends the machine, plus one.
static ENDING: AtomicUsize = AtomicUsize::new(0);

/// Makes this the place where applications end.
pub(crate) fn init() {
    exit::set_handler(end);
}

/// Makes this CPU the one that ends the machine; stops it if another one does that already.
pub(crate) fn begin() {
    let me = coracle_arch::cpu::index() + 1;
    if let Err(other) = ENDING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst)
        && other != me
    {
        coracle_arch::cpu::stop();
    }
}

/// Brings what the program wrote to the disks. Sleeps, so it is done where a thread has ended the program by itself; when
/// memory has ended, or the kernel has failed, what was synced is safe all the same.
fn settle() {
    let Some(process) = process::installed() else {
        return;
    };
    let mut mounts = process.vfs.mounts();
    mounts.retain(|mount| mount.file_system().is_persistent());
    if mounts.is_empty() {
        return;
    }
    thread::end_others();
    for mount in mounts {
        if let Err(error) = mount.file_system().settle() {
            let kind = mount.file_system().type_name();
            log::error!("not all that was written to the {kind} is on the disk: {error}");
        }
    }
}

fn end(reason: ExitReason) -> ! {
    if matches!(reason, ExitReason::Exit(_) | ExitReason::Signal { .. }) {
        settle();
    }
    begin();
    coracle_syscall::show_nothing(); // who counts calls wants the counts
    let now = time::now();
    let line = match reason {
        ExitReason::Exit(code) if code != 0 && memory::was_scarce() => format!(
            "{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"exit\",\"code\":{code},\
             \"detail\":\"memory ran short, so calls of the program failed; give it more with -m\"}}\n"
        ),
        ExitReason::Exit(code) => {
            format!("{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"exit\",\"code\":{code}}}\n")
        }
        ExitReason::Signal {
            signal,
            info,
            frame,
        } => {
            let detail = crash::describe(signal, &info, &frame);
            let number = signal.number();
            format!(
                "{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"signal\",\"signal\":{number},\"code\":{},\
                 \"detail\":{}}}\n",
                128 + number,
                control::quoted(&detail)
            )
        }
        ExitReason::OutOfMemory => out_of_memory_line(now),
        ExitReason::Exec(code, why) => format!(
            "{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"exec\",\"code\":{code},\"detail\":{}}}\n",
            control::quoted(&why)
        ),
    };
    finish(&line)
}

/// The line for the end of memory.
pub(crate) fn out_of_memory_line(now: u64) -> alloc::string::String {
    let mib = |frames: u64| (frames * coracle_abi::PAGE_SIZE as u64) >> 20;
    let detail = format!(
        "out of memory: all of the guest's {} MiB are used ({} MiB by the program, {} KiB by the kernel); give it more \
         with -m",
        mib(memory::total_frames()),
        mib(memory::space::resident_pages() as u64),
        memory::heap_bytes() >> 10,
    );
    log::error!("{detail}");
    format!(
        "{{\"event\":\"exit\",\"t_ns\":{now},\"reason\":\"out-of-memory\",\"code\":137,\"detail\":{}}}\n",
        control::quoted(&detail)
    )
}

/// Closes what the application had open, so that peers learn of the end of their connections.
fn close_files() {
    let Some(process) = process::installed() else {
        return;
    };
    // A thread that was stopped by another CPU's NMI may hold the table; then the peers find out by themselves.
    while let Some(closed) = process
        .fds
        .try_lock()
        .and_then(|mut fds| fds.remove_first(0..=u32::MAX))
    {
        drop(closed);
    }
    network::flush();
}

/// Sends the last line and everything before it, and ends the machine.
pub(crate) fn finish(line: &str) -> ! {
    close_files();
    control::send_last(line);
    devices::drain_console(DRAIN_NS);
    power::off()
}
