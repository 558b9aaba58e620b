//! The knobs of the process: what functions set here, and what a [`Source`] says of the others.
//!
//! The knobs stand in one word. A function of this module overrides what the environment says. The
//! first use after a change *resolves* the word: it takes the knobs that no function has set from
//! the source, and decides what `auto` means. Later uses cost one relaxed load.
//!
//! ```
//! use kinlock_core::bare;
//! use kinlock_core::config::{self, LocalLimit, Numa};
//!
//! config::set_numa(Numa::On);
//! config::set_local_limit("2^16".parse()?);
//! assert!(bare::tuning().reorder);
//! assert_eq!(bare::tuning().limit, LocalLimit::count(16)?);
//! # Ok::<(), kinlock_core::config::ParseError>(())
//! ```

mod settings;
mod word;

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::raw::LockConfig;
use crate::raw::mutex::QueueKind;
pub use crate::tuning::{Decision, LocalLimit, Numa, ParseError, Quantum, Tuning};
pub use settings::Settings;
use word::Word;

/// Where the knobs come from that no function has set: environment variables, and the machine.
///
/// A trait beside [`LockConfig`], since this crate knows neither: Linux and bare hardware differ in
/// it. One program uses one source. It has associated functions only, like a
/// [`Platform`](crate::platform::Platform).
pub trait Source: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// What the environment sets.
    fn settings() -> Settings;

    /// The locality domains. May take a millisecond; `None` while another thread determines them.
    fn domains() -> Option<Domains>;

    /// As [`domains`](Self::domains), for the slow path of a lock: may put it off.
    fn domains_of_wait() -> Option<Domains> {
        Self::domains()
    }

    /// The knobs have been resolved to `tuning`. Called after each change.
    fn resolved(tuning: Tuning) {
        let _ = tuning;
    }

    /// Where the kind of queue of all mutexes is kept, see [`AsConfigured`]. 0 at first.
    fn kind_of_queue() -> &'static AtomicU8;
}

/// The locality domains, as far as knobs depend on them.
#[derive(Clone, Copy, Debug)]
pub struct Domains {
    /// What `auto` means.
    pub automatic: Decision,
    /// `auto` means that mutexes reorder their queues and spinlocks do not.
    pub mutexes_only: bool,
    /// They are last-level caches.
    pub are_caches: bool,
}

/// The knobs in force. The first call determines what `auto` means, which may take a millisecond;
/// later calls cost one relaxed load.
#[inline]
pub fn tuning<S: Source>() -> Tuning {
    resolved::<S>(S::domains).tuning()
}

/// As [`tuning_of_wait`], as spinlocks use the knobs. They keep the order of arrival where `auto`
/// took caches for domains.
#[inline]
pub(crate) fn tuning_of_spinlock<S: Source>() -> Tuning {
    resolved::<S>(S::domains_of_wait).tuning_of_spinlock()
}

/// As [`tuning`], for the slow path of a lock. As long as the source [puts it
/// off](Source::domains_of_wait) to determine what `auto` means, it means `off`.
#[inline]
pub fn tuning_of_wait<S: Source>() -> Tuning {
    resolved::<S>(S::domains_of_wait).tuning()
}

/// Whether the meaning of `auto` has been decided.
pub fn is_decided() -> bool {
    Word(KNOBS.load(Ordering::Relaxed)).has(Word::RESOLVED)
}

/// Whether queues are reordered, and why.
pub fn decision<S: Source>() -> Decision {
    decision_of::<S>(resolved::<S>(S::domains))
}

