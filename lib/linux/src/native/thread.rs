//! The state of a thread: its waiter slot, which is given back when it ends, and cached answers.
//!
//! The destructor of a `pthread` key frees the slot. It runs after the destructors of thread-
//! locals, so these can still use locks. The key is created before `main`, so that it is one of the
//! first 32 keys, whose values are stored without allocation. A thread claims a slot for each
//! single slow path if it locks before the key exists, after its destructor has run, in its last
//! destructors, or after the key was given up. Everything here may run in a signal handler.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The key's value is the slot that this thread keeps, set once by `keep_slot`. `release_slot`
//!    forgets the slot before giving it back.
//! 2. `sched_getscheduler` takes and returns numbers only. It is called without the C library's
//!    function, which only returns an error in musl.

use super::account::Account;
use super::clock::{coarse_now, now};
use super::{Native, copies, futex, kept};
use crate::environment::futex_alone;
use crate::fork::{self, Part};
use crate::sys::KeepErrno;
use core::cell::Cell;
use core::ffi::c_void;
use core::num::NonZeroUsize;
use kinlock_core::platform::EVERY_SET;
use kinlock_core::visible_readers::Row;

thread_local! {
    // Without destructors, so that they are accessible for as long as the thread runs.
    static RANDOM: Cell<u32> = const { Cell::new(0) };
    static LOST_CPU: Cell<u64> = const { Cell::new(0) };
    static PRIORITY: Cell<Priority> = const { Cell::new(Priority::Unknown) };
    static IDENTITY: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Priority {
    Unknown,
    Ordinary,
    RealTime,
}

/// A sandbox may refuse the call, which sets `errno`.
pub(super) fn yield_now() {
    if futex_alone() {
        // No thread wakes this one early, but it gives up the CPU.
        let word = 0;
        _ = futex::wait(&word, word, now() + 1, EVERY_SET, || word);
        return;
    }
    let _errno = KeepErrno::hold();
    std::thread::yield_now();
}

/// Yields the CPU, unless the process has spent its budget for long yields: then returns `false`.
///
/// `time` is the time of the call; the yield advances it. On a CPU that another thread keeps busy,
/// a yield lasts a whole scheduler slice, which is milliseconds. The budget limits such yields.
pub(super) fn yield_briefly(time: &mut u64) -> bool {
    static ACCOUNT: Account = Account::new();

    if !ACCOUNT.covers(*time) || futex_alone() {
        return false;
    }
    yield_now();
    let taken = now().saturating_sub(*time);
    *time += taken;
    ACCOUNT.charge(*time, taken);
    true
}

/// Marsaglia's xorshift, seeded by the address of the thread's memory.
pub(super) fn random() -> u32 {
    RANDOM.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = (state as *const _ as usize >> 4) as u32 | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x
    })
}

/// How long a thread that has lost its CPU while spinning assumes that CPUs are scarce. It spins
/// little in this time, so it would not notice a second loss. Afterwards it spins as usual: if CPUs
/// are still scarce, that costs some milliseconds each time.
const SHORT_OF_CPUS_NS: u64 = 100_000_000;

/// Notes that the calling thread has lost its CPU while spinning.
pub(super) fn lost_cpu() {
    LOST_CPU.set(coarse_now());
}

/// Whether the calling thread has lost its CPU within the last [`SHORT_OF_CPUS_NS`].
pub(super) fn has_lost_cpu() -> bool {
    let when = LOST_CPU.get();
    if when == 0 {
        return false;
    }
    // Wrapping: a child in another time namespace may read an earlier time.
    let lately = coarse_now().wrapping_sub(when) < SHORT_OF_CPUS_NS;
    if !lately {
        LOST_CPU.set(0);
    }
    lately
}

/// Whether the thread is a priority waiter. Asks the kernel once per thread.
pub(super) fn is_priority() -> bool {
    PRIORITY.with(|cached| {
        if cached.get() == Priority::Unknown {
            // Miri has no scheduling policies.
            #[cfg(miri)]
            let policy = libc::SCHED_OTHER;
            #[cfg(not(miri))]
            let policy = match futex_alone() {
                true => libc::SCHED_OTHER,
                false => {
                    let _errno = KeepErrno::hold();
                    // SAFETY: invariant 2.
                    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) as libc::c_int }
                }
            };
            let real_time = matches!(
                policy & !libc::SCHED_RESET_ON_FORK,
                libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
            );
            cached.set(if real_time {
                Priority::RealTime
            } else {
                Priority::Ordinary
            });
        }
        cached.get() == Priority::RealTime
    })
}

/// A number for the calling thread, the same in all copies of this library in the process. No other
/// thread of the process, or of a process from which it was forked, has ever had this number. In
/// copies that cannot meet, see `copies`, it only differs from the numbers of all running threads.
#[inline]
pub fn thread_identity() -> NonZeroUsize {
    IDENTITY.with(|known| known.get().unwrap_or_else(|| find_identity(known)))
}

#[cold]
fn find_identity(known: &Cell<Option<NonZeroUsize>>) -> NonZeroUsize {
    // Addresses of cells are even, numbers are odd.
    let number = copies::number_of_thread().unwrap_or_else(|| core::ptr::from_ref(known).addr());
    let number = NonZeroUsize::MIN.saturating_add(number - 1);
    known.set(Some(number));
    number
}

/// Makes the calling thread a priority waiter or an ordinary one. `None` restores the default: its
/// scheduling policy decides.
pub fn set_priority(on: Option<bool>) {
    PRIORITY.set(match on {
        None => Priority::Unknown,
        Some(false) => Priority::Ordinary,
        Some(true) => Priority::RealTime,
    });
}

/// See [`Platform::row`](kinlock_core::platform::Platform::row).
#[inline]
pub(super) fn row() -> Option<&'static Row<Native>> {
    kept::row().or_else(assign_row)
}

#[cold]
fn assign_row() -> Option<&'static Row<Native>> {
    let table = copies::visible_readers()?;
    // A signal handler may get another row in between, and no longer uses it when it returns.
    kept::set_row(table.row(table.assign()));
    kept::row()
}

/// The destructor of the key.
pub(super) unsafe extern "C" fn release_slot(slot: *mut c_void) {
    kept::end();
    // SAFETY: invariant 1.
    unsafe { copies::tables().waiters.release(slot as usize as u16) };
}

/// Rank 0, since all other parts use waiter slots. Slots have no locks.
pub(super) static SLOTS: Part = Part { reset_in_child };

/// Registers a part of another crate for forks, and the waiter slots before it, which all parts
/// use. A constructor of the program may need a part before this crate's constructor has run.
pub fn register_for_fork(rank: usize, part: &'static Part) {
    fork::register(0, &SLOTS);
    fork::register(rank, part);
}

fn reset_in_child() {
    copies::reset_in_child();
    super::load::reset_in_child();
    crate::topology::reset_in_child();
    crate::environment::reset_in_child();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_lost_its_cpu_knows_it_for_a_while_and_no_other_does() {
        assert!(!has_lost_cpu());
        // The thread may be without a CPU for longer than that between the two calls.
        let noted = (0..1_000).any(|_| {
            lost_cpu();
            has_lost_cpu()
        });
        assert!(noted);
        assert!(!std::thread::spawn(has_lost_cpu).join().unwrap());
        while has_lost_cpu() {
            std::thread::yield_now();
        }
    }
}
