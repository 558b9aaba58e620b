//! Who held the lock before: counted by the holders themselves, under the lock.

/// Lives beside the guarded value; touched only in the instrumented slice.
#[derive(Debug, Default)]
pub struct Trace {
    last: Option<Holder>,
    counts: Handoffs,
    /// When the present run of holders from one domain began.
    run_start: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    thread: usize,
    domain: u16,
}

/// How the lock travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handoffs {
    /// The next holder was another thread of the same locality domain.
    pub local: u64,
    /// The next holder was a thread of another locality domain.
    pub remote: u64,
    /// The last holder took the lock again: no hand-off.
    pub retaken: u64,
    /// The longest time during which all holders were from one domain and then one from another came, in ns.
    pub longest_local_run: u64,
}

/// What became of the lock at one acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first acquisition of all.
    First,
    /// See [`Handoffs::retaken`].
    Retaken,
    /// See [`Handoffs::local`].
    Local,
    /// See [`Handoffs::remote`].
    Remote,
}

impl Trace {
    /// Notes that `thread`, now running in `domain`, took the lock at `now`. To be called under the lock.
    #[inline]
    pub fn acquired(&mut self, thread: usize, domain: u16, now: u64) -> Step {
        let step = match self.last {
            None => Step::First,
            // A thread that the kernel moved while it held nothing did not pass the lock to anyone.
            Some(last) if last.thread == thread => Step::Retaken,
            Some(last) if last.domain == domain => Step::Local,
            Some(_) => Step::Remote,
        };
        match step {
            Step::First => self.run_start = now,
            Step::Retaken => self.counts.retaken += 1,
            Step::Local => self.counts.local += 1,
            Step::Remote => {
                self.counts.remote += 1;
                let run = now.saturating_sub(self.run_start);
                self.counts.longest_local_run = self.counts.longest_local_run.max(run);
                self.run_start = now;
            }
        }
        self.last = Some(Holder { thread, domain });
        step
    }

    /// What has been counted.
    pub fn handoffs(&self) -> Handoffs {
        self.counts
    }
}

impl Handoffs {
    /// Adds another round's counts.
    pub fn add(&mut self, other: &Self) {
        self.local += other.local;
        self.remote += other.remote;
        self.retaken += other.retaken;
        self.longest_local_run = self.longest_local_run.max(other.longest_local_run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_runs() {
        let mut trace = Trace::default();
        assert_eq!(trace.acquired(0, 0, 100), Step::First);
        assert_eq!(trace.acquired(0, 0, 110), Step::Retaken);
        assert_eq!(trace.acquired(1, 0, 120), Step::Local);
        assert_eq!(trace.acquired(2, 1, 150), Step::Remote);
        assert_eq!(trace.acquired(1, 0, 160), Step::Remote);
        // Moved to the other domain by the kernel: still no hand-off.
        assert_eq!(trace.acquired(1, 1, 170), Step::Retaken);
        let counts = trace.handoffs();
        assert_eq!((counts.local, counts.remote, counts.retaken), (1, 2, 2));
        assert_eq!(counts.longest_local_run, 50);
    }
}
