// SPDX-License-Identifier: Apache-2.0
//! Who the process is: user, groups, capabilities (credentials(7)).
//!
//! There is one user in a unikernel, and the kernel asks for privileges in few places. The numbers are kept by Linux's
//! rules all the same, because programs check that giving up privileges worked.

use alloc::vec::Vec;

use coracle_abi::Errno;
use coracle_abi::convert::{low_u32, usize_from_u32};
use coracle_abi::raw::general as g;
use coracle_core::Result;
use coracle_core::file::OpenFile;
use coracle_core::sync::SpinLock;
use coracle_core::thread::{self, FIRST_TID};
use coracle_core::user::User;

use crate::process::installed;
use crate::thread::has_no_new_privs;

/// "Leave it as it is" in the calls that set several numbers.
const KEEP: u32 = u32::MAX;

/// Most supplementary groups.
const MOST_GROUPS: usize = 65536;

/// All capabilities of Linux 6.1, 0 to `CAP_CHECKPOINT_RESTORE`.
const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// The real, effective and saved number of a user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Who started the program.
    pub real: u32,
    /// Whose rights count.
    pub effective: u32,
    /// What can be gone back to.
    pub saved: u32,
}

impl Ids {
    const fn all(id: u32) -> Self {
        Self {
            real: id,
            effective: id,
            saved: id,
        }
    }

    fn has(self, id: u32) -> bool {
        id == self.real || id == self.effective || id == self.saved
    }
}

/// Who the process is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// User.
    pub user: Ids,
    /// Group.
    pub group: Ids,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities in force, by their numbers.
    pub effective: u64,
    /// Capabilities that can be put in force.
    pub permitted: u64,
    /// Capabilities that `execve(2)` would keep.
    pub inheritable: u64,
}

static IDENTITY: SpinLock<Identity> = SpinLock::new(Identity {
    user: Ids::all(0),
    group: Ids::all(0),
    groups: Vec::new(),
    effective: ALL_CAPABILITIES,
    permitted: ALL_CAPABILITIES,
    inheritable: 0,
});

/// A capability that some call asks for.
#[derive(Clone, Copy)]
pub(super) enum Capability {
    SetGid = 6,
    SetUid = 7,
    SetPcap = 8,
    SysAdmin = 21,
    SysResource = 24,
}

impl Capability {
    fn is_in(self, identity: &Identity) -> bool {
        identity.effective & 1 << self as u32 != 0
    }

    /// `EPERM` unless the process has it.
    pub(super) fn require(self) -> Result<()> {
        if self.is_in(&IDENTITY.lock()) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }
}

/// A copy of the identity.
#[must_use]
pub fn identity() -> Identity {
    IDENTITY.lock().clone()
}

/// Sets user and group before the program starts. Only user 0 has capabilities.
pub fn set_identity(uid: u32, gid: u32) {
    let mut identity = IDENTITY.lock();
    identity.user = Ids::all(uid);
    identity.group = Ids::all(gid);
    let capabilities = if uid == 0 { ALL_CAPABILITIES } else { 0 };
    (identity.effective, identity.permitted) = (capabilities, capabilities);
    drop(identity);
    tell_files();
}

/// Sets the supplementary groups before the program starts.
pub fn set_groups(groups: &[u32]) {
    let old = core::mem::replace(&mut IDENTITY.lock().groups, groups.to_vec());
    drop(old);
}

/// New files belong to the effective user and group.
fn tell_files() {
    let (uid, gid) = {
        let identity = IDENTITY.lock();
        (identity.user.effective, identity.group.effective)
    };
    if let Some(process) = installed() {
        process.set_owner(uid, gid);
    }
}

/// What `execve(2)` of a file with this mode and owner makes of the identity: set-user-ID and set-group-ID, and the
/// capabilities (capabilities(7), "Transformation of capabilities during execve()"). Returns whether the new program
/// may not trust its environment (`AT_SECURE`).
pub(crate) fn on_exec(file: &OpenFile) -> bool {
    let metadata = file.file().metadata().unwrap_or_default();
    let mut identity = IDENTITY.lock();
    let (user, group) = (identity.user, identity.group);
    if !has_no_new_privs() {
        if metadata.mode & g::S_ISUID != 0 {
            identity.user.effective = metadata.uid;
        }
        let set_group = g::S_ISGID | g::S_IXGRP;
        if metadata.mode & set_group == set_group {
            identity.group.effective = metadata.gid;
        }
    }
    identity.user.saved = identity.user.effective;
    identity.group.saved = identity.group.effective;
    let all_if = |yes: bool| if yes { ALL_CAPABILITIES } else { 0 };
    let is_root = identity.user.effective == 0;
    identity.permitted = all_if(is_root || identity.user.real == 0);
    identity.effective = all_if(is_root);
    let is_secure = identity.user.effective != user.real || identity.group.effective != group.real;
    drop(identity);
    tell_files();
    is_secure
}

