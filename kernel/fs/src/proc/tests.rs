// SPDX-License-Identifier: Apache-2.0
//! `/proc` of an invented process, opened by name.

use super::*;
use crate::eventfd::EventFd;
use crate::pipe::Pipe;
use crate::tmpfs::TmpFs;
use crate::vfs::{Follow, Mount, MountOptions, OpenRequest, Place};
use crate::{Errno, Result};
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::sync::SpinLock;

struct Fake {
    vfs: Arc<Vfs>,
    files: SpinLock<Vec<(u32, Arc<OpenFile>)>>,
    names: SpinLock<[String; 2]>,
}

impl ProcInfo for Fake {
    fn pid(&self) -> u32 {
        1
    }
    fn current_thread(&self) -> u32 {
        2
    }
    fn executable(&self) -> Vec<u8> {
        b"/bin/app".to_vec()
    }
    fn arguments(&self) -> Vec<u8> {
        b"app\0-v\0".to_vec()
    }
    fn environment(&self) -> Vec<u8> {
        b"A=1\0".to_vec()
    }
    fn auxiliary_vector(&self) -> Vec<u8> {
        vec![0; 16]
    }
    fn mappings(&self) -> Vec<Mapping> {
        let text = Mapping {
            range: 0x40_0000..0x40_1000,
            read: true,
            execute: true,
            offset: 0x1000,
            device: crate::vfs::device_number(0, 3),
            inode: 77,
            name: b"/bin/app".to_vec(),
            resident_bytes: 4096,
            ..Mapping::default()
        };
        let heap = Mapping {
            range: 0x7fff_0000_0000..0x7fff_0000_3000,
            read: true,
            write: true,
            resident_bytes: 8192,
            ..Mapping::default()
        };
        vec![text, heap]
    }
    fn peak_resident_bytes(&self) -> u64 {
        16384
    }
    fn threads(&self) -> Vec<ThreadInfo> {
        let names = self.names.lock().clone();
        (1..)
            .zip(names)
            .map(|(tid, name)| ThreadInfo {
                tid,
                name,
                state: 'S',
                cpu_time_ns: 1_000_000_000,
                ..ThreadInfo::default()
            })
            .collect()
    }
    fn set_thread_name(&self, tid: u32, name: &[u8]) -> Result<()> {
        let at = usize::try_from(tid).unwrap() - 1;
        self.names.lock()[at] = String::from_utf8(name.to_vec()).unwrap();
        Ok(())
    }
    fn signals(&self) -> SignalInfo {
        SignalInfo::default()
    }
    fn owner(&self) -> (u32, u32) {
        (1000, 100)
    }
    fn umask(&self) -> u32 {
        0o22
    }
    fn limits(&self) -> [(u64, u64); 16] {
        [(1024, u64::MAX); 16]
    }
    fn descriptors(&self) -> Vec<u32> {
        self.files.lock().iter().map(|(fd, _)| *fd).collect()
    }
    fn open_file(&self, fd: u32) -> Option<Arc<OpenFile>> {
        let files = self.files.lock();
        files
            .iter()
            .find(|(n, _)| *n == fd)
            .map(|(_, open)| open.clone())
    }
    fn working_directory(&self) -> Place {
        self.vfs
            .resolve(self.vfs.root(), b"/tmp", Follow::Yes)
            .unwrap()
    }
    fn root(&self) -> Place {
        self.vfs.root().clone()
    }
    fn mounts(&self) -> Vec<Arc<Mount>> {
        self.vfs.mounts()
    }
    fn host_name(&self) -> String {
        "boat".into()
    }
    fn release(&self) -> (String, String) {
        ("6.1.0".into(), "#1 SMP".into())
    }
    fn system_memory(&self) -> SystemMemory {
        SystemMemory {
            total: 64 << 20,
            free: 32 << 20,
            in_files: 1 << 20,
            cached: 2 << 20,
        }
    }
    fn cpus(&self) -> Vec<CpuTime> {
        vec![
            CpuTime {
                busy_ns: 20_000_000,
                idle_ns: 30_000_000
            };
            2
        ]
    }
    fn cpu_description(&self) -> String {
        "processor\t: 0\n".into()
    }
    fn context_switches(&self) -> u64 {
        9
    }
    fn runnable(&self) -> u32 {
        1
    }
    fn interfaces(&self) -> Vec<InterfaceInfo> {
        vec![InterfaceInfo {
            name: "lo".into(),
            received: [5, 4, 3, 2],
            v6: vec![([0xfe; 16], 64, true)],
            index: 1,
            ..InterfaceInfo::default()
        }]
    }
    fn routes(&self) -> Vec<RouteInfo> {
        let eth0 = |network: &str, length, gateway: Option<&str>| RouteInfo {
            interface: "eth0".into(),
            network: (network.parse().unwrap(), length),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        };
        vec![
            eth0("192.0.2.0", 24, None),
            eth0("192.0.2.7", 32, None),
            eth0("0.0.0.0", 0, Some("192.0.2.1")),
        ]
    }
    fn sockets(&self, family: SocketFamily) -> Vec<SocketInfo> {
        let local = match family {
            SocketFamily::Tcp4 => "127.0.0.1:80",
            SocketFamily::Tcp6 => "[::1]:443",
            _ => return vec![],
        };
        vec![SocketInfo {
            local: local.parse().unwrap(),
            remote: "0.0.0.0:0".parse().unwrap(),
            state: 10,
            queued: (0, 1),
            inode: 55,
        }]
    }
}

