//! The knobs in force: defaults, environment variables, and functions that override both.
//!
//! | knob | environment | function | default |
//! | --- | --- | --- | --- |
//! | reorder queues by locality domain | `KINLOCK_NUMA=auto\|on\|off` | [`set_numa`] | `auto` |
//! | search for local waiters | `KINLOCK_SCAN=full\|incremental` | [`set_scan`] | `full` |
//! | limit on local hand-offs | `KINLOCK_LOCAL_LIMIT=10ms\|2^16` | [`set_local_limit`] | `10ms` |
//! | running threads overtake sleepers | `KINLOCK_STEALING=on\|off` | [`set_stealing`] | `on` |
//! | quantum of a mutex | `KINLOCK_QUANTUM=fair\|250us\|throughput` | [`set_quantum`] | `1000us` |
//! | kind of domain | `KINLOCK_DOMAIN=auto\|node\|llc\|socket` | `set_domain_kind` | `auto` |
//! | pretend these CPUs are domains | `KINLOCK_TOPOLOGY=0-3;4-7` | | |
//! | say on standard error what was decided | `KINLOCK_VERBOSE=0\|1` | | `0` |
//! | programs print statistics at their end, see `show_stats` | `KINLOCK_SHOW_STATS=0\|1` | | `0` |
//!
//! The quantum is how long a mutex stays with threads that keep taking it while others wait. With
//! `auto`, domains are NUMA nodes, or the last-level caches of a single node, where spinlocks keep
//! the order of arrival. Between caches the default limit is `1ms`.
//!
//! The environment is read once, before `main`, without allocation: later changes have no effect. A
//! function overrides it. A bad value in the environment is reported once on standard error, when a
//! lock is first contended, and then ignored. An empty value counts as unset.
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

/// The knobs in force. The first call determines what `auto` means, which may take a millisecond;
/// later calls cost one relaxed load.
#[inline]
pub fn tuning() -> Tuning {
    resolved(domains).tuning()
}

/// As [`tuning_of_wait`], as spinlocks use the knobs. They keep the order of arrival where `auto`
/// took caches for domains: decision 0063.
#[inline]
pub(crate) fn tuning_of_spinlock() -> Tuning {
    resolved(domains_of_wait).tuning_of_spinlock()
}

/// As [`tuning`], for the slow path of a lock. As long as nobody knows what `auto` means, it means
/// `off`. The slow path number `PATIENCE` determines it: the first ones are to be fast, and a
/// program that hardly contends does not need it.
#[inline]
pub fn tuning_of_wait() -> Tuning {
    resolved(domains_of_wait).tuning()
}

/// Whether the meaning of `auto` has been decided.
pub fn is_decided() -> bool {
    Word(KNOBS.load(Ordering::Relaxed)).has(Word::RESOLVED)
}

/// Whether queues are reordered, and why.
pub fn decision() -> Decision {
    decision_of(resolved(domains))
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
    if crate::topology::set_kind(kind) {
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
        Numa::Auto => domains().map_or(UNDECIDED, |domains| domains.automatic),
    }
}

/// Changes knobs. The next use resolves them anew.
fn update(change: impl Fn(Word) -> Word) {
    let _ = KNOBS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
        Some(change(Word(word)).without(Word::RESOLVED).0)
    });
}

#[inline]
fn resolved(decide: fn() -> Option<Domains>) -> Word {
    let word = Word(KNOBS.load(Ordering::Relaxed));
    if word.has(Word::RESOLVED) {
        word
    } else {
        resolve(decide)
    }
}

/// Sets the knobs that no function has set from the environment, and `auto` as `decide` says.
#[cold]
fn resolve(decide: fn() -> Option<Domains>) -> Word {
    let settings = Settings::from_environment();
    let mut word = Word(KNOBS.load(Ordering::Relaxed));
    loop {
        let resolved = settings.complete(word, decide);
        if resolved == word {
            return word;
        }
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

/// The locality domains, as far as knobs depend on them.
#[derive(Clone, Copy)]
struct Domains {
    /// What `auto` means.
    automatic: Decision,
    /// `auto` means that mutexes reorder their queues and spinlocks do not.
    mutexes_only: bool,
    /// They are last-level caches.
    are_caches: bool,
}

/// `None` while another thread determines them.
#[cfg(feature = "std")]
fn domains() -> Option<Domains> {
    use crate::topology;
    Some(Domains {
        automatic: topology::automatic_decision()?,
        mutexes_only: topology::mutexes_only(),
        are_caches: topology::domain_kind_in_use() == Some(topology::DomainKind::LastLevelCache),
    })
}

/// How many slow paths go on without knowing the locality domains.
#[cfg(feature = "std")]
const PATIENCE: u32 = 16;

#[cfg(feature = "std")]
fn domains_of_wait() -> Option<Domains> {
    static WAITS: AtomicU32 = AtomicU32::new(0);
    let known = crate::topology::automatic_decision_if_known();
    if known.is_none() && (verbose() || WAITS.fetch_add(1, Ordering::Relaxed) >= PATIENCE) {
        return domains();
    }
    known.and_then(|_| domains())
}

#[cfg(not(feature = "std"))]
use domains as domains_of_wait;

#[cfg(not(feature = "std"))]
fn domains() -> Option<Domains> {
    Some(Domains {
        automatic: Decision {
            reorder: false,
            reason: "without the feature `std` nothing is known of the machine",
        },
        mutexes_only: false,
        are_caches: false,
    })
}
