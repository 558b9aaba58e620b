//! Concurrency IDs: per-CPU data sized by the CPUs that a program uses.
//!
//! A *concurrency ID* is a small integer that no other thread has at the same moment. IDs are
//! dense: a process with four threads on a machine with 384 CPUs uses IDs 0 to 3. An ID indexes
//! data that need neither locks nor locked instructions:
//!
//! | for | take | instead of |
//! | --- | --- | --- |
//! | an event count | [`Counter`] | an atomic that all CPUs write |
//! | several counts of one module | [`CounterArray`] | an atomic for each count |
//! | a distribution of values | [`Histogram`] | an atomic for each bucket |
//! | a free list, any order | [`Stack`] | a mutex and a vector |
//! | objects of one size | [`Pool`] | malloc |
//! | anything else | [`PerId`] | a value per thread, and a list of threads |
//!
//! Take something else where that is better:
//!
//! * *A thread-local* costs even less (a counter 0.8 ns against 2). Take it if threads are few and
//!   live long, and if no thread has to find the values of all others, ended ones included.
//! * *An atomic* is smaller and is one value, not a sum. Take it if few threads write it, if it is
//!   written seldom, or if a reader needs the exact value now.
//! * Leases taken anew for each operation cost more than a shared atomic with many threads. Where
//!   [`Domain::backend`] is [`Backend::Lease`], hold one for as long as there is work
//!   ([`Counter::add_with`], [`PerId::get`]).
//!
//! ```
//! use kinlock_ids::{Counter, Domain};
//!
//! let domain = Domain::auto();
//! let hits = Counter::new(&domain)?;
//! hits.add(1);
//! assert_eq!(hits.sum(), 1);
//! # Ok::<(), kinlock_ids::BuildError>(())
//! ```
//!
//! # Two backends
//!
//! | | [`Backend::Restartable`] | [`Backend::Lease`] |
//! | --- | --- | --- |
//! | an ID is held | never: a [restartable sequence](sequence) reads it | while a [`Lease`] lives |
//! | unique among | running threads | holders |
//! | dense | below min(threads, allowed CPUs), or a quarter above | [nearly](Domain::limit) so |
//! | allocated by | Linux 6.3 or later, x86-64 and aarch64 | this library: everywhere |
//! | domains | one per process | any number |
//! | a counter's `add` | 1 to 3 ns | 10 to 15 ns; 1 to 3 ns under a longer lease |
//!
//! Linux may exceed its bound by a quarter since 6.19, but IDs stay below the number of possible
//! CPUs. A [`Domain`] has one of the two, [says which](Domain::backend), and never switches to the
//! other. A restartable sequence starts again if the thread is preempted, migrated or signalled. A
//! lease runs from [`Domain::enter`] until its drop.
//!
//! # Threads, signals and fork
//!
//! * *Signals.* A handler may add to a [`Counter`] and call [`Domain::enter`], even if it
//!   interrupts the same call: it gets another ID, or makes the interrupted sequence restart. The
//!   thread must have done so before in that domain, since a first call may allocate. A handler
//!   must not use a [`Stack`], [`Pool`] or [`PerId`].
//! * *Thread exit.* The thread stops being a member. Its leases are released, forgotten ones
//!   included. Its destructors may go on using this module; see [`Lease`] for very late ones.
//! * *Fork.* The child has the forking thread's leases and no others. Data that another thread was
//!   writing at that moment may be half changed in the child. A [`Stack`] or [`Pool`] that another
//!   thread was using must be neither used nor dropped in the child. A signal handler that has
//!   interrupted this module must not fork.
//! * *Changes of affinity.* Nothing to do: IDs follow. See [`Domain::refresh`].
//! * *No registration.* If a sandbox or other code prevents the registration for restartable
//!   sequences, the thread uses data that all such threads share, with locked instructions or under
//!   a lock. Results stay right.
//!
//! Some C libraries do not register threads for restartable sequences: older ones, musl, and glibc
//! under `GLIBC_TUNABLES=glibc.pthread.rseq=0`. There each thread registers itself at its first
//! use. With musl a detached thread must not do so as late as in its last round of destructors. A
//! library that uses this module must not be unloaded (`dlclose`) while threads that have used it
//! live: the kernel may still read the descriptor of their last sequence.
//!
//! # Memory
//!
//! Each used ID costs pages of its own in each domain, shared by all structures of the domain. An
//! unused ID costs address space: 128 KiB, 32 MiB for the 256 IDs that a domain with leases has at
//! least, unless [`Builder::max_ids`] says otherwise.
//!
//! # Source
//!
//! | part | source |
//! | --- | --- |
//! | IDs | Linux's concurrency IDs (`mm_cid`): Desnoyers, 2022 and 2024; Gleixner, 2025 |
//! | leases | the policy of 2024 for IDs that user space allocates |
//! | counters, lists | the per-CPU counter and list of Linux's tests of `rseq`: Desnoyers, 2018 |
//! | taking another ID's values | Linux's `membarrier` for `rseq`: Oskolkov, 2020 |
//! | [`Pool`] | a magazine layer with lists for magazines: Bonwick and Adams, 2001 |
//! | [`PerId`] | this library |

#[doc(hidden)]
pub mod lab;
mod probe;
#[doc(hidden)]
pub mod raw;

// The model checker runs the algorithm alone.
#[cfg(not(loom))]
mod area;
#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod counter;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod ending;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod histogram;
#[cfg(not(loom))]
mod leased;
#[cfg(not(loom))]
mod lists;
#[cfg(not(loom))]
mod per_id;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
pub mod sequence;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
mod trial;

#[cfg(not(loom))]
#[doc(hidden)]
pub use counter::Parts;
#[cfg(not(loom))]
pub use {
    area::Unavailable,
    counter::{Counter, CounterArray},
    domain::{Backend, Builder, Domain, Lease, UnknownBackend},
    error::{BuildError, EnterError},
    histogram::Histogram,
    per_id::PerId,
    pool::{Full, Pool, Pooled, PooledArc},
    stack::Stack,
};

/// Makes `cargo test` run the example of README.md, which the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
