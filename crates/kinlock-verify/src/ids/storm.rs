//! Signals and changes of affinity, while threads run.
//!
//! # Invariants
//!
//! 1. `HANDLER` is null or points at an action that stays for ever.
//! 2. What a handler does is async-signal-safe: the actions given to [`Storm::new`] are, and `errno` is restored.
//! 3. Pointers given to the kernel refer to live locals of the size passed with them.
//! 4. `tgkill` takes numbers only, and reaches no other process. A thread that has just ended is a harmless error, and so is one whose affinity is to change.

use crate::random::Random;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// What a handler does.
pub(super) type Action = Box<dyn Fn() + Send + Sync>;

static HANDLER: AtomicPtr<Action> = AtomicPtr::new(null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// How long the storm is calm between bursts.
const CALM: Duration = Duration::from_micros(300);

/// Disturbs threads that have exposed themselves to it.
pub(super) struct Storm {
    threads: Mutex<Vec<i32>>,
    stop: AtomicBool,
    /// Whether threads are moved.
    moves: bool,
}

impl Storm {
    /// Signals do `action`, which must be async-signal-safe. It is leaked.
    pub(super) fn new(action: Action, moves: bool) -> Self {
        HANDLED.store(0, Relaxed);
        HANDLER.store(Box::leak(Box::new(action)), Release);
        install();
        Storm {
            threads: Mutex::default(),
            stop: AtomicBool::new(false),
            moves,
        }
    }

    /// Whether threads are to go on.
    pub(super) fn rages(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// How many signals were handled.
    pub(super) fn handled(&self) -> u64 {
        HANDLED.load(Relaxed)
    }

    /// Runs `work` on the calling thread, exposed.
    pub(super) fn expose<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: no preconditions.
        let me = unsafe { libc::gettid() };
        self.threads.lock().unwrap().push(me);
        let result = work();
        self.threads.lock().unwrap().retain(|&thread| thread != me);
        result
    }

    /// Disturbs for some time, then makes everybody stop. `meanwhile` is called now and then.
    pub(super) fn rage(&self, time: Duration, seed: u64, mut meanwhile: impl FnMut()) {
        let mut random = Random::new(seed, u64::MAX);
        let cpus = crate::allowed_cpus();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let threads = self.threads.lock().unwrap().clone();
            for &thread in &threads {
                if random.one_in(2) {
                    signal(thread);
                }
                if self.moves && random.one_in(8) {
                    match random.below(cpus.len() as u64 + 1) as usize {
                        all if all == cpus.len() => confine(thread, &cpus),
                        one => confine(thread, &cpus[one..=one]),
                    }
                }
            }
            meanwhile();
            std::thread::sleep(CALM);
        }
        self.stop.store(true, Relaxed);
        for &thread in self.threads.lock().unwrap().iter() {
            confine(thread, &cpus);
        }
    }
}

/// Allows a thread (0: the calling one) these CPUs only.
pub(super) fn confine(thread: i32, cpus: &[usize]) {
    let mut mask = [0u64; 128];
    for &cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: invariants 3 and 4.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&mask), mask.as_ptr().cast()) };
}

fn number() -> i32 {
    libc::SIGRTMIN() + 6
}

fn signal(thread: i32) {
    // SAFETY: invariant 4.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, number()) };
}

/// Signals a child of this process that has not been waited for.
pub(super) fn disturb(child: i32) {
    // SAFETY: takes numbers only; the child's stays its own until it is waited for.
    unsafe { libc::kill(child, number()) };
}

fn install() {
    // SAFETY: invariants 2 and 3; zero is a valid `sigaction`. Not masked while it runs: handlers nest.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handle as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        let failed = libc::sigaction(number(), &action, null_mut());
        assert_eq!(
            failed, 0,
            "a handler of a real-time signal can be installed"
        );
    }
}

extern "C" fn handle(_: i32) {
    // SAFETY: invariant 1.
    let Some(action) = (unsafe { HANDLER.load(Acquire).as_ref() }) else {
        return;
    };
    // SAFETY: a thread's own `errno` is always there.
    let errno = unsafe { *libc::__errno_location() };
    action();
    HANDLED.fetch_add(1, Relaxed);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
