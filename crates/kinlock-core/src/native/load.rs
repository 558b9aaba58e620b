//! Whether the process is oversubscribed: threads that wait now, against CPUs that it may use now.
//!
//! Neither number is kept up to date by those who change it, since that would cost every wait. The
//! first slow path in each tick of the coarse clock (1 to 10 ms) takes a sample. All others read
//! the last answer, from a cache line that is written once per tick.
//!
//! A sample counts the threads in queues and the one that asks. A holder is added where at least
//! two queue: one alone may be the holder, which has not left its node yet. A thread on its way
//! from one wait to the next is missing. So the answer follows an average, which forgets a crowd
//! within some ten ticks.
//!
//! The number of CPUs is read again every 100 ms at most, see [`cpus`](super::cpus): not in the
//! first sample, so that the first contended lock of a process is not delayed.

use super::{copies, cpus, thread};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The last answer in bit 0, and above it the time of the sample. Starts with a long past one.
static ANSWER: AtomicU64 = AtomicU64::new(0);
/// The average number of contenders, in sixteenths.
static AVERAGE: AtomicU32 = AtomicU32::new(0);
/// The CPUs on which the process may run; 0 = not counted yet.
static ALLOWED: AtomicU32 = AtomicU32::new(0);
/// How many CPUs' time its quotas allow; 0 = not read yet. They are read once: each reading opens
/// files, and the program may depend on the numbers that its own files get, or close all.
static QUOTA: AtomicU32 = AtomicU32::new(0);
/// When to count the CPUs again; 0 = nobody has asked yet.
static DUE: AtomicU64 = AtomicU64::new(0);

/// The least time between two samples: the coarse clock may be finer than a tick.
const PERIOD: u64 = 1_000_000;
/// A sample after such a gap starts a new average.
const FORGOTTEN: u64 = 100_000_000;
/// The least time between two looks at the number of CPUs, and how many times as long it is at
/// least as such a look takes: with a thousand threads that is a millisecond.
const CPUS_PERIOD: u64 = 100_000_000;
const CPUS_SHARE: u64 = 100;

/// The thread that asks, and a holder.
const ALWAYS: u32 = 2;
/// An average of one contender.
const ONE: u32 = 16;

/// See [`Platform::oversubscribed`](crate::platform::Platform::oversubscribed).
pub(super) fn oversubscribed() -> bool {
    let now = thread::coarse_now();
    let seen = ANSWER.load(Relaxed);
    if now.saturating_sub(seen >> 1) < PERIOD {
        return seen & 1 != 0;
    }
    sample(now, seen)
}

#[cold]
fn sample(now: u64, seen: u64) -> bool {
    let before = seen & 1;
    // One thread takes the sample. Others make do with the old answer.
    let taken = now << 1 | before;
    if ANSWER
        .compare_exchange(seen, taken, Relaxed, Relaxed)
        .is_err()
    {
        return before != 0;
    }
    let cpus = cpus(now);
    let own = thread::kept_slot();
    let waiters = &copies::tables().waiters;
    let waiting = waiters.waiting(cpus.saturating_mul(2), own);
    // No more than have ever waited.
    let contenders = contenders(waiting).min(waiters.in_use() + u32::from(own == 0));
    let gap = now.saturating_sub(seen >> 1);
    let average = average(AVERAGE.load(Relaxed), contenders, gap);
    AVERAGE.store(average, Relaxed);
    let answer = exceeds(average, cpus);
    // Fails if this thread lost its CPU meanwhile, and another has taken the next sample.
    let _ = ANSWER.compare_exchange(taken, now << 1 | u64::from(answer), Relaxed, Relaxed);
    answer
}

/// How many threads contend where one asks and `waiting` others are in queues.
fn contenders(waiting: u32) -> u32 {
    waiting.max(1) + 1 + u32::from(waiting > 1)
}

