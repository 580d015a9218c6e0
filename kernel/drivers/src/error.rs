// SPDX-License-Identifier: Apache-2.0
//! Why a device could not be brought up.

use core::fmt;

/// A device that cannot be used: which one, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The device, for example `"virtio-net"`, or the transport while the device is not known yet.
    pub device: &'static str,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The registers do not begin with the magic value of virtio-mmio; the value found.
    NotVirtio(u32),
    /// The transport speaks another version than 2; the version found. 1 is the legacy interface.
    Version(u32),
    /// The device stayed busy after a reset.
    Reset,
    /// The device does not offer a feature that is needed.
    MissingFeature(&'static str),
    /// The device refused the features chosen from its own offer.
    FeaturesRefused,
    /// The device has no queue of this number, or too small a one.
    MissingQueue(u16),
    /// The device's configuration space is shorter than its features need; its length in bytes.
    ShortConfiguration(usize),
    /// A PCI capability that is needed is missing or lies outside its BAR.
    MissingCapability(&'static str),
    /// No window has room for the memory of a BAR; its number.
    NoRoomForBar(u8),
    /// No answer in time to the named command.
    NoAnswer(&'static str),
}

impl DriverError {
    pub(crate) const fn new(device: &'static str, reason: Reason) -> Self {
        Self { device, reason }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.device)?;
        match self.reason {
            Reason::NotVirtio(magic) => write!(f, "no virtio device here (magic value {magic:#x})"),
            Reason::Version(1) => f.write_str(
                "the legacy interface (version 1) is not supported; start QEMU with \
                 -global virtio-mmio.force-legacy=false",
            ),
            Reason::Version(version) => write!(f, "unknown interface version {version}"),
            Reason::Reset => f.write_str("does not complete a reset"),
            Reason::MissingFeature(name) => write!(f, "does not offer {name}"),
            Reason::FeaturesRefused => f.write_str("refuses the features it offered"),
            Reason::MissingQueue(index) => write!(f, "has no usable queue {index}"),
            Reason::ShortConfiguration(len) => {
                write!(f, "has only {len} bytes of configuration")
            }
            Reason::MissingCapability(name) => write!(f, "has no usable {name} capability"),
            Reason::NoRoomForBar(bar) => write!(f, "no address space left for its BAR {bar}"),
            Reason::NoAnswer(command) => write!(f, "does not answer {command}"),
        }
    }
}

impl core::error::Error for DriverError {}
