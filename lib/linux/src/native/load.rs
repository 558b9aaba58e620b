//! Whether the process is oversubscribed: threads that wait now, against CPUs that it may use now.
//!
//! Neither number is kept up to date by those who change it, since that would cost every wait. The
//! first slow path in each tick of the coarse clock (1 to 10 ms) takes a sample. All others read
//! the last answer, from a cache line that is written once per tick.
//!
//! A sample counts the threads in queues and the one that asks. If at least two threads queue, a
//! holder is added: a single one may be the holder itself, which has not left its node yet. A
//! thread between two waits is not counted. So the answer follows an average, which forgets a crowd
//! within some ten ticks.
//!
//! Counting the threads in queues reads a cache line of each thread that has ever waited. One slow
//! path reads a thousand lines at most: with more threads, a sample takes several ticks.
//!
//! The number of CPUs is read again every 100 ms at most, see [`cpus`](super::cpus): not in the
//! first sample, so that the first contended lock of a process is not delayed. A thread that may
//! run on one CPU only has to ask about all other threads. As long as such looks find nothing new,
//! the pause between them doubles, up to some ten seconds. Quotas are read every second at most. If
//! the kernel does not say how many CPUs there are, the process does not count as oversubscribed.

use super::{Native, clock, cpus, kept};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use kinlock_core::atomic::Atomics;
use kinlock_core::slots::{MAX_SLOTS, Waiters};

/// The last answer in bit 0, and above it the time of the sample. Starts with a sample long past.
static ANSWER: AtomicU64 = AtomicU64::new(0);
/// The average number of contenders, in sixteenths.
static AVERAGE: AtomicU32 = AtomicU32::new(0);
/// The CPUs on which the process may run; 0 = not counted yet.
static ALLOWED: AtomicU32 = AtomicU32::new(0);
/// The number of CPUs whose time the quotas of the process allow; `u32::MAX` = no limit is known.
static QUOTA: AtomicU32 = AtomicU32::new(u32::MAX);
/// When to count the CPUs again, and when to read the quotas.
static DUE: Due = Due::new();
static QUOTA_DUE: Due = Due::new();
/// The last pause between two looks at the number of CPUs.
static PAUSE: AtomicU64 = AtomicU64::new(0);
/// A count of waiting threads that is under way.
static COUNT: Count = Count::new();

/// The least time between two samples: the coarse clock may be finer than a tick.
const PERIOD: u64 = 1_000_000;
/// A sample that comes at least this long after the one before starts a new average.
const FORGOTTEN: u64 = 100_000_000;
/// The least time between two looks at the number of CPUs, and the least ratio of that time to the
/// duration of a look: with a thousand threads a look takes a millisecond.
const CPUS_PERIOD: u64 = 100_000_000;
const CPUS_SHARE: u64 = 100;
/// The longest pause between two looks that ask about all threads and find nothing new.
const CPUS_LONGEST: u64 = 12_800_000_000;
/// The least time between two readings of the quotas. Each opens files, and takes descriptors for
/// a moment.
const QUOTA_PERIOD: u64 = 1_000_000_000;

/// Contenders in each sample: the thread that asks, and a holder.
const ALWAYS: u32 = 2;
/// An average of one contender.
const ONE: u32 = 16;

/// See [`Platform::oversubscribed`](kinlock_core::platform::Platform::oversubscribed). `waiters`
/// returns the table of the threads that wait.
pub(super) fn oversubscribed(waiters: impl FnOnce() -> &'static Waiters<Native>) -> bool {
    let now = clock::coarse_now();
    let seen = ANSWER.load(Relaxed);
    if now.saturating_sub(seen >> 1) < PERIOD {
        return seen & 1 != 0;
    }
    sample(now, seen, waiters)
}

