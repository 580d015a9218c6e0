// SPDX-License-Identifier: Apache-2.0
//! Message interrupts, MSI-X (PCI 3.0, 6.8.2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{low_u8, low_u16, low_u32, u64_from, usize_from_u32};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;

use super::{AllocateMsi, PciFunction, PciHost};
use crate::error::DriverError;

/// Number of the capability.
const CAPABILITY: u8 = 0x11;

/// Enable, in the capability's first word, whose upper half is the message control.
const ENABLE: u32 = 1 << 31;
/// All vectors are masked, whatever the table says.
const MASK_ALL: u32 = 1 << 30;

/// Bytes of an entry of the table: address, data, control.
const ENTRY_BYTES: usize = 16;

/// A function's vectors.
pub(crate) struct Msix {
    function: PciFunction,
    /// Offset of the capability.
    at: u16,
    table: Mmio,
    /// Handlers by vector.
    handlers: Vec<Arc<dyn InterruptHandler>>,
    allocate: Arc<AllocateMsi>,
}

impl Msix {
    /// Switches message interrupts on, without a vector yet; the function's other memory must have its addresses. `None` if the machine or the function has none.
    pub(crate) fn new(
        host: &PciHost,
        function: PciFunction,
        name: &'static str,
    ) -> Result<Option<Self>, DriverError> {
        let config = &*host.config;
        let Some(allocate) = host.allocate_msi.clone() else {
            return Ok(None);
        };
        let Some(at) = function.capabilities(config, CAPABILITY).first().copied() else {
            return Ok(None);
        };
        let control = function.read(config, at);
        let entries = usize::from(low_u16(u64::from(control >> 16)) & 0x7ff) + 1;
        let place = function.read(config, at + 4);
        let memory = function.memory(host, low_u8(u64::from(place & 7)), name)?;
        let offset = usize_from_u32(place & !7);
        let bytes = entries * ENTRY_BYTES;
        if u64_from(offset + bytes) > memory.end - memory.start {
            log::warn!("{name}: the MSI-X table lies outside its BAR; using the interrupt line");
            return Ok(None);
        }
        let table = (host.map)(memory.start + u64_from(offset), bytes);
        // All memory has its address now, so the function may answer.
        function.enable(config, true);
        for entry in 0..entries {
            table.write32(entry * ENTRY_BYTES + 12, 1); // masked
        }
        function.write(config, at, control & !MASK_ALL | ENABLE);
        Ok(Some(Self {
            function,
            at,
            table,
            handlers: Vec::new(),
            allocate,
        }))
    }

    /// The vector for this handler: its own if there is one to have, otherwise one it shares. `None` if there is none
    /// at all.
    pub(crate) fn vector(&mut self, handler: &Arc<dyn InterruptHandler>) -> Option<u16> {
        let same = |other: &Arc<dyn InterruptHandler>| {
            core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(handler))
        };
        let known = self.handlers.iter().position(same);
        // Handlers of a device stand in for each other, see `Transport::enable_queue`.
        let any = |this: &Self| (!this.handlers.is_empty()).then_some(0);
        let vector = known.or_else(|| self.add(handler)).or_else(|| any(self))?;
        u16::try_from(vector).ok()
    }

    fn add(&mut self, handler: &Arc<dyn InterruptHandler>) -> Option<usize> {
        let vector = self.handlers.len();
        let entry = vector * ENTRY_BYTES;
        if entry >= self.table.len() {
            return None;
        }
        let message = (self.allocate)(handler.clone())?;
        self.handlers.push(handler.clone());
        self.table.write32(entry, low_u32(message.address));
        self.table
            .write32(entry + 4, low_u32(message.address >> 32));
        self.table.write32(entry + 8, message.data);
        self.table.write32(entry + 12, 0);
        Some(vector)
    }

    /// Switches message interrupts off.
    pub(crate) fn disable(self, host_config: &dyn super::PciConfig) {
        let control = self.function.read(host_config, self.at);
        self.function.write(host_config, self.at, control & !ENABLE);
    }
}
