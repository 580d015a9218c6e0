// SPDX-License-Identifier: Apache-2.0
//! `/proc/sys`: kernel parameters. All are read-only; writing is refused when the file is opened.

use alloc::format;
use alloc::string::String;

use coracle_core::random;
use coracle_core::sync::Once;

use super::{Info, text};
use crate::pseudo::Spec;

pub(super) fn directory(info: &Info) -> Spec {
    Spec::directory([
        ("kernel", kernel(info)),
        (
            "vm",
            Spec::directory([
                // Memory is given when it is touched, and its end ends the program: that is policy 1.
                ("overcommit_memory", Spec::constant("1\n")),
                ("max_map_count", Spec::constant("65530\n")),
                ("mmap_min_addr", Spec::constant("65536\n")),
                ("swappiness", Spec::constant("0\n")),
            ]),
        ),
        (
            "fs",
            Spec::directory([
                ("file-max", Spec::constant("1048576\n")),
                ("nr_open", Spec::constant("1048576\n")),
                ("pipe-max-size", Spec::constant("1048576\n")),
            ]),
        ),
        (
            "net",
            Spec::directory([
                (
                    "core",
                    Spec::directory([("somaxconn", Spec::constant("4096\n"))]),
                ),
                (
                    "ipv4",
                    Spec::directory([("ip_local_port_range", Spec::constant("32768\t60999\n"))]),
                ),
            ]),
        ),
    ])
}

fn kernel(info: &Info) -> Spec {
    Spec::directory([
        ("hostname", text(info, |i| i.host_name() + "\n")),
        ("domainname", Spec::constant("(none)\n")),
        ("ostype", Spec::constant("Linux\n")),
        ("osrelease", text(info, |i| i.release().0 + "\n")),
        ("version", text(info, |i| i.release().1 + "\n")),
        ("pid_max", Spec::constant("4194304\n")),
        ("threads-max", Spec::constant("65536\n")),
        ("ngroups_max", Spec::constant("65536\n")),
        ("cap_last_cap", Spec::constant("40\n")),
        ("randomize_va_space", Spec::constant("2\n")),
        (
            "random",
            Spec::directory([
                ("boot_id", Spec::file(|| boot_id().into_bytes())),
                ("uuid", Spec::file(|| uuid().into_bytes())),
                ("entropy_avail", Spec::constant("256\n")),
                ("poolsize", Spec::constant("256\n")),
            ]),
        ),
    ])
}

/// A random UUID, version 4 (RFC 9562 section 5.4).
fn uuid() -> String {
    let bits = u128::from(random::u64()) << 64 | u128::from(random::u64());
    let mut bytes = bits.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    format!(
        "{}-{}-{}-{}-{}\n",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// A UUID that stays the same until the machine stops.
fn boot_id() -> String {
    static ID: Once<String> = Once::new();
    if ID.get().is_none() {
        // Whoever loses the race shows the winner's.
        let _ = ID.set(uuid());
    }
    ID.get().cloned().unwrap_or_default()
}
