//! kinlock's locks under programs that know nothing of them: a library for `LD_PRELOAD`.
//!
//! It defines the C library's functions for mutexes, condition variables, spinlocks and
//! reader-writer locks, those of POSIX and those of C11. The dynamic loader finds these before the
//! C library's. Barriers and semaphores stay the C library's.
//!
//! # State
//!
//! All state lies in the program's objects: there is no table, and nothing is allocated. An object
//! of zeros, such as a static one, is an unlocked mutex or reader-writer lock, or a fresh
//! condition variable.
//!
//! ```text
//!   pthread_mutex_t   0 the lock   4 depth   8 owner and 16 kind, as in the C library
//!                     12, 20, 24, 28 the report's marks: last holder, serial number, domain, kind
//!   pthread_cond_t    0 the condition variable   8 its users   12 its clock
//!   pthread_rwlock_t  0 the lock   24 writer, 28 shared and 48 preference, as in the C library
//!   pthread_spinlock_t  0 free or held, as in the C library
//! ```
//!
//! # Whose an object is
//!
//! Its own kind or flags say that. Where the C library keeps these is found out by calling it: what
//! cannot be found out makes all objects the C library's. Those that the C library sets for robust,
//! priority-inheriting, priority-protected and process-shared objects make each function *pass* the
//! object on: then it is bit for bit the C library's. So is an object that was destroyed.
//!
//! | condition variable | mutex | whose wait |
//! | --- | --- | --- |
//! | ours | ours, or passed | ours; the mutex is released and taken by its own functions |
//! | passed | passed | the C library |
//! | passed | ours | the C library, for 2 ms at a time; see decision 0066 |
//!
//! # Versions of symbols
//!
//! The symbols have none. To a reference with any version the loader gives the first definition of
//! the name that has none.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A pointer that the program passes as a mutex, reader-writer lock, condition variable or
//!    spinlock refers to such
//!    an object, which lives until the call returns or, where POSIX allows the program to end it
//!    sooner, until the last access of this library. Its fields are only accessed as atomics here.
//! 2. A thread that releases a lock holds it: for recursive and error-checking mutexes that is
//!    checked; for others POSIX demands it of the program.
//! 3. Functions of the C library are called as it declares them. Other pointers that the program
//!    passes to them are passed on, or checked for null and read as POSIX says.
//! 4. Pointers given to the system refer to live locals or statics of the type that it expects.
//! 5. The report's table is a mapping of its size, made once, before its address is stored, and
//!    replaced only in the child of a fork, where no thread uses it. Its fields are atomics. A page
//!    of it is touched only once there is memory for it.
//! 6. A word of the stack is read only on a page that the thread's stack pointer is on, or that the
//!    kernel has said can be read.
//! 7. The loader knows a shared object's first and last address. The object is loaded while a
//!    function of it is on the stack, and from its unwinding data to its end it can be read.
//! 8. The count of read locks is a thread-local of the calling thread, and no reference to it
//!    outlives the expression.
//! 9. Memory of a loaded object is read where the kernel has said that each page can be read.
//! 10. `kinlock_id` is a thread-local of this library in the static block that the loader gives
//!     each thread, so that its distance from the thread pointer is a constant of the process.

#[cfg(not(target_os = "linux"))]
compile_error!("this library replaces functions of the GNU C library on Linux");

mod dispatch;
mod environment;
mod libc;
mod mode;
mod posix;
mod start;
mod thread;
mod time;
mod traced;
