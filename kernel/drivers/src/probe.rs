// SPDX-License-Identifier: Apache-2.0
//! From a transport to a driver that runs.

use alloc::sync::Arc;

use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;

use crate::block::VirtioBlock;
use crate::console::VirtioConsole;
use crate::entropy::VirtioEntropy;
use crate::error::DriverError;
use crate::net::{NetOptions, VirtioNet};
use crate::ninep::VirtioShare;
use crate::pci::{PciFunction, PciHost};
use crate::transport::{MmioTransport, PciTransport, Transport};

/// Device numbers (virtio 1.2, chapter 5).
mod device_id {
    pub(super) const ABSENT: u32 = 0;
    pub(super) const NET: u32 = 1;
    pub(super) const BLOCK: u32 = 2;
    pub(super) const CONSOLE: u32 = 3;
    pub(super) const ENTROPY: u32 = 4;
    pub(super) const SHARE: u32 = 9;
}

/// A device with its driver.
pub enum Device {
    /// A network card.
    Net(Arc<VirtioNet>),
    /// A disk.
    Block(Arc<VirtioBlock>),
    /// A console, perhaps with several ports.
    Console(Arc<VirtioConsole>),
    /// A source of random bytes.
    Entropy(Arc<VirtioEntropy>),
    /// A share of the host's files.
    Share(Arc<VirtioShare>),
    /// A virtio device without a driver here: its device number.
    Unknown(u32),
    /// An empty slot.
    Absent,
}

impl Device {
    /// What to call when the device's interrupt line is raised. `None` if the device has no line to attach, because
    /// its interrupts are messages that are attached already.
    #[must_use]
    pub fn line_handler(&self) -> Option<Arc<dyn InterruptHandler>> {
        match self {
            Self::Net(net) if net.has_line() => Some(net.clone()),
            Self::Block(disk) if disk.has_line() => Some(disk.clone()),
            Self::Console(console) if console.has_line() => Some(console.clone()),
            Self::Entropy(entropy) if entropy.has_line() => Some(entropy.clone()),
            Self::Share(share) if share.has_line() => Some(share.clone()),
            _ => None,
        }
    }
}

/// Starts the virtio-mmio device at `registers`.
pub fn probe_mmio(registers: Mmio, net: NetOptions) -> Result<Device, DriverError> {
    probe(Arc::new(MmioTransport::new(registers)?), net)
}

/// Starts the virtio device at `function`, one of [`crate::pci::devices`]. Other functions are [`Device::Absent`].
pub fn probe_pci(
    host: &PciHost,
    function: PciFunction,
    net: NetOptions,
) -> Result<Device, DriverError> {
    if !PciTransport::recognises(&function) {
        return Ok(Device::Absent);
    }
    probe(Arc::new(PciTransport::new(host, function)?), net)
}

/// Starts the device behind `transport`. A device that cannot be started is left reset.
pub fn probe(transport: Arc<dyn Transport>, net: NetOptions) -> Result<Device, DriverError> {
    let device = match transport.device_id() {
        device_id::ABSENT => Ok(Device::Absent),
        device_id::NET => VirtioNet::new(transport.clone(), net).map(|d| Device::Net(Arc::new(d))),
        device_id::BLOCK => VirtioBlock::new(transport.clone()).map(Device::Block),
        device_id::CONSOLE => VirtioConsole::new(transport.clone()).map(Device::Console),
        device_id::ENTROPY => {
            VirtioEntropy::new(transport.clone()).map(|d| Device::Entropy(Arc::new(d)))
        }
        device_id::SHARE => VirtioShare::new(transport.clone()).map(Device::Share),
        other => Ok(Device::Unknown(other)),
    };
    device.inspect_err(|_| transport.set_status(0))
}
