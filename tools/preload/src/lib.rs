//! kinlock's locks under programs that know nothing of them: a library for `LD_PRELOAD`.
//!
//! It defines the C library's functions for mutexes, condition variables, spinlocks and
//! reader-writer locks, the ones of POSIX and the ones of C11. The dynamic loader finds these
//! definitions before the C library's. Barriers, semaphores and joins stay the C library's: their
//! functions are here for the report, which measures how long threads wait.
//!
//! # Layers
//!
//! Each layer calls only layers below it.
//!
//! - `start.rs`: the constructor, the destructor, and `_exit`.
//! - `dispatch/`: the exported functions. Each decides whose the object is (ours, or *delegated* to
//!   the C library) and whether the call is *traced*.
//! - `posix/`: what POSIX demands of objects that are ours: kinds, error codes, time limits and
//!   cancellation. It runs on the locks of `kinlock_core`.
//! - `traced/`: the counts, and the calls of `kinlock_recorder`, which notes what the contention
//!   report says. This layer knows a lock by its address, and neither takes nor releases one.
//!   `posix/` and `traced/` do not know each other.
//! - `libc/`: the C library's own functions, for delegated objects, and its layouts.
//! - `mode.rs`, `environment.rs`, `thread.rs`, `time.rs`: the mode of the process, its environment,
//!   what belongs to a thread, and time limits.
//!
//! # One call followed
//!
//! From `pthread_mutex_lock` to the futex, for a normal mutex of ours that is held. Each line has a
//! file, a function, and what the function decides.
//!
//! 1. `dispatch/mutex.rs`, `pthread_mutex_lock`: is it the usual case (`path`), and is the mutex
//!    free (`lock_at_once`)?
//! 2. `dispatch/mutex.rs`, `wait`: nothing. It keeps what follows out of the fast path.
//! 3. `posix/mutex.rs`, `Mutex::wait_for`: is the time limit valid, and what is returned?
//! 4. `posix/cancel.rs`, `wait`: may the thread queue? A thread that can be cancelled at any
//!    instruction may not: it tries and sleeps until it has the mutex.
//! 5. `posix/mutex.rs`, `Mutex::queue_until`: has the time limit expired (`time.rs`)?
//! 6. `kinlock_core`, `QueuedMutex::queue_until`: when to spin, to queue, and to sleep on a futex.
//!
//! A recursive or error-checking mutex goes from 1 to `Mutex::lock_owned` in `posix/mutex.rs`,
//! which compares the owner, and on to 3. A mutex that is reported on goes from 1 to
//! `lock_reported` in `dispatch/mutex.rs`, which tells `kinlock_recorder` (`acquisition.rs`),
//! and on to 3.
//!
//! All other calls take the cold path, which [`dispatch`] describes: the first call of the process,
//! time limits, `trylock` of a mutex that is not the usual one, delegated objects, the spinlock in
//! place of the mutex, counts.
//!
//! # State
//!
//! All state of a lock lies in the program's object: there is no table of locks, and nothing is
//! allocated. An object of zeros, such as a static one, is an unlocked mutex or reader-writer lock,
//! or a condition variable without waiters. Offsets are in bytes.
//!
//! ```text
//!   pthread_mutex_t   0 the lock   4 depth   8 owner and 16 kind, as in the C library
//!                     12, 20, 24, 28 the report's marks: last holder, serial number, domain, kind
//!                     32 how many threads have released it to wait
//!   pthread_cond_t    0 the condition variable   8 its users   12 its clock
//!   pthread_rwlock_t  0 the lock   24 writer, 28 shared and 48 preference, as in the C library
//!   pthread_spinlock_t  0 free or held, as in the C library
//! ```
//!
//! # Whose an object is
//!
//! The object's own kind or flags say that. Robust, priority-inheriting, priority-protected and
//! process-shared objects are delegated: each function hands them to the C library, whose objects
//! they are, bit for bit. A destroyed mutex is delegated, too. Where the C library keeps the kinds
//! and flags is found out by calling it. If that fails, all objects are delegated.
//!
//! A wait needs two objects; `dispatch/condvar.rs` has the table of its cases.
//!
//! # Versions of symbols
//!
//! Each exported function has a symbol without a version: the loader takes it for a reference with
//! any version. Where the linker can, it also has one symbol for each version that the C library
//! has, for programs that look a version up (`build/versions.rs`).
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A pointer that the program passes as a mutex, reader-writer lock, condition variable or
//!    spinlock refers to such an object. It lives until the call returns or, where POSIX allows the
//!    program to end it sooner, until this library's last access. Its fields are only accessed as
//!    atomics here.
//! 2. A thread that releases a lock holds it: for recursive and error-checking mutexes that is
//!    checked; for others POSIX demands it of the program.
//! 3. Functions of the C library are called as it declares them. Pointers that the program passes
//!    are handed on to them unread, or checked for null and read as POSIX says.
//! 4. Pointers given to the system refer to live locals or statics of the type that it expects.
//! 5. `thread.rs` and `errno` give pointers to thread-locals of the calling thread, and no
//!    reference to one outlives the expression.
//! 6. Calls that get only numbers, or addresses that the kernel checks, have no preconditions and
//!    change no memory that Rust refers to.
//! 7. The environment, the names of the program and the version of the C library are strings that
//!    live as long as the process; POSIX forbids the program to change the environment while
//!    another thread reads it. The loader's description of an object lives as long as the object
//!    is loaded.
//! 8. The C library has a block of more than 768 bytes for each thread, at the address that
//!    `pthread_self` returns. It lives as long as the thread. Words of it are read by the thread
//!    itself, all of them at times at which they do not matter.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("this library replaces functions of the GNU C library on x86-64 and aarch64");

mod dispatch;
mod environment;
mod libc;
mod mode;
mod posix;
mod start;
mod thread;
mod time;
mod traced;