/// The average after a sample of `contenders`, taken `gap` nanoseconds after the one before.
fn average(before: u32, contenders: u32, gap: u64) -> u32 {
    let before = if gap > FORGOTTEN {
        ALWAYS * ONE
    } else {
        before
    };
    let sample = contenders.saturating_mul(ONE);
    before.saturating_add_signed((i64::from(sample) - i64::from(before)) as i32 / 4)
}

/// Whether there are more contenders than `cpus`. The margin is for the samples that count the
/// holder twice.
fn exceeds(average: u32, cpus: u32) -> bool {
    average > cpus.saturating_mul(ONE).saturating_add(ONE / 2)
}

/// The number of CPUs that the process may use; at least 1.
fn cpus(now: u64) -> u32 {
    match DUE.load(Relaxed) {
        0 => DUE.store(now + 1, Relaxed),
        due if now >= due => look_at_cpus(),
        _ => {}
    }
    let allowed = match ALLOWED.load(Relaxed) {
        // In the first sample. Asking about all threads would take longer.
        0 => cpus::of_calling_thread(),
        counted => counted,
    };
    match QUOTA.load(Relaxed) {
        0 => allowed,
        quota => allowed.min(quota).max(1),
    }
}

#[cold]
#[inline(never)]
fn look_at_cpus() {
    // Another thread that comes here before this one has finished does not look too.
    DUE.store(u64::MAX, Relaxed);
    let begin = thread::now();
    ALLOWED.store(cpus::allowed(ALLOWED.load(Relaxed)), Relaxed);
    if QUOTA.load(Relaxed) == 0 {
        QUOTA.store(cpus::quota().max(1), Relaxed);
    }
    let end = thread::now();
    let pause = CPUS_PERIOD.max((end - begin).saturating_mul(CPUS_SHARE));
    DUE.store(end + pause, Relaxed);
}

/// In the child of a fork: the thread that was looking does not exist here.
pub(super) fn reset_in_child() {
    DUE.store(0, Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;

    /// How many of the samples it takes until the answer is `wanted`.
    fn samples_until(wanted: bool, mut before: u32, contenders: u32, cpus: u32) -> usize {
        let answers = std::iter::repeat_with(|| {
            before = average(before, contenders, TICK);
            exceeds(before, cpus)
        });
        let until = answers.take(1000).position(|answer| answer == wanted);
        until.expect("the answer changes") + 1
    }

    #[test]
    fn a_crowd_is_noticed_at_once_and_soon_forgotten() {
        let idle = average(0, ALWAYS, u64::MAX);
        assert_eq!(samples_until(true, idle, 6, 2), 1);
        assert_eq!(samples_until(true, idle, 3, 2), 3);
        let crowded = 6 * ONE;
        assert!(samples_until(false, crowded, ALWAYS, 2) < 10);
        assert!(!exceeds(average(crowded, ALWAYS, FORGOTTEN + 1), 2));
    }

    #[test]
    fn a_thread_for_each_cpu_is_no_crowd() {
        for cpus in [2, 3, 64, 1000] {
            let mut value = average(0, ALWAYS, u64::MAX);
            for n in 0..1000 {
                // Every eighth sample catches a waiter that has just got the lock.
                value = average(value, cpus + u32::from(n % 8 == 0), TICK);
                assert!(!exceeds(value, cpus), "{cpus} CPUs, sample {n}");
            }
            assert!(samples_until(true, value, 2 * cpus, cpus) < 5);
        }
    }

    #[test]
    fn two_threads_are_no_crowd_whichever_of_them_is_in_a_queue() {
        assert_eq!([0, 1, 2, 15].map(contenders), [2, 2, 4, 17]);
    }

    #[test]
    fn two_contenders_crowd_one_cpu() {
        assert!(exceeds(average(0, ALWAYS, u64::MAX), 1));
        assert!(!exceeds(u32::MAX - 1, u32::MAX));
    }
}
