//! The beginning and the end of a process whose program contains the recorder.
//!
//! The environment says whether there is a report, as for the preloaded library, so that the
//! command need not know which of the two records. If there is none, the mode stays 0.

use super::environment::{REPORT_PATH, complain, keep_path, variable};
use super::mode::OWN;
use super::thread::forget_number;
use super::{make, switch};
use core::sync::atomic::Ordering::Relaxed;
use kinlock_report::REPORTS;
use kinlock_report::now::HOLDS;

/// The number by which the table names the locks of such a program ([`kinlock_report::Header`]).
const OF_THE_PROGRAM: u32 = 3;

/// Asks the environment. Called once, before `main`. The table is made at the first lock.
pub extern "C" fn begin() {
    // SAFETY: invariant 1: the handler does not unwind and lives as long as the program.
    unsafe { libc::pthread_atfork(None, None, Some(forget_number)) };
    let Some(path) = variable(b"KINLOCK_REPORT") else {
        return;
    };
    if !keep_path(&REPORT_PATH, path) {
        return complain(
            4,
            b"kinlock: ignoring KINLOCK_REPORT: the path is too long\n",
        );
    }
    make::look_up();
    // SAFETY: invariant 1: the handlers do not unwind and live as long as the program.
    unsafe {
        libc::pthread_atfork(None, None, Some(make::forget_in_child));
        libc::atexit(end);
    }
    if variable(b"KINLOCK_STANDBY") == Some(b"1") {
        make::stand_by(OF_THE_PROGRAM);
        listen(HOLDS);
        switch::begin();
        // SAFETY: as above.
        unsafe { libc::pthread_atfork(None, None, Some(switch::begin_in_child)) };
        return;
    }
    make::expect(OF_THE_PROGRAM);
    listen(REPORTS);
}

fn listen(mode: u32) {
    for of_locks in [&OWN.switch.mode, &OWN.switch.rwlock_mode] {
        of_locks.store(mode, Relaxed);
    }
}

extern "C" fn end() {
    make::finish();
    switch::finish();
}
