//! The beginning and the end of the process.
//!
//! No function that takes a lock relies on the constructor here: constructors of other libraries
//! run before it, and take locks.

use crate::dispatch::choice;
use crate::environment;
use crate::libc::real;
use crate::mode;
use crate::posix::spin;
use crate::thread::number_at;
use crate::traced::counts;
use crate::traced::report::{make, now, switch};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};
use kinlock_core::platform::Platform as _;
use kinlock_linux::Native;

/// The number of the process that warns at its end if it has called no function of ours. 1: every
/// process. 0: none.
static WARNS: AtomicI32 = AtomicI32::new(0);

extern "C" fn look_up() {
    real::look_all_up();
}

extern "C" fn begin() {
    environment::remember_stderr();
    now::are_posix(number_at());
    // Maps the page where copies of the library meet: a sandbox may forbid that later.
    Native::forks();
    // SAFETY: invariant 3; the handlers do not unwind and live as long as the program.
    unsafe {
        libc::pthread_atfork(None, Some(warn_no_more), Some(spin::begin_in_child));
    }
    let warns =
        environment::variable(b"KINLOCK_WARN").and_then(|text| core::str::from_utf8(text).ok());
    WARNS.store(
        warns.and_then(|text| text.parse().ok()).unwrap_or(0),
        Relaxed,
    );
    if environment::variable(b"KINLOCK_NO_CHILDREN") == Some(b"1") {
        environment::leave_children_alone();
    }
    let counts = environment::variable(b"KINLOCK_COUNTS").is_some();
    let reports = environment::variable(b"KINLOCK_REPORT").is_some();
    if counts || reports {
        // The function that is registered first is called last, so that it counts what the others
        // do. The C library has static room for the first few.
        // SAFETY: invariant 3; the function lives as long as the program.
        unsafe { __cxa_at_quick_exit(end_quickly, ptr::null()) };
    }
    if counts {
        counts::begin();
        in_children(counts::begin_in_child);
    }
    if reports {
        choice::find_callers();
        make::look_up();
        in_children(make::forget_in_child);
        if choice::stands_by() {
            // Chosen first: the new page of the mode is filled from the old one.
            choice::mode();
            switch::begin();
            in_children(switch::begin_in_child);
        }
    }
}

/// Registers a handler that children of forks call.
fn in_children(handler: unsafe extern "C" fn()) {
    // SAFETY: invariant 3; the handler does not unwind and lives as long as the program.
    unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}

/// Called in the parent of a fork: the child may be the one that calls the functions.
extern "C" fn warn_no_more() {
    WARNS.store(0, Relaxed);
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), library: *const c_void) -> c_int;
}

/// `quick_exit` runs no destructors, and ends the process inside the C library: it does not call
/// the `_exit` below.
extern "C" fn end_quickly(_: *mut c_void) {
    finish();
}

/// Called when the process ends of its own accord.
fn finish() {
    counts::write();
    make::finish();
    switch::finish();
}

extern "C" fn end() {
    finish();
    let warns = WARNS.load(Relaxed);
    // `getpid` comes last, since a filter of system calls may end the process for it.
    // SAFETY: invariant 6.
    let is_meant = || warns == 1 || warns != 0 && warns == unsafe { libc::getpid() };
    if mode::chosen().is_none() && is_meant() {
        environment::write_stderr(
            b"kinlock: the program called no function of pthread mutexes, condition variables, \
              spinlocks or reader-writer locks\n",
        );
    }
}

/// Runs before the constructor of `kinlock-linux`, which uses some of these functions.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static LOOK_UP: extern "C" fn() = look_up;

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Ends the process without running destructors, but not without writing the counts.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    finish();
    loop {
        // SAFETY: invariant 6.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