fn fixture() -> (Arc<Vfs>, Arc<Fake>) {
    let vfs = Arc::new(Vfs::new(
        TmpFs::new(1 << 20, 0o755),
        MountOptions::default(),
    ));
    crate::dev::mount_at(&vfs, b"/tmp", TmpFs::new(1 << 20, 0o777)).unwrap();
    let fake = Arc::new(Fake {
        vfs: vfs.clone(),
        files: SpinLock::default(),
        names: SpinLock::new(["app".into(), "worker".into()]),
    });
    mount(&vfs, fake.clone()).unwrap();
    (vfs, fake)
}

fn open(vfs: &Vfs, path: &str, flags: u32) -> Result<Arc<OpenFile>> {
    vfs.open(vfs.root(), path.as_bytes(), &OpenRequest::new(flags))
}

fn read(vfs: &Vfs, path: &str) -> String {
    let open = open(vfs, path, 0).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut text = Vec::new();
    loop {
        // In small pieces, as some programs read.
        let mut out = [0; 7];
        match open.read(&mut IoDst::kernel(&mut out)).unwrap() {
            0 => break,
            n => text.extend_from_slice(&out[..n]),
        }
    }
    String::from_utf8(text).unwrap()
}

fn link_text(vfs: &Vfs, path: &str) -> String {
    let place = vfs
        .resolve(vfs.root(), path.as_bytes(), Follow::No)
        .unwrap();
    String::from_utf8(place.inode.read_link().unwrap()).unwrap()
}

fn names(vfs: &Vfs, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let dir = open(vfs, path, g::O_DIRECTORY).unwrap();
    dir.file()
        .read_directory(2, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            true
        })
        .unwrap();
    names
}

#[test]
fn the_process_is_described() {
    let (vfs, _) = fixture();
    assert_eq!(link_text(&vfs, "/proc/self"), "1");
    assert_eq!(link_text(&vfs, "/proc/self/exe"), "/bin/app");
    assert_eq!(link_text(&vfs, "/proc/self/cwd"), "/tmp");
    assert_eq!(read(&vfs, "/proc/self/cmdline"), "app\0-v\0");
    assert_eq!(read(&vfs, "/proc/thread-self/comm"), "worker\n");
    assert_eq!(names(&vfs, "/proc/1/task"), ["1", "2"]);
    let maps = read(&vfs, "/proc/self/maps");
    let lines: Vec<&str> = maps.lines().collect();
    assert!(lines[0].starts_with("00400000-00401000 r-xp 00001000 00:03 77 "));
    assert_eq!(lines[0].find("/bin/app"), Some(73));
    assert_eq!(lines[1], "7fff00000000-7fff00003000 rw-p 00000000 00:00 0 ");
    let stat = read(&vfs, "/proc/self/stat");
    assert!(stat.starts_with("1 (app) S 0 1 1 0 -1 0 "));
    let fields: Vec<&str> = stat.split_whitespace().collect();
    assert_eq!(
        (fields.len(), fields[13], fields[19], fields[23]),
        (52, "200", "2", "3")
    );
    let status = read(&vfs, "/proc/1/task/2/status");
    for line in [
        "Name:\tworker",
        "Pid:\t2",
        "Tgid:\t1",
        "Uid:\t1000\t1000\t1000\t1000",
        "VmRSS:\t      12 kB",
        "Threads:\t2",
        "Cpus_allowed_list:\t0-1",
    ] {
        assert!(status.contains(&format!("{line}\n")), "{line} in {status}");
    }
    let limits = read(&vfs, "/proc/self/limits");
    assert!(limits.contains(
        "Max open files            1024                 unlimited            files     \n"
    ));
    assert!(matches!(
        open(&vfs, "/proc/1/task/3", 0),
        Err(Errno::ENOENT)
    ));
    assert!(matches!(
        open(&vfs, "/proc/self/maps", g::O_RDWR),
        Err(Errno::EACCES)
    ));
    assert!(matches!(
        open(&vfs, "/proc/new", g::O_RDWR | g::O_CREAT),
        Err(Errno::ENOENT)
    ));
}

#[test]
fn threads_are_renamed() {
    let (vfs, _) = fixture();
    let comm = open(&vfs, "/proc/self/task/2/comm", g::O_RDWR).unwrap();
    assert_eq!(comm.write(&mut IoSrc::kernel(b"io\n")), Ok(3));
    assert_eq!(read(&vfs, "/proc/thread-self/comm"), "io\n");
}