/// Sets whether queues are reordered by locality domain.
pub fn set_numa(numa: Numa) {
    update(|word| word.with_numa(numa).with(Word::NUMA_SET));
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

/// Sets whether a thread that has waited for a mutex or a spinlock asks the scheduler not to take
/// its CPU away while it holds the lock, for some microseconds.
///
/// The thread gives the rest of that time up when it releases the lock. It asks once per
/// acquisition, where the kernel offers such extensions (Linux 7.0 and later, if built so) and the
/// C library's area is large enough for them (glibc 2.41 and later). Elsewhere the knob has no
/// effect: `kinlock topology` says what is offered.
pub fn set_slice_extension(on: bool) {
    update(|word| {
        word.with_slice_extension(on)
            .with(Word::SLICE_EXTENSION_SET)
    });
}

/// All knobs in one word, so that a lock reads all at once and concurrent updates do not mix.
static KNOBS: AtomicU32 = AtomicU32::new(Word::new(Tuning::DEFAULT).0);

const UNDECIDED: Decision = Decision {
    reorder: false,
    reason: "the locality domains are being determined",
};

fn decision_of<S: Source>(word: Word) -> Decision {
    match word.numa() {
        Numa::On => Decision {
            reorder: true,
            reason: "asked for",
        },
        Numa::Off => Decision {
            reorder: false,
            reason: "asked for",
        },
        Numa::Auto => S::domains().map_or(UNDECIDED, |domains| domains.automatic),
    }
}

/// Changes knobs. The next use resolves them anew.
fn update(change: impl Fn(Word) -> Word) {
    let _ = KNOBS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
        Some(change(Word(word)).without(Word::RESOLVED).0)
    });
}

#[inline]
fn resolved<S: Source>(decide: fn() -> Option<Domains>) -> Word {
    let word = Word(KNOBS.load(Ordering::Relaxed));
    if word.has(Word::RESOLVED) {
        word
    } else {
        resolve::<S>(decide)
    }
}

/// Sets the knobs that no function has set from the environment, and `auto` as `decide` says.
#[cold]
fn resolve<S: Source>(decide: fn() -> Option<Domains>) -> Word {
    let settings = S::settings();
    let mut word = Word(KNOBS.load(Ordering::Relaxed));
    loop {
        let resolved = settings.complete(word, decide);
        if resolved == word {
            return word;
        }
        match KNOBS.compare_exchange_weak(word.0, resolved.0, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                if resolved.has(Word::RESOLVED) {
                    S::resolved(resolved.tuning());
                }
                return resolved;
            }
            Err(seen) => word = Word(seen),
        }
    }
}

/// The knobs in force: what the crate `kinlock` uses.
#[derive(Clone, Copy, Debug)]
pub struct AsConfigured<S>(PhantomData<S>);

impl<S: Source> LockConfig for AsConfigured<S> {
    fn tuning() -> Tuning {
        tuning_of_wait::<S>()
    }

    fn tuning_of_spinlock() -> Tuning {
        tuning_of_spinlock::<S>()
    }

    fn queue() -> QueueKind {
        match S::kind_of_queue().load(Ordering::Relaxed) {
            FIFO => QueueKind::Osq,
            LOCAL_FIRST => QueueKind::Cna,
            _ => choose_queue::<S>(),
        }
    }
}

/// As [`AsConfigured`], but always first in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Fifo<S>(PhantomData<S>);

impl<S: Source> LockConfig for Fifo<S> {
    fn tuning() -> Tuning {
        Tuning {
            reorder: false,
            ..tuning_of_wait::<S>()
        }
    }
}

/// As [`Fifo`], and no thread overtakes a waiter that sleeps.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<S>(PhantomData<S>);

impl<S: Source> LockConfig for InOrder<S> {
    fn tuning() -> Tuning {
        Tuning {
            stealing: false,
            ..Fifo::<S>::tuning()
        }
    }
}

/// As [`AsConfigured`], but always NUMA-aware.
#[derive(Clone, Copy, Debug)]
pub struct NumaAware<S>(PhantomData<S>);

impl<S: Source> LockConfig for NumaAware<S> {
    fn tuning() -> Tuning {
        Tuning {
            reorder: true,
            ..tuning_of_wait::<S>()
        }
    }
}

// The kind of queue of all mutexes, decided once: one lock must not mix two kinds.
const UNCHOSEN: u8 = 0;
const FIFO: u8 = 1;
const LOCAL_FIRST: u8 = 2;

#[cold]
fn choose_queue<S: Source>() -> QueueKind {
    let choice = if !is_decided() {
        // Nobody knows the locality domains yet. Waiters use no queue meanwhile.
        return QueueKind::Unqueued;
    } else if tuning::<S>().reorder {
        LOCAL_FIRST
    } else {
        FIFO
    };
    let _ =
        S::kind_of_queue().compare_exchange(UNCHOSEN, choice, Ordering::Relaxed, Ordering::Relaxed);
    AsConfigured::<S>::queue()
}
