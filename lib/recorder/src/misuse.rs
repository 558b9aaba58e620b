//! Calls that misuse a lock, as the lock's function has found.

use super::misuses;
use super::object::Object;
use super::{held, make, memory, tally};
use core::sync::atomic::Ordering::*;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{
    CONDVAR, DESTROYED_AWAITED, DESTROYED_HELD, NOT_HELD, Owner, Table, Tally, Thread,
};

/// Notes that the calling thread has misused a lock, as the lock's function has found. `holder`:
/// the kernel's number of the thread that holds it, or 0.
#[cold]
pub fn misused(misuse: u32, address: u64, kind: u32, holder: u32) {
    if let Some(table) = make::own_table() {
        // That nobody holds the lock, or that threads sleep there, is known without the table.
        let is_known = misuse == NOT_HELD || kind == CONDVAR;
        if !is_known && Native::forked() && !is_held_here(table, address) {
            return;
        }
        misuses::note(table, misuse, (address, kind), [holder, 0]);
    }
}

/// Whether a thread of this process holds a lock, as its tallies or its list say. In the child of a
/// fork, the lock's own word may name a thread of the parent.
fn is_held_here(table: &Table, address: u64) -> bool {
    let holds = |owner: &Owner| {
        let is_held = |tally: &Tally| {
            tally.address.load(Relaxed) == address && tally.since.load(Relaxed) != 0
        };
        owner.tallies.iter().any(is_held)
            || held::list(owner)
                .iter()
                .any(|held| held.address.load(Relaxed) == address)
    };
    let mut owners = table.owners.iter();
    owners.any(|owner| {
        memory::is_present(table, owner) && owner.token.load(Relaxed) != 0 && holds(owner)
    })
}

/// Notes that the calling thread has tried to destroy a lock that is held.
#[cold]
pub fn destroyed_held(object: Object<'_>) {
    let Some(table) = make::own_table() else {
        return;
    };
    let Object { address, kind, .. } = object;
    let waits = |thread: &Thread| {
        memory::is_present(table, thread) && thread.waits_for.load(Relaxed) == address
    };
    let misuse = match table.threads.iter().any(waits) {
        true => DESTROYED_AWAITED,
        false => DESTROYED_HELD,
    };
    let holder = tally::of_holder(table, object)
        .filter(|(_, tally)| tally.since.load(Relaxed) != 0)
        .map(|(owner, tally)| misuses::holder_by(table, owner, tally));
    // In the child of a fork it may be the parent that holds it.
    if holder.is_none() && Native::forked() {
        return;
    }
    misuses::note(table, misuse, (address, kind), holder.unwrap_or([0, 0]));
}

/// The number of threads that sleep at the words of an object. The kernel is asked to move them to
/// the words where they already are, and counts them.
#[cold]
pub fn sleepers_at(address: u64, words: usize) -> u64 {
    let at = |word: usize| {
        let key = address + 4 * word as u64;
        let operation = libc::FUTEX_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: invariant 9: the kernel checks the address, and changes no memory.
        let found =
            unsafe { memory::system_call!(libc::SYS_futex, key, operation, 0, i32::MAX, key) };
        found.unwrap_or(0) as u64
    };
    (0..words).map(at).sum()
}
