//! How locks behave: defaults, environment variables, and functions that override both.
//!
//! | knob | environment | function |
//! | --- | --- | --- |
//! | reorder queues by locality domain | `KINLOCK_NUMA` | [`set_numa`] |
//! | limit of local hand-offs | `KINLOCK_LOCAL_LIMIT` | [`set_local_limit`] |
//! | overtaking of sleeping waiters | `KINLOCK_STEALING` | [`set_stealing`] |
//! | a mutex's quantum | `KINLOCK_QUANTUM` | [`set_quantum`] |
//! | more time for holders | `KINLOCK_SLICE_EXTENSION` | [`set_slice_extension`] |
//! | kind of domain | `KINLOCK_DOMAIN` | `set_domain_kind` |
//! | locality domains made up for tests | `KINLOCK_TOPOLOGY` | |
//! | which system calls locks may make | `KINLOCK_SYSTEM_CALLS` | |
//! | report the decision on standard error | `KINLOCK_VERBOSE` | |
//! | ask a program to print its statistics | `KINLOCK_SHOW_STATS` | read by `show_stats` |
//!
//! Values and defaults are listed in the guide, `docs/guide/knobs.md`.
//!
//! With `auto`, domains are NUMA nodes, or the last-level caches of a single node, where spinlocks
//! keep the order of arrival. Between caches the default limit is `1ms`.
//!
//! The knobs hold for all locks of the process. The environment is read once, before `main`:
//! later changes have no effect. A function overrides it. A bad value in the environment is
//! reported once on standard error, when a lock is first contended, and then ignored. An empty
//! value counts as unset.
//!
//! Without the feature `std` there is no environment, `auto` means off, and `set_domain_kind` and
//! `show_stats` do not exist.
//!
//! # Setting a knob
//!
//! A `set_` function changes one word. Any thread may call it at any time, but a program best sets
//! its knobs before it starts threads. A wait for a lock reads the knobs when it begins, so a
//! change holds for waits that begin after it; a lock that is found free reads none. There are two
//! exceptions. Whether mutexes and reader-writer locks queue by locality is decided once, within
//! the first seventeen contended waits of the process, and `set_numa` has an effect on it only
//! before that. The kind of domain is fixed as soon as the domains are known: `set_domain_kind`
//! fails then.
//!
//! ```
//! use kinlock::config::{self, Numa, Quantum};
//! # #[cfg(feature = "std")]
//! use kinlock::topology::DomainKind;
//!
//! # #[cfg(feature = "std")]
//! config::set_domain_kind(DomainKind::Socket).expect("no lock has been contended");
//! config::set_numa(Numa::On);
//! config::set_local_limit("2^16".parse()?);
//! config::set_stealing(false);
//! config::set_quantum(Quantum::FAIR);
//! config::set_slice_extension(true);
//! assert!(config::decision().reorder);
//! # Ok::<(), kinlock::config::ParseError>(())
//! ```

#[cfg(not(feature = "std"))]
#[doc(inline)]
pub use kinlock_core::bare::decision;
#[doc(inline)]
pub use kinlock_core::config::{
    Decision, LocalLimit, Numa, ParseError, Quantum, set_local_limit, set_numa, set_quantum,
    set_slice_extension, set_stealing,
};
#[cfg(feature = "std")]
#[doc(inline)]
pub use kinlock_linux::config::{TooLate, decision, set_domain_kind, show_stats};
