// SPDX-License-Identifier: Apache-2.0
//! One thread goes on alone as the program's first: what execve(2) needs before it replaces the program.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use coracle_arch::{cpu, fpu};

use super::{FIRST_TID, PENDING_EXIT, THREADS, TIDS, Thread, current};
use crate::poll::PollSource;
use crate::{Errno, Result};

/// A thread wants to be alone.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Notified when a thread ends while another wants to be alone.
static ENDED: PollSource = PollSource::new();

/// Whether no new threads may be made, since all but one are ending.
pub(super) fn is_wanted() -> bool {
    WANTED.load(Ordering::SeqCst)
}

/// A thread has ended.
pub(super) fn on_end() {
    if is_wanted() {
        ENDED.notify(coracle_abi::PollEvents::IN);
    }
}

/// Ends all other threads and gives the caller the number of the first. `EAGAIN` if another thread does that already;
/// then the caller ends when it goes back to the application.
pub fn become_only() -> Result<()> {
    if WANTED.swap(true, Ordering::SeqCst) {
        return Err(Errno::EAGAIN);
    }
    let me = current();
    tell_others(me);
    ENDED.wait(|| super::thread_count() == 1);
    let number = me.tid.swap(FIRST_TID, Ordering::SeqCst);
    if number != FIRST_TID {
        TIDS.lock().free(number);
    }
    WANTED.store(false, Ordering::SeqCst);
    Ok(())
}

/// Tells all other threads to end, and does not wait for it: the program is over, and the caller has things to finish.
pub fn end_others() {
    WANTED.store(true, Ordering::SeqCst);
    tell_others(current());
}

fn tell_others(me: &Thread) {
    // Those who make threads look at `WANTED` with the list locked, so none is added behind this look.
    let others: Vec<Arc<Thread>> = THREADS
        .lock()
        .iter()
        .filter(|t| !core::ptr::eq(Arc::as_ptr(t), me))
        .cloned()
        .collect();
    for thread in &others {
        thread.request(PENDING_EXIT);
    }
}

/// Forgets what the caller's registers hold and what it told the kernel about its memory, which is about to go.
pub fn forget_program() {
    let me = current();
    me.clear_child_tid.store(0, Ordering::Relaxed);
    me.robust_list.store(0, Ordering::Relaxed);
    me.set_fs_base(0);
    cpu::set_user_gs_base(0);
    me.with_fpu_state(|area| {
        area.fill(0);
        fpu::init_area(area);
    });
}
