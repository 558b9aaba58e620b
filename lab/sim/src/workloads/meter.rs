//! Measurements while a simulation runs. Measuring takes no simulated time.

use crate::coherence::Traffic;
use crate::locks::Lock;
use crate::platform::{Sim, SimU64};
use crate::world::{COUNTED, World, with};
use hdrhistogram::Histogram;
use kinlock_core::platform::{Atomic, Platform};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The meter of a run.
pub type SharedMeter = Rc<RefCell<Meter>>;

/// The lock under test, with a meter on it.
#[derive(Clone)]
pub struct Metered {
    lock: &'static dyn Lock,
    meter: SharedMeter,
    /// The thread that took the lock last, and its locality domain.
    last: Rc<Cell<Option<(usize, u16)>>>,
}

impl Metered {
    pub(crate) fn new(lock: &'static dyn Lock, meter: SharedMeter) -> Self {
        meter.borrow_mut().locks.push(lock);
        Metered {
            lock,
            meter,
            last: Rc::default(),
        }
    }

    /// Takes the lock.
    pub fn lock(&self, me: usize) {
        let since = with(|w| w.now());
        self.lock.lock(me);
        with(|w| w.trace_acquired(since));
        self.acquired(me, since, false);
    }

    /// Words in the lock's own line, or in one of their own if the lock has none.
    pub(super) fn beside(&self) -> &'static [SimU64; 2] {
        let place = || crate::place([SimU64::new(0), SimU64::new(0)]);
        self.lock.beside().unwrap_or_else(place)
    }

    /// Takes the lock for reading.
    pub fn read(&self, me: usize) {
        let since = with(|w| w.now());
        self.lock.read(me);
        self.acquired(me, since, true);
    }

    /// Ends reading.
    pub fn unlock_read(&self, me: usize) {
        self.lock.unlock_read(me);
    }

    /// Releases the lock.
    pub fn unlock(&self, me: usize) {
        with(World::trace_released);
        self.lock.unlock(me);
    }

    fn acquired(&self, me: usize, since: u64, reads: bool) {
        let here = (me, Sim::domain());
        let last = self.last.replace(Some(here));
        self.meter.borrow_mut().acquired(here, last, since, reads);
    }
}

/// The counters of a run.
pub struct Meter {
    pub(crate) per_thread: Vec<u64>,
    waits: Histogram<u64>,
    pub(crate) longest: Longest,
    /// Of waits that ended after the end of the run and were longer than all that ended in it.
    pub(crate) unended: Longest,
    /// How many acquisitions were for reading.
    pub(crate) reads: u64,
    pub(crate) handoffs: Handoffs,
    pub(crate) acquisitions: u64,
    pub(crate) bursts: Option<Bursts>,
    pub(crate) waited: Vec<Waited>,
    /// The locks under test.
    locks: Vec<&'static dyn Lock>,
    /// The world's counts at the end of the warm-up.
    warm_up: Option<(Traffic, [u64; COUNTED])>,
}

/// Acquisitions by who the previous holder was.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Handoffs {
    /// Another thread of the same locality domain.
    pub local: u64,
    /// A thread of another locality domain.
    pub remote: u64,
    /// The same thread.
    pub retaken: u64,
}

impl Meter {
    pub(crate) fn new(threads: usize) -> Self {
        Meter {
            per_thread: vec![0; threads],
            waits: Histogram::new(3).expect("three digits are allowed"),
            longest: Longest::default(),
            unended: Longest::default(),
            reads: 0,
            handoffs: Handoffs::default(),
            acquisitions: 0,
            bursts: None,
            waited: Vec::new(),
            locks: Vec::new(),
            warm_up: None,
        }
    }

    pub(crate) fn add(&mut self, me: usize, ops: u64) {
        let (now, start, end) = with(|w| (w.now(), w.setup.start, w.setup.end));
        if now > start {
            self.end_warm_up();
            if now <= end {
                self.per_thread[me] += ops;
            }
        }
    }

