// SPDX-License-Identifier: Apache-2.0
//! The calling CPU: its number, its special registers, waiting.

use core::arch::asm;
use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::MAX_CPUS;

/// Data of one CPU, found through the GS base. The first fields are used by assembly: see the offsets in `trap.rs`.
#[repr(C)]
pub(super) struct PerCpu {
    /// Its own address.
    pub(super) this: usize,
    /// Top of the current thread's kernel stack.
    pub(super) kernel_stack: usize,
    /// The application's stack pointer while the system-call entry switches stacks.
    pub(super) scratch: usize,
    /// Number of this CPU.
    pub(super) index: usize,
    /// A word for the kernel above: the running thread.
    pub(super) current: usize,
}

static mut PER_CPU: [PerCpu; MAX_CPUS] = [const {
    PerCpu {
        this: 0,
        kernel_stack: 0,
        scratch: 0,
        index: 0,
        current: 0,
    }
}; MAX_CPUS];

/// A CPU whose translations must be flushed before it may use application addresses again.
pub(super) static FLUSH_PENDING: [AtomicBool; MAX_CPUS] =
    [const { AtomicBool::new(false) }; MAX_CPUS];

pub(super) const MSR_FS_BASE: u32 = 0xc000_0100;
const MSR_GS_BASE: u32 = 0xc000_0101;
const MSR_KERNEL_GS_BASE: u32 = 0xc000_0102;

/// Lets GS point at the data of CPU `index`.
pub(super) fn init_per_cpu(index: usize) {
    // SAFETY: each CPU initialises its own element, once, before anything reads it through GS.
    unsafe {
        let at = (&raw mut PER_CPU[index]).cast::<PerCpu>();
        (*at).this = at as usize;
        (*at).index = index;
        write_msr(MSR_GS_BASE, at as u64);
    }
}

macro_rules! per_cpu_word {
    ($get:ident, $set:ident, $offset:literal, $what:literal) => {
        #[doc = concat!("Reads ", $what, ".")]
        #[inline]
        #[must_use]
        pub fn $get() -> usize {
            let value: usize;
            // SAFETY: GS points at this CPU's data since `init_per_cpu`.
            unsafe { asm!(concat!("mov {}, gs:[", $offset, "]"), out(reg) value, options(nostack, preserves_flags, readonly)) };
            value
        }

        #[doc = concat!("Sets ", $what, ".")]
        #[inline]
        pub fn $set(value: usize) {
            // SAFETY: as above.
            unsafe { asm!(concat!("mov gs:[", $offset, "], {}"), in(reg) value, options(nostack, preserves_flags)) };
        }
    };
}
per_cpu_word!(
    kernel_stack,
    set_kernel_stack,
    8,
    "the top of the running thread's kernel stack"
);
per_cpu_word!(
    current,
    set_current,
    32,
    "the word that the kernel above keeps for the running thread"
);

/// Number of the calling CPU, counted from 0.
#[inline]
#[must_use]
pub fn index() -> usize {
    let value: usize;
    // SAFETY: GS points at this CPU's data since `init_per_cpu`.
    unsafe { asm!("mov {}, gs:[24]", out(reg) value, options(nostack, preserves_flags, readonly)) };
    value
}

/// Called in every loop that waits for another CPU: serves a TLB shootdown, so that the other CPU can go on.
#[inline]
pub fn relax() {
    core::hint::spin_loop();
    if FLUSH_PENDING[index()].load(Ordering::Relaxed) {
        super::paging::serve_flush();
    }
}

/// Called in a loop that only looks for work: leaves the core to its other half for a moment. Under software emulation a
/// `pause` leaves the translated code and takes the VMM's global lock, which delays the very thread that brings work.
#[inline]
pub fn breathe() {
    if !features().emulated {
        for _ in 0..16 {
            core::hint::spin_loop();
        }
    }
}

/// Sleeps until an interrupt, which is served before this returns. The caller has checked with interrupts off that
/// there is nothing to do; one that arrives in between ends the sleep.
#[inline]
pub fn halt() {
    // SAFETY: the kernel's interrupt entry preserves all registers; interrupts are off again afterwards.
    unsafe { asm!("sti; hlt; cli", options(nostack)) };
}

