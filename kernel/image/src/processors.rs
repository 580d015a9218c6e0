// SPDX-License-Identifier: Apache-2.0
//! Starting the other CPUs.

use coracle_arch::{MAX_CPUS, cpu, paging, smp};
use coracle_core::memory::{Stack, low_memory};
use coracle_core::thread;
use coracle_platform::fw_cfg;

/// Starts every CPU the machine has, up to [`MAX_CPUS`].
pub(crate) fn init() {
    thread::init_cpu().expect("memory for the idle context");
    let present = fw_cfg::cpu_count().unwrap_or(1);
    if present > MAX_CPUS {
        log::warn!("{present} CPUs, {MAX_CPUS} are used");
    }
    if present < 2 {
        return;
    }
    let page = low_memory();
    let at = coracle_abi::convert::usize_from(page);
    let access = paging::Access {
        read: true,
        write: false,
        execute: true,
    };
    paging::map(at, page, access).expect("memory for a page table");
    for index in 1..present.min(MAX_CPUS) {
        let stack = Stack::new().expect("memory for a stack");
        let apic_id = u32::try_from(index).expect("few CPUs");
        // SAFETY: the page is free and mapped one to one; the stack is new and given to the CPU for ever.
        let started = unsafe { smp::start(index, apic_id, page, stack.top()) };
        core::mem::forget(stack);
        if !started {
            // It may still come: stack and trampoline stay where it will look for them.
            log::error!(
                "CPU {index} does not start; going on with {}",
                cpu::online()
            );
            return;
        }
    }
    let unmapped = paging::update(at..at + coracle_abi::PAGE_SIZE, &mut |_, _| {
        paging::Update::Remove
    });
    unmapped.expect("one small page");
    paging::flush(at..at + coracle_abi::PAGE_SIZE);
    log::debug!("{} CPUs", cpu::online());
}

/// First function of a further CPU.
#[unsafe(no_mangle)]
fn ap_main(_index: usize) -> ! {
    thread::init_cpu().expect("memory for the idle context");
    thread::run_first(None)
}
