// SPDX-License-Identifier: Apache-2.0
//! Reads machine code: which functions there are, which others each can reach, and which system calls it makes.
//!
//! It follows constants through straight lines only, and takes every function whose address is taken as called. So it
//! finds more than will happen, and can miss a call whose number is computed.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::object_file::ObjectFile;

/// Numbers above this are no system calls.
const NUMBERS_END: u32 = 1024;

/// A call of another function in the same file, with the constants it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) target: u64,
    /// The constant in `rax`, or if there is none in `rdi`: the number, where the target is a wrapper of `syscall`.
    pub(crate) constant: Option<u32>,
}

/// What one function does.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) calls: Vec<Call>,
    /// Symbols it reaches through slots, with the constant as in [`Call`].
    pub(crate) symbols: Vec<(String, Option<u32>)>,
    /// System calls it makes itself.
    pub(crate) numbers: BTreeSet<u32>,
    /// It makes a system call whose number comes from its caller.
    pub(crate) is_wrapper: bool,
}

/// All functions of a file by their addresses.
#[derive(Debug)]
pub(crate) struct CodeMap {
    functions: BTreeMap<u64, Function>,
}

impl CodeMap {
    /// Reads all code of a file.
    pub(crate) fn of(object: &ObjectFile) -> Self {
        let mut starts: BTreeSet<u64> = object
            .starts
            .iter()
            .copied()
            .chain([object.entry])
            .filter(|at| object.is_code(*at))
            .collect();
        for segment in object.segments.iter().filter(|s| s.executable) {
            starts.insert(segment.address);
            sweep(&segment.bytes, segment.address, |instruction| {
                if instruction.is_call_near() && object.is_code(instruction.near_branch_target()) {
                    starts.insert(instruction.near_branch_target());
                }
            });
        }
        let mut functions = BTreeMap::new();
        let mut ends = starts.iter().copied().skip(1).chain([u64::MAX]);
        for start in &starts {
            let end = ends.next().unwrap_or(u64::MAX);
            functions.insert(*start, read_function(object, &starts, *start, end));
        }
        let mut this = Self { functions };
        this.pass_numbers_on();
        this
    }

    /// The function that `address` lies in, with its begin.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Function)> {
        self.functions
            .range(..=address)
            .next_back()
            .map(|(start, function)| (*start, function))
    }

    /// Begins of all functions.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.functions.keys().copied()
    }

    /// A function that calls a wrapper makes the call whose number it passes. One that passes on what its own caller gave
    /// it is a wrapper as well; the tools' libraries nest them three deep at most.
    fn pass_numbers_on(&mut self) {
        for _ in 0..3 {
            let wrappers: BTreeSet<u64> = self
                .functions
                .iter()
                .filter(|(_, f)| f.is_wrapper)
                .map(|(at, _)| *at)
                .collect();
            if wrappers.is_empty() {
                return;
            }
            for function in self.functions.values_mut() {
                for call in &function.calls {
                    if wrappers.contains(&call.target) {
                        match call.constant {
                            Some(number) => {
                                function.numbers.insert(number);
                            }
                            None => function.is_wrapper = true,
                        }
                    }
                }
            }
        }
    }
}

fn sweep(bytes: &[u8], address: u64, mut each: impl FnMut(&Instruction)) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        each(&instruction);
    }
}

fn code_at(object: &ObjectFile, start: u64, end: u64) -> &[u8] {
    object
        .segments
        .iter()
        .filter(|s| s.executable && s.address <= start)
        .find_map(|s| {
            let from = usize::try_from(start - s.address).ok()?;
            let to = usize::try_from(end.saturating_sub(s.address)).unwrap_or(usize::MAX);
            s.bytes.get(from..to.min(s.bytes.len()))
        })
        .unwrap_or_default()
}

/// The two registers in which numbers of system calls are handed on.
#[derive(Default)]
struct Constants {
    rax: Option<u32>,
    rdi: Option<u32>,
}

impl Constants {
    fn slot(&mut self, register: Register) -> Option<&mut Option<u32>> {
        match register.full_register() {
            Register::RAX => Some(&mut self.rax),
            Register::RDI => Some(&mut self.rdi),
            _ => None,
        }
    }

    fn follow(&mut self, instruction: &Instruction) {
        if instruction.is_call_near() || instruction.is_call_near_indirect() {
            *self = Self::default();
            return;
        }
        if matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
        ) || instruction.op0_kind() != OpKind::Register
        {
            return;
        }
        let value = match instruction.code() {
            Code::Mov_r32_imm32 => Some(instruction.immediate32()),
            Code::Mov_rm64_imm32 => u32::try_from(instruction.immediate32to64()).ok(),
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                Some(0)
            }
            _ => None,
        };
        if let Some(slot) = self.slot(instruction.op0_register()) {
            *slot = value.filter(|number| *number < NUMBERS_END);
        }
    }

    fn for_callee(&self) -> Option<u32> {
        self.rax.filter(|n| *n != 0).or(self.rdi)
    }
}

fn read_function(object: &ObjectFile, starts: &BTreeSet<u64>, start: u64, end: u64) -> Function {
    let mut function = Function::default();
    let mut constants = Constants::default();
    sweep(code_at(object, start, end), start, |instruction| {
        if instruction.mnemonic() == Mnemonic::Syscall {
            match constants.rax {
                Some(number) => {
                    function.numbers.insert(number);
                }
                None => function.is_wrapper = true,
            }
        }
        let constant = constants.for_callee();
        let mut reach = |target: u64| {
            function.calls.push(Call { target, constant });
        };
        if instruction.is_call_near()
            || instruction.is_jmp_short_or_near()
            || instruction.is_jcc_short_or_near()
        {
            let target = instruction.near_branch_target();
            if !(start..end).contains(&target) && object.is_code(target) {
                reach(target);
            }
        } else if instruction.is_ip_rel_memory_operand() {
            let target = instruction.ip_rel_memory_address();
            if instruction.mnemonic() == Mnemonic::Lea && object.is_code(target) {
                reach(target);
            } else if let Some(symbol) = object.slots.get(&target) {
                function.symbols.push((symbol.clone(), constant));
            }
        } else if !object.position_independent && instruction.op_count() == 2 {
            // Addresses of functions in programs that are linked to a fixed place.
            let value = match instruction.op1_kind() {
                OpKind::Immediate32 => u64::from(instruction.immediate32()),
                OpKind::Immediate32to64 => instruction.immediate32to64().cast_unsigned(),
                _ => 0,
            };
            if starts.contains(&value) {
                reach(value);
            }
        }
        constants.follow(instruction);
    });
    function
}