/// Lets pending interrupts be served.
#[inline]
pub fn serve_interrupts() {
    // SAFETY: as for `halt`.
    unsafe { asm!("sti; nop; cli", options(nostack)) };
}

/// Stops this CPU for ever. Others do not wait for it to flush its translations.
pub fn stop() -> ! {
    super::paging::enter_idle();
    loop {
        // SAFETY: with interrupts off only an NMI ends the halt.
        unsafe { asm!("cli; hlt", options(nomem, nostack)) };
    }
}

/// Reads a model-specific register.
///
/// # Safety
/// The register must exist.
pub(super) unsafe fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: promised by the caller.
    unsafe {
        asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The register must exist and the value must keep the kernel's invariants.
pub(super) unsafe fn write_msr(number: u32, value: u64) {
    let (low, high) = (
        coracle_abi::convert::low_u32(value),
        coracle_abi::convert::low_u32(value >> 32),
    );
    // SAFETY: promised by the caller.
    unsafe {
        asm!("wrmsr", in("ecx") number, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    };
}

/// Optional features of the CPU that the kernel uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// `rdfsbase` and its kind.
    pub fsgsbase: bool,
    /// `xsave`.
    pub xsave: bool,
    /// `xsaveopt`.
    pub xsaveopt: bool,
    /// `rdrand`.
    pub rdrand: bool,
    /// `rdseed`.
    pub rdseed: bool,
    /// LAPIC timer by TSC deadline.
    pub tsc_deadline: bool,
    /// `rdpid`.
    pub rdpid: bool,
    /// `rdtscp`.
    pub rdtscp: bool,
    /// Running under software emulation (QEMU TCG).
    pub emulated: bool,
}

static FEATURES: AtomicU32 = AtomicU32::new(0);

/// The features of this CPU, found at boot.
#[must_use]
pub fn features() -> Features {
    let bits = FEATURES.load(Ordering::Relaxed);
    let bit = |n: u32| bits & 1 << n != 0;
    Features {
        fsgsbase: bit(0),
        xsave: bit(1),
        xsaveopt: bit(2),
        rdrand: bit(3),
        rdseed: bit(4),
        tsc_deadline: bit(5),
        rdpid: bit(6),
        rdtscp: bit(7),
        emulated: bit(8),
    }
}

/// CPUID for a leaf and subleaf: eax, ebx, ecx, edx.
#[must_use]
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let r = __cpuid_count(leaf, subleaf);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// Finds the features and switches on those that need it, on every CPU.
pub(super) fn init_features() {
    let max_leaf = cpuid(0, 0)[0];
    let [_, _, ecx1, _] = cpuid(1, 0);
    let [_, ebx7, ecx7, _] = if max_leaf >= 7 { cpuid(7, 0) } else { [0; 4] };
    let xsave = ecx1 & 1 << 26 != 0;
    let xsaveopt = xsave && max_leaf >= 13 && cpuid(13, 1)[0] & 1 != 0;
    let edx_ext = cpuid(0x8000_0001, 0)[3];
    let hypervisor = if ecx1 & 1 << 31 != 0 {
        cpuid(0x4000_0000, 0)
    } else {
        [0; 4]
    };
    let emulated = hypervisor[1] == u32::from_le_bytes(*b"TCGT");
    let flags = [
        ebx7 & 1 != 0,
        xsave,
        xsaveopt,
        ecx1 & 1 << 30 != 0,
        ebx7 & 1 << 18 != 0,
        ecx1 & 1 << 24 != 0,
        ecx7 & 1 << 22 != 0,
        edx_ext & 1 << 27 != 0,
        emulated,
    ];
    let bits = flags
        .iter()
        .enumerate()
        .fold(0, |bits, (n, on)| bits | u32::from(*on) << n);
    FEATURES.store(bits, Ordering::Relaxed);
    let mut cr4: usize;
    // SAFETY: sets only bits for features that exist.
    unsafe {
        asm!("mov {}, cr4", out(reg) cr4, options(nostack, preserves_flags));
        cr4 |= 0x6a0; // PAE, PGE, OSFXSR, OSXMMEXCPT
        if flags[0] {
            cr4 |= 1 << 16;
        }
        if xsave {
            cr4 |= 1 << 18;
        }
        asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags));
    }
    super::fpu::init();
}

