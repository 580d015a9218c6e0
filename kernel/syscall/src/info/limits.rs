// SPDX-License-Identifier: Apache-2.0
//! Resource limits: all are kept, that of open files is enforced (getrlimit(2)).

use coracle_abi::Errno;
use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::Result;
use coracle_core::sync::SpinLock;
use coracle_core::thread::{self, FIRST_TID};
use coracle_core::user::User;

use super::identity::Capability;
use crate::process::installed;

/// Number of resources.
const COUNT: usize = g::RLIM_NLIMITS as usize;

/// No limit.
const INFINITY: u64 = u64::MAX;

/// Most files that a process may have open at once (`fs.nr_open`).
const MOST_FILES: u64 = 1 << 20;

/// The resources in order of their numbers, as the OCI configuration names them.
pub const LIMIT_NAMES: [&str; COUNT] = [
    "RLIMIT_CPU",
    "RLIMIT_FSIZE",
    "RLIMIT_DATA",
    "RLIMIT_STACK",
    "RLIMIT_CORE",
    "RLIMIT_RSS",
    "RLIMIT_NPROC",
    "RLIMIT_NOFILE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_AS",
    "RLIMIT_LOCKS",
    "RLIMIT_SIGPENDING",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
    "RLIMIT_RTTIME",
];

/// Soft and hard limit.
type Limit = (u64, u64);

static LIMITS: SpinLock<[Limit; COUNT]> = SpinLock::new(initial());

const fn initial() -> [Limit; COUNT] {
    let mut limits = [(INFINITY, INFINITY); COUNT];
    limits[g::RLIMIT_STACK as usize] = (8 << 20, INFINITY);
    limits[g::RLIMIT_CORE as usize] = (0, INFINITY);
    limits[g::RLIMIT_NOFILE as usize] = (MOST_FILES, MOST_FILES);
    limits[g::RLIMIT_SIGPENDING as usize] = (1024, 1024);
    limits[g::RLIMIT_MSGQUEUE as usize] = (0, 0);
    limits[g::RLIMIT_NICE as usize] = (0, 0);
    limits[g::RLIMIT_RTPRIO as usize] = (0, 0);
    limits
}

/// The soft and hard limit of a resource; `EINVAL` for an unknown one.
pub fn limit(resource: u32) -> Result<Limit> {
    LIMITS
        .lock()
        .get(usize_from_u32(resource))
        .copied()
        .ok_or(Errno::EINVAL)
}

/// All limits, in order of the resources' numbers.
#[must_use]
pub fn limits() -> [Limit; COUNT] {
    *LIMITS.lock()
}

/// Sets the limit of a resource, at boot or for the process itself. `EINVAL` if the resource is unknown or the soft
/// limit is above the hard one; `EPERM` for more open files than any process may have.
pub fn set_limit(resource: u32, (soft, hard): Limit) -> Result<()> {
    limit(resource)?;
    if soft > hard {
        return Err(Errno::EINVAL);
    }
    if resource == g::RLIMIT_NOFILE {
        if hard > MOST_FILES {
            return Err(Errno::EPERM);
        }
        if let Some(process) = installed() {
            process
                .fds
                .lock()
                .set_limit(u32::try_from(soft).unwrap_or(u32::MAX));
        }
    }
    LIMITS.lock()[usize_from_u32(resource)] = (soft, hard);
    Ok(())
}

/// Sets a limit by its name in the OCI configuration. Errors as [`set_limit`].
pub fn set_limit_by_name(name: &str, limit: Limit) -> Result<()> {
    let number = LIMIT_NAMES
        .iter()
        .position(|n| *n == name)
        .ok_or(Errno::EINVAL)?;
    set_limit(u32::try_from(number).map_err(|_| Errno::EINVAL)?, limit)
}

/// A change by the application: raising a hard limit is a privilege.
fn change(resource: u32, new: Limit) -> Result<()> {
    let (_, hard) = limit(resource)?;
    if new.0 > new.1 {
        return Err(Errno::EINVAL);
    }
    if new.1 > hard {
        Capability::SysResource.require()?;
    }
    set_limit(resource, new)
}

fn read(at: User) -> Result<Limit> {
    let [soft, hard]: [u64; 2] = at.read()?;
    Ok((soft, hard))
}

fn write(at: User, (soft, hard): Limit) -> Result<()> {
    at.write([soft, hard])
}

/// `getrlimit(2)`
pub(crate) fn getrlimit(resource: u32, out: User) -> Result<usize> {
    write(out, limit(resource)?)?;
    Ok(0)
}

/// `setrlimit(2)`
pub(crate) fn setrlimit(resource: u32, value: User) -> Result<usize> {
    change(resource, read(value)?)?;
    Ok(0)
}

/// `prlimit64(2)`
pub(crate) fn prlimit64(pid: i32, resource: u32, new: User, old: User) -> Result<usize> {
    let new = new.optional().map(read).transpose()?;
    let pid = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    if pid != 0 && pid != FIRST_TID && thread::find(pid).is_none() {
        return Err(Errno::ESRCH);
    }
    let before = limit(resource)?;
    if let Some(new) = new {
        change(resource, new)?;
    }
    if let Some(old) = old.optional() {
        write(old, before)?;
    }
    Ok(0)
}
