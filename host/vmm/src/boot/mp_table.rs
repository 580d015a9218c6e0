// SPDX-License-Identifier: Apache-2.0
//! The table that tells a kernel on a machine without ACPI how many processors there are.
//!
//! Source: Intel MultiProcessor Specification 1.4, chapter 4. An ISA line leads to the input of the IO-APIC with the same
//! number, but line 0, the timer, to input 2 (QEMU `ioapic_set_irq`); local interrupts are as the specification's example.

/// Physical addresses of the interrupt controllers.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;
/// `EN`: usable; `BP`: the one that boots.
const ENABLED: u8 = 1;
const BOOT_PROCESSOR: u8 = 2;
/// Version of the local APIC and of the IO-APIC that QEMU emulates.
const APIC_VERSION: u8 = 0x14;
const IO_APIC_VERSION: u8 = 0x11;
/// Number of lines of the ISA bus.
const ISA_LINES: u8 = 16;

/// The floating pointer, 16 bytes, and behind it the configuration table, for a ROM that has them at `address`.
pub(super) fn build(address: u32, cpus: u32) -> Vec<u8> {
    let io_apic_id = u8::try_from(cpus).expect("at most 8 vCPUs");
    let mut entries = Vec::new();
    for id in 0..io_apic_id {
        let flags = if id == 0 {
            ENABLED | BOOT_PROCESSOR
        } else {
            ENABLED
        };
        entries.push([&[0, id, APIC_VERSION, flags][..], &[0; 16]].concat());
    }
    entries.push([&[1, 0][..], b"ISA   "].concat());
    entries.push(
        [
            &[2, io_apic_id, IO_APIC_VERSION, ENABLED][..],
            &IO_APIC.to_le_bytes(),
        ]
        .concat(),
    );
    for line in (0..ISA_LINES).filter(|&line| line != 2) {
        let input = if line == 0 { 2 } else { line };
        entries.push(vec![3, 0, 0, 0, 0, line, io_apic_id, input]);
    }
    entries.push(vec![4, 3, 0, 0, 0, 0, 0xff, 0]); // ExtINT on LINT0 of all
    entries.push(vec![4, 1, 0, 0, 0, 0, 0xff, 1]); // NMI on LINT1 of all

    let count = u16::try_from(entries.len()).expect("few");
    let entries = entries.concat();
    let length = u16::try_from(44 + entries.len()).expect("short");
    let mut table = b"PCMP".to_vec();
    table.extend(length.to_le_bytes());
    table.extend([4, 0]); // revision 1.4, check sum
    table.extend(b"CORACLE microvm     "); // OEM and product
    table.extend([0; 6]); // no OEM table
    table.extend(count.to_le_bytes());
    table.extend(LOCAL_APIC.to_le_bytes());
    table.extend([0; 4]); // no extended table
    table.extend(entries);
    table[7] = check_sum(&table);

    let mut pointer = b"_MP_".to_vec();
    pointer.extend((address + 16).to_le_bytes());
    pointer.extend([1, 4, 0, 0, 0, 0, 0, 0]); // one paragraph, revision 1.4, check sum, a table is there
    pointer[10] = check_sum(&pointer);
    [pointer, table].concat()
}

/// The byte that makes the sum of all zero.
fn check_sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_sub(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_lengths_are_those_of_the_specification() {
        for cpus in [1, 2, 8] {
            let bytes = build(0xf_1400, cpus);
            let (pointer, table) = bytes.split_at(16);
            let sum = |part: &[u8]| part.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
            assert_eq!((&pointer[..4], sum(pointer)), (&b"_MP_"[..], 0));
            assert_eq!(pointer[4..8], 0xf_1410u32.to_le_bytes());
            assert_eq!((&table[..4], sum(table)), (&b"PCMP"[..], 0));
            assert_eq!(
                usize::from(u16::from_le_bytes([table[4], table[5]])),
                table.len()
            );
            // Walk the entries: processors have 20 bytes, all others 8.
            let (mut at, mut count, mut processors) = (44, 0, 0);
            while at < table.len() {
                let processor = table[at] == 0;
                processors += u32::from(processor);
                count += 1;
                at += if processor { 20 } else { 8 };
            }
            assert_eq!((at, processors), (table.len(), cpus));
            assert_eq!(count, u16::from_le_bytes([table[34], table[35]]));
        }
    }
}
