//! Concurrency IDs: data per CPU without the CPUs that a program does not use.
//!
//! A *concurrency ID* is a small integer that no other thread has at the same moment, and that is dense: a process with four threads on a machine with 384 CPUs uses four. It indexes data that then need neither locks
//! nor locked instructions:
//!
//! * [`Counter`]: adds without a contended word.
//! * [`Stack`]: pushes and pops without a contended head; takes from others when empty.
//! * [`Pool`]: objects of one size, allocated and freed locally.
//! * [`PerId`]: any value per ID.
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
//! # Two kinds of holding
//!
//! | | [`Backend::Restartable`] | [`Backend::Lease`] |
//! | --- | --- | --- |
//! | an ID is held | never: it is read inside a [restartable sequence](sequence), which starts again if the thread is disturbed | from [`Domain::enter`] until the [`Lease`] is dropped |
//! | unique among | running threads | holders |
//! | dense | below the smaller of threads and allowed CPUs | below the same, or the number of concurrent holders |
//! | handed out by | the kernel: Linux 6.3 and later, x86-64 and aarch64 | this library: everywhere |
//! | domains | one per process | any number, each with a [`Policy`] |
//! | a counter's `add` | 1 to 3 ns | some 10 to 15 ns; 1 to 3 ns under a lease that is held for longer |
//!
//! A [`Domain`] has one of the two and says [which](Domain::backend). It is never replaced by the other silently.
//!
//! # What may happen to a thread
//!
//! * *Signals.* A handler may use a [`Counter`] and [`Domain::enter`], even if it interrupts just these: it gets another ID, or restarts the interrupted sequence.
//! * *Its end.* It is no member any more and its leases are given back, also forgotten ones. Its destructors may go on using all of this; see [`Lease`] for very late ones.
//! * *Fork.* The child has the forking thread's leases and nobody else's, and copies of all data: what another thread was just changing, under its ID, is half changed there; [`Stack`] and [`Pool`] are not for a child at all if another thread was using them. Not from a signal handler that has interrupted any of this.
//! * *Another affinity.* Nothing to do. IDs follow; see [`Domain::refresh`].
//! * *No registration* (refused by a sandbox, or held by other code): it uses what all such threads share, with locked instructions or under a lock. Results stay right.
//!
//! Where the C library has not registered threads for restartable sequences (`GLIBC_TUNABLES=glibc.pthread.rseq=0`, older ones, musl), threads register themselves when they first need it.
//! A library that uses this must not be unloaded (`dlclose`) while threads that have used it live: the kernel may still look at their last sequence.
//!
//! # Cost of memory
//!
//! Each ID that is used costs pages of its own in each domain, shared by all structures of the domain; an ID that is not used costs address space.

mod area;
mod arena;
mod counter;
mod domain;
mod leased;
mod lists;
mod per_id;
mod pool;
#[doc(hidden)]
pub mod raw;
pub mod sequence;
mod stack;
mod thread;

pub use crate::raw::Policy;
pub use area::Unavailable;
pub use counter::Counter;
pub use domain::{
    Backend, BuildError, Builder, Domain, EnterError, Lease, UnknownBackend, UnknownPolicy,
};
pub use per_id::PerId;
pub use pool::{Full, Pool, Pooled};
pub use stack::Stack;
