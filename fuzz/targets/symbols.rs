// SPDX-License-Identifier: Apache-2.0
//! Symbol tables: any bytes give names that can be printed, with a bounded number of reads.

use coracle_loader::symbols::resolve;

/// Two bytes for each of three positions, then the file.
pub(crate) fn run(data: &[u8]) {
    let Some((places, file)) = data.split_first_chunk::<6>() else {
        return;
    };
    let positions: Vec<u64> = places
        .chunks_exact(2)
        .map(|pair| u64::from(u16::from_le_bytes([pair[0], pair[1]])))
        .collect();
    let mut reads = 0_usize;
    let mut read = |at: u64, out: &mut [u8]| {
        reads += 1;
        let rest = usize::try_from(at)
            .ok()
            .and_then(|at| file.get(at..))
            .unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        count
    };
    let found = resolve(&mut read, &positions);
    assert_eq!(found.len(), positions.len());
    for symbol in found.into_iter().filter_map(|found| found.symbol) {
        assert!(!symbol.name.is_empty() && !symbol.name.contains(|c: char| c.is_control()));
    }
    // Headers overlap at worst, symbols are read by the page.
    assert!(reads <= 2 * usize::from(u16::MAX) + file.len() / 4080 + 10);
}