#[cold]
fn sample(now: u64, seen: u64, waiters: impl FnOnce() -> &'static Waiters<Native>) -> bool {
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
    let own = kept::slot();
    let gap = now.saturating_sub(seen >> 1);
    if gap > FORGOTTEN {
        COUNT.restart();
    }
    let waiters = waiters();
    let Some(waiting) = COUNT.proceed(waiters, cpus.saturating_mul(2), own) else {
        return before != 0;
    };
    // At most the number of threads that have ever waited.
    let contenders = contenders(waiting).min(waiters.in_use() + u32::from(own == 0));
    let average = average(AVERAGE.load(Relaxed), contenders, gap);
    AVERAGE.store(average, Relaxed);
    let answer = exceeds(average, cpus);
    // Fails if this thread has lost its CPU and another thread has taken the next sample.
    let _ = ANSWER.compare_exchange(taken, now << 1 | u64::from(answer), Relaxed, Relaxed);
    answer
}

/// The moment at which a thread is to look again; 0: no thread has asked yet.
struct Due(AtomicU64);

impl Due {
    const fn new() -> Self {
        Due(AtomicU64::new(0))
    }

    /// Whether the thread that asks is to look now. No other thread looks until this one has set
    /// the next moment. The first thread that asks does not look, so that the first contended lock
    /// is not delayed.
    fn is_now(&self, now: u64) -> bool {
        let due = self.0.load(Relaxed);
        let is_now = due != 0 && now >= due;
        if due == 0 || is_now {
            self.0
                .store(if is_now { u64::MAX } else { now + 1 }, Relaxed);
        }
        is_now
    }

    fn set(&self, moment: u64) {
        self.0.store(moment, Relaxed);
    }
}

/// A count of the threads that wait, in portions. Only the thread that takes a sample continues it.
struct Count {
    /// The first word of slots that has not been looked at; 0 = the count begins anew.
    word: AtomicU32,
    /// The number of claimed slots that have not been looked at.
    left: AtomicU32,
    waiting: AtomicU32,
}

impl Count {
    /// The number of words of 32 slots in a portion.
    const PORTION: u32 = 32;

    const fn new() -> Self {
        Count {
            word: AtomicU32::new(0),
            left: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    fn restart(&self) {
        self.word.store(0, Relaxed);
    }

    /// Counts another portion, except the slot `but`. After the last portion, returns the number of
    /// waiting threads, at most `most`.
    fn proceed<P: Atomics>(&self, waiters: &Waiters<P>, most: u32, but: u16) -> Option<u32> {
        let word = self.word.load(Relaxed);
        let (mut left, before) = match word {
            0 => (waiters.in_use(), 0),
            _ => (self.left.load(Relaxed), self.waiting.load(Relaxed)),
        };
        let next = word + Self::PORTION;
        let more = most.saturating_sub(before);
        let waiting =
            before + waiters.waiting_in(word as usize..next as usize, &mut left, more, but);
        if left == 0 || waiting >= most || next as usize * 32 > MAX_SLOTS {
            self.restart();
            return Some(waiting);
        }
        self.left.store(left, Relaxed);
        self.waiting.store(waiting, Relaxed);
        self.word.store(next, Relaxed);
        None
    }
}

/// The number of threads that contend if one asks and `waiting` others are in queues.
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
    if DUE.is_now(now) {
        look_at_cpus();
    }
    if QUOTA_DUE.is_now(now) {
        look_at_quota();
    }
    let allowed = match ALLOWED.load(Relaxed) {
        // The first sample looks at this thread only: asking about all threads would take longer.
        0 => cpus::of_calling_thread(),
        counted => counted,
    };
    allowed.min(QUOTA.load(Relaxed))
}

#[cold]
#[inline(never)]
fn look_at_cpus() {
    let begin = clock::now();
    let before = ALLOWED.load(Relaxed);
    let allowed = cpus::allowed(before);
    ALLOWED.store(allowed.count, Relaxed);
    let end = clock::now();
    let in_vain = allowed.asked_all && allowed.count == before;
    let pause = pause_after(PAUSE.load(Relaxed), in_vain, end.saturating_sub(begin));
    PAUSE.store(pause, Relaxed);
    DUE.set(end + pause);
}

#[cold]
#[inline(never)]
fn look_at_quota() {
    let begin = clock::now();
    // If the quota cannot be read, the last answer stands.
    if let Some(quota) = cpus::quota() {
        QUOTA.store(quota, Relaxed);
    }
    let end = clock::now();
    let pause = end.saturating_sub(begin).saturating_mul(CPUS_SHARE);
    QUOTA_DUE.set(end + pause.max(QUOTA_PERIOD));
}

/// The pause after a look at the CPUs that took `took` nanoseconds, where `last` was the pause
/// before. `in_vain`: the look asked about all threads, and found nothing new.
fn pause_after(last: u64, in_vain: bool, took: u64) -> u64 {
    let pause = match in_vain {
        true => last.saturating_mul(2).min(CPUS_LONGEST),
        false => 0,
    };
    pause.max(CPUS_PERIOD).max(took.saturating_mul(CPUS_SHARE))
}

/// In the child of a fork: the thread that was looking does not exist here.
pub(super) fn reset_in_child() {
    DUE.set(0);
    QUOTA_DUE.set(0);
    PAUSE.store(0, Relaxed);
    COUNT.restart();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;

    /// The number of samples until the answer is `wanted`.
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

    /// A table in which every `each`th of `used` slots waits.
    fn table(used: usize, each: usize) -> &'static Waiters<crate::Native> {
        use kinlock_core::slots::Slot;
        let slots = (0..used).map(|_| Slot::new()).collect::<Vec<_>>().leak();
        let claimed = (0..used.div_ceil(32)).map(|_| AtomicU32::new(0));
        let claimed = claimed.collect::<Vec<_>>().leak();
        let table = Waiters::new(slots, claimed, Box::leak(Box::new(AtomicU32::new(0))));
        for n in 0..used {
            let slot = table.claim().expect("a free slot");
            if n % each == 0 {
                table.claim_node(slot).expect("a free node");
            }
        }
        Box::leak(Box::new(table))
    }

