//! How long a thread spins for a lock before it sleeps: longer if its last spins have paid.
//!
//! A spin that never sees the lock free has cost CPU time and gained nothing. The critical section
//! is long, or the holder has no CPU, perhaps because the spinner has it. So each such spin halves
//! the next spins of its thread, and a spin that gets the lock restores their full length. This
//! assumes nothing about CPUs, load or critical sections.

use super::constants::SPIN_NS;
use crate::platform::{Atomic, Ordering::Relaxed, Platform};

/// Spins are halved up to this number of times, to 0.3 us. On hardware the shortest spin takes at
/// least 16 pauses, 0.4 to 1 us.
const MOST_HALVINGS: u8 = 6;
/// One wait in this many spins for the full time, whatever the last spins gained: short spins do
/// not find out that longer ones would pay again. For a thread with the shortest spins this doubles
/// the time that it spins.
const WAITS_PER_WHOLE_SPIN: u32 = 1 << MOST_HALVINGS;

/// How long the calling thread should spin in the wait that it begins, in nanoseconds:
/// [`SPIN_NS`] at most.
pub(in crate::raw) fn limit<P: Platform>() -> u64 {
    let Some(halvings) = P::waiters().halvings(P::kept_slot()) else {
        return SPIN_NS;
    };
    match halvings.load(Relaxed) {
        0 => SPIN_NS,
        // Compared with the largest remainder, not with 0: a platform without randomness returns 0,
        // and each of its spins would have full length.
        _ if P::random() % WAITS_PER_WHOLE_SPIN == WAITS_PER_WHOLE_SPIN - 1 => SPIN_NS,
        halvings => SPIN_NS >> halvings.min(MOST_HALVINGS),
    }
}

/// Records a spin of the calling thread, which now has the lock or has never seen it free.
pub(in crate::raw) fn record<P: Platform>(has_lock: bool) {
    let Some(halvings) = P::waiters().halvings(P::kept_slot()) else {
        return;
    };
    let before = halvings.load(Relaxed);
    let after = match has_lock {
        true => 0,
        false => (before + 1).min(MOST_HALVINGS),
    };
    if after != before {
        // Only this thread and its signal handlers write it.
        halvings.store(after, Relaxed);
    }
}
