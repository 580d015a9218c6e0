// SPDX-License-Identifier: Apache-2.0
//! The order of boot.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use coracle_arch::{TrapFrame, clock};
use coracle_core::exit::{ExitReason, end_process};
use coracle_core::thread::{self, NewThread};
use coracle_core::time;
use coracle_loader::config::BootConfig;
use coracle_syscall::{exec, set_trace};

use crate::{
    console, control, devices, end, interrupts, memory, network, processors, report, root,
};

/// Names of the boot steps and when each ended.
pub(crate) static LAPS: [(AtomicUsize, AtomicU64); STEPS.len()] =
    [const { (AtomicUsize::new(0), AtomicU64::new(0)) }; STEPS.len()];

/// The boot steps in order.
pub(crate) const STEPS: [&str; 8] = [
    "memory", "clock", "bundle", "devices", "network", "files", "cpus", "program",
];

fn lap(step: usize) {
    LAPS[step].1.store(time::now(), Ordering::Relaxed);
}

/// The first safe code of the kernel, on the first CPU.
#[unsafe(no_mangle)]
fn kernel_main(start_info: u64) -> ! {
    clock::start();
    report::init();
    end::init();

    let info = memory::init(start_info);
    lap(0);
    interrupts::init(info.tsc_khz);
    lap(1);
    let config = info.config();
    if let Some(started_ns) = config.started_ns {
        time::refine_wall(started_ns);
    }
    lap(2);
    let found = devices::init(&info);
    control::init(found.control);
    lap(3);
    network::init(info.memory_bytes(), &config, found.networks);
    network::wait_for_leases();
    lap(4);
    let console = console::with_end_of_input(found.console);
    root::init(&info, &config, console, &found.disks, &found.shares);
    lap(5);
    processors::init();
    root::mount_sys();
    lap(6);
    let first = load(&config);
    lap(7);
    control::send_booted();
    thread::run_first(Some(first))
}

/// Loads the program and makes its first thread.
fn load(config: &BootConfig) -> alloc::sync::Arc<thread::Thread> {
    let bytes = |strings: &'_ [alloc::string::String]| -> Vec<Vec<u8>> {
        strings.iter().map(|s| s.clone().into_bytes()).collect()
    };
    let (args, env) = (bytes(&config.args), bytes(&config.env));
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    let env: Vec<&[u8]> = env.iter().map(Vec::as_slice).collect();
    set_trace(config.trace);
    let loaded = match exec::load(&config.args[0], &args, &env) {
        Ok(loaded) => loaded,
        Err(error) => end_process(ExitReason::Exec(error.status, error.message)),
    };
    let frame = TrapFrame::enter(loaded.entry, loaded.stack);
    let first = thread::new(&NewThread {
        frame: &frame,
        fs_base: 0,
        parent: None,
    })
    .expect("memory for the first thread");
    let name = config.args[0].rsplit('/').next().unwrap_or_default();
    first.set_name(name.as_bytes());
    first
}
