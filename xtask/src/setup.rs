// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask setup`: installs what a Debian or Ubuntu machine lacks, and nothing that is there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{paths, sh};

/// A tool, and the package that brings it.
struct Tool {
    /// The program that shows the package is there.
    program: &'static str,
    package: &'static str,
}

/// What building and testing take, apart from Go.
const TOOLS: &[Tool] = &[
    Tool {
        program: "gcc",
        package: "gcc",
    },
    Tool {
        program: "g++",
        package: "g++",
    },
    Tool {
        program: "musl-gcc",
        package: "musl-tools",
    },
    Tool {
        program: "make",
        package: "make",
    },
    Tool {
        program: "objcopy",
        package: "binutils",
    },
    Tool {
        program: "git",
        package: "git",
    },
    Tool {
        program: "ip",
        package: "iproute2",
    },
    // With podman, tests of images have something to compare with; it runs containers by runc.
    Tool {
        program: "podman",
        package: "podman",
    },
    Tool {
        program: "runc",
        package: "runc",
    },
    Tool {
        program: "mmdebstrap",
        package: "mmdebstrap",
    },
    Tool {
        program: "fsck.erofs",
        package: "erofs-utils",
    },
    Tool {
        program: "qemu-system-x86_64",
        package: "qemu-system-x86",
    },
    Tool {
        program: "wrk",
        package: "wrk",
    },
    Tool {
        program: "npm",
        package: "npm",
    },
    Tool {
        program: "python3",
        package: "python3",
    },
    Tool {
        program: "javac",
        package: "default-jdk-headless",
    },
    Tool {
        program: "mvn",
        package: "maven",
    },
];

/// The C library's headers and archive, for the static test programs.
const LIBC: Tool = Tool {
    program: "/usr/lib/x86_64-linux-gnu/libc.a",
    package: "libc6-dev",
};

/// What makes Python's virtual environments.
const PYTHON_VENV: Tool = Tool {
    program: "/usr/share/python-wheels",
    package: "python3-venv",
};

/// The formatter and linter for Python.
const RUFF: &str = "ruff==0.17.5";

/// The oldest Go that fetches the version a `go.mod` asks for by itself.
const GO_MINIMUM: (u32, u32) = (1, 21);

/// The Go that is fetched where the distribution has an older one: a version of the module `golang.org/toolchain`.
const GO_FETCHED: &str = "v0.0.1-go1.26.8.linux-amd64";

/// Where Debian and Ubuntu put a newer Go than the default one.
const GO_VERSIONED: &str = "/usr/lib/go-1.22/bin/go";

/// Installs what is missing.
pub(crate) fn run() -> Result<()> {
    let mut packages: Vec<&str> = TOOLS
        .iter()
        .filter(|tool| !sh::installed(tool.program))
        .map(|tool| tool.package)
        .collect();
    for tool in [LIBC, PYTHON_VENV] {
        if !Path::new(tool.program).exists() {
            packages.push(tool.package);
        }
    }
    install(&packages)?;
    if go().is_err() {
        install_go()?;
    }
    Ok(())
}

/// The Go command to use: the first one that is new enough.
pub(crate) fn go() -> Result<PathBuf> {
    let cached = paths::cache()?.join("go/bin/go");
    let candidates = [
        Path::new("go"),
        Path::new("/usr/local/go/bin/go"),
        Path::new(GO_VERSIONED),
        &cached,
    ];
    candidates
        .into_iter()
        .find(|go| go_is_new_enough(go))
        .map(Path::to_path_buf)
        .with_context(|| {
            format!(
                "no Go {}.{} or newer found; `cargo xtask setup` installs it",
                GO_MINIMUM.0, GO_MINIMUM.1
            )
        })
}

