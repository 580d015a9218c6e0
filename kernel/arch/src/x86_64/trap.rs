// SPDX-License-Identifier: Apache-2.0
//! Traps and the system-call door: from the CPU to four upcalls and back.
//!
//! A trap enters on an interrupt stack. Its stub saves the registers there, then moves the frame: below the interrupted
//! stack pointer if an interrupt met kernel code (the idle loop), else to the top of the running thread's kernel stack.
//! From then on the handler may switch threads. A fault of kernel code stays where it is: it is a copy that meets a
//! missing page, which is over at once, or the end of the kernel, whose stack may be what failed.
//!
//! `syscall` works at the highest privilege as well: it loads CS and SS from `STAR`, masks flags, and jumps; it saves no
//! stack pointer. There is no matching return, so the way back is a jump.
//!
//! The kernel finds its CPU's data through GS. While the application runs, GS is its own: every way in and out swaps.
//! Whether a trap came from the application is told by the interrupted address, since the privilege is the same.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{cpu, descriptors, layout};

/// The registers of interrupted or calling code, as the entry code stores them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the registers say it")]
pub struct TrapFrame {
    pub r15: usize,
    pub r14: usize,
    pub r13: usize,
    pub r12: usize,
    pub rbp: usize,
    pub rbx: usize,
    pub r11: usize,
    pub r10: usize,
    pub r9: usize,
    pub r8: usize,
    pub rdi: usize,
    pub rsi: usize,
    pub rdx: usize,
    pub rcx: usize,
    pub rax: usize,
    /// Number of the trap, or [`TrapFrame::SYSCALL`], or [`TrapFrame::FULL`].
    pub vector: usize,
    /// Error code of the trap, or the number of the system call.
    pub error: usize,
    pub rip: usize,
    pub cs: usize,
    pub rflags: usize,
    pub rsp: usize,
    pub ss: usize,
}

impl TrapFrame {
    /// The frame comes from a system call and its return may spoil rcx and r11.
    pub const SYSCALL: usize = 0x100;
    /// The frame must be restored completely (after a signal handler, or at a new thread).
    pub const FULL: usize = 0x101;

    /// Interrupt-enable flag.
    const IF: usize = 1 << 9;
    /// Flags that an application may set: CF PF AF ZF SF TF DF OF AC ID.
    const USER_FLAGS: usize = 0x24_0dd5;

    /// A frame that enters application code at `entry` with the given stack pointer and everything else zero.
    #[must_use]
    pub fn enter(entry: usize, stack: usize) -> Self {
        Self {
            vector: Self::FULL,
            rip: entry,
            cs: descriptors::CODE.into(),
            rflags: Self::IF | 2,
            rsp: stack,
            ss: 16,
            ..Self::default()
        }
    }

    /// Whether the frame is of kernel code: the idle loop, or a copy to or from application memory.
    #[inline]
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        layout::text().contains(&self.rip)
    }

    /// Makes values that came from the application safe: selectors are ours, interrupts stay on.
    pub fn sanitize(&mut self) {
        // An address that is not canonical would fault in the kernel's return: let the application fault instead.
        if self.rip > coracle_abi::USER_END {
            self.rip = 0;
        }
        self.cs = descriptors::CODE.into();
        self.ss = 16;
        self.rflags = self.rflags & Self::USER_FLAGS | Self::IF | 2;
    }

    /// Number of the system call of a frame from the system-call door.
    #[inline]
    #[must_use]
    pub fn syscall_number(&self) -> usize {
        self.error
    }

    /// The six arguments of a system call.
    #[inline]
    #[must_use]
    pub fn syscall_arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Sets what the system call returns.
    #[inline]
    pub fn set_result(&mut self, value: usize) {
        self.rax = value;
    }

    /// Sets the stack pointer.
    pub fn set_stack(&mut self, at: usize) {
        self.rsp = at;
    }

    /// The stack pointer.
    #[must_use]
    pub fn stack(&self) -> usize {
        self.rsp
    }

    /// Lets the system call run again when the application continues: the instruction is two bytes long.
    pub fn restart_syscall(&mut self) {
        self.rip -= 2;
        self.rax = self.error;
    }

    /// Whether the frame is of a system call.
    #[inline]
    #[must_use]
    pub fn is_syscall(&self) -> bool {
        self.vector == Self::SYSCALL
    }

    /// Forces the return to restore every register.
    pub fn restore_fully(&mut self) {
        self.vector = Self::FULL;
    }

    /// Address of the interrupted instruction.
    #[must_use]
    pub fn instruction(&self) -> usize {
        self.rip
    }
}

