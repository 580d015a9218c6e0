use coracle_arch::{clock, layout};
use coracle_core::memory;
use coracle_loader::{cmdline, pvh};

#[unsafe(no_mangle)]
fn kernel_main(start_info: u64) -> ! {
    clock::start();
    crate::report::init();
    log::info!("hello");
    let read = |p: u64, len: usize| -> Option<&'static [u8]> { unsafe { Some(core::slice::from_raw_parts(layout::direct(p), len)) } };
    let info = pvh::parse(start_info, &read).expect("pvh");
    log::info!("cmdline {}", core::str::from_utf8(info.cmdline).unwrap_or("?"));
    for m in info.memory() { log::info!("{m:?}"); }
    for m in info.modules() { log::info!("{m:?}"); }
    panic!("end");
}
#[unsafe(no_mangle)]
fn ap_main(_index: usize) -> ! { loop {} }
#[unsafe(no_mangle)]
fn on_syscall(_f: &mut coracle_arch::TrapFrame) {}
#[unsafe(no_mangle)]
fn on_irq(_f: &mut coracle_arch::TrapFrame, _v: u8) {}
#[unsafe(no_mangle)]
fn on_fault(_f: &mut coracle_arch::TrapFrame, _x: coracle_arch::trap::Fault) {}
#[unsafe(no_mangle)]
fn on_kernel_fault(f: &coracle_arch::TrapFrame, x: coracle_arch::trap::Fault) -> ! { panic!("{f:x?} {x:x?}") }
#[global_allocator]
static HEAP: memory::KernelHeap = memory::KernelHeap;
