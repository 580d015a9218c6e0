// SPDX-License-Identifier: Apache-2.0
//! `/sys`: how many CPUs there are and how large a huge page is, which is what runtimes read of it (sysfs(5)).

use alloc::format;
use alloc::string::String;

use coracle_abi::raw::general as g;

use crate::Result;
use crate::pseudo::{PseudoFs, Spec};
use crate::vfs::Vfs;

/// Mounts `/sys` for a machine with `cpus` CPUs that run. With `huge_pages` large mappings get pages of 2 MiB by
/// themselves.
pub fn mount(vfs: &Vfs, cpus: usize, huge_pages: bool) -> Result<()> {
    let fs = PseudoFs::new("sysfs", g::SYSFS_MAGIC, root(cpus, huge_pages));
    crate::dev::mount_at(vfs, b"/sys", fs)
}

/// A list of CPUs as the kernel prints it: `0`, `0-3`.
pub(crate) fn cpu_range(cpus: usize) -> String {
    match cpus {
        0 | 1 => "0".into(),
        _ => format!("0-{}", cpus - 1),
    }
}

fn root(cpus: usize, huge_pages: bool) -> Spec {
    let range = || Spec::file(move || (cpu_range(cpus) + "\n").into_bytes());
    let mut cpu = alloc::vec![
        ("online".into(), range()),
        ("possible".into(), range()),
        ("present".into(), range()),
    ];
    for number in 0..cpus {
        let topology = Spec::directory([
            ("core_id", Spec::file(move || format!("{number}\n").into())),
            ("physical_package_id", Spec::constant("0\n")),
        ]);
        cpu.push((
            format!("cpu{number}"),
            Spec::directory([("topology", topology)]),
        ));
    }
    let enabled = if huge_pages {
        "[always] madvise never\n"
    } else {
        "always madvise [never]\n"
    };
    let node = Spec::directory([("cpulist", range())]);
    Spec::directory([
        (
            "devices",
            Spec::directory([(
                "system",
                Spec::directory([
                    ("cpu", Spec::Directory(cpu)),
                    (
                        "node",
                        Spec::directory([("online", Spec::constant("0\n")), ("node0", node)]),
                    ),
                ]),
            )]),
        ),
        (
            "kernel",
            Spec::directory([(
                "mm",
                Spec::directory([(
                    "transparent_hugepage",
                    Spec::directory([
                        ("enabled", Spec::constant(enabled)),
                        ("hpage_pmd_size", Spec::constant("2097152\n")),
                    ]),
                )]),
            )]),
        ),
        (
            "fs",
            Spec::directory([("cgroup", Spec::Directory(alloc::vec![]))]),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tmpfs::TmpFs;
    use crate::vfs::{MountOptions, OpenRequest};
    use coracle_core::io::IoDst;

    #[test]
    fn cpus_and_huge_pages_are_shown() {
        let vfs = Vfs::new(TmpFs::new(1 << 20, 0o755), MountOptions::default());
        mount(&vfs, 2, true).unwrap();
        let read = |path: &str| {
            let open = vfs
                .open(vfs.root(), path.as_bytes(), &OpenRequest::new(0))
                .unwrap();
            let mut out = [0; 64];
            let n = open.read(&mut IoDst::kernel(&mut out)).unwrap();
            String::from_utf8(out[..n].to_vec()).unwrap()
        };
        assert_eq!(read("/sys/devices/system/cpu/online"), "0-1\n");
        assert_eq!(read("/sys/devices/system/cpu/cpu1/topology/core_id"), "1\n");
        assert_eq!(
            read("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"),
            "2097152\n"
        );
        assert_eq!(cpu_range(1), "0");
    }
}
