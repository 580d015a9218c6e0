// SPDX-License-Identifier: Apache-2.0
//! The kernel's answers to what `/proc` and `/sys` ask.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use coracle_abi::convert::{low_u32, u64_from, usize_from};
use coracle_abi::raw::net as n;
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_core::file::OpenFile;
use coracle_core::memory;
use coracle_core::memory::space::{self, Area, Backing, Protection};
use coracle_core::thread::{self, FIRST_TID, RunState, Thread};
use coracle_core::{Result, signal, time, user};
use coracle_fs::proc::{
    CpuTime, InterfaceInfo, Mapping, ProcInfo, RouteInfo, SignalInfo, SocketFamily, SocketInfo,
    SystemMemory, ThreadInfo,
};
use coracle_fs::vfs::{Mount, Place, Vfs, VnodeFile};
use coracle_net::socket::linux::{SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, SOL_TCP};
use coracle_net::{Address, Route, SocketAddress, SocketFile};

use crate::process::process;
use crate::{exec, info, socket};

/// Mounts `/proc`.
pub fn mount(vfs: &Vfs) -> Result<()> {
    coracle_fs::proc::mount(vfs, Arc::new(Kernel))
}

/// Mounts `/sys` for the process, once it is known how many CPUs run.
pub fn mount_sys() -> Result<()> {
    coracle_fs::sys::mount(&process().vfs, thread::online_cpus(), true)
}

struct Kernel;

/// What lies in a range of the application's memory; nothing if it unmapped that.
fn memory_at(range: core::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = alloc::vec![0; usize_from(range.end.saturating_sub(range.start))];
    match user::read_all(&mut bytes, usize_from(range.start)) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

fn mapping(range: core::ops::Range<usize>, area: &Area, present: usize) -> Mapping {
    let mut out = Mapping {
        range: u64_from(range.start)..u64_from(range.end),
        read: area.protection.contains(Protection::READ),
        write: area.protection.contains(Protection::WRITE),
        execute: area.protection.contains(Protection::EXECUTE),
        shared: area.shared,
        name: area.name.into(),
        resident_bytes: u64_from(present),
        ..Mapping::default()
    };
    if let Backing::File { file, offset } = &area.backing {
        out.offset = *offset;
        if let Ok(metadata) = file.file().metadata() {
            (out.device, out.inode) = (metadata.device, metadata.inode);
        }
        if let Some(file) = file.downcast::<VnodeFile>() {
            out.name = file.path();
        }
    }
    out
}

fn thread_info(thread: &Thread) -> ThreadInfo {
    let name = thread.name();
    let (pending, _) = signal::pending_of(thread);
    ThreadInfo {
        tid: thread.tid(),
        name: String::from_utf8_lossy(&name).trim_end_matches('\0').into(),
        state: match thread.run_state() {
            RunState::Running | RunState::Ready => 'R',
            RunState::Sleeping => 'S',
            RunState::Dead => 'X',
        },
        cpu_time_ns: thread.cpu_ns(),
        started_ns: thread.created_ns(),
        cpu: low_u32(u64_from(thread.last_cpu())),
        pending: pending.0,
        blocked: thread.signals.mask().0,
    }
}

/// What `/proc/net/*` shows of a socket, if it belongs to that file. The lengths of its queues are not told.
fn socket_info(file: &SocketFile, family: SocketFamily) -> Option<SocketInfo> {
    let (kind, v6) = match family {
        SocketFamily::Tcp4 => (SOCK_STREAM, false),
        SocketFamily::Tcp6 => (SOCK_STREAM, true),
        SocketFamily::Udp4 => (SOCK_DGRAM, false),
        SocketFamily::Udp6 => (SOCK_DGRAM, true),
    };
    let mut bytes = [0; 4];
    file.get_option(SOL_SOCKET, n::SO_TYPE, &mut bytes).ok()?;
    if u32::from_ne_bytes(bytes) != kind {
        return None;
    }
    let plain = |address: SocketAddress| match address {
        SocketAddress::V4(v4) if !v6 => Some(SocketAddr::V4(v4)),
        SocketAddress::V6(v6_address) if v6 => Some(SocketAddr::V6(v6_address)),
        _ => None,
    };
    let local = plain(file.local_address().ok()?)?;
    let nobody = SocketAddr::new(
        if v6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        },
        0,
    );
    let remote = file.peer_address().ok().and_then(plain);
    // The first byte of `struct tcp_info` is the state. A UDP socket is "closed", or "established" with a peer.
    let mut state = [if remote.is_some() { 1 } else { 7 }];
    if kind == SOCK_STREAM {
        file.get_option(SOL_TCP, n::TCP_INFO, &mut state).ok()?;
    }
    Some(SocketInfo {
        local,
        remote: remote.unwrap_or(nobody),
        state: state[0],
        queued: (0, 0),
        inode: file.inode(),
    })
}

impl ProcInfo for Kernel {
    fn pid(&self) -> u32 {
        FIRST_TID
    }

    fn current_thread(&self) -> u32 {
        thread::current().tid()
    }

    fn executable(&self) -> Vec<u8> {
        exec::program().path()
    }

    fn executable_file(&self) -> Option<Arc<OpenFile>> {
        exec::program().file
    }

    fn arguments(&self) -> Vec<u8> {
        memory_at(exec::program().arguments)
    }

    fn environment(&self) -> Vec<u8> {
        memory_at(exec::program().environment)
    }

