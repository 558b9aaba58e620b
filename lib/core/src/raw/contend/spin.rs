//! How long a thread spins for a lock before it sleeps: spinning pays for itself.
//!
//! A spin that never sees the lock free has cost CPU time and brought nothing. The critical section
//! is long, or the holder has no CPU, perhaps because the spinner has it. So each such spin halves
//! the next ones of its thread, and one that gets the lock restores their whole length. Nothing is
//! assumed about CPUs, load or critical sections.

use super::constants::SPIN_NS;
use crate::platform::{Atomic, Ordering::Relaxed, Platform};

/// Spins are halved up to this number of times, to 0.3 us. On hardware the shortest takes 16 pauses
/// or more, 0.4 to 1 us.
const MOST_HALVINGS: u8 = 6;
/// One wait in this many spins for the whole time, whatever the last ones brought: short spins do
/// not find out that longer ones would pay again. With the shortest spins this doubles the time
/// that the thread spins.
const WAITS_PER_WHOLE_SPIN: u32 = 1 << MOST_HALVINGS;

/// How long the calling thread should spin in the wait that it begins, in nanoseconds:
/// [`SPIN_NS`] at most.
pub(in crate::raw) fn limit<P: Platform>() -> u64 {
    let Some(halvings) = P::waiters().halvings(P::kept_slot()) else {
        return SPIN_NS;
    };
    match halvings.load(Relaxed) {
        0 => SPIN_NS,
        // Not 0: without a source of randomness each spin would be a whole one.
        _ if P::random() % WAITS_PER_WHOLE_SPIN == WAITS_PER_WHOLE_SPIN - 1 => SPIN_NS,
        halvings => SPIN_NS >> halvings.min(MOST_HALVINGS),
    }
}

/// The calling thread has spun for a lock. It has the lock, or has never seen it free.
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
        // Only this thread writes it, and its signal handlers.
        halvings.store(after, Relaxed);
    }
}
