//! Delayed invalidation: [`Domain`], [`Section`], [`Tag`].
//!
//! # Purpose
//!
//! Some work is done in two halves: *remove* many things now, one by one, under fine-grained locks;
//! *invalidate* them later, in one expensive batch (a TLB shoot-down, `madvise`, the flush of an
//! index, a write-back). Between the halves a thing looks free, but stale copies of it exist. A
//! thread that wants to reuse it must wait until every batch that may cover it is finished, and
//! must not wait for batches that began later.
//!
//! * The remover opens a [`Section`], removes things and [tags](Section::tag) each, invalidates the
//!   batch, and drops the section.
//! * The reuser checks the thing's [`Tag`]: [`passed`](Domain::passed), or [`wait`](Domain::wait).
//!
//! ```
//! use kinlock::SpinLock;
//! use kinlock_invalidation::{Domain, Tag};
//!
//! struct Slot {
//!     used: SpinLock<bool>,
//!     tag: Tag,
//! }
//!
//! let domain = Domain::new();
//! let slot = || Slot { used: SpinLock::new(true), tag: Tag::new() };
//! let slots: Vec<Slot> = (0..64).map(|_| slot()).collect();
//!
//! // Remove many, then invalidate all of them at once.
//! let section = domain.begin();
//! for slot in &slots {
//!     let mut used = slot.used.lock();
//!     *used = false;
//!     section.tag(&slot.tag);
//! }
//! // ... one madvise for all ...
//! drop(section);
//!
//! // Reuse one.
//! let slot = &slots[7];
//! *slot.used.lock() = true;
//! domain.wait(&slot.tag)?;
//! // ... no batch will touch it any more ...
//! # Ok::<(), kinlock_invalidation::WaitError>(())
//! ```
//!
//! # When not to use it
//!
//! Sections are the *invalidators*, not readers. To wait for readers, use epochs or RCU: their
//! readers are cheaper, and their waiters scan all threads. If the batch is short, hold the lock
//! over it.
//!
//! # Semantics
//!
//! * **Generations**: a section's generation is one above the newest open one; with `slots`
//!   sometimes more, if a waiter meets its begin under way. A generation has
//!   *passed* when all sections with it or an older one have ended. A section that begins later
//!   never prolongs a [`Domain::wait`].
//! * **Memory order**: a thread that sees a generation passed also sees everything that its
//!   sections, and all older ones, did before they ended. A tag's own order is that of the lock
//!   under which it is written and read. Beyond that, `tag` releases and readers of the tag
//!   acquire.
//! * **Nesting**: sections of one domain may nest in a thread. The generation ends with the
//!   outermost section. Sections of different domains are independent.
//! * **Cost**: begin and end together take two critical sections of our mutex (`locked`), or one
//!   read-modify-write on a line that all invalidators share and one on a line of their own
//!   (`slots`). `passed` is one load; with `slots`, sometimes a scan of
//!   all slots. A wait spins briefly, yields, then sleeps. An end makes a system call only if a
//!   sleeper waits for what it lets pass.
//! * **Preemption**: with `locked` a thread that is preempted within begin or end holds all others
//!   up until it runs again; with `slots` it holds no one up.
//! * **Memory**: 128 bytes for each thread that has ever had a section open in the domain at the
//!   same time as others; address space for all 8191 of them. A thread's first begin takes
//!   O(threads / 32) steps.
//! * **Deadlock**: a thread that waits must not hold a lock that a section takes. Reserve the thing
//!   under its lock, release the lock, then wait.
//! * **Threads**: 8191 living threads may have begun sections, in all domains together; see
//!   [`BeginError::TooManyThreads`]. A thread-local may hold a section; its destructor ends it. A
//!   thread that ends with a section open aborts the process, with a message.
//! * **Signals**: a handler must not begin a section, nor end one.
//! * **fork**: in the child only the calling thread's own sections are open, in all domains. A tag
//!   that other threads have stamped passes once the calling thread's older sections have ended;
//!   without such sections it has passed.
//! * **Leaking** a section with `mem::forget` leaves it open: what it and later sections tag never
//!   passes, and its thread must not end.
//!
//! # Backends and source
//!
//! [`Backend`] compares the backends. Source: the delayed-invalidation blocks of FreeBSD's page
//! tables (Konstantin Belousov).

#[doc(hidden)]
pub mod raw;

// The model checker runs the algorithms alone.
#[cfg(not(loom))]
mod backend;
#[cfg(not(loom))]
mod domain;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod inner;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod tag;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use backend::{Backend, UnknownBackend};
#[cfg(not(loom))]
pub use domain::{Domain, OpenSection, Stats};
#[cfg(not(loom))]
pub use error::{BeginError, NeverIssued, WaitError};
#[cfg(not(loom))]
pub use section::Section;
#[cfg(not(loom))]
pub use tag::Tag;

/// Makes `cargo test` run the example of README.md, which the registry shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
