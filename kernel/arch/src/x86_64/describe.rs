// SPDX-License-Identifier: Apache-2.0
//! The CPU in words, as Linux has them in `/proc/cpuinfo`.

use core::fmt::{self, Write};

use super::cpu::cpuid;

/// Names of feature bits: leaf, register (`b` 1, `c` 2, `d` 3), bit. Those that programs look for.
const FLAGS: &[(u32, usize, u32, &str)] = &[
    (1, 3, 0, "fpu"),
    (1, 3, 4, "tsc"),
    (1, 3, 5, "msr"),
    (1, 3, 6, "pae"),
    (1, 3, 8, "cx8"),
    (1, 3, 9, "apic"),
    (1, 3, 13, "pge"),
    (1, 3, 15, "cmov"),
    (1, 3, 16, "pat"),
    (1, 3, 19, "clflush"),
    (1, 3, 23, "mmx"),
    (1, 3, 24, "fxsr"),
    (1, 3, 25, "sse"),
    (1, 3, 26, "sse2"),
    (1, 3, 28, "ht"),
    (0x8000_0001, 3, 11, "syscall"),
    (0x8000_0001, 3, 20, "nx"),
    (0x8000_0001, 3, 26, "pdpe1gb"),
    (0x8000_0001, 3, 27, "rdtscp"),
    (0x8000_0001, 3, 29, "lm"),
    (1, 2, 0, "pni"),
    (1, 2, 1, "pclmulqdq"),
    (1, 2, 9, "ssse3"),
    (1, 2, 12, "fma"),
    (1, 2, 13, "cx16"),
    (1, 2, 19, "sse4_1"),
    (1, 2, 20, "sse4_2"),
    (1, 2, 21, "x2apic"),
    (1, 2, 22, "movbe"),
    (1, 2, 23, "popcnt"),
    (1, 2, 24, "tsc_deadline_timer"),
    (1, 2, 25, "aes"),
    (1, 2, 26, "xsave"),
    (1, 2, 28, "avx"),
    (1, 2, 29, "f16c"),
    (1, 2, 30, "rdrand"),
    (1, 2, 31, "hypervisor"),
    (0x8000_0001, 2, 0, "lahf_lm"),
    (0x8000_0001, 2, 5, "abm"),
    (0x8000_0001, 2, 6, "sse4a"),
    (0x8000_0001, 2, 8, "3dnowprefetch"),
    (7, 1, 0, "fsgsbase"),
    (7, 1, 3, "bmi1"),
    (7, 1, 5, "avx2"),
    (7, 1, 7, "smep"),
    (7, 1, 8, "bmi2"),
    (7, 1, 9, "erms"),
    (7, 1, 16, "avx512f"),
    (7, 1, 17, "avx512dq"),
    (7, 1, 18, "rdseed"),
    (7, 1, 19, "adx"),
    (7, 1, 20, "smap"),
    (7, 1, 23, "clflushopt"),
    (7, 1, 24, "clwb"),
    (7, 1, 28, "avx512cd"),
    (7, 1, 29, "sha_ni"),
    (7, 1, 30, "avx512bw"),
    (7, 1, 31, "avx512vl"),
    (7, 2, 22, "rdpid"),
];

/// Writes a paragraph for each of `cpus` CPUs, all of which are like the one that asks.
pub fn write(out: &mut dyn Write, cpus: usize) -> fmt::Result {
    let khz = (1_000_000 << 32) / super::clock::parameters().1.max(1);
    let [max_leaf, b, c, d] = cpuid(0, 0);
    let [signature, misc, ..] = cpuid(1, 0);
    let max_extended = cpuid(0x8000_0000, 0)[0];
    let family = match signature >> 8 & 0xf {
        0xf => 0xf + (signature >> 20 & 0xff),
        family => family,
    };
    let model = (signature >> 4 & 0xf)
        | if family >= 6 {
            signature >> 12 & 0xf0
        } else {
            0
        };
    let sizes = if max_extended >= 0x8000_0008 {
        cpuid(0x8000_0008, 0)[0]
    } else {
        0x3024
    };
    for number in 0..cpus {
        writeln!(out, "processor\t: {number}")?;
        write!(out, "vendor_id\t: ")?;
        text(out, &[b, d, c])?;
        writeln!(out, "\ncpu family\t: {family}\nmodel\t\t: {model}")?;
        write!(out, "model name\t: ")?;
        if max_extended >= 0x8000_0004 {
            for leaf in 0x8000_0002..=0x8000_0004 {
                text(out, &cpuid(leaf, 0))?;
            }
        }
        writeln!(out, "\nstepping\t: {}", signature & 0xf)?;
        writeln!(out, "cpu MHz\t\t: {}.{:03}", khz / 1000, khz % 1000)?;
        writeln!(
            out,
            "physical id\t: 0\nsiblings\t: {cpus}\ncore id\t\t: {number}\ncpu cores\t: {cpus}"
        )?;
        writeln!(
            out,
            "apicid\t\t: {number}\nfpu\t\t: yes\ncpuid level\t: {max_leaf}\nwp\t\t: yes"
        )?;
        write!(out, "flags\t\t:")?;
        for (leaf, register, bit, name) in FLAGS {
            let known = if *leaf < 0x8000_0000 {
                max_leaf
            } else {
                max_extended
            };
            if *leaf <= known && cpuid(*leaf, 0)[*register] & 1 << bit != 0 {
                write!(out, " {name}")?;
            }
        }
        writeln!(out, "\nbogomips\t: {}.{:02}", khz / 500, khz / 5 % 100)?;
        writeln!(
            out,
            "clflush size\t: {}\ncache_alignment\t: 64",
            (misc >> 8 & 0xff) * 8
        )?;
        writeln!(
            out,
            "address sizes\t: {} bits physical, {} bits virtual\n",
            sizes & 0xff,
            sizes >> 8 & 0xff
        )?;
    }
    Ok(())
}

/// Registers as the text they hold, up to a NUL.
fn text(out: &mut dyn Write, registers: &[u32]) -> fmt::Result {
    registers
        .iter()
        .flat_map(|r| r.to_le_bytes())
        .take_while(|b| *b != 0)
        .try_for_each(|b| out.write_char(char::from(b)))
}
