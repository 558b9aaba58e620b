//! Signals and changes of affinity, while threads run.
//!
//! # Invariants
//!
//! 1. `HANDLER` is null or points at an action that stays forever.
//! 2. The handler is async-signal-safe: the actions given to [`Storm::new`] are, and `errno` is
//!    restored.

use crate::child::Child;
use crate::crew::Orders;
use crate::report::Findings;
use crate::signal;
use kinlock_measure::cpus::{allowed_cpus, confine};
use kinlock_measure::random::Random;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// What a handler does.
pub(super) type Action = Box<dyn Fn() + Send + Sync>;

static HANDLER: AtomicPtr<Action> = AtomicPtr::new(null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The pause between bursts.
const CALM: Duration = Duration::from_micros(300);
/// How long a storm goes on if it has disturbed no thread yet: a busy machine may start the threads
/// late.
const PATIENCE: Duration = Duration::from_secs(300);

/// Disturbs the threads that have exposed themselves to it.
pub(super) struct Storm {
    threads: Mutex<Vec<i32>>,
    stop: AtomicBool,
    /// Whether threads are moved between CPUs.
    moves: bool,
}

impl Storm {
    /// Each signal runs `action`, which must be async-signal-safe, and is leaked.
    pub(super) fn new(action: Action, moves: bool) -> Self {
        HANDLED.store(0, Relaxed);
        HANDLER.store(Box::leak(Box::new(action)), Release);
        // The signal is not blocked while its handler runs, so that handlers nest.
        // SAFETY: invariant 2.
        unsafe { signal::install(number(), handle, libc::SA_RESTART, []) };
        Storm {
            threads: Mutex::default(),
            stop: AtomicBool::new(false),
            moves,
        }
    }

    /// Runs `work` on as many threads as ordered, and disturbs the threads that are exposed. `work`
    /// should return when the storm no longer [`rages`], and return its number of operations.
    ///
    /// [`rages`]: Self::rages
    pub(super) fn over(
        &self,
        orders: &Orders,
        meanwhile: impl FnMut(),
        work: impl Fn(usize, Random) -> u64 + Sync,
    ) -> Findings {
        let operations = std::thread::scope(|scope| {
            let (work, seed) = (&work, orders.seed);
            let spawn = |me| scope.spawn(move || work(me, Random::stream(seed, me as u64)));
            let threads: Vec<_> = (0..orders.threads).map(spawn).collect();
            self.rage(orders.duration, seed, meanwhile);
            let done = threads.into_iter().map(|thread| thread.join());
            done.map(|done| done.expect("no thread panics")).collect()
        });
        Findings {
            operations,
            ..Findings::default()
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

    /// Runs `work` on the calling thread, which is exposed to the storm until `work` returns.
    pub(super) fn expose<R>(&self, work: impl FnOnce() -> R) -> R {
        let me = signal::own_tid();
        self.threads.lock().unwrap().push(me);
        let result = work();
        self.threads.lock().unwrap().retain(|&thread| thread != me);
        result
    }

    /// Disturbs threads for `time`, or longer if no signal was handled by then, and then makes all
    /// threads stop. `meanwhile` is called between bursts.
    fn rage(&self, time: Duration, seed: u64, mut meanwhile: impl FnMut()) {
        let mut random = Random::stream(seed, u64::MAX);
        let cpus = allowed_cpus();
        let start = Instant::now();
        let no_signal = || self.handled() == 0 && start.elapsed() < PATIENCE;
        while start.elapsed() < time || no_signal() {
            let threads = self.threads.lock().unwrap().clone();
            for &thread in &threads {
                if random.one_in(2) {
                    signal::send(thread, number());
                }
                if self.moves && random.one_in(8) {
                    match random.below(cpus.len() as u64 + 1) as usize {
                        all if all == cpus.len() => confine(thread, &cpus),
                        one => confine(thread, &cpus[one..=one]),
                    };
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

fn number() -> i32 {
    signal::real_time(6)
}

/// Signals a child, which has inherited the handler.
pub(super) fn disturb(child: &Child) {
    child.signal(number());
}

extern "C" fn handle(_: i32) {
    // SAFETY: invariant 1.
    let Some(action) = (unsafe { HANDLER.load(Acquire).as_ref() }) else {
        return;
    };
    signal::keeping_errno(|| {
        action();
        HANDLED.fetch_add(1, Relaxed);
    });
}
