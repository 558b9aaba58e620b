//! Choosing the mode: what the environment asks for, as far as this C library allows it.
//!
//! The first intercepted call chooses, since constructors of other libraries take locks before
//! this library's own constructor runs. Nothing here allocates.

use crate::environment::{COUNTS_PATH, REPORT_PATH, complain, keep_path, variable};
use crate::libc::{self as c_library, layout, lookup};
use crate::mode::{
    COUNTS, DELEGATES, HOLDS, MODE, Mode, ORDERS, PAGE_OF_MODES, REPORTS, RWLOCK_MODE, SPINS,
    chosen, chosen_for_rwlocks,
};
use crate::thread::{is_choosing, number_at, set_choosing};
use crate::traced::report::{self, make, order};
use core::sync::atomic::{Ordering::*, fence};

/// The first glibc whose condition variables have today's layout. With an older one every object
/// is delegated.
const OLDEST: (u32, u32) = (2, 25);

/// The mode of the process. The first call chooses it.
#[inline]
pub(crate) fn mode() -> Mode {
    chosen().unwrap_or_else(choose)
}

/// The mode of reader-writer locks. The first call chooses it.
pub(crate) fn rwlock_mode() -> Mode {
    chosen_for_rwlocks().unwrap_or_else(|| {
        let mode = mode();
        // Pairs with the release in `choose_modes`, if another thread has chosen.
        fence(Acquire);
        chosen_for_rwlocks().unwrap_or(mode)
    })
}

/// Whether a report is only made when the command asks for it.
pub(crate) fn stands_by() -> bool {
    variable(b"KINLOCK_STANDBY") == Some(b"1")
}

/// Tells the recorder how to find shared objects.
pub(crate) fn find_callers() {
    let finder = lookup::of_loader(c"_dl_find_object", c"GLIBC_2.35");
    // SAFETY: invariant 3: it is that function.
    unsafe { report::modules::find_by(finder) };
}

/// Another library may wrap a function that is called here, and take a lock in its wrapper. That
/// call finds this thread choosing, and is delegated.
#[cold]
fn choose() -> Mode {
    if is_choosing() {
        return Mode(DELEGATES);
    }
    set_choosing(true);
    let mode = choose_modes();
    set_choosing(false);
    mode
}

fn choose_modes() -> Mode {
    let mut mode = match variable(b"KINLOCK_LOCK") {
        // The layouts of older versions are not known here.
        _ if c_library::version() < OLDEST => DELEGATES,
        None | Some(b"kinlock-mutex") => 0,
        Some(b"kinlock-spin") => SPINS,
        Some(b"pthread") => DELEGATES,
        Some(_) => {
            complain(
                1,
                b"kinlock: ignoring KINLOCK_LOCK: expected kinlock-mutex, kinlock-spin or \
                  pthread\n",
            );
            0
        }
    };
    let mut rwlocks = match variable(b"KINLOCK_RWLOCK") {
        _ if c_library::version() < OLDEST => DELEGATES,
        None => mode & DELEGATES,
        Some(b"ours") => 0,
        Some(b"glibc") => DELEGATES,
        Some(_) => {
            complain(
                8,
                b"kinlock: ignoring KINLOCK_RWLOCK: expected ours or glibc\n",
            );
            mode & DELEGATES
        }
    };
    if mode & DELEGATES == 0 && !layout::knows_mutexes_and_condvars() {
        complain(
            16,
            b"kinlock: this C library's mutexes or condition variables are not as expected: they \
              stay its own\n",
        );
        mode = DELEGATES;
    }
    if rwlocks & DELEGATES == 0 && !layout::knows_rwlocks() {
        complain(
            32,
            b"kinlock: this C library's reader-writer locks are not as expected: they stay its \
              own\n",
        );
        rwlocks = DELEGATES;
    }
    layout::find_thread_number();
    report::now::are_posix(number_at());
    if let Some(path) = variable(b"KINLOCK_COUNTS") {
        if keep_path(&COUNTS_PATH, path) {
            mode |= COUNTS;
            rwlocks |= COUNTS;
        } else {
            complain(
                2,
                b"kinlock: ignoring KINLOCK_COUNTS: the path is too long\n",
            );
        }
    }
    if let Some(path) = variable(b"KINLOCK_REPORT") {
        report::mode::use_page(&PAGE_OF_MODES);
        find_callers();
        if !keep_path(&REPORT_PATH, path) {
            complain(
                4,
                b"kinlock: ignoring KINLOCK_REPORT: the path is too long\n",
            );
        } else if stands_by() {
            make::stand_by(Mode(mode).lock_number());
            rwlocks |= HOLDS;
        } else if make::begin(Mode(mode).lock_number()) {
            mode |= REPORTS;
            rwlocks |= REPORTS;
            if order::is_wanted() {
                mode |= ORDERS;
                rwlocks |= ORDERS;
            }
        }
    }
    // Several threads may choose at the same time. They read the same environment, so they store
    // the same modes. MODE is stored last, since a thread that finds MODE chosen reads RWLOCK_MODE
    // as well. Release pairs with the fence in `rwlock_mode`.
    RWLOCK_MODE.store(rwlocks, Relaxed);
    MODE.store(mode, Release);
    Mode(mode)
}