/// The real user number, as signals report it.
pub(crate) fn real_uid() -> u32 {
    IDENTITY.lock().user.real
}

/// `getuid(2)`
pub(crate) fn getuid() -> Result<usize> {
    Ok(usize_from_u32(real_uid()))
}

/// `geteuid(2)`
pub(crate) fn geteuid() -> Result<usize> {
    Ok(usize_from_u32(IDENTITY.lock().user.effective))
}

/// `getgid(2)`
pub(crate) fn getgid() -> Result<usize> {
    Ok(usize_from_u32(IDENTITY.lock().group.real))
}

/// `getegid(2)`
pub(crate) fn getegid() -> Result<usize> {
    Ok(usize_from_u32(IDENTITY.lock().group.effective))
}

fn write_ids(ids: Ids, real: User, effective: User, saved: User) -> Result<usize> {
    real.write(ids.real)?;
    effective.write(ids.effective)?;
    saved.write(ids.saved)?;
    Ok(0)
}

/// `getresuid(2)`
pub(crate) fn getresuid(real: User, effective: User, saved: User) -> Result<usize> {
    write_ids(identity().user, real, effective, saved)
}

/// `getresgid(2)`
pub(crate) fn getresgid(real: User, effective: User, saved: User) -> Result<usize> {
    write_ids(identity().group, real, effective, saved)
}

/// Changes the user numbers as `new` says (given the old ones and whether the caller is privileged), and with them the
/// capabilities (capabilities(7), "Effect of user ID changes on capabilities").
fn change_user(new: impl FnOnce(Ids, bool) -> Result<Ids>) -> Result<usize> {
    let mut identity = IDENTITY.lock();
    let old = identity.user;
    let ids = new(old, Capability::SetUid.is_in(&identity))?;
    identity.user = ids;
    if old.has(0) && !ids.has(0) {
        (identity.permitted, identity.effective) = (0, 0);
    }
    if old.effective == 0 && ids.effective != 0 {
        identity.effective = 0;
    } else if old.effective != 0 && ids.effective == 0 {
        identity.effective = identity.permitted;
    }
    drop(identity);
    tell_files();
    Ok(0)
}

fn change_group(new: impl FnOnce(Ids, bool) -> Result<Ids>) -> Result<usize> {
    let mut identity = IDENTITY.lock();
    let ids = new(identity.group, Capability::SetGid.is_in(&identity))?;
    identity.group = ids;
    drop(identity);
    tell_files();
    Ok(0)
}

/// The rule of setuid(2) and setgid(2).
fn set_one(id: u32) -> impl FnOnce(Ids, bool) -> Result<Ids> {
    move |old, privileged| match id {
        KEEP => Err(Errno::EINVAL),
        _ if privileged => Ok(Ids::all(id)),
        _ if id == old.real || id == old.saved => Ok(Ids {
            effective: id,
            ..old
        }),
        _ => Err(Errno::EPERM),
    }
}

/// The rule of setreuid(2) and setregid(2).
fn set_two(real: u32, effective: u32) -> impl FnOnce(Ids, bool) -> Result<Ids> {
    move |old, privileged| {
        let real_allowed = real == KEEP || real == old.real || real == old.effective;
        let effective_allowed = effective == KEEP || old.has(effective);
        let allowed = real_allowed && effective_allowed;
        if !allowed && !privileged {
            return Err(Errno::EPERM);
        }
        let mut new = Ids {
            real: or(real, old.real),
            effective: or(effective, old.effective),
            ..old
        };
        if real != KEEP || effective != KEEP && effective != old.real {
            new.saved = new.effective;
        }
        Ok(new)
    }
}

/// The rule of setresuid(2) and setresgid(2).
fn set_three(real: u32, effective: u32, saved: u32) -> impl FnOnce(Ids, bool) -> Result<Ids> {
    move |old, privileged| {
        let allowed = |id: u32| privileged || id == KEEP || old.has(id);
        if !(allowed(real) && allowed(effective) && allowed(saved)) {
            return Err(Errno::EPERM);
        }
        Ok(Ids {
            real: or(real, old.real),
            effective: or(effective, old.effective),
            saved: or(saved, old.saved),
        })
    }
}

fn or(id: u32, old: u32) -> u32 {
    if id == KEEP { old } else { id }
}

