// SPDX-License-Identifier: Apache-2.0
//! What QEMU's microvm and q35, Firecracker and Cloud Hypervisor have in common of the old PC.

pub mod fw_cfg;
pub mod ioapic;
pub mod pci;
pub mod pit;
pub mod power;
pub mod rtc;
pub mod serial;
