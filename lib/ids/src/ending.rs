//! What happens when a thread ends: the destructor of the key in [`thread`].

use super::thread::{self, ROUNDS};
use super::{area, leased};
use core::ffi::c_void;
use kinlock_linux::native;

/// Must be called before any thread uses a domain. Not for signal handlers.
pub(super) fn prepare() {
    thread::KEY.prepare(end);
    native::register_for_fork(1, &leased::PART);
}

extern "C" fn end(round: *mut c_void) {
    let round = round.addr();
    thread::begins(round);
    // This happens in the first round: the area's memory goes whether there is another round or
    // not.
    area::unregister_own();
    if round >= ROUNDS {
        // A waiter slot kept from now on might never be returned, and a wait for the lock of the
        // list below would keep one.
        native::keep_no_slot();
    }
    if leased::leave_where_nothing_is_held() {
        return;
    }
    if round < ROUNDS && thread::KEY.set(round + 1) {
        return;
    }
    // Before the leases are released: the thread must not become a member again.
    thread::ends();
    leased::leave_all();
}

#[cfg(all(test, not(loom)))]
mod tests;
