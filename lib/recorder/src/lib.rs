//! Recording what each lock did, in a [table](kinlock_report) that the command `kinlock` reads.
//!
//! It has two users: the library that `kinlock run` preloads, for pthread locks, and the crate
//! `kinlock` with its feature `report`, for the locks of Rust programs. It is an implementation
//! detail of both, without a promise of stability.
//!
//! Nothing here allocates or takes a lock, and nothing waits, with one exception: while one thread
//! makes the table, other threads of the process that take their first lock wait for it.
//!
//! # Who writes
//!
//! Each acquisition is counted in the tally (`tally.rs`) that the thread has for the lock. No other
//! thread writes to that tally. The lock's entry in the table is added by a thread that holds the
//! lock, and most of its numbers are changed only by the holder. So the program's own lock guards
//! them: plain loads and stores suffice, and no two threads add an entry for the same lock. A
//! reader-writer lock may have several holders, and a semaphore has none. For these, threads change
//! the entry by atomic operations, and the thread that gets the place in the table's index for the
//! entry adds it.
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
//! | `program.rs` | the process of a program that contains the recorder |
//! | `now.rs` | what threads wait for and hold now, with or without a report |
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
//! | `places.rs` | entries of places in the source |
//! | `unwind.rs`, `cfi.rs` | find the callers |
//! | `entries.rs` | numbers of the table, and arrays with an index |
//! | `modules.rs` | shared objects, so that addresses can be named |
//! | `stack.rs` | the thread's registers and its stack |
//! | `memory.rs` | whether there is a table, and which of its pages may be touched |
//! | `files.rs` | names, making and mapping of files |
//! | `object.rs` | a lock as the report knows it |
//! | `mode.rs` | the page with the mode |
//! | `environment.rs` | the environment of the process |
//! | `thread.rs` | what belongs to a thread |
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Functions of the C library are called as it declares them.
//! 2. Pointers given to the system refer to live locals or statics of the type that it expects.
//! 3. The report's table is a mapping of its size, made once, before its address is stored, and
//!    replaced only in the child of a fork, where no thread uses it. Its fields are atomics. A page
//!    of it is touched only once there is memory for it. The page with the mode is a static, and is
//!    replaced only by one that has memory and the same mode.
//! 4. A word of the stack is read only on a page that the thread's stack pointer is on, or that the
//!    kernel has said can be read.
//! 5. The loader knows a shared object's first and last address. The object is loaded while a
//!    function of it is on the stack, and from its unwinding data to its end it can be read.
//! 6. `thread.rs` gives pointers to thread-locals of the calling thread, and no reference to one
//!    outlives the expression.
//! 7. Memory of a loaded object is read where the kernel has said that each page can be read.
//! 8. The environment and the names of the program are strings that live as long as the process;
//!    POSIX forbids the program to change the environment while another thread reads it. The
//!    loader's description of an object lives as long as the object is loaded.
//! 9. Calls that get only numbers, or addresses that the kernel checks, have no preconditions and
//!    change no memory that Rust refers to.

#![cfg(target_os = "linux")]
#![no_std]
#[cfg(any(test, not(feature = "initial-exec")))]
extern crate std;

mod acquisition;
mod cfi;
mod entries;
pub mod environment;
mod files;
mod held;
mod locks;
pub mod make;
mod memory;
mod misuse;
mod misuses;
pub mod mode;
pub mod modules;
pub mod now;
mod object;
pub mod order;
mod places;
pub mod program;
mod record;
mod rwlock;
mod stack;
pub mod switch;
mod tally;
pub mod thread;
mod threads;
mod unwind;
mod uses;
mod waits;

pub use self::acquisition::{
    Behind, Outcome, Wait, acquisition, count_nested, count_release, count_taken, count_tried,
    lock_ended, release, taken_after, taken_again, taken_at_once,
};
pub use self::misuse::{destroyed_held, misused, sleepers_at};
pub use self::object::{Marks, Object};
pub use self::rwlock::{
    count_rwlock, count_rwlock_release, rwlock_asked, rwlock_ended, rwlock_release, serial_of_side,
};
pub use self::threads::give_up_key;
pub use self::unwind::enter;
use core::ffi::c_int;
pub use kinlock_report as table;

/// The result of an attempt that has found the lock taken.
pub const BUSY: c_int = libc::EBUSY;
/// The result of a wait whose time limit has expired.
pub const TIMED_OUT: c_int = libc::ETIMEDOUT;

/// Whether a function that takes a lock has succeeded. With `EOWNERDEAD`, of a robust mutex, the
/// thread holds the lock, too.
pub fn is_taken(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}
