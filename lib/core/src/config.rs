//! The knobs of the process: those that functions set here, and those that come from a [`Source`].
//!
//! The knobs are packed into one word. A function of this module overrides the environment. The
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

/// The source of the knobs that no function has set: environment variables, and the machine.
///
/// A trait besides [`LockConfig`], since this crate knows neither the environment nor the machine:
/// Linux and bare hardware differ in this. One program uses one source. All functions are
/// associated, as in a [`Platform`](crate::platform::Platform).
pub trait Source: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// The knobs that the environment sets.
    fn settings() -> Settings;

    /// The locality domains. May take a millisecond; `None` while another thread determines them.
    fn domains() -> Option<Domains>;

    /// Like [`domains`](Self::domains), for the slow path of a lock: may postpone determining them,
    /// and return `None`.
    fn domains_of_wait() -> Option<Domains> {
        Self::domains()
    }

    /// Called when the knobs have been resolved to `tuning`, after each change.
    fn resolved(tuning: Tuning) {
        let _ = tuning;
    }

    /// Stores the kind of queue of all mutexes, see [`AsConfigured`]. 0 at first.
    fn kind_of_queue() -> &'static AtomicU8;
}

/// The locality domains, as far as knobs depend on them.
#[derive(Clone, Copy, Debug)]
pub struct Domains {
    /// What `auto` means.
    pub automatic: Decision,
    /// `auto` means that mutexes reorder their queues and spinlocks do not.
    pub mutexes_only: bool,
    /// The domains are last-level caches.
    pub are_caches: bool,
}

/// The knobs in force. The first call determines what `auto` means, which may take a millisecond;
/// later calls cost one relaxed load.
#[inline]
pub fn tuning<S: Source>() -> Tuning {
    resolved::<S>(S::domains).tuning()
}

/// Like [`tuning_of_wait`], for spinlocks: they keep the order of arrival if `auto` treats caches
/// as domains.
#[inline]
pub(crate) fn tuning_of_spinlock<S: Source>() -> Tuning {
    resolved::<S>(S::domains_of_wait).tuning_of_spinlock()
}

/// Like [`tuning`], for the slow path of a lock. As long as the source
/// [postpones](Source::domains_of_wait) determining what `auto` means, `auto` means `off`.
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

/// Sets how long hand-offs may stay in one locality domain while waiters of other domains exist.
pub fn set_local_limit(limit: LocalLimit) {
    update(|word| word.with_limit(limit).with(Word::LIMIT_SET));
}

/// Sets whether a running thread may take a free lock ahead of a front waiter that does not run.
///
/// Without stealing, locks strictly follow the order of their queue, and each hand-off to a sleeper
/// takes as long as waking it. A thread still takes a free lock for which no thread waits, and a
/// thread that finds no free node still takes the lock whenever it finds it free.
pub fn set_stealing(on: bool) {
    update(|word| word.with_stealing(on).with(Word::STEALING_SET));
}

/// Sets how long a mutex stays with threads that keep taking it while another thread waits at the
/// front.
pub fn set_quantum(quantum: Quantum) {
    update(|word| word.with_quantum(quantum).with(Word::QUANTUM_SET));
}

/// Sets whether a thread that has waited for a mutex or a spinlock asks the scheduler to leave it
/// its CPU for some microseconds while it holds the lock.
///
/// The thread gives up the rest of that time when it releases the lock. It asks once per
/// acquisition, if the kernel offers such extensions (Linux 7.0 and later, if built so) and the C
/// library's rseq area is large enough for them (glibc 2.41 and later). Elsewhere the knob has no
/// effect: `kinlock topology` says what is offered.
pub fn set_slice_extension(on: bool) {
    update(|word| {
        word.with_slice_extension(on)
            .with(Word::SLICE_EXTENSION_SET)
    });
}

/// All knobs in one word, so that a lock reads all of them at once and concurrent updates do not
/// mix.
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

/// Takes the knobs that no function has set from the environment, and the meaning of `auto` from
/// `decide`.
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

/// A configuration with the knobs in force: the one that the crate `kinlock` uses.
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

/// Like [`AsConfigured`], but always first in, first out.
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

/// Like [`Fifo`], but no thread overtakes a waiter that sleeps.
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

/// Like [`AsConfigured`], but always NUMA-aware.
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
        // The locality domains are not known yet. Until they are, waiters use no queue.
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
