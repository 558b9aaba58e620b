//! The state of a thread: its waiter slot, which is given back when it ends, and cached answers.
//!
//! The destructor of a `pthread` key frees the slot. It runs after the destructors of thread-
//! locals, so these can still use locks. The key is created before `main`, so that it is one of the
//! first 32 keys, whose values are stored without allocation. A thread claims a slot for each
//! single slow path if it locks before the key exists, after its destructor has run, in its last
//! destructors, or after the key was given up.
//!
//! Everything here may run in a signal handler. The slot is installed by a compare-and-swap, so
//! that a handler which installs one at the same moment is noticed.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The key's value is the slot that this thread keeps, set once by `keep_slot`. `release_slot`
//!    forgets it before it gives it back.
//! 2. `sched_getscheduler` takes and returns numbers only. It is called without the C library's
//!    function, which says in musl that there is none. `abort` has no preconditions.
//! 3. The out-pointer refers to a live local of the type and size that the kernel writes.

use super::account::Account;
use super::key::Key;
use super::{Native, copies, futex};
use crate::environment::futex_alone;
use crate::fork::{self, Part};
use crate::sys::{KeepErrno, write_stderr};
use core::cell::Cell;
use core::ffi::c_void;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU16, Ordering::*};
use kinlock_core::platform::EVERY_SET;
use kinlock_core::visible_readers::Row;

thread_local! {
    // Without destructors, so that they are accessible for as long as the thread runs.
    static SLOT: AtomicU16 = const { AtomicU16::new(0) };
    static RANDOM: Cell<u32> = const { Cell::new(0) };
    static ROW: Cell<Option<&'static Row<Native>>> = const { Cell::new(None) };
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
        // No thread wakes this one, but it gives the CPU up.
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

#[inline]
pub(super) fn now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Monotonic time in nanoseconds, as it was at the last tick of the kernel's timer. Costs a third.
#[inline]
pub fn coarse_now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC_COARSE)
}

#[inline]
fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 3.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return read_another_clock(clock);
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Where the clock source cannot be read without a system call, a filter may refuse that call. The
/// coarse clock never needs one.
#[cold]
fn read_another_clock(clock: libc::clockid_t) -> u64 {
    if clock != libc::CLOCK_MONOTONIC_COARSE {
        return coarse_now();
    }
    write_stderr(b"kinlock: fatal: the kernel does not tell the time\n");
    // SAFETY: invariant 2.
    unsafe { libc::abort() }
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

/// How long a thread that has lost its CPU as it spun takes CPUs to be scarce. It spins little in
/// this time, so it would not notice a second loss. Afterwards it spins as usual: if CPUs are still
/// scarce, that costs some milliseconds out of each such time.
const SHORT_OF_CPUS_NS: u64 = 100_000_000;

/// The calling thread lost its CPU as it spun.
pub(super) fn lost_cpu() {
    LOST_CPU.set(coarse_now());
}

/// Whether that was lately.
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

/// A number for the calling thread, which all copies of this library in the process have for it. No
/// other thread of the process has ever had it, nor one of a process from which this was forked.
/// For copies that cannot meet, see `copies`, it only differs from those of all threads that run.
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
    ROW.get().or_else(assign_row)
}

#[cold]
fn assign_row() -> Option<&'static Row<Native>> {
    let table = copies::visible_readers()?;
    // A signal handler may get another row in between, and has left it when it returns.
    ROW.set(Some(table.row(table.assign())));
    ROW.get()
}

/// The row that the thread has already.
#[inline]
pub(super) fn kept_row() -> Option<&'static Row<Native>> {
    ROW.get()
}

#[inline]
pub(super) fn kept_slot() -> u16 {
    match SLOT.with(|s| s.load(Relaxed)) {
        ENDED => 0,
        slot => slot,
    }
}

pub(super) fn keep_slot(slot: u16) -> bool {
    let is_first =
        KEY.exists() && SLOT.with(|s| s.compare_exchange(0, slot, Relaxed, Relaxed).is_ok());
    let is_kept = is_first && KEY.set(slot.into());
    if is_first && !is_kept {
        SLOT.with(|s| s.store(0, Relaxed));
    }
    is_kept
}

/// Tells that the calling thread runs its last destructors. A slot that it installed from now on
/// would not be given back; one that it already has will be.
#[cold]
pub fn keep_no_slot() {
    SLOT.with(|s| {
        let _ = s.compare_exchange(0, ENDED, Relaxed, Relaxed);
    });
}

/// Whether the calling thread has a slot or may keep one.
pub fn keeps_slots() -> bool {
    SLOT.with(|s| s.load(Relaxed)) != ENDED
}

/// The value of [`SLOT`] in a thread that can no longer keep a slot.
const ENDED: u16 = u16::MAX;

static KEY: Key = Key::NONE;

/// Runs before `main`, or when the library is loaded.
pub(super) fn create_key() {
    KEY.make(release_slot);
}

/// Gives up the [key](Key::give_up) by which slots are given back. From now on each wait claims a
/// slot. One that a thread keeps already stays its own, also when that has ended.
pub fn give_up_key() -> bool {
    KEY.give_up()
}

unsafe extern "C" fn release_slot(slot: *mut c_void) {
    SLOT.with(|s| s.store(ENDED, Relaxed));
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
    #[cfg_attr(miri, ignore = "Miri ends a program that asks for such a clock")]
    fn a_clock_that_is_refused_is_replaced_by_the_coarse_one() {
        let refused = 1 << 20;
        let before = coarse_now();
        let time = read_clock(refused);
        assert!(before > 0 && (before..=coarse_now()).contains(&time));
    }

    #[test]
    fn a_thread_that_has_lost_its_cpu_knows_it_for_a_while_and_no_other_does() {
        assert!(!has_lost_cpu());
        // It may be without a CPU for so long between the two calls.
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
