// SPDX-License-Identifier: Apache-2.0
//! What the report of a crash wants to know of the registers and of a stack.

use super::TrapFrame;

impl TrapFrame {
    /// All general registers with their names.
    #[must_use]
    pub fn registers(&self) -> [(&'static str, usize); 18] {
        [
            ("rax", self.rax),
            ("rbx", self.rbx),
            ("rcx", self.rcx),
            ("rdx", self.rdx),
            ("rsi", self.rsi),
            ("rdi", self.rdi),
            ("rbp", self.rbp),
            ("rsp", self.rsp),
            ("r8", self.r8),
            ("r9", self.r9),
            ("r10", self.r10),
            ("r11", self.r11),
            ("r12", self.r12),
            ("r13", self.r13),
            ("r14", self.r14),
            ("r15", self.r15),
            ("rip", self.rip),
            ("flags", self.rflags),
        ]
    }

    /// Where code with frame pointers keeps the caller's frame pointer; the return address lies in the word above.
    #[must_use]
    pub fn frame_pointer(&self) -> usize {
        self.rbp
    }
}

/// Bytes before a return address that [`ends_with_call`] wants to see.
pub const CALL_BYTES: usize = 7;

/// Whether code ends with a call: a word on the stack that points behind one is probably a return address.
#[must_use]
pub fn ends_with_call(code: &[u8; CALL_BYTES]) -> bool {
    // `call rel32`, or `ff /2` that is 2, 3, 4, 6 or 7 bytes long by its kind of operand.
    code[2] == 0xe8
        || [5, 4, 3, 1, 0]
            .iter()
            .any(|&at| code[at] == 0xff && code[at + 1] & 0x38 == 0x10)
}
