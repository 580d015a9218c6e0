// SPDX-License-Identifier: Apache-2.0
//! `memcpy` and its kind come from `compiler_builtins`; here is only the clearing of whole pages.

/// Zeroes a page.
///
/// # Safety
/// `at` is page-aligned, mapped, writable and not borrowed.
#[inline]
pub unsafe fn clear_page(at: *mut u8) {
    // SAFETY: promised by the caller. `rep stosq` is the fast way on hardware and a tight loop under emulation.
    unsafe {
        core::arch::asm!("rep stosq", inout("rcx") 512usize => _, inout("rdi") at => _, in("rax") 0usize, options(nostack, preserves_flags));
    }
}
