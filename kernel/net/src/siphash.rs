// SPDX-License-Identifier: Apache-2.0
//! A keyed hash that nobody can invert, for initial sequence numbers (RFC 6528).
//!
//! SipHash-2-4 of Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), over whole 64-bit words.

/// SipHash-2-4 of `words` under `key`.
pub(crate) fn siphash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let length = coracle_abi::convert::u64_from(words.len() * 8) << 56;
    for word in words.iter().copied().chain([length]) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_the_published_vectors() {
        // Key 00..0f; input 00..07 (reference implementation, vectors_sip64, lengths 0 and 8).
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(super::siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(
            super::siphash(key, &[0x0706_0504_0302_0100]),
            0x93f5_f579_9a93_2462
        );
    }
}
