//! The domains that the calling thread is a member of.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::{LIST, Leased, MEMBERSHIPS};
use crate::raw::NO_MEMBER;
use crate::thread;

thread_local! {
    // No destructor, so accessible until the thread is gone. Upper half: serial; lower half:
    // member index; 0 = unused. Atomic because of signal handlers.
    static JOINED: [AtomicU64; MEMBERSHIPS] =
        const { [const { AtomicU64::new(0) }; MEMBERSHIPS] };
}

/// The calling thread's member index. Makes it a member if need be. `None`: it has ended.
#[inline]
pub(super) fn of(leased: &Leased) -> Option<u32> {
    let first = JOINED.with(|joined| joined[0].load(Relaxed));
    if (first >> 32) as u32 == leased.serial {
        return Some(first as u32);
    }
    others(leased)
}

#[inline(never)]
fn others(leased: &Leased) -> Option<u32> {
    remembered(leased.serial).or_else(|| join(leased))
}

/// As [`of`], without making the thread a member.
pub(super) fn remembered(serial: u32) -> Option<u32> {
    JOINED.with(|joined| {
        let words = joined.iter().map(|word| word.load(Relaxed));
        let mut ours = words.filter(|word| (word >> 32) as u32 == serial);
        ours.next().map(|word| word as u32)
    })
}

/// Makes the calling thread a member.
#[cold]
pub(super) fn join(leased: &Leased) -> Option<u32> {
    if !thread::will_end() {
        thread::comes_again();
        return (!thread::has_ended()).then_some(NO_MEMBER);
    }
    let word = |member: u32| u64::from(leased.serial) << 32 | u64::from(member);
    JOINED.with(|joined| {
        // A signal handler that comes after this finds the thread to be a member already.
        let free = joined.iter().find(|place| {
            place
                .compare_exchange(0, word(NO_MEMBER), Relaxed, Relaxed)
                .is_ok()
        });
        let Some(place) = free else {
            forget_gone(joined);
            return Some(NO_MEMBER);
        };
        // A signal handler that came just before may have made it a member. One membership is
        // enough.
        let others = joined.iter().filter(|other| !core::ptr::eq(*other, place));
        let words = others.map(|other| other.load(Relaxed));
        if let Some(word) = { words }.find(|word| (word >> 32) as u32 == leased.serial) {
            place.store(0, Relaxed);
            return Some(word as u32);
        }
        let member = leased.claim_member();
        leased.ids.join();
        place.store(word(member), Relaxed);
        Some(member)
    })
}

/// Frees the entries of dropped domains for later calls.
fn forget_gone(joined: &[AtomicU64; MEMBERSHIPS]) {
    // A signal handler may have interrupted the holder of the list's lock.
    let Some(list) = LIST.try_lock() else {
        return;
    };
    for place in joined {
        let seen = place.load(Relaxed);
        // SAFETY: invariant 2 of the parent module.
        let alive = list
            .iter()
            .any(|listed| unsafe { &*listed.0 }.serial == (seen >> 32) as u32);
        if !alive {
            let _ = place.compare_exchange(seen, 0, Relaxed, Relaxed);
        }
    }
}

/// Forgets that the calling thread is a member. Returns its member index.
pub(super) fn take(serial: u32) -> Option<u32> {
    JOINED.with(|joined| {
        let ours = |place: &&AtomicU64| (place.load(Relaxed) >> 32) as u32 == serial;
        let place = joined.iter().find(ours)?;
        Some(place.swap(0, Relaxed) as u32)
    })
}
