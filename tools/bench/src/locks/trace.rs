//! Which thread held the lock before: holders note it under the lock, and each thread keeps its own
//! counts.

use std::num::NonZeroU32;

use serde::Serialize;

/// Lies next to the guarded value, and is touched only in the instrumented slice. It has two words,
/// so that a small value, its lock and this share one cache line: a second line would follow the
/// lock from CPU to CPU and double the time of a short critical section.
#[derive(Debug, Default)]
pub struct Trace {
    last: Option<Holder>,
    /// When the current run of holders from one domain began.
    run_start: u64,
}

const _: () = assert!(size_of::<Trace>() == 16);

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// The thread's number plus 1, so that an `Option` takes no more room.
    number: NonZeroU32,
    domain: u16,
}

/// How the lock travelled. Field names are those of the JSON report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Handoffs {
    /// The next holder was another thread of the same locality domain.
    pub local: u64,
    /// The next holder was a thread of another locality domain.
    pub remote: u64,
    /// The last holder took the lock again: no hand-off.
    pub retaken: u64,
    /// The longest acquisition that took the lock over from another domain.
    pub longest_remote_wait_ns: u64,
    /// The longest time in which all holders were from one domain before one from another came.
    pub longest_local_run_ns: u64,
}

/// How the lock travelled to one acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    First,
    Retaken,
    Local,
    Remote {
        /// How long all earlier holders had been from one domain, in ns.
        local_run: u64,
    },
}

impl Trace {
    /// Notes that thread number `thread`, now in `domain`, took the lock at `now`. Called under the
    /// lock.
    #[inline]
    pub fn acquired(&mut self, thread: usize, domain: u16, now: u64) -> Step {
        let number = NonZeroU32::MIN.saturating_add(thread as u32);
        let step = match self.last {
            None => Step::First,
            // If the kernel moved the thread between two of its holds, that is no hand-off.
            Some(last) if last.number == number => Step::Retaken,
            Some(last) if last.domain == domain => Step::Local,
            Some(_) => Step::Remote {
                local_run: now.saturating_sub(self.run_start),
            },
        };
        if matches!(step, Step::First | Step::Remote { .. }) {
            self.run_start = now;
        }
        self.last = Some(Holder { number, domain });
        step
    }
}

impl Handoffs {
    /// Counts an acquisition by its `step`, after a wait of `ns` nanoseconds.
    #[inline]
    pub fn note(&mut self, step: Step, ns: u64) {
        match step {
            Step::First => {}
            Step::Retaken => self.retaken += 1,
            Step::Local => self.local += 1,
            Step::Remote { local_run } => {
                self.remote += 1;
                self.longest_remote_wait_ns = self.longest_remote_wait_ns.max(ns);
                self.longest_local_run_ns = self.longest_local_run_ns.max(local_run);
            }
        }
    }

    /// Adds the counts of another thread, or round.
    pub fn add(&mut self, other: &Self) {
        self.local += other.local;
        self.remote += other.remote;
        self.retaken += other.retaken;
        self.longest_remote_wait_ns = self
            .longest_remote_wait_ns
            .max(other.longest_remote_wait_ns);
        self.longest_local_run_ns = self.longest_local_run_ns.max(other.longest_local_run_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_runs() {
        let mut trace = Trace::default();
        let mut counts = Handoffs::default();
        let mut acquired = |thread, domain, now| {
            let step = trace.acquired(thread, domain, now);
            counts.note(step, now);
            step
        };
        assert_eq!(acquired(0, 0, 100), Step::First);
        assert_eq!(acquired(0, 0, 110), Step::Retaken);
        assert_eq!(acquired(1, 0, 120), Step::Local);
        assert_eq!(acquired(2, 1, 150), Step::Remote { local_run: 50 });
        assert_eq!(acquired(1, 0, 160), Step::Remote { local_run: 10 });
        // The kernel has moved the thread to another domain: that is no hand-off.
        assert_eq!(acquired(1, 1, 170), Step::Retaken);
        assert_eq!((counts.local, counts.remote, counts.retaken), (1, 2, 2));
        assert_eq!(
            (counts.longest_local_run_ns, counts.longest_remote_wait_ns),
            (50, 160)
        );
        let mut sum = counts;
        sum.add(&Handoffs {
            longest_local_run_ns: 70,
            remote: 1,
            ..counts
        });
        assert_eq!((sum.local, sum.remote, sum.retaken), (2, 3, 4));
        assert_eq!(sum.longest_local_run_ns, 70);
    }
}
