//! The knobs in force: defaults, environment variables, and functions that override both.
//!
//! | knob | environment | function | default |
//! | --- | --- | --- | --- |
//! | reorder queues by locality domain | `KINLOCK_NUMA=auto\|on\|off` | [`set_numa`] | `auto` |
//! | search for local waiters | `KINLOCK_SCAN=full\|incremental` | [`set_scan`] | `full` |
//! | limit on local hand-offs | `KINLOCK_LOCAL_LIMIT=10ms\|2^16` | [`set_local_limit`] | `10ms` |
//! | running threads overtake sleepers | `KINLOCK_STEALING=on\|off` | [`set_stealing`] | `on` |
//! | quantum of a mutex | `KINLOCK_QUANTUM=fair\|250us\|throughput` | [`set_quantum`] | `250us` |
//! | kind of locality domain | `KINLOCK_DOMAIN=node\|llc\|socket` | `set_domain_kind` | `node` |
//! | pretend these CPUs are domains | `KINLOCK_TOPOLOGY=0-3;4-7` | | |
//! | say on standard error what was decided | `KINLOCK_VERBOSE=0\|1` | | `0` |
//! | programs print statistics at their end, see `show_stats` | `KINLOCK_SHOW_STATS=0\|1` | | `0` |
//!
//! The quantum is how long a mutex stays with threads that keep taking it while others wait.
//!
//! The environment is read once, when a lock is first contended, without allocation. A function
//! overrides the environment, whether it is called before or after that. A bad value in the
//! environment is reported once on standard error and then ignored. An empty value counts as unset.
//! Without the feature `std` there is no environment, and `auto` means off.
//!
//! ```
//! use kinlock_core::config::{self, LocalLimit, Numa};
//!
//! config::set_numa(Numa::On);
//! config::set_local_limit("2^16".parse()?);
//! assert!(config::tuning().reorder);
//! assert_eq!(config::tuning().limit, LocalLimit::count(16)?);
//! # Ok::<(), kinlock_core::config::ParseError>(())
//! ```

#[cfg(feature = "std")]
mod announce;
mod settings;
mod word;

use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "std")]
use crate::environment;
pub use crate::tuning::{Decision, LocalLimit, Numa, ParseError, Quantum, Scan, Tuning};
use settings::Settings;
use word::Word;

/// The knobs in force. The first call reads the environment; later calls cost one relaxed load.
#[inline]
pub fn tuning() -> Tuning {
    let word = Word(KNOBS.load(Ordering::Relaxed));
    if word.has(Word::RESOLVED) {
        word.tuning()
    } else {
        resolve().tuning()
    }
}

/// Whether the meaning of `auto` has been decided. It has not only while another thread determines
/// the locality domains.
pub fn is_decided() -> bool {
    Word(KNOBS.load(Ordering::Relaxed)).has(Word::RESOLVED) || resolve().has(Word::RESOLVED)
}

/// Whether queues are reordered, and why.
pub fn decision() -> Decision {
    let mut word = Word(KNOBS.load(Ordering::Relaxed));
    if !word.has(Word::RESOLVED) {
        word = resolve();
    }
    decision_of(word)
}

/// Sets whether queues are reordered by locality domain.
pub fn set_numa(numa: Numa) {
    update(|word| word.with_numa(numa).with(Word::NUMA_SET));
}

/// Sets how a NUMA-aware lock searches for a local waiter.
pub fn set_scan(scan: Scan) {
    update(|word| word.with_scan(scan).with(Word::SCAN_SET));
}

/// Sets how long hand-offs may stay in one locality domain while waiters of others exist.
pub fn set_local_limit(limit: LocalLimit) {
    update(|word| word.with_limit(limit).with(Word::LIMIT_SET));
}

/// Sets whether a running thread may take a free lock before a front waiter that does not run.
///
/// Without stealing, locks go strictly in the order of their queue, and each hand-off to a sleeper
/// takes as long as waking it does. A thread still takes a free lock for which no thread waits.
/// Threads that find no free node still take the lock whenever they find it free.
pub fn set_stealing(on: bool) {
    update(|word| word.with_stealing(on).with(Word::STEALING_SET));
}

/// Sets how long a mutex stays with threads that keep taking it while another one waits at the
/// front.
pub fn set_quantum(quantum: Quantum) {
    update(|word| word.with_quantum(quantum).with(Word::QUANTUM_SET));
}

/// Sets the kind of locality domain.
///
/// It has no effect where `KINLOCK_TOPOLOGY` defines the domains.
///
/// # Errors
///
/// [`TooLate`] if the domains have been determined: by a contended lock, by [`decision`], or by a
/// function of the module `topology`.
#[cfg(feature = "std")]
pub fn set_domain_kind(kind: crate::topology::DomainKind) -> Result<(), TooLate> {
    if crate::topology::choose_kind(kind) {
        Ok(())
    } else {
        Err(TooLate)
    }
}

/// Whether `KINLOCK_VERBOSE=1` asks for a report on standard error. Reads the environment.
#[cfg(feature = "std")]
pub fn verbose() -> bool {
    environment::read_switch(environment::Variable::Verbose)
}

/// Whether `KINLOCK_SHOW_STATS=1` asks for statistics when the program ends. Reads the environment.
///
/// A library prints nothing by itself. A program that counts [`events`](crate::events) asks here
/// whether to print them.
#[cfg(feature = "std")]
pub fn show_stats() -> bool {
    environment::read_switch(environment::Variable::ShowStats)
}

/// The locality domains have been determined, so their kind can no longer be set.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate;

#[cfg(feature = "std")]
impl core::fmt::Display for TooLate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the locality domains have been determined already")
    }
}

#[cfg(feature = "std")]
impl core::error::Error for TooLate {}

/// All knobs in one word, so that a lock reads all at once and concurrent updates do not mix.
static KNOBS: AtomicU32 = AtomicU32::new(Word::new(Tuning::DEFAULT).0);

const UNDECIDED: Decision = Decision {
    reorder: false,
    reason: "the locality domains are being determined",
};

fn decision_of(word: Word) -> Decision {
    match word.numa() {
        Numa::On => Decision {
            reorder: true,
            reason: "asked for",
        },
        Numa::Off => Decision {
            reorder: false,
            reason: "asked for",
        },
        Numa::Auto => automatic_decision().unwrap_or(UNDECIDED),
    }
}

/// Changes knobs. The next use resolves them anew.
fn update(change: impl Fn(Word) -> Word) {
    let _ = KNOBS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
        Some(change(Word(word)).without(Word::RESOLVED).0)
    });
}

/// Sets the knobs that no function has set from the environment, and decides what `auto` means.
#[cold]
fn resolve() -> Word {
    let settings = Settings::from_environment();
    let mut word = Word(KNOBS.load(Ordering::Relaxed));
    loop {
        let resolved = settings.complete(word);
        match KNOBS.compare_exchange_weak(word.0, resolved.0, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                #[cfg(feature = "std")]
                announce::announce(resolved);
                return resolved;
            }
            Err(seen) => word = Word(seen),
        }
    }
}

#[cfg(feature = "std")]
fn automatic_decision() -> Option<Decision> {
    crate::topology::automatic_decision()
}

#[cfg(not(feature = "std"))]
fn automatic_decision() -> Option<Decision> {
    Some(Decision {
        reorder: false,
        reason: "without the feature `std` nothing is known of the machine",
    })
}
