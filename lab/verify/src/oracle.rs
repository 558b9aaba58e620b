//! The state that a lock under test protects. It shows whether two threads were inside at once.
//!
//! Everything here is async-signal-safe: signal handlers enter critical sections, too.

use crate::report::Verdict;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const WORDS: usize = 6;

/// Some words that are all equal whenever no thread is inside, and the name of the thread inside.
///
/// The words are updated by separate loads and stores, far enough apart in time for a second thread
/// to come in between. So a lock that lets two threads in loses updates.
#[derive(Debug, Default)]
pub struct SharedState {
    /// The thread inside; 0 = none.
    holder: AtomicU32,
    words: [AtomicU64; WORDS],
    violations: AtomicU64,
    first: FirstViolation,
}

#[derive(Debug, Default)]
struct FirstViolation {
    kind: AtomicU32,
    thread: AtomicU32,
    expected: AtomicU64,
    found: AtomicU64,
}

const OCCUPIED: u32 = 1;
const TORN: u32 = 2;
const JOINED: u32 = 3;

impl SharedState {
    /// State that no thread has touched.
    pub fn new() -> Self {
        Self::default()
    }

    /// What a thread does while it holds the lock: checks and changes everything. `me` must differ
    /// between threads and not be 0. `pause` is called where an interruption is most likely to show
    /// a violation.
    pub fn section(&self, me: u32, mut pause: impl FnMut()) {
        let before = self.holder.load(Relaxed);
        if before != 0 {
            self.violated(OCCUPIED, me, 0, before.into());
        }
        self.holder.store(me, Relaxed);
        pause();
        let value = self.words[0].load(Relaxed);
        for (i, word) in self.words.iter().enumerate() {
            let found = word.load(Relaxed);
            if found != value {
                self.violated(TORN, me, value, found);
            }
            if i == WORDS / 2 {
                pause();
            }
            word.store(found.wrapping_add(1), Relaxed);
        }
        pause();
        let after = self.holder.load(Relaxed);
        if after != me {
            self.violated(JOINED, me, me.into(), after.into());
        }
        self.holder.store(0, Relaxed);
    }

    /// What a thread does while it reads: checks everything.
    pub fn look(&self, me: u32, mut pause: impl FnMut()) {
        let value = self.words[0].load(Relaxed);
        pause();
        for word in &self.words {
            let found = word.load(Relaxed);
            if found != value {
                self.violated(TORN, me, value, found);
            }
        }
        let writer = self.holder.load(Relaxed);
        if writer != 0 {
            self.violated(OCCUPIED, me, 0, writer.into());
        }
    }

    /// Judges what has been seen so far.
    pub fn no_violation(&self) -> Result<(), String> {
        match self.violations.load(Relaxed) {
            0 => Ok(()),
            seen => Err(format!(
                "{seen} violations; the first: {}",
                self.first.describe()
            )),
        }
    }

    /// Judges the state after all threads have left: it must count exactly `sections` sections.
    pub fn verdict(&self, sections: u64) -> Verdict {
        self.no_violation()?;
        for (i, word) in self.words.iter().enumerate() {
            let count = word.load(Relaxed);
            if count != sections {
                return Err(format!(
                    "word {i} counts {count} of {sections} sections: updates were lost"
                ));
            }
        }
        Ok(format!("{sections} sections"))
    }

    fn violated(&self, kind: u32, thread: u32, expected: u64, found: u64) {
        self.violations.fetch_add(1, Relaxed);
        let first = &self.first;
        let claimed = first.kind.compare_exchange(0, kind, Relaxed, Relaxed);
        if claimed.is_ok() {
            first.thread.store(thread, Relaxed);
            first.expected.store(expected, Relaxed);
            first.found.store(found, Relaxed);
        }
    }
}

impl FirstViolation {
    fn describe(&self) -> String {
        let thread = self.thread.load(Relaxed);
        let (expected, found) = (self.expected.load(Relaxed), self.found.load(Relaxed));
        match self.kind.load(Relaxed) {
            OCCUPIED => format!("thread {thread} entered while thread {found} was inside"),
            TORN => format!(
                "thread {thread} found {found} where {expected} belongs, a half-done update"
            ),
            _ => format!("thread {thread} was joined inside by thread {found}"),
        }
    }
}