/// What a fault is about, independent of the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A page is missing or forbids the access.
    Page {
        /// The address that was accessed.
        address: usize,
        /// The access was a write.
        write: bool,
        /// The access was an instruction fetch.
        execute: bool,
        /// The page is there but forbids the access.
        present: bool,
    },
    /// Division by zero or overflow (SIGFPE).
    Divide,
    /// Floating-point exception (SIGFPE), with its `FPE_*` code.
    FloatingPoint(i32),
    /// Invalid instruction (SIGILL).
    InvalidInstruction,
    /// Breakpoint instruction (SIGTRAP).
    Breakpoint,
    /// Single step or hardware breakpoint (SIGTRAP).
    Debug,
    /// Misaligned access with alignment checking on (SIGBUS).
    Alignment,
    /// Non-canonical address or privileged nonsense (SIGSEGV).
    Protection,
    /// Anything else: number of the exception.
    Other(u8),
}

unsafe extern "Rust" {
    /// A system call. Runs on the thread's kernel stack; may sleep. Defined once, in the image crate.
    safe fn on_syscall(frame: &mut TrapFrame);
    /// A device interrupt with its vector (32..=239). May switch threads if `frame` is of the application.
    safe fn on_irq(frame: &mut TrapFrame, vector: u8);
    /// A fault of the application.
    safe fn on_fault(frame: &mut TrapFrame, fault: Fault);
    /// A fault of the kernel itself: never returns. Runs on a stack of its own.
    safe fn on_kernel_fault(frame: &TrapFrame, fault: Fault) -> !;
    /// An NMI: somebody asks what this CPU does. Never returns. Little stack is left.
    safe fn on_nmi(frame: &TrapFrame) -> !;
}

global_asm!(
    r#"
    .section .text.traps, "ax", @progbits
    .macro SAVE
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    .endm
    .macro RESTORE
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    .endm

    .align 16
    .global trap_stubs
trap_stubs:
    .set vector, 0
    .rept 256
    .align 16
    .if (vector != 8) && (vector != 10) && (vector != 11) && (vector != 12) && (vector != 13) && (vector != 14) && (vector != 17) && (vector != 21) && (vector != 29) && (vector != 30)
    push 0
    .endif
    push vector
    jmp trap_common
    .set vector, vector + 1
    .endr

    .align 16
trap_common:
    SAVE
    cld
    # Which stack does the handler run on?
    mov rsi, rsp                        # frame on the interrupt stack
    mov rax, [rsi + 136]                # interrupted rip
    lea rcx, [rip + __text_start]
    cmp rax, rcx
    jb 1f
    lea rcx, [rip + __text_end]
    cmp rax, rcx
    jae 1f
    mov rdi, rsi
    cmp qword ptr [rsi + 120], 32
    jb 3f                               # kernel code: an exception stays here
    mov rdi, [rsi + 160]                # an interrupt continues below the stack
    and rdi, -16
    jmp 2f
1:  swapgs                              # application: GS was its own until here
    mov rdi, gs:[8]                     # the thread's kernel stack
2:  sub rdi, 176
    mov rsp, rdi
    # Copy the frame: 22 words.
    .set at, 0
    .rept 22
    mov rax, [rsi + at]
    mov [rdi + at], rax
    .set at, at + 8
    .endr
3:  xor ebp, ebp
    call trap_rust
    # Fall through: `rsp` is at the frame.
    .global trap_return
trap_return:
    mov rax, [rsp + 136]
    lea rcx, [rip + __text_start]
    cmp rax, rcx
    jb 1f
    lea rcx, [rip + __text_end]
    cmp rax, rcx
    jb 2f
1:  swapgs                              # back to the application: GS is its own again
2:  RESTORE
    add rsp, 16
    iretq

    .align 16
    .global syscall_entry
syscall_entry:
    swapgs
    mov gs:[16], rsp
    mov rsp, gs:[8]
    push 16                             # ss
    push gs:[16]                        # rsp
    push r11                            # rflags
    push 8                              # cs
    push rcx                            # rip
    push rax                            # error: number of the call
    push 0x100                          # vector: TrapFrame::SYSCALL
    SAVE
    mov rdi, rsp
    xor ebp, ebp
    call {on_syscall}
    .global syscall_return
syscall_return:
    cmp qword ptr [rsp + 120], 0x100
    jne trap_return
    # The short way: rcx takes the address, r11 the flags, as after sysret.
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    add rsp, 8
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    add rsp, 8
    pop rax
    mov rcx, [rsp + 16]                 # rip
    mov r11, [rsp + 32]                 # rflags
    and dword ptr [rsp + 32], 0xfffffdff
    add rsp, 32
    popfq                               # all flags but IF
    mov rsp, [rsp]
    swapgs
    sti                                 # takes effect after the jump
    jmp rcx
    "#,
    on_syscall = sym on_syscall,
);

