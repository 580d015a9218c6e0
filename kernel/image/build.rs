// SPDX-License-Identifier: Apache-2.0
//! Hands the linker script to the linker when the kernel is built for the machine.

fn main() {
    println!("cargo:rerun-if-changed=linker.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let directory =
            std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory");
        println!("cargo:rustc-link-arg-bins=-T{directory}/linker.ld");
        println!("cargo:rustc-link-arg-bins=-no-dynamic-linker");
        println!("cargo:rustc-link-arg-bins=--gc-sections");
        println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
    }
}
