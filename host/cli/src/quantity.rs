// SPDX-License-Identifier: Apache-2.0
//! Sizes and times as users write them and read them.

pub(crate) use coracle_lab::experiment::bytes;

/// Smallest memory the kernel boots in, bytes.
const MEMORY_MIN: u64 = 8 << 20;
/// Most memory the kernel can use, bytes.
const MEMORY_MAX: u64 = 64 << 30;

/// Memory of a guest: a size between what the kernel needs and what this host has.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    if size < MEMORY_MIN {
        let meant = if (8..100_000).contains(&size) && text.bytes().all(|b| b.is_ascii_digit()) {
            format!(" (did you mean {size}M?)")
        } else {
            String::new()
        };
        return Err(format!(
            "{text} is too little memory{meant}; give at least {}",
            human(MEMORY_MIN)
        ));
    }
    let most = host_memory().map_or(MEMORY_MAX, |host| host.min(MEMORY_MAX));
    if size > most {
        return Err(format!(
            "{text} is more memory than this host can give; give at most {}",
            human(most)
        ));
    }
    Ok(size)
}

/// `MemTotal` in bytes, `proc_meminfo(5)`.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// A size in the largest unit that loses nothing, else in whole MiB.
pub(crate) fn human(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b.trailing_zeros() >= 30 => format!("{}G", b >> 30),
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b => format!("{}K", b >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_on_both_sides() {
        assert_eq!(memory("8M"), Ok(8 << 20));
        assert!(memory("0").unwrap_err().contains("at least 8M"));
        assert!(memory("64").unwrap_err().contains("did you mean 64M?"));
        assert!(memory("8191k").is_err());
        assert!(memory("100000G").unwrap_err().contains("at most"));
    }

    #[test]
    fn sizes_are_shown_in_whole_units() {
        assert_eq!(human(8 << 20), "8M");
        assert_eq!(human(2 << 30), "2G");
        assert_eq!(human(1536 << 20), "1536M");
        assert_eq!(human(512 << 10), "512K");
    }
}