/// Called by the entry code.
#[unsafe(no_mangle)]
extern "C" fn trap_rust(frame: &mut TrapFrame) {
    let vector = coracle_abi::convert::low_u8(frame.vector as u64);
    if vector >= 32 {
        if vector == super::smp::FLUSH_VECTOR {
            super::lapic::end_of_interrupt();
            super::paging::serve_flush();
            return;
        }
        on_irq(frame, vector);
        return;
    }
    if vector == 2 {
        on_nmi(frame);
    }
    let fault = match vector {
        0 => Fault::Divide,
        1 => Fault::Debug,
        3 => Fault::Breakpoint,
        6 => Fault::InvalidInstruction,
        12 | 13 => Fault::Protection,
        14 => Fault::Page {
            address: fault_address(),
            write: frame.error & 2 != 0,
            execute: frame.error & 16 != 0,
            present: frame.error & 1 != 0,
        },
        16 => Fault::FloatingPoint(super::fpu::x87_exception()),
        19 => Fault::FloatingPoint(super::fpu::sse_exception()),
        17 => Fault::Alignment,
        other => Fault::Other(other),
    };
    if frame.is_kernel() {
        // The one kind of fault the kernel makes on purpose: copying from or to nonsense addresses.
        if let Some(landing) = super::user::landing(frame.rip) {
            frame.rip = landing;
            return;
        }
        kernel_fault(frame, fault);
    }
    if matches!(fault, Fault::Other(8 | 18)) || descriptors::on_interrupt_stack(frame.rsp) {
        kernel_fault(frame, fault);
    }
    on_fault(frame, fault);
}

/// Hands a fault of the kernel over on the stack that served boot: the running one may be what failed, and interrupt
/// stacks are small.
fn kernel_fault(frame: &TrapFrame, fault: Fault) -> ! {
    unsafe extern "C" {
        static boot_stack_top: u8;
    }
    /// The CPU that uses the boot stack for this, plus one.
    static OWNER: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn enter(frame: &TrapFrame, fault: &Fault) -> ! {
        on_kernel_fault(frame, *fault)
    }

    let me = cpu::index() + 1;
    match OWNER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {}
        Err(owner) if owner == me => cpu::reset(), // the report failed as well
        Err(_) => cpu::stop(),
    }
    // SAFETY: boot is over or this is its end, so nobody else uses the boot stack; the present one keeps `frame` and
    // `fault` and is not returned to.
    unsafe {
        asm!(
            "mov rsp, {stack}", "xor ebp, ebp", "call {enter}", "ud2",
            stack = in(reg) &raw const boot_stack_top,
            enter = sym enter,
            in("rdi") core::ptr::from_ref(frame),
            in("rsi") &raw const fault,
            options(noreturn),
        )
    }
}

fn fault_address() -> usize {
    let address: usize;
    // SAFETY: reading CR2 has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_FMASK: u32 = 0xc000_0084;

/// Opens the system-call door on this CPU.
pub(super) fn init_syscall() {
    unsafe extern "C" {
        static syscall_entry: u8;
    }
    // SAFETY: the entry code is made for this door; the mask clears IF, TF, DF, AC and NT.
    unsafe {
        cpu::write_msr(MSR_STAR, u64::from(descriptors::CODE) << 32);
        cpu::write_msr(MSR_LSTAR, (&raw const syscall_entry) as u64);
        cpu::write_msr(MSR_FMASK, 0x4_4700);
    }
}

/// Leaves the kernel through `frame`, which lies at the top of the running thread's kernel stack.
///
/// # Safety
/// The frame must be one that application code can continue from, and nothing on the kernel stack is needed any more.
pub unsafe fn return_to_application(frame: &mut TrapFrame) -> ! {
    // SAFETY: promised by the caller.
    unsafe {
        asm!("mov rsp, {}", "jmp trap_return", in(reg) core::ptr::from_mut(frame), options(noreturn))
    }
}