    fn auxiliary_vector(&self) -> Vec<u8> {
        memory_at(exec::program().auxiliary)
    }

    fn mappings(&self) -> Vec<Mapping> {
        space::snapshot()
            .into_iter()
            .map(|(range, area, present)| mapping(range, &area, present))
            .collect()
    }

    fn peak_resident_bytes(&self) -> u64 {
        u64_from(space::peak_resident_pages() * PAGE_SIZE)
    }

    fn threads(&self) -> Vec<ThreadInfo> {
        let mut threads = Vec::new();
        thread::for_each(|t| threads.push(thread_info(t)));
        threads.sort_by_key(|t| t.tid);
        threads
    }

    fn set_thread_name(&self, tid: u32, name: &[u8]) -> Result<()> {
        thread::find(tid).ok_or(Errno::ESRCH)?.set_name(name);
        Ok(())
    }

    fn signals(&self) -> SignalInfo {
        let (_, pending) = signal::pending_of(thread::current());
        let (ignored, caught) = signal::dispositions();
        SignalInfo {
            queued: u64_from(signal::queued()),
            pending: pending.0,
            ignored: ignored.0,
            caught: caught.0,
        }
    }

    fn owner(&self) -> (u32, u32) {
        process().owner()
    }

    fn umask(&self) -> u32 {
        process().umask()
    }

    fn limits(&self) -> [(u64, u64); 16] {
        info::limits()
    }

    fn descriptors(&self) -> Vec<u32> {
        process().fds.lock().iter().map(|(fd, _)| fd).collect()
    }

    fn open_file(&self, fd: u32) -> Option<Arc<OpenFile>> {
        process().fds.lock().get(fd).ok().cloned()
    }

    fn working_directory(&self) -> Place {
        process().working_directory()
    }

    fn root(&self) -> Place {
        process().vfs.root().clone()
    }

    fn mounts(&self) -> Vec<Arc<Mount>> {
        process().vfs.mounts()
    }

    fn host_name(&self) -> String {
        info::hostname()
    }

    fn release(&self) -> (String, String) {
        (info::RELEASE.into(), info::VERSION.into())
    }

    fn system_memory(&self) -> SystemMemory {
        let page = u64_from(PAGE_SIZE);
        let mounts = process().vfs.mounts().into_iter();
        let in_memory =
            |mount: &Arc<Mount>| matches!(mount.file_system().type_name(), "tmpfs" | "overlay");
        let in_files = mounts.filter(in_memory).map(|mount| {
            let status = mount.file_system().status();
            (status.blocks.saturating_sub(status.free_blocks)) * status.block_bytes
        });
        SystemMemory {
            total: memory::total_frames() * page,
            free: memory::free_frames() * page,
            in_files: in_files.sum(),
            cached: coracle_core::cache::cached_pages() * page,
        }
    }

    fn cpus(&self) -> Vec<CpuTime> {
        let now = time::now();
        (0..thread::online_cpus())
            .map(|cpu| {
                let busy_ns = thread::busy_ns(cpu);
                CpuTime {
                    busy_ns,
                    idle_ns: now.saturating_sub(busy_ns),
                }
            })
            .collect()
    }

    fn cpu_description(&self) -> String {
        let mut text = String::new();
        coracle_arch::describe::write(&mut text, thread::online_cpus())
            .expect("a string takes everything");
        text
    }

    fn context_switches(&self) -> u64 {
        thread::context_switches()
    }

    fn runnable(&self) -> u32 {
        let mut count = 0;
        thread::for_each(|t| {
            count += u32::from(matches!(t.run_state(), RunState::Running | RunState::Ready));
        });
        count
    }

    fn interfaces(&self) -> Vec<InterfaceInfo> {
        let Some(stack) = socket::stack() else {
            return Vec::new();
        };
        stack
            .interface_reports()
            .into_iter()
            .map(|report| InterfaceInfo {
                name: report.name,
                received: [report.received.0, report.received.1, 0, 0],
                sent: [report.sent.0, report.sent.1, 0, 0],
                v6: report
                    .addresses
                    .iter()
                    .filter(|p| !p.address.is_v4())
                    .map(|p| {
                        let octets = p.address.v6().octets();
                        (octets, p.length, p.address.is_v6_link_local())
                    })
                    .collect(),
                index: low_u32(report.index),
            })
            .collect()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        let Some(stack) = socket::stack() else {
            return Vec::new();
        };
        let interfaces = stack.interface_reports();
        let info = |route: Route| {
            // The first is loopback, whose routes Linux keeps in another table.
            let interface = interfaces.get(route.interface).filter(|i| i.index > 1)?;
            let (address, length) = (route.destination.address.v4()?, route.destination.length);
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Some(RouteInfo {
                interface: interface.name.clone(),
                network: (Ipv4Addr::from_bits(address.to_bits() & !host), length),
                gateway: route.gateway.and_then(Address::v4),
            })
        };
        stack.routes().into_iter().filter_map(info).collect()
    }

    fn sockets(&self, family: SocketFamily) -> Vec<SocketInfo> {
        let open: Vec<Arc<OpenFile>> = process()
            .fds
            .lock()
            .iter()
            .map(|(_, open)| open.clone())
            .collect();
        let mut sockets: Vec<SocketInfo> = open
            .iter()
            .filter_map(|open| socket_info(open.downcast()?, family))
            .collect();
        sockets.sort_by_key(|s| s.inode);
        sockets.dedup_by_key(|s| s.inode); // a socket with several descriptors
        sockets
    }
}
