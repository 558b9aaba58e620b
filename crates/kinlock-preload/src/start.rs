//! The beginning and the end of the process.
//!
//! Nothing depends on the beginning: constructors of other libraries run before, and take locks.

use crate::counts;
use crate::environment;
use crate::mode;
use crate::real;
use crate::report::table;
use crate::spin;
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process that complains at its end if no call was intercepted; 1: each does; 0: none.
static WARNS: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" {
    fn kinlock_child();
}

extern "C" fn begin() {
    real::look_all_up();
    // SAFETY: invariant 3; the handlers do not unwind and live as long as the program.
    unsafe {
        libc::pthread_atfork(None, None, Some(kinlock_child));
        libc::pthread_atfork(None, None, Some(spin::begin_in_child));
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
    if environment::variable(b"KINLOCK_COUNTS").is_some() {
        counts::begin();
        // SAFETY: invariant 3; the handler does not unwind and lives as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(counts::begin_in_child)) };
    }
    if environment::variable(b"KINLOCK_REPORT").is_some() {
        // SAFETY: as above.
        unsafe { libc::pthread_atfork(None, None, Some(table::begin_in_child)) };
    }
}

extern "C" fn end() {
    counts::write();
    table::finish();
    let warns = WARNS.load(Relaxed);
    // SAFETY: it has no preconditions.
    let is_named = warns == 1 || warns == unsafe { libc::getpid() };
    if is_named && !mode::is_decided() {
        environment::write_stderr(
            b"kinlock: the program called no function of pthread mutexes, condition variables, \
              spinlocks or reader-writer locks\n",
        );
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Ends the process without destructors; the counts are written all the same.
#[unsafe(no_mangle)]
extern "C" fn _exit(status: c_int) -> ! {
    counts::write();
    table::finish();
    loop {
        // SAFETY: the call takes a number only.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}