    /// The sums of the locks' own counts.
    pub(crate) fn observed(&self) -> BTreeMap<&'static str, f64> {
        let mut sums = BTreeMap::new();
        for (name, count) in self.locks.iter().flat_map(|lock| lock.observed()) {
            *sums.entry(name).or_default() += count;
        }
        sums
    }

    /// Stores the world's counts of the warm-up, at the first call.
    pub(super) fn end_warm_up(&mut self) {
        self.warm_up
            .get_or_insert_with(|| with(|w| (w.traffic, w.counted)));
    }

    /// The world's counts at the end of the warm-up.
    pub(crate) fn warm_up(&self) -> (Traffic, [u64; COUNTED]) {
        self.warm_up.unwrap_or((Traffic::default(), [0; COUNTED]))
    }

    /// Counts a burst of work under a concurrency ID.
    pub(super) fn burst(&mut self, me: usize, burst: &Bursts) {
        self.per_thread[me] += 1;
        self.bursts.get_or_insert_default().add(burst);
    }

    pub(crate) fn acquire_ns(&self) -> Acquire {
        Acquire {
            p50: self.waits.value_at_quantile(0.5),
            p99: self.waits.value_at_quantile(0.99),
            p999: self.waits.value_at_quantile(0.999),
            max: self.longest.read.max(self.longest.write),
        }
    }

    /// Notes a wait for a lock of a recorded program that has just ended, if it lies between the
    /// warm-up and the end.
    pub(super) fn waited(&mut self, lock: usize, since: u64) {
        let counts = with(|w| since >= w.setup.start && w.now() <= w.setup.end);
        if !counts {
            return;
        }
        if self.waited.len() <= lock {
            self.waited.resize(lock + 1, Waited::default());
        }
        self.waited[lock].acquisitions += 1;
        self.waited[lock].wait_ns += with(|w| w.costs().nanos(w.now() - since));
    }

    fn acquired(
        &mut self,
        (me, domain): (usize, u16),
        last: Option<(usize, u16)>,
        since: u64,
        reads: bool,
    ) {
        let (now, nanos) = with(|w| (w.now(), w.costs().nanos(w.now() - since)));
        let (start, end) = with(|w| (w.setup.start, w.setup.end));
        if now <= start {
            return;
        }
        // A wait that lasts to the end of the run also counts: it may be the longest.
        self.waits
            .record(nanos as u64)
            .expect("the histogram grows");
        self.reads += u64::from(reads);
        let is_longest = self.longest.note(reads, nanos as u64);
        if now > end {
            if is_longest {
                self.unended.note(reads, nanos as u64);
            }
            return;
        }
        self.acquisitions += 1;
        match last {
            Some((thread, _)) if thread == me => self.handoffs.retaken += 1,
            Some((_, from)) if from == domain => self.handoffs.local += 1,
            _ => self.handoffs.remote += 1,
        }
    }
}

/// Quantiles of acquisition times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Acquire {
    /// The median.
    pub p50: u64,
    /// 99 % took no longer.
    pub p99: u64,
    /// 99.9 % took no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// The longest acquisitions in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Longest {
    /// For reading.
    pub read: u64,
    /// For writing.
    pub write: u64,
}

impl Longest {
    /// Whether it is longer than all before.
    fn note(&mut self, reads: bool, nanos: u64) -> bool {
        let longest = match reads {
            true => &mut self.read,
            false => &mut self.write,
        };
        let is_longer = nanos > *longest;
        *longest = (*longest).max(nanos);
        is_longer
    }
}

/// How threads waited for one of several locks.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Waited {
    /// How often the lock was taken.
    pub acquisitions: u64,
    /// The sum of the times from asking for the lock to having it, in nanoseconds.
    pub wait_ns: f64,
}

/// Bursts of work under concurrency IDs, summed up. Reports have the means.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Bursts {
    /// The number of bursts.
    pub count: u64,
    /// The sum of their times, in nanoseconds.
    pub nanos: f64,
    /// The sum of their IDs.
    pub ids: u64,
    /// The largest ID.
    pub largest: u32,
    /// The sum of the times that threads waited for their IDs, in nanoseconds; not part of `nanos`.
    pub waited_nanos: f64,
    /// The number of lines that came from elsewhere than the core's own caches.
    pub foreign_lines: u64,
    /// The number of bursts that were the first on their ID's area.
    pub first_touches: u64,
}

impl Bursts {
    /// Adds other bursts.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.nanos += other.nanos;
        self.ids += other.ids;
        self.largest = self.largest.max(other.largest);
        self.waited_nanos += other.waited_nanos;
        self.foreign_lines += other.foreign_lines;
        self.first_touches += other.first_touches;
    }

    /// The mean of a sum over bursts; 0 if there were none.
    pub fn mean(&self, sum: f64) -> f64 {
        sum / (self.count as f64).max(1.0)
    }
}

impl Serialize for Bursts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Bursts", 7)?;
        fields.serialize_field("bursts", &self.count)?;
        fields.serialize_field("ns_per_burst", &self.mean(self.nanos))?;
        fields.serialize_field("acquire_ns", &self.mean(self.waited_nanos))?;
        fields.serialize_field("mean_id", &self.mean(self.ids as f64))?;
        fields.serialize_field("max_id", &self.largest)?;
        fields.serialize_field("foreign_lines", &self.mean(self.foreign_lines as f64))?;
        fields.serialize_field("first_touches", &self.mean(self.first_touches as f64))?;
        fields.end()
    }
}
