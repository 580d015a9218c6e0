// SPDX-License-Identifier: Apache-2.0
//! Finding the devices and starting their drivers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{low_u8, usize_from};
use coracle_core::device::{BlockDevice, CharDevice, EntropyDevice, ShareDevice};
use coracle_core::memory::{Mmio, map_device};
use coracle_core::random;
use coracle_core::sync::{Once, SpinLock};
use coracle_drivers::pci::{self, MsiMessage, PciConfig, PciHost};
use coracle_drivers::{
    Device, DriverError, NetOptions, Port, VirtioConsole, VirtioNet, probe_mmio, probe_pci,
};
use coracle_platform::pci as ports;

use crate::interrupts::{attach_line, attach_message};
use crate::memory::BootInfo;

/// Name of the control port (decision 0002).
const CONTROL_PORT: &str = "org.coracle.control";
/// Longest wait for the host to announce a port.
const PORT_TIMEOUT_NS: u64 = 200_000_000;
/// Longest wait for random bytes from the host.
const ENTROPY_TIMEOUT_NS: u64 = 20_000_000;

/// What the machine has for us.
pub(crate) struct Found {
    pub(crate) networks: Vec<Arc<VirtioNet>>,
    /// In the order in which the machine lists them: `/dev/vda`, `/dev/vdb` and so on.
    pub(crate) disks: Vec<Arc<dyn BlockDevice>>,
    pub(crate) console: Arc<dyn CharDevice>,
    pub(crate) control: Option<Arc<Port>>,
    /// Folders of the host.
    pub(crate) shares: Vec<Arc<dyn ShareDevice>>,
}

static CONSOLE: Once<Arc<VirtioConsole>> = Once::new();

/// Sends what the console ports hold, at the end of the machine.
pub(crate) fn drain_console(timeout_ns: u64) {
    if let Some(console) = CONSOLE.get() {
        console.drain(timeout_ns);
    }
}

/// Looks for devices and starts them.
pub(crate) fn init(info: &BootInfo) -> Found {
    let mut found = Found {
        networks: Vec::new(),
        disks: Vec::new(),
        console: crate::console::SerialConsole::shared(),
        control: None,
        shares: Vec::new(),
    };
    let options = net_options(info.memory_bytes());
    for device in &info.mmio_devices {
        let registers = match map_device(device.base, usize_from(device.size)) {
            Ok(registers) => registers,
            Err(error) => {
                log::error!("virtio-mmio device at {:#x}: {error}", device.base);
                continue;
            }
        };
        add(&mut found, probe_mmio(registers, options), device.irq);
    }
    if info.mmio_devices.is_empty() {
        init_pci(&mut found, options);
    }
    found
}

/// Receive buffers in proportion to the memory, since small guests must fit in 16 MiB.
fn net_options(memory_bytes: u64) -> NetOptions {
    let rx_buffers = match memory_bytes >> 20 {
        0..24 => 32,
        24..64 => 64,
        64..128 => 128,
        _ => 256,
    };
    NetOptions {
        rx_buffers,
        ..NetOptions::default()
    }
}

fn add(found: &mut Found, device: Result<Device, DriverError>, line: u32) {
    let device = match device {
        Ok(device) => device,
        Err(error) => return log::error!("{error}"),
    };
    if let Some(handler) = device.line_handler() {
        attach_line(line, handler);
    }
    match device {
        Device::Net(net) => found.networks.push(net),
        Device::Block(disk) => found.disks.push(disk),
        Device::Console(console) => {
            if let Some(port) = console.console(PORT_TIMEOUT_NS) {
                found.console = port;
            }
            if let Some(port) = console.port(CONTROL_PORT, PORT_TIMEOUT_NS) {
                found.control = Some(port);
            }
            let _ = CONSOLE.set(console);
        }
        Device::Entropy(device) => {
            let mut seed = [0; 64];
            let len = device.fill(&mut seed, ENTROPY_TIMEOUT_NS);
            random::add_entropy(&seed[..len]);
        }
        Device::Share(share) => found.shares.push(share),
        Device::Unknown(kind) => log::warn!("virtio device of kind {kind} has no driver"),
        Device::Absent => {}
    }
}

struct PortConfig(SpinLock<()>);

impl PciConfig for PortConfig {
    fn read32(&self, bus: u8, device: u8, function: u8, offset: u16) -> u32 {
        let _one_at_a_time = self.0.lock();
        ports::read32(bus, device, function, low_u8(offset.into()))
    }

    fn write32(&self, bus: u8, device: u8, function: u8, offset: u16, value: u32) {
        let _one_at_a_time = self.0.lock();
        ports::write32(bus, device, function, low_u8(offset.into()), value);
    }
}

fn map(address: u64, len: usize) -> Mmio {
    map_device(address, len).expect("memory for the mapping of registers")
}

fn init_pci(found: &mut Found, options: NetOptions) {
    let config: Arc<dyn PciConfig> = Arc::new(PortConfig(SpinLock::new(())));
    let host = PciHost {
        config: config.clone(),
        map,
        allocate_msi: Some(Arc::new(|handler| {
            attach_message(handler).map(|(address, data)| MsiMessage { address, data })
        })),
        window: SpinLock::new(0..0),
    };
    for function in pci::devices(&*config) {
        let line = u32::from(low_u8(u64::from(config.read32(
            function.bus,
            function.device,
            function.function,
            0x3c,
        ))));
        add(found, probe_pci(&host, function, options), line);
    }
}
