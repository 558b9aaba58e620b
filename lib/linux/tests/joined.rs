//! With [`Joined`], unlocking does not touch the lock's memory after another thread has taken the
//! lock, so that this thread may free the memory.
//!
//! The platform holds up the thread that unlocks, after each step that can matter, until the other
//! thread has taken the lock, released it, and made the memory inaccessible. Each case runs in a
//! process of its own. With [`Split`] it ends in a fault, which shows that the test can fail.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The page is mapped until the process ends, and holds zeros, which are an unlocked mutex.
//! 2. The caller has taken the lock.
#![cfg(not(any(loom, miri)))]

use kinlock_core::bare::Bare;
use kinlock_core::config::{Quantum, Tuning};
use kinlock_core::events::Event;
use kinlock_core::platform::{Atomics, Fences, Parked, Parking, Platform, Spinning};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::{Joined, Layout, QueuedMutex, Split};
use kinlock_core::raw::waiter::{Slot, Waiters};
use kinlock_linux::Native;
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// The machine, but threads that unlock are held up, and sleeps end at once.
#[derive(Clone, Copy, Debug)]
struct HeldUp;

thread_local! {
    /// Whether this thread is held up.
    static FIRST: Cell<bool> = const { Cell::new(false) };
}

static GONE: AtomicBool = AtomicBool::new(false);
static PARKS: AtomicU32 = AtomicU32::new(0);
static TABLE: [Slot<HeldUp>; 8] = [const { Slot::new() }; 8];
static CLAIMED: [AtomicU32; 1] = [const { AtomicU32::new(0) }; 1];
static IN_USE: AtomicU32 = AtomicU32::new(0);
static WAITERS: Waiters<HeldUp> = Waiters::new(&TABLE, &CLAIMED, &IN_USE);

/// The first thread waits here for the end of the lock's memory.
fn hold_up() {
    while FIRST.get() && !GONE.load(SeqCst) {
        thread::yield_now();
    }
}

impl Atomics for HeldUp {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Spinning for HeldUp {
    type Clock = Native;
}

impl Parking for HeldUp {
    const CAN_PARK: bool = true;

    fn park_in(_: *const u32, _: u32, _: u64, _: u32, _: impl Fn() -> u32) -> Parked {
        thread::yield_now();
        Parked::Unwoken
    }

    fn unpark_in(key: *const u32, n: u32, sets: u32) -> u32 {
        hold_up();
        <Native as Parking>::unpark_in(key, n, sets)
    }
}

impl Fences for HeldUp {
    fn light_fence() {
        hold_up();
        <Native as Fences>::light_fence();
    }
}

impl Platform for HeldUp {
    type Clock = Native;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Bare;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    fn count(event: Event) {
        if event == Event::Park {
            PARKS.fetch_add(1, SeqCst);
        }
    }
}

/// `LONG`: the second thread sleeps until an unlock. Otherwise it requests a hand-off, and sleeps.
#[derive(Clone, Copy, Debug)]
struct Plain<const LONG: bool>;

impl<const LONG: bool> LockConfig for Plain<LONG> {
    const TRIALS: u32 = 0;

    fn tuning() -> Tuning {
        let mut tuning = Tuning::DEFAULT;
        tuning.quantum = if LONG {
            Quantum::THROUGHPUT
        } else {
            Quantum::FAIR
        };
        tuning
    }
}

/// Unlocks while another thread takes the lock, releases it and makes its memory inaccessible.
/// `asleep`: the other thread waits for the lock asleep; otherwise it comes when the lock is free.
fn unlock_while_it_goes<C: LockConfig, L: Layout<HeldUp>>(asleep: bool, fair: bool) {
    let (size, access) = (4096, libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: invariant 1.
    let mutex = unsafe { &*page.cast::<QueuedMutex<HeldUp, C, L>>() };
    assert!(mutex.try_lock());
    let page = page as usize;
    let second = thread::spawn(move || {
        if asleep {
            mutex.lock();
        } else {
            while !mutex.try_lock() {
                thread::yield_now();
            }
        }
        // SAFETY: invariant 2.
        unsafe { mutex.unlock() };
        // SAFETY: only the thread that unlocks could still use it. That is what is tested.
        let result = unsafe { libc::mprotect(page as *mut _, size, libc::PROT_NONE) };
        assert_eq!(result, 0);
        GONE.store(true, SeqCst);
    });
    while asleep && PARKS.load(SeqCst) == 0 {
        thread::yield_now();
    }
    // Gives the second thread time to set its flag.
    thread::sleep(Duration::from_millis(5));
    FIRST.set(true);
    if fair {
        // SAFETY: invariant 2.
        unsafe { mutex.unlock_fair_and_leave() };
    } else {
        // SAFETY: invariant 2.
        unsafe { mutex.unlock() };
    }
    second.join().expect("the second thread ends");
}

/// Runs one case, named by a test, in a process of its own.
fn in_a_process(case: &str) -> ExitStatus {
    let this = std::env::current_exe().expect("a test has a path");
    let args = ["--ignored", "--exact", "--nocapture", case];
    let mut command = Command::new(this);
    command.args(args).status().expect("it starts")
}

macro_rules! cases {
    ($($case:ident: $long:literal, $layout:ident, $asleep:literal, $fair:literal;)*) => {
        mod cases {
            use super::*;
            $(
                #[test]
                #[ignore = "run by the other tests, in a process of its own"]
                fn $case() {
                    unlock_while_it_goes::<Plain<$long>, $layout<HeldUp>>($asleep, $fair);
                }
            )*
        }
    };
}

cases! {
    joined_and_free: false, Joined, false, false;
    joined_and_slept_for: true, Joined, true, false;
    joined_and_handed_over: false, Joined, true, false;
    joined_and_fair: true, Joined, true, true;
    split_and_free: false, Split, false, false;
}

#[test]
fn joined_memory_may_go_as_soon_as_another_thread_has_had_the_lock() {
    for case in ["free", "slept_for", "handed_over", "fair"] {
        let status = in_a_process(&format!("cases::joined_and_{case}"));
        assert!(status.success(), "{case}: {status}");
    }
}

/// Shows that the test above can fail.
#[test]
fn split_memory_must_not() {
    let status = in_a_process("cases::split_and_free");
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
}
