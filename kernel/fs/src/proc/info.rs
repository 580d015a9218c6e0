// SPDX-License-Identifier: Apache-2.0
//! What `/proc` asks the rest of the kernel. The file system knows formats only.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use coracle_core::file::OpenFile;

use crate::Result;
use crate::vfs::{Mount, Place};

/// One mapping of the address space, for `maps`.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<u64>,
    /// Can be read.
    pub read: bool,
    /// Can be written.
    pub write: bool,
    /// Can be executed.
    pub execute: bool,
    /// `MAP_SHARED`
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device number of the file; 0 for anonymous memory.
    pub device: u64,
    /// Inode number of the file; 0 for anonymous memory.
    pub inode: u64,
    /// Path, or a name such as `[heap]`, or nothing.
    pub name: Vec<u8>,
    /// Bytes that have memory.
    pub resident_bytes: u64,
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadInfo {
    /// Its number.
    pub tid: u32,
    /// Its name (`PR_SET_NAME`).
    pub name: String,
    /// `R` running or ready, `S` sleeping, `T` stopped.
    pub state: char,
    /// Time in the application and in the kernel, nanoseconds.
    pub cpu_time_ns: u64,
    /// When it started, nanoseconds since boot.
    pub started_ns: u64,
    /// CPU it ran on last.
    pub cpu: u32,
    /// Pending signals of the thread.
    pub pending: u64,
    /// Blocked signals.
    pub blocked: u64,
}

/// Signals of the process, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalInfo {
    /// How many are queued for all threads together.
    pub queued: u64,
    /// Pending for the process.
    pub pending: u64,
    /// Ignored.
    pub ignored: u64,
    /// Caught.
    pub caught: u64,
}

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMemory {
    /// All memory the kernel manages.
    pub total: u64,
    /// Free memory.
    pub free: u64,
    /// Memory in files of tmpfs.
    pub in_files: u64,
    /// Memory with what was read from disks and shares, which is given back when it is needed.
    pub cached: u64,
}

/// What one CPU did since boot, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// Threads ran, in the application or in the kernel: there is no border to measure.
    pub busy_ns: u64,
    /// Nothing to do.
    pub idle_ns: u64,
}

/// Counters of a network interface.
#[derive(Clone, Debug, Default)]
pub struct InterfaceInfo {
    /// Name, such as `eth0`.
    pub name: String,
    /// Received bytes, packets, errors, drops.
    pub received: [u64; 4],
    /// Sent bytes, packets, errors, drops.
    pub sent: [u64; 4],
    /// IPv6 addresses with prefix length and whether they are link-local.
    pub v6: Vec<([u8; 16], u8, bool)>,
    /// Index of the interface, from 1.
    pub index: u32,
}

/// An IPv4 route.
#[derive(Clone, Debug)]
pub struct RouteInfo {
    /// Name of the interface.
    pub interface: String,
    /// Destinations it is for: the network and its length in bits.
    pub network: (core::net::Ipv4Addr, u8),
    /// The router; `None` if the destinations are neighbours.
    pub gateway: Option<core::net::Ipv4Addr>,
}

/// One socket, for `/proc/net/tcp` and its kind.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// Local address and port.
    pub local: core::net::SocketAddr,
    /// Peer, or the unspecified address.
    pub remote: core::net::SocketAddr,
    /// State as in `include/net/tcp_states.h`: 1 established, 7 closed, 10 listening.
    pub state: u8,
    /// Bytes waiting to be sent and to be read.
    pub queued: (u64, u64),
    /// Inode number of the socket.
    pub inode: u64,
}

/// Which sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFamily {
    /// `/proc/net/tcp`
    Tcp4,
    /// `/proc/net/tcp6`
    Tcp6,
    /// `/proc/net/udp`
    Udp4,
    /// `/proc/net/udp6`
    Udp6,
}

/// The kernel's answers. Called without locks of this crate held.
pub trait ProcInfo: Send + Sync + 'static {
    /// Process id; also the number of the first thread.
    fn pid(&self) -> u32;
    /// Number of the calling thread.
    fn current_thread(&self) -> u32;
    /// Path of the executable.
    fn executable(&self) -> Vec<u8>;

    /// The executable itself, which may have lost its path; `None` if there is no more than the path.
    fn executable_file(&self) -> Option<Arc<OpenFile>> {
        None
    }
    /// Arguments, each with its NUL.
    fn arguments(&self) -> Vec<u8>;
    /// Environment, each with its NUL.
    fn environment(&self) -> Vec<u8>;
    /// The auxiliary vector as it lies on the stack.
    fn auxiliary_vector(&self) -> Vec<u8>;
    /// Mappings in rising order.
    fn mappings(&self) -> Vec<Mapping>;
    /// Largest resident size so far, bytes.
    fn peak_resident_bytes(&self) -> u64;
    /// All threads in rising order.
    fn threads(&self) -> Vec<ThreadInfo>;
    /// Names a thread (`comm`); longer names than 15 bytes are cut. `ESRCH` if it is gone.
    fn set_thread_name(&self, tid: u32, name: &[u8]) -> Result<()>;
    /// Signals of the process.
    fn signals(&self) -> SignalInfo;
    /// User and group.
    fn owner(&self) -> (u32, u32);
    /// The umask.
    fn umask(&self) -> u32;
    /// Soft and hard limit by `RLIMIT_*` number; `u64::MAX` for none.
    fn limits(&self) -> [(u64, u64); 16];
    /// Open descriptors in rising order.
    fn descriptors(&self) -> Vec<u32>;
    /// The file open as `fd`.
    fn open_file(&self, fd: u32) -> Option<Arc<OpenFile>>;
    /// Working directory.
    fn working_directory(&self) -> Place;
    /// Root directory.
    fn root(&self) -> Place;
    /// All mounts.
    fn mounts(&self) -> Vec<Arc<Mount>>;
    /// Host name.
    fn host_name(&self) -> String;
    /// Version of the kernel as `uname -r` and `uname -v` show it.
    fn release(&self) -> (String, String);
    /// Memory of the machine.
    fn system_memory(&self) -> SystemMemory;
    /// CPUs that run, each with its times.
    fn cpus(&self) -> Vec<CpuTime>;
    /// `/proc/cpuinfo`, in the format of the architecture.
    fn cpu_description(&self) -> String;
    /// Context switches since boot.
    fn context_switches(&self) -> u64;
    /// Threads that are ready or run.
    fn runnable(&self) -> u32;
    /// Network interfaces.
    fn interfaces(&self) -> Vec<InterfaceInfo>;
    /// IPv4 routes, without those of the loopback interface.
    fn routes(&self) -> Vec<RouteInfo>;
    /// Sockets.
    fn sockets(&self, family: SocketFamily) -> Vec<SocketInfo>;
}
