// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzer's corpus on the stable compiler: what a fuzzer once found stays fixed. See fuzz/README.md.

#[path = "../../../fuzz/targets/ext.rs"]
mod ext;
#[path = "../../../fuzz/targets/ninep.rs"]
mod ninep;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;

/// Bytes without a meaning, the same in every run: a linear congruential generator (Knuth's MMIX) goes on from `number`.
fn noise(number: &mut u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| {
            *number = number
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            number.to_be_bytes()[0]
        })
        .collect()
}

#[test]
fn ext() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "ext", ext::run);
}

/// The same with bytes that nobody thought about.
#[test]
fn ext_survives_noise() {
    let mut number = 7u64;
    for _ in 0..150 {
        let noise = noise(&mut number, 20);
        ext::run(&noise);
    }
}

#[test]
fn ninep() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "ninep", ninep::run);
}

/// The same with answers that nobody thought about.
#[test]
fn ninep_survives_noise() {
    let mut number = 1u64;
    for _ in 0..3000 {
        let noise = noise(&mut number, 600);
        // An even first byte lets the share be mounted.
        let first = [2 * (noise[0] / 2)];
        ninep::run(&[&first[..], &noise].concat());
    }
}
