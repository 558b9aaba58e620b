//! Delayed invalidation for users: [`Domain`], [`Section`], [`Tag`].
//!
//! # What it is for
//!
//! Work that is done in two halves: *remove* many things now, one by one, under fine-grained locks; *invalidate* them later, in one expensive batch: a TLB shoot-down, `madvise`, an index that is flushed,
//! a write-back. Between the halves a thing looks free, but stale copies of it exist. Who wants to reuse it has to wait until every batch that may cover it is finished; and must not wait for batches that began later.
//!
//! * The remover opens a [`Section`], removes things and [tags](Section::tag) each, works the batch off, and drops the section.
//! * The reuser looks at the thing's [`Tag`]: [`passed`](Domain::passed), or [`wait`](Domain::wait).
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
//! let slots: Vec<Slot> = (0..64).map(|_| Slot { used: SpinLock::new(true), tag: Tag::new() }).collect();
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
//! Sections are the *invalidators*, not readers. Where readers are to be waited for, use epochs or RCU: their readers are cheaper, and their waiters scan all threads. Where the batch is
//! short, hold the lock over it.
//!
//! # Semantics
//!
//! * **Generations**: a section's is one above the newest open one. A generation has *passed* when all sections with it or an older one have ended. [`Domain::wait`] is never prolonged by a section that begins later.
//! * **Memory order**: whoever sees a generation passed also sees everything that its sections, and all older ones, did before they ended. A tag's own order is that of the lock under which it is written and
//!   read; beyond that `tag` releases and readers of the tag acquire.
//! * **Nesting**: a section within a section of the same domain counts: the outermost end is the end. Sections of different domains have nothing to do with each other.
//! * **Cost**: to begin and end, three read-modify-writes on lines that all invalidators share (`packed`, `wide`; `slots`: one). `passed` is one load. Waits spin for a moment, then sleep. Ends make a system call only if somebody sleeps.
//! * **Memory**: 128 bytes for each thread that has ever had a section open in the domain at the same time as others; address space for all 8191 of them. Beginning the first section of a thread takes O(threads / 32) steps, once.
//! * **Deadlock**: who waits must not hold a lock that a section takes: reserve the thing under its lock, release that, wait.
//! * **Threads**: 8191 at a time may have begun sections, in all domains together; see [`BeginError::TooManyThreads`]. A thread that ends with a section open ends the process, with a message (`abort`); so does `exit` in a thread that has one open, since its thread-locals go first.
//! * **Signals**: a handler must not begin a section, nor end one.
//! * **fork**: in the child only the calling thread's own sections are open, in all domains. What the others had tagged has passed, if it is older than that, or passes with it.
//! * **Leaking** a section with `mem::forget` leaves it open: what it and later sections tag never passes, and its thread must not end.
//!
//! # Which backend
//!
//! See [`Backend`]. `docs/algorithms.md` of the repository describes them, with measurements.

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
mod places;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod tag;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use backend::Backend;
#[cfg(not(loom))]
pub use domain::{Builder, Domain, OpenSection, Stats};
#[cfg(not(loom))]
pub use error::{BeginError, UnknownBackend, Unsupported, WaitError};
#[cfg(not(loom))]
pub use section::Section;
#[cfg(not(loom))]
pub use tag::Tag;
