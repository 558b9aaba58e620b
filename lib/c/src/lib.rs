//! The functions that `include/kinlock.h` declares.
//!
//! The header is the documentation: what each function does, which errors it returns, and where it
//! may be called. The code here calls the algorithms, which are in other crates.
//!
//! # Rules
//!
//! * An object of the program is the algorithm's own type, at the program's address. There is no
//!   table of objects, and the locks allocate nothing.
//! * The uncontended path of a function is inlined into it. The contended path is a tail call, so
//!   that the uncontended path needs no frame on the stack.
//! * Time limits are moments on `CLOCK_MONOTONIC` in nanoseconds. `UINT64_MAX` never comes.
//! * A function that can fail returns 0 or an error number. Functions of locks leave `errno` alone.
//! * Nothing unwinds into C. The library is built with `panic = "abort"`; otherwise the compiler
//!   ends a process whose panic reaches an `extern "C"` function.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A pointer to an object that the program passes refers to an object of that type, aligned for
//!    it and initialised as the header says. It lives until the call returns or, where the header
//!    allows the program to end it sooner, until the last access. Other code accesses it only
//!    through this library.
//! 2. Who releases a lock or ends a section holds it, in the way that the function names: the
//!    header demands that.
//! 3. A pointer for a result refers to memory of its type that the program lets the function write.
//! 4. A function that the program passes can be called with the argument passed beside it, and
//!    returns: it does not leave by an exception, `longjmp`, `pthread_exit` or cancellation.
//! 5. A handle is one that this library has made, and that has not been destroyed. No other thread
//!    uses a handle while it is destroyed.
//! 6. A string that the program passes ends with a zero byte and lives until the call returns.

#[cfg(not(target_os = "linux"))]
compile_error!("the C library needs Linux, as kinlock-linux does");

/// Defines a function that destroys a handle, and does nothing for a null pointer.
macro_rules! destroy {
    ($name:ident, $type:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(handle: *mut $type) {
            if !handle.is_null() {
                // SAFETY: invariant 5.
                drop(unsafe { Box::from_raw(handle) });
            }
        }
    };
}

mod condvar;
mod config;
mod ids;
mod invalidation;
mod misuse;
mod mutex;
mod once;
mod rwlock;
mod spin;
mod statistics;
mod time;
mod topology;
mod version;