/// `setuid(2)`
pub(crate) fn setuid(uid: u32) -> Result<usize> {
    change_user(set_one(uid))
}

/// `setgid(2)`
pub(crate) fn setgid(gid: u32) -> Result<usize> {
    change_group(set_one(gid))
}

/// `setreuid(2)`
pub(crate) fn setreuid(real: u32, effective: u32) -> Result<usize> {
    change_user(set_two(real, effective))
}

/// `setregid(2)`
pub(crate) fn setregid(real: u32, effective: u32) -> Result<usize> {
    change_group(set_two(real, effective))
}

/// `setresuid(2)`
pub(crate) fn setresuid(real: u32, effective: u32, saved: u32) -> Result<usize> {
    change_user(set_three(real, effective, saved))
}

/// `setresgid(2)`
pub(crate) fn setresgid(real: u32, effective: u32, saved: u32) -> Result<usize> {
    change_group(set_three(real, effective, saved))
}

/// `getgroups(2)`
pub(crate) fn getgroups(count: i32, out: User) -> Result<usize> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let groups = identity().groups;
    if count > 0 {
        if count < groups.len() {
            return Err(Errno::EINVAL);
        }
        for (n, group) in groups.iter().enumerate() {
            out.offset(n * size_of::<u32>())?.write(*group)?;
        }
    }
    Ok(groups.len())
}

/// `setgroups(2)`
pub(crate) fn setgroups(count: i32, groups: User) -> Result<usize> {
    Capability::SetGid.require()?;
    let count = usize::try_from(count)
        .ok()
        .filter(|n| *n <= MOST_GROUPS)
        .ok_or(Errno::EINVAL)?;
    let new = (0..count)
        .map(|n| groups.offset(n * size_of::<u32>())?.read())
        .collect::<Result<Vec<u32>>>()?;
    set_groups(&new);
    Ok(0)
}

/// Reads the header of capget(2) and returns how many 32-bit words each set has. For an unknown version the one we
/// know is stored in the header and `EINVAL` returned.
fn capability_words(header: User) -> Result<(usize, i32)> {
    const VERSION_1: u32 = 0x1998_0330;
    const VERSION_2: u32 = 0x2007_1026;
    const VERSION_3: u32 = 0x2008_0522;
    let version: u32 = header.read()?;
    let words = match version {
        VERSION_1 => 1,
        VERSION_2 | VERSION_3 => 2,
        _ => {
            header.write(VERSION_3)?;
            return Err(Errno::EINVAL);
        }
    };
    Ok((words, header.offset(4)?.read()?))
}

/// `capget(2)`
pub(crate) fn capget(header: User, data: User) -> Result<usize> {
    let (words, pid) = match capability_words(header) {
        // NULL for the data asks for the version only.
        Err(Errno::EINVAL) if data.is_null() => return Ok(0),
        result => result?,
    };
    if data.is_null() {
        return Ok(0);
    }
    let pid = u32::try_from(pid).map_err(|_| Errno::EINVAL)?;
    if pid != 0 && pid != FIRST_TID && thread::find(pid).is_none() {
        return Err(Errno::ESRCH);
    }
    let now = identity();
    for word in 0..words {
        let part = |set: u64| low_u32(set >> (32 * word));
        let sets = [
            part(now.effective),
            part(now.permitted),
            part(now.inheritable),
        ];
        data.offset(word * size_of_val(&sets))?.write(sets)?;
    }
    Ok(0)
}

/// `capset(2)`
pub(crate) fn capset(header: User, data: User) -> Result<usize> {
    let (words, pid) = capability_words(header)?;
    if pid != 0 && pid.cast_unsigned() != thread::current().tid() {
        return Err(Errno::EPERM);
    }
    let mut sets = [0u64; 3];
    for word in 0..words {
        let parts: [u32; 3] = data.offset(word * size_of::<[u32; 3]>())?.read()?;
        for (set, part) in sets.iter_mut().zip(parts) {
            *set |= u64::from(part) << (32 * word);
        }
    }
    let [effective, permitted, inheritable] = sets.map(|set| set & ALL_CAPABILITIES);
    let mut identity = IDENTITY.lock();
    let may_inherit = if Capability::SetPcap.is_in(&identity) {
        ALL_CAPABILITIES
    } else {
        identity.inheritable | identity.permitted
    };
    if inheritable & !may_inherit != 0
        || permitted & !identity.permitted != 0
        || effective & !permitted != 0
    {
        return Err(Errno::EPERM);
    }
    identity.effective = effective;
    identity.permitted = permitted;
    identity.inheritable = inheritable;
    Ok(0)
}