/// A folder of programs of Python, made on demand: `python` with what `apps/todo-python` needs, and `ruff`.
pub(crate) fn python() -> Result<PathBuf> {
    let requirements = paths::in_root("apps/todo-python/requirements.txt");
    let folder = paths::cache()?.join("python");
    let (programs, made) = (folder.join("bin"), folder.join("requirements.txt"));
    let locked =
        std::fs::read(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    if std::fs::read(&made).is_ok_and(|there| there == locked) && programs.join("ruff").exists() {
        return Ok(programs);
    }
    sh::output(sh::cmd("/usr/bin/python3", ["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = programs.join("pip");
    sh::output(sh::cmd(&pip, ["install", "--quiet", "--require-hashes", "-r"]).arg(&requirements))?;
    sh::output(&mut sh::cmd(&pip, ["install", "--quiet", RUFF]))?;
    std::fs::write(&made, locked).with_context(|| format!("write {}", made.display()))?;
    Ok(programs)
}

/// The search path with that Go first, for makefiles that call `go`.
pub(crate) fn path_with_go() -> Result<OsString> {
    let go = go()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = go
        .parent()
        .filter(|folder| folder.is_absolute())
        .map(Path::to_path_buf);
    std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).context("PATH")
}

fn go_is_new_enough(go: &Path) -> bool {
    let Ok(version) = sh::output(sh::cmd(go, ["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"))
    else {
        return false;
    };
    go_version(&version).is_some_and(|version| version >= GO_MINIMUM)
}

/// Major and minor number from `go1.26.8` and the like.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .trim()
        .strip_prefix("go")?
        .split(['.', 'r', 'b', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Go from the distribution, or, where that one is too old (Debian 12 has 1.19), the distribution's Go fetches the tool
/// chain it wants from the Go module proxy.
fn install_go() -> Result<()> {
    install(&["golang-go"])?;
    if go().is_ok() {
        return Ok(());
    }
    if apt_has("golang-1.22-go") {
        install(&["golang-1.22-go"])?;
        if go().is_ok() {
            return Ok(());
        }
    }
    fetch_go_toolchain()
        .context("the distribution's Go is too old, and fetching a newer one failed")
}

/// Unpacks the Go tool chain as the Go module proxy offers it.
fn fetch_go_toolchain() -> Result<()> {
    let cache = paths::cache()?;
    // Even an old Go downloads and verifies any module by name.
    let modules = paths::created(cache.join("go-modules"))?;
    sh::run(
        sh::cmd(
            "go",
            [
                "mod",
                "download",
                &format!("golang.org/toolchain@{GO_FETCHED}"),
            ],
        )
        .env("GOMODCACHE", &modules)
        .env("GOFLAGS", "-modcacherw")
        .env("GO111MODULE", "on"),
    )?;
    let unpacked = modules.join(format!("golang.org/toolchain@{GO_FETCHED}"));
    for folder in ["bin", "pkg/tool/linux_amd64"] {
        make_executable(&unpacked.join(folder))?;
    }
    let place = cache.join("go");
    if place.exists() {
        std::fs::remove_dir_all(&place).with_context(|| format!("replace {}", place.display()))?;
    }
    std::fs::rename(&unpacked, &place)
        .with_context(|| format!("move Go to {}", place.display()))?;
    go().map(drop)
}

/// Module zips carry no executable bits.
fn make_executable(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        std::fs::set_permissions(entry?.path(), std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Whether the package lists offer `package`.
fn apt_has(package: &str) -> bool {
    let policy = sh::output(&mut sh::cmd("apt-cache", ["policy", package])).unwrap_or_default();
    policy.lines().any(|line| {
        line.trim()
            .strip_prefix("Candidate: ")
            .is_some_and(|version| version != "(none)")
    })
}

/// Installs distribution packages, as root or through sudo.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if !sh::installed("apt-get") {
        bail!(
            "missing: {}. This machine has no apt-get; install them with its package manager",
            packages.join(" ")
        );
    }
    println!("installing {}", packages.join(" "));
    update_lists()?;
    let mut command = as_root("apt-get")?;
    command
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages);
    sh::output(&mut command).map(drop)
}

/// Brings apt's package lists up to date.
pub(crate) fn update_lists() -> Result<()> {
    sh::output(as_root("apt-get")?.args(["update", "-qq"])).map(drop)
}

/// A command that runs as root.
fn as_root(program: &str) -> Result<Command> {
    let mut command = if rustix::process::geteuid().is_root() {
        sh::cmd("env", ["DEBIAN_FRONTEND=noninteractive", program])
    } else if sh::installed("sudo") {
        sh::cmd("sudo", ["env", "DEBIAN_FRONTEND=noninteractive", program])
    } else {
        bail!("`{program}` needs root: run as root or install sudo");
    };
    command.current_dir("/");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::go_version;

    #[test]
    fn go_versions() {
        assert_eq!(go_version("go1.26.8\n"), Some((1, 26)));
        assert_eq!(go_version("go1.22rc1"), Some((1, 22)));
        assert_eq!(go_version("go1.24.4 X:nodwarf5"), Some((1, 24)));
        assert_eq!(go_version("devel +abc"), None);
    }
}