/// The FS base of the running thread: the application's thread-local storage.
#[inline]
#[must_use]
pub fn fs_base() -> usize {
    if features().fsgsbase {
        let value: usize;
        // SAFETY: the feature exists and was switched on.
        unsafe { asm!("rdfsbase {}", out(reg) value, options(nostack, preserves_flags)) };
        value
    } else {
        // SAFETY: the register exists on every 64-bit CPU.
        coracle_abi::convert::usize_from(unsafe { read_msr(MSR_FS_BASE) })
    }
}

/// Sets the FS base. The address must be canonical.
#[inline]
pub fn set_fs_base(value: usize) {
    if features().fsgsbase {
        // SAFETY: the feature exists and was switched on; the kernel itself does not use FS.
        unsafe { asm!("wrfsbase {}", in(reg) value, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above.
        unsafe { write_msr(MSR_FS_BASE, coracle_abi::convert::u64_from(value)) };
    }
}

/// The GS base that the application sees. The kernel's own is active while this runs.
#[inline]
#[must_use]
pub fn user_gs_base() -> usize {
    if features().fsgsbase {
        let value: usize;
        // SAFETY: the feature exists; between the swaps no memory is accessed and interrupts are off.
        unsafe {
            asm!("swapgs", "rdgsbase {}", "swapgs", out(reg) value, options(nostack, preserves_flags));
        }
        value
    } else {
        // SAFETY: the register exists on every 64-bit CPU.
        coracle_abi::convert::usize_from(unsafe { read_msr(MSR_KERNEL_GS_BASE) })
    }
}

/// Sets the GS base that the application sees. The address must be canonical.
#[inline]
pub fn set_user_gs_base(value: usize) {
    if features().fsgsbase {
        // SAFETY: as above.
        unsafe {
            asm!("swapgs", "wrgsbase {}", "swapgs", in(reg) value, options(nostack, preserves_flags));
        }
    } else {
        // SAFETY: the register holds what the next swap makes the application's.
        unsafe { write_msr(MSR_KERNEL_GS_BASE, coracle_abi::convert::u64_from(value)) };
    }
}

/// Frequency of the time stamp counter in kHz, if the CPU or the hypervisor tells it (Intel SDM volume 2, CPUID leaf
/// 15h; KVM and others at 40000010h).
#[must_use]
pub fn tsc_khz() -> Option<u64> {
    let has_hypervisor = cpuid(1, 0)[2] & 1 << 31 != 0;
    if has_hypervisor && cpuid(0x4000_0000, 0)[0] >= 0x4000_0010 {
        return Some(u64::from(cpuid(0x4000_0010, 0)[0])).filter(|khz| *khz > 10_000);
    }
    if cpuid(0, 0)[0] < 0x15 {
        return None;
    }
    let [denominator, numerator, crystal_hz, _] = cpuid(0x15, 0).map(u64::from);
    (crystal_hz * numerator)
        .checked_div(denominator)
        .map(|hz| hz / 1000)
        .filter(|khz| *khz > 10_000)
}

/// A number from the hardware generator, if the CPU has one and it delivers.
#[must_use]
pub fn hardware_random() -> Option<u64> {
    if !features().rdrand {
        return None;
    }
    (0..16).find_map(|_| {
        let (value, ok): (u64, u8);
        // SAFETY: the instruction exists.
        unsafe {
            asm!("rdrand {}; setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack))
        };
        (ok != 0).then_some(value)
    })
}

/// Number of CPUs that are running.
static ONLINE: AtomicUsize = AtomicUsize::new(1);

/// Number of CPUs that are running.
#[inline]
#[must_use]
pub fn online() -> usize {
    ONLINE.load(Ordering::Acquire)
}

pub(super) fn mark_online() {
    ONLINE.fetch_add(1, Ordering::AcqRel);
}

/// Ends the machine by a triple fault, which every VMM takes as a reset.
pub fn reset() -> ! {
    let pointer: [u8; 10] = [0; 10];
    // SAFETY: with an empty interrupt table the breakpoint cannot be delivered; nothing runs after it.
    unsafe { asm!("cli; lidt [{}]; int3", in(reg) &raw const pointer, options(noreturn)) }
}
