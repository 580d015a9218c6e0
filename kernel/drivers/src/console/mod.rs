// SPDX-License-Identifier: Apache-2.0
//! The console device (virtio 1.2, 5.3), with one port or several (`docs/decisions/0002`).
//!
//! With several ports the device announces them one by one over its control queues, so they are asked for by what they
//! are ([`VirtioConsole::console`]) or by name ([`VirtioConsole::port`]), with time to appear.

mod control;
mod input;
mod output;
mod port;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_arch::cpu;
use coracle_core::device::InterruptHandler;
use coracle_core::sync::SpinLock;
use coracle_core::time;

use crate::error::{DriverError, Reason};
use crate::signal::Signal;
use crate::transport::{self, Transport, feature};
use control::{Control, Event};

pub use port::Port;

pub(crate) const NAME: &str = "virtio-console";

/// `VIRTIO_CONSOLE_F_MULTIPORT`.
const MULTIPORT: u64 = 1 << 1;

/// Where the configuration says how many ports there are at most (5.3.4).
const CONFIG_MAX_PORTS: usize = 4;

/// Ports that we use; each more would cost its queues.
const MAX_PORTS: u32 = 4;

/// Entries of an output queue: it holds one chain of at most two pieces.
const OUTPUT_QUEUE_SIZE: u16 = 2;

/// A virtio console device.
pub struct VirtioConsole {
    transport: Arc<dyn Transport>,
    ports: Vec<Arc<Port>>,
    /// The control queues and what the device has said about each port; `None` for a device with a single port.
    control: Option<SpinLock<(Control, Vec<Known>)>>,
}

/// What is known about a port.
#[derive(Clone, Default)]
struct Known {
    console: bool,
    name: Option<String>,
}

impl VirtioConsole {
    /// Starts the device. Must be a console.
    pub fn new(transport: Arc<dyn Transport>) -> Result<Arc<Self>, DriverError> {
        let features = transport::negotiate(&*transport, NAME, |_| feature::EVENT_IDX | MULTIPORT)?;
        let multiport = features & MULTIPORT != 0;
        let mut count = 1;
        if multiport {
            transport::require_config(&*transport, NAME, CONFIG_MAX_PORTS + 4)?;
            count = transport::read_config(&*transport, |c| c.read32(CONFIG_MAX_PORTS));
            if count == 0 {
                return Err(DriverError::new(NAME, Reason::MissingFeature("a port")));
            }
        }
        let signal = Arc::new(Signal::default());
        let handler: Arc<dyn InterruptHandler> = signal.clone();
        let ports = (0..count.min(MAX_PORTS))
            .map(|id| make_port(&transport, id, features, &handler))
            .collect::<Result<Vec<_>, _>>()?;
        let control = if multiport {
            let size = control::BUFFERS;
            let receive = transport::make_queue(&*transport, NAME, 2, size, features, &handler)?;
            let transmit = transport::make_queue(&*transport, NAME, 3, size, features, &handler)?;
            let known = ports.iter().map(|_| Known::default()).collect();
            Some(SpinLock::new((Control::new(receive, transmit), known)))
        } else {
            None
        };
        transport::start(&*transport);
        let this = Arc::new(Self {
            transport,
            ports,
            control,
        });
        signal.serve(&this, Self::service);
        match &this.control {
            Some(control) => control.lock().0.announce_driver(&*this.transport),
            None => {
                this.ports[0].activate();
                this.ports[0].set_host_open(true);
            }
        }
        Ok(this)
    }

    /// The port that is a console, waiting at most `timeout_ns` for the device to announce it.
    pub fn console(&self, timeout_ns: u64) -> Option<Arc<Port>> {
        if self.control.is_none() {
            return self.ports.first().cloned();
        }
        self.find(timeout_ns, |known| known.console)
    }

    /// The port of this name, waiting at most `timeout_ns` for the device to announce it.
    pub fn port(&self, name: &str, timeout_ns: u64) -> Option<Arc<Port>> {
        self.find(timeout_ns, |known| known.name.as_deref() == Some(name))
    }

    fn find(&self, timeout_ns: u64, matches: impl Fn(&Known) -> bool) -> Option<Arc<Port>> {
        let control = self.control.as_ref()?;
        let deadline_ns = time::now().saturating_add(timeout_ns);
        loop {
            self.service();
            let found = control.lock().1.iter().position(&matches);
            if let Some(index) = found {
                return self.ports.get(index).cloned();
            }
            if time::now() > deadline_ns {
                return None;
            }
            cpu::relax();
        }
    }

    /// Sends what waits in all ports, by polling, for at most `timeout_ns`. Returns whether all is sent. For the end of
    /// the machine: works with interrupts off, and does not wait for locks that others hold longer than that.
    pub fn drain(&self, timeout_ns: u64) -> bool {
        let deadline_ns = time::now().saturating_add(timeout_ns);
        while self.ports.iter().any(|port| port.has_output()) {
            if time::now() > deadline_ns {
                return false;
            }
            cpu::relax();
        }
        true
    }

    /// Whether interrupts come over a line, to be attached by the caller to this device's [`InterruptHandler`].
    pub fn has_line(&self) -> bool {
        self.transport.has_line()
    }

    /// Looks after all queues.
    fn service(&self) {
        if let Some(control) = &self.control {
            let mut control = control.lock();
            let (control, known) = &mut *control;
            for (id, event) in control.take() {
                self.on_event(control, known, id, event);
            }
            control.notify(&*self.transport);
        }
        for port in &self.ports {
            port.service();
        }
    }

    fn on_event(&self, control: &mut Control, known: &mut [Known], id: u32, event: Event) {
        let index = coracle_abi::convert::usize_from_u32(id);
        let (Some(port), Some(known)) = (self.ports.get(index), known.get_mut(index)) else {
            if event == Event::Added {
                log::warn!("{NAME}: port {id} is not used, {MAX_PORTS} are at most");
                control.answer(id, false);
            }
            return;
        };
        match event {
            Event::Added => {
                port.activate();
                control.answer(id, true);
            }
            Event::Removed => {
                *known = Known::default();
                port.set_host_open(false);
            }
            Event::Console => {
                // The host's end of a console is always there.
                known.console = true;
                port.set_host_open(true);
            }
            Event::Open(open) => port.set_host_open(open),
            Event::Name(name) => known.name = Some(name),
        }
    }
}

impl InterruptHandler for VirtioConsole {
    fn on_interrupt(&self) -> bool {
        let ours = self.transport.acknowledge();
        if ours {
            self.service();
        }
        ours
    }
}

impl Drop for VirtioConsole {
    fn drop(&mut self) {
        // The device must not touch the buffers once they are freed.
        self.transport.set_status(0);
    }
}

/// Queues 0 and 1 belong to port 0, 2 and 3 to control, 2n + 2 and 2n + 3 to port n (5.3.2).
fn make_port(
    transport: &Arc<dyn Transport>,
    id: u32,
    features: u64,
    handler: &Arc<dyn InterruptHandler>,
) -> Result<Arc<Port>, DriverError> {
    let id = coracle_abi::convert::low_u16(u64::from(id));
    let first = if id == 0 { 0 } else { 2 * id + 2 };
    let input =
        transport::make_queue(&**transport, NAME, first, input::BUFFERS, features, handler)?;
    let output = transport::make_queue(
        &**transport,
        NAME,
        first + 1,
        OUTPUT_QUEUE_SIZE,
        features,
        handler,
    )?;
    Ok(Arc::new(Port::new(transport.clone(), input, output)))
}
