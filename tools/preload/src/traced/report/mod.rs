//! The contention report: what each lock did, in a [table](kinlock_report) that the command reads.
//!
//! Nothing here allocates or takes a lock, and nothing waits, with one exception: while one thread
//! makes the table, other threads of the process that take their first lock wait for it.
//!
//! # Who writes
//!
//! Each acquisition is counted in the [tally](tally) that the thread has for the lock. No other
//! thread writes to that. The lock's entry in the table is added by a thread that holds the lock,
//! and most of its numbers are changed only by the holder. So the program's own lock guards them:
//! plain loads and stores suffice, and no two threads add an entry for the same lock. Where several
//! threads may hold it, as a reader-writer lock, or none does, as a semaphore, they use atomic
//! operations, and the index decides which thread adds the entry.
//!
//! # What is measured
//!
//! Each acquisition is counted, and for each wait the clock is read. A *measured* acquisition costs
//! more: its hold is timed and its callers are looked up. Measured are the first acquisitions of
//! each lock, from then on about one in 256, and some of those that wait. Each measured one has a
//! *weight*: the number of acquisitions that it stands for.
//!
//! # Files
//!
//! Each file uses only files below it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `waits.rs` | waits for what is no lock |
//! | `rwlock.rs` | what happens to a reader-writer lock |
//! | `acquisition.rs` | what happens to a lock: taken, waited for, released, ended |
//! | `misuse.rs` | calls that misuse a lock |
//! | `make.rs` | makes the table, at the first lock of a process |
//! | `switch.rs` | standing by: the page with the mode becomes a file |
//! | `order.rs` | which lock is taken while which other one is held |
//! | `held.rs` | what the calling thread holds |
//! | `tally.rs` | what the calling thread did to each lock |
//! | `misuses.rs` | entries of misuses |
//! | `record.rs` | distributions, for `kinlock record` |
//! | `locks.rs` | entries of locks |
//! | `uses.rs` | entries of call stacks, and of a lock with a call stack |
//! | `threads.rs` | entries of threads |
//! | `unwind.rs`, `cfi.rs` | find the callers |
//! | `entries.rs` | numbers of the table, and arrays with an index |
//! | `modules.rs` | shared objects, so that addresses can be named |
//! | `stack.rs` | the thread's registers and its stack |
//! | `memory.rs` | whether there is a table, and which of its pages may be touched |
//! | `object.rs` | a lock as the report knows it |

mod acquisition;
mod cfi;
mod entries;
mod held;
mod locks;
pub(crate) mod make;
mod memory;
mod misuse;
mod misuses;
mod modules;
mod object;
pub(crate) mod order;
mod record;
mod rwlock;
mod stack;
pub(crate) mod switch;
mod tally;
mod threads;
mod unwind;
mod uses;
mod waits;

pub(crate) use self::acquisition::{
    Behind, Outcome, Wait, acquisition, count_release, count_taken, lock_ended, release,
    taken_after, taken_again, taken_at_once,
};
pub(crate) use self::misuse::{destroyed_held, misused, sleepers_at};
pub(crate) use self::object::{Marks, Object};
pub(crate) use self::rwlock::{
    RwAccess, rwlock_acquisition, rwlock_asked, rwlock_ended, rwlock_release, side,
};
pub(crate) use self::waits::Awaited;
