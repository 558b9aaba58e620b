//! The knobs in force: defaults, environment variables, and functions that override both. The
//! module `config` of the crate `kinlock` lists them.
//!
//! The environment is read without allocation. A bad value is reported once on standard error, when
//! a lock is first contended.
//!
//! ```
//! use kinlock_linux::config::{self, LocalLimit, Numa};
//!
//! config::set_numa(Numa::On);
//! config::set_local_limit("2^16".parse()?);
//! assert!(config::tuning().reorder);
//! assert_eq!(config::tuning().limit, LocalLimit::count(16)?);
//! # Ok::<(), kinlock_linux::config::ParseError>(())
//! ```

use crate::environment::{self, Variable, read_from_str, read_on_off};
use crate::native::{self, Native};
use crate::sys::{KeepErrno, Text, write_stderr};
use crate::topology;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use kinlock_core::config::{self as knobs, Domains, Settings, Source};
pub use kinlock_core::config::{
    Decision, LocalLimit, Numa, ParseError, Quantum, Tuning, set_local_limit, set_numa,
    set_quantum, set_slice_extension, set_stealing,
};

/// The configuration of locks that have the knobs in force: what the crate `kinlock` uses.
pub type AsConfigured = knobs::AsConfigured<Native>;
/// The knobs in force. The first call determines what `auto` means, which may take a millisecond;
/// later calls cost one relaxed load.
#[inline]
pub fn tuning() -> Tuning {
    knobs::tuning::<Native>()
}

/// Whether queues are reordered, and why.
pub fn decision() -> Decision {
    knobs::decision::<Native>()
}

/// Sets the kind of locality domain.
///
/// It has no effect where `KINLOCK_TOPOLOGY` defines the domains.
///
/// # Errors
///
/// [`TooLate`] if the domains have been determined: by a contended lock, by [`decision`], or by a
/// function of the module [`topology`].
pub fn set_domain_kind(kind: topology::DomainKind) -> Result<(), TooLate> {
    if topology::set_kind(kind) {
        Ok(())
    } else {
        Err(TooLate)
    }
}

/// Whether `KINLOCK_VERBOSE=1` asks for a report on standard error. Reads the environment.
pub fn verbose() -> bool {
    environment::read_switch(Variable::Verbose)
}

/// Whether `KINLOCK_SHOW_STATS=1` asks for statistics when the program ends. Reads the environment.
///
/// A library prints nothing by itself. A program that counts [`events`](kinlock_core::events) asks
/// here whether to print them.
pub fn show_stats() -> bool {
    environment::read_switch(Variable::ShowStats)
}

/// The locality domains have been determined, so their kind can no longer be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate;

impl core::fmt::Display for TooLate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the locality domains have been determined already")
    }
}

impl core::error::Error for TooLate {}

/// How many slow paths proceed before the locality domains are determined. The first slow paths
/// should be fast, and a program that hardly contends does not need the domains.
const PATIENCE: u32 = 16;

impl Source for Native {
    /// Reads the variables. A bad value is reported once and counts as unset.
    fn settings() -> Settings {
        Settings {
            numa: read_from_str(Variable::Numa),
            limit: read_from_str(Variable::LocalLimit),
            stealing: read_on_off(Variable::Stealing),
            quantum: read_from_str(Variable::Quantum),
            slice_extension: read_on_off(Variable::SliceExtension),
        }
    }

    fn domains() -> Option<Domains> {
        let in_use = topology::domain_kind_in_use;
        Some(Domains {
            automatic: topology::automatic_decision()?,
            mutexes_only: topology::mutexes_only(),
            are_caches: in_use() == Some(topology::DomainKind::LastLevelCache),
        })
    }

    fn domains_of_wait() -> Option<Domains> {
        static WAITS: AtomicU32 = AtomicU32::new(0);
        let known = topology::automatic_decision_if_known();
        if known.is_none() && (verbose() || WAITS.fetch_add(1, Ordering::Relaxed) >= PATIENCE) {
            return Self::domains();
        }
        known.and_then(|_| Self::domains())
    }

    fn resolved(tuning: Tuning) {
        announce(tuning);
    }

    fn kind_of_queue() -> &'static AtomicU8 {
        native::kind_of_queue()
    }
}

/// Reports on standard error how locks behave, the first time that the knobs are resolved, if
/// `KINLOCK_VERBOSE=1` asks for it.
fn announce(tuning: Tuning) {
    static ANNOUNCED: AtomicBool = AtomicBool::new(false);
    if !verbose() || ANNOUNCED.swap(true, Ordering::Relaxed) {
        return;
    }
    let _errno = KeepErrno::hold();
    let Tuning {
        limit,
        stealing,
        quantum,
        slice_extension,
        ..
    } = tuning;
    let Decision { reorder, reason } = decision();
    let shown = |on| if on { "on" } else { "off" };
    let mut line = Text::<320>::empty();
    let _ = writeln!(
        line,
        "kinlock: reordering by locality domain {} ({reason}), domains {}, \
         local limit {limit}, stealing {}, quantum {quantum}, slice extension {}",
        shown(reorder),
        topology::domain_count(),
        shown(stealing),
        shown(slice_extension),
    );
    write_stderr(line.as_bytes());
}
