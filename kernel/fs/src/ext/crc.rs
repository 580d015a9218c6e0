// SPDX-License-Identifier: Apache-2.0
//! The checksum of transactions: CRC-32 with its most significant bit first, no inversion at the end, as the journal's
//! format has it.

const POLYNOMIAL: u32 = 0x04c1_1db7;

/// `TABLES[n][b]` is what byte `b` adds when `n` more bytes follow it in a group of four.
static TABLES: [[u32; 256]; 4] = tables();

#[expect(clippy::cast_possible_truncation, reason = "a number below 256 fits")]
const fn tables() -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut n = 0;
    while n < 256 {
        let mut crc = (n as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 {
                crc << 1 ^ POLYNOMIAL
            } else {
                crc << 1
            };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut table = 1;
    while table < 4 {
        let mut n = 0;
        while n < 256 {
            let before: u32 = tables[table - 1][n];
            tables[table][n] = before << 8 ^ tables[0][(before >> 24) as usize];
            n += 1;
        }
        table += 1;
    }
    tables
}

/// Goes on with a checksum over more bytes.
pub(super) fn update(crc: u32, bytes: &[u8]) -> u32 {
    let (groups, rest) = bytes.as_chunks::<4>();
    let crc = groups.iter().fold(crc, |crc, group| {
        let [a, b, c, d] = (crc ^ u32::from_be_bytes(*group)).to_be_bytes();
        TABLES[3][usize::from(a)]
            ^ TABLES[2][usize::from(b)]
            ^ TABLES[1][usize::from(c)]
            ^ TABLES[0][usize::from(d)]
    });
    rest.iter().fold(crc, |crc, byte| {
        let [top, ..] = crc.to_be_bytes();
        crc << 8 ^ TABLES[0][usize::from(top ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition() {
        // CRC-32/MPEG-2 of the usual check string.
        assert_eq!(update(!0, b"123456789"), 0x0376_e6e7);
        let split = update(update(!0, b"12345"), b"6789");
        assert_eq!(split, 0x0376_e6e7);
    }
}