#[test]
fn a_file_is_made_anew_when_it_is_read_from_the_start() {
    let (vfs, fake) = fixture();
    let comm = open(&vfs, "/proc/self/comm", 0).unwrap();
    let read = |at: u64| {
        let mut out = [0; 9];
        let n = comm
            .file()
            .read_at(at, &mut IoDst::kernel(&mut out))
            .unwrap();
        String::from_utf8(out[..n].to_vec()).unwrap()
    };
    assert_eq!(read(0), "app\n");
    fake.names.lock()[0] = "other".into();
    assert_eq!(
        (read(1), read(0), read(99)),
        ("pp\n".into(), "other\n".into(), String::new())
    );
}

#[test]
fn descriptors_lead_to_their_objects() {
    let (vfs, fake) = fixture();
    let file = open(&vfs, "/tmp/x", g::O_RDWR | g::O_CREAT).unwrap();
    file.write(&mut IoSrc::kernel(b"text")).unwrap();
    let (reader, writer) = Pipe::pair();
    let number = reader.pipe().number();
    *fake.files.lock() = vec![
        (0, file),
        (5, OpenFile::new(reader, g::O_RDONLY)),
        (6, OpenFile::new(writer, g::O_WRONLY)),
        (7, OpenFile::new(EventFd::new(0, false), g::O_RDWR)),
    ];
    assert_eq!(names(&vfs, "/proc/self/fd"), ["0", "5", "6", "7"]);
    assert_eq!(link_text(&vfs, "/proc/self/fd/0"), "/tmp/x");
    assert_eq!(
        link_text(&vfs, "/proc/self/fd/5"),
        format!("pipe:[{number}]")
    );
    assert_eq!(link_text(&vfs, "/proc/self/fd/7"), "anon_inode:[eventfd]");
    assert_eq!(read(&vfs, "/proc/self/fd/0"), "text");
    assert!(matches!(
        open(&vfs, "/proc/self/fd/7", 0),
        Err(Errno::ENXIO)
    ));
    assert!(matches!(
        open(&vfs, "/proc/self/fd/07", 0),
        Err(Errno::ENOENT)
    ));
    // Opening a pipe again makes another end, which alone does not keep the first one open.
    let again = open(&vfs, "/proc/self/fd/6", g::O_WRONLY).unwrap();
    again.write(&mut IoSrc::kernel(b"via")).unwrap();
    let reader = fake.open_file(5).unwrap();
    fake.files.lock().retain(|(fd, _)| *fd == 0);
    let mut out = [0; 9];
    assert_eq!(reader.read(&mut IoDst::kernel(&mut out)), Ok(3));
    assert_eq!(
        reader.read(&mut IoDst::kernel(&mut out)),
        Err(Errno::EAGAIN)
    );
    drop(again);
    assert_eq!(reader.read(&mut IoDst::kernel(&mut out)), Ok(0));
}

#[test]
fn the_machine_is_described() {
    let (vfs, _) = fixture();
    assert!(read(&vfs, "/proc/meminfo").starts_with(
        "MemTotal:          65536 kB\nMemFree:           32768 kB\nMemAvailable:      33792 kB\n\
             Buffers:               0 kB\nCached:             3072 kB\n"
    ));
    let stat = read(&vfs, "/proc/stat");
    assert!(stat.starts_with("cpu  4 0 0 6 0 0 0 0 0 0\ncpu0 2 0 0 3 "));
    assert!(stat.contains("\nctxt 9\nbtime "));
    assert_eq!(read(&vfs, "/proc/sys/kernel/hostname"), "boat\n");
    assert_eq!(read(&vfs, "/proc/sys/kernel/osrelease"), "6.1.0\n");
    let id = "/proc/sys/kernel/random/boot_id";
    assert_eq!(read(&vfs, id), read(&vfs, id));
    let uuid = read(&vfs, "/proc/sys/kernel/random/uuid");
    assert_eq!((uuid.len(), &uuid[14..15]), (37, "4"));
    assert_eq!(
        read(&vfs, "/proc/mounts"),
        "tmpfs / tmpfs rw,relatime 0 0\ntmpfs /tmp tmpfs rw,relatime 0 0\nproc /proc proc rw,relatime 0 0\n"
    );
    assert!(
        read(&vfs, "/proc/self/mountinfo")
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("2 1 0:")
    );
    let tcp = read(&vfs, "/proc/net/tcp");
    assert!(tcp.contains("   0: 0100007F:0050 00000000:0000 0A 00000000:00000001 "));
    assert!(read(&vfs, "/proc/net/tcp6").contains(" 00000000000000000000000001000000:01BB "));
    assert!(read(&vfs, "/proc/net/if_inet6").ends_with(" 01 40 20 80       lo\n"));
    // The first and the last but one as Linux had them.
    let routes = read(&vfs, "/proc/net/route");
    let lines: Vec<&str> = routes.lines().skip(1).map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
            "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
            "eth0\t070200C0\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0",
        ]
    );
    assert!(routes.lines().all(|line| line.len() == 127));
    assert!(read(&vfs, "/proc/net/dev").contains("    lo:       5       4    3    2 "));
}