    /// One slow path looks at a thousand threads at most, and the sum is right in the end.
    #[test]
    fn many_threads_are_counted_in_portions() {
        let most = |used, each, most| {
            let (table, count) = (table(used, each), Count::new());
            (1..100).find_map(|n| Some((n, count.proceed(table, most, 0)?)))
        };
        assert_eq!(most(900, 9, 1000), Some((1, 100)));
        assert_eq!(most(1024, 8, 1000), Some((1, 128)));
        assert_eq!(most(2500, 100, 1000), Some((3, 25)));
        assert_eq!(most(2500, 1, 8), Some((1, 8)), "enough to know");
        assert_eq!(most(MAX_SLOTS, MAX_SLOTS, 8), Some((16, 1)));
        // The next count begins anew, also after a pause in the middle.
        let (table, count) = (table(2500, 100), Count::new());
        assert_eq!(count.proceed(table, 1000, 0), None);
        count.restart();
        for _ in 0..2 {
            let portions = [(); 3].map(|()| count.proceed(table, 1000, 1));
            assert_eq!(portions, [None, None, Some(24)]);
        }
    }

    #[test]
    fn one_thread_looks_when_it_is_due() {
        let due = Due::new();
        assert_eq!(
            [5, 5, 6, 7].map(|now| due.is_now(now)),
            [false, false, true, false]
        );
        due.set(9);
        assert_eq!([8, 9, 9].map(|now| due.is_now(now)), [false, true, false]);
    }

    #[test]
    fn to_ask_about_all_threads_in_vain_becomes_rare() {
        let took = 1_000_000;
        let mut pause = pause_after(0, true, took);
        assert_eq!(pause, CPUS_PERIOD);
        for _ in 0..7 {
            let next = pause_after(pause, true, took);
            assert_eq!(next, 2 * pause);
            pause = next;
        }
        assert_eq!(pause_after(pause, true, took), CPUS_LONGEST);
        assert_eq!(pause_after(pause, false, took), CPUS_PERIOD, "a change");
        assert_eq!(
            pause_after(pause, true, CPUS_LONGEST),
            CPUS_LONGEST * CPUS_SHARE
        );
    }

    #[test]
    fn two_contenders_crowd_one_cpu() {
        assert!(exceeds(average(0, ALWAYS, u64::MAX), 1));
        assert!(!exceeds(u32::MAX - 1, u32::MAX));
    }
}
