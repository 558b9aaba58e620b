//! The published list of open sections (FreeBSD, 2019), modelled step by step from its description,
//! for the published tables.
//!
//! * A *begin* walks to the last element and reads its pair by a locked exchange, which takes the
//!   line. It writes its own pair, marked, links it by an exchange, and unmarks it by a store.
//! * An *end* walks to its predecessor and marks its own pair. It reads the predecessor's pair by a
//!   locked exchange, and passes its generation and the rest of the list to the predecessor by
//!   another exchange.
//!
//! An operation that meets a mark, or whose exchange fails, starts over from the head after a
//! [`Delay`], which doubles with each restart of the same operation. The number of restarts is not
//! limited.
//!
//! Counts were published, so the measured kernel was one that counts: its threads share the
//! counters, which are written at every restart and read by every begin.
//!
//! A pair has sixteen bytes in the kernel and eight here, so generations are shorter here. The
//! traffic of lines is the same.

use super::Delay;
use crate::locks::{Lock, observed};
use crate::platform::SimU64;
use kinlock_core::platform::{Atomic, Ordering::*};
use std::cell::Cell;

/// Bits of a pair: the next element, a thread's number + 1 (0 = none), then the mark, then the
/// generation.
const MARK: u64 = 1 << 13;
const NEXT: u64 = MARK - 1;
const GENERATION: u64 = MARK << 1;

fn next_of(pair: u64) -> u64 {
    pair & NEXT
}

fn is_marked(pair: u64) -> bool {
    pair & MARK != 0
}

#[repr(align(128))]
struct Element(SimU64);

impl Element {
    /// Reads the pair by an exchange that changes nothing, as a machine does that has no plain load
    /// of sixteen bytes. `None`: it is marked.
    fn read_whole(&self) -> Option<u64> {
        let pair = match self.0.compare_exchange(0, 0, AcqRel, Relaxed) {
            Ok(pair) | Err(pair) => pair,
        };
        (!is_marked(pair)).then_some(pair)
    }

    fn exchange(&self, current: u64, new: u64) -> bool {
        let done = self.0.compare_exchange(current, new, AcqRel, Relaxed);
        done.is_ok()
    }
}

struct List {
    head: Element,
    /// Whether a thread waits. An end reads this; nothing writes it here.
    waiters: Element,
    elements: &'static [Element],
    counts: Counts,
    /// The number of ended sections, counted outside of the machine.
    sections: Cell<u64>,
}

/// The counters lie side by side, as in the kernel.
#[repr(align(128))]
struct Counts {
    begin_restarts: SimU64,
    end_restarts: SimU64,
    longest: SimU64,
}

pub(super) fn place(threads: usize) -> &'static dyn Lock {
    List::new(threads)
}

impl List {
    fn new(threads: usize) -> &'static Self {
        assert!(threads < MARK as usize);
        crate::place(List {
            sections: Cell::new(0),
            head: Element(SimU64::new(GENERATION)),
            waiters: Element(SimU64::new(0)),
            elements: crate::place_slice(threads, |_| Element(SimU64::new(MARK))),
            counts: Counts {
                begin_restarts: SimU64::new(0),
                end_restarts: SimU64::new(0),
                longest: SimU64::new(0),
            },
        })
    }

    fn element(&self, name: u64) -> &Element {
        &self.elements[name as usize - 1]
    }

    /// The element that `name` follows, or the last one if `name` is 0, and the number of elements
    /// visited. `None`: an element is marked, or the walk has missed the name.
    fn before(&self, name: u64) -> Option<(&Element, u64)> {
        let (mut at, mut visited) = (&self.head, 1);
        loop {
            let seen = at.0.load(Acquire);
            match next_of(seen) {
                _ if is_marked(seen) => return None,
                next if next == name => return Some((at, visited)),
                0 => return None,
                next => at = self.element(next),
            }
            visited += 1;
        }
    }

    fn try_begin(&self, name: u64) -> Option<()> {
        let (last, visited) = self.before(0)?;
        let longest = &self.counts.longest;
        let before = longest.load(Relaxed);
        if before < visited {
            // The count is lost if another thread has counted since.
            let _ = longest.compare_exchange(before, visited, Relaxed, Relaxed);
        }
        let seen = last.read_whole().filter(|&pair| next_of(pair) == 0)?;
        let own = &self.element(name).0;
        let mine = seen + GENERATION;
        own.store(mine | MARK, Release);
        last.exchange(seen, seen | name).then_some(())?;
        own.store(mine, Release);
        Some(())
    }

    fn try_end(&self, name: u64) -> Option<()> {
        let (before, _) = self.before(name)?;
        let own = &self.element(name).0;
        own.fetch_add(MARK, AcqRel);
        // From here on no other thread changes the pair.
        let mine = own.load(Acquire) - MARK;
        let seen = before.read_whole().filter(|&pair| next_of(pair) == name);
        if seen.is_some_and(|seen| before.exchange(seen, mine)) {
            return Some(());
        }
        own.swap(mine, AcqRel);
        None
    }
}

/// Tries until an attempt succeeds, with a delay before each further attempt, and counts these.
fn until_done(restarts: &SimU64, attempt: impl Fn() -> Option<()>) {
    let mut delay = Delay::new();
    while attempt().is_none() {
        restarts.fetch_add(1, Relaxed);
        delay.wait();
    }
}

impl Lock for List {
    fn lock(&self, me: usize) {
        let restarts = &self.counts.begin_restarts;
        until_done(restarts, || self.try_begin(me as u64 + 1));
    }

    fn unlock(&self, me: usize) {
        let restarts = &self.counts.end_restarts;
        until_done(restarts, || self.try_end(me as u64 + 1));
        self.sections.set(self.sections.get() + 1);
        self.waiters.0.glance(Relaxed);
    }

    fn observed(&self) -> Vec<(&'static str, f64)> {
        let counts = [
            (observed::BEGIN_RESTARTS, &self.counts.begin_restarts),
            (observed::END_RESTARTS, &self.counts.end_restarts),
            (observed::LONGEST_QUEUE, &self.counts.longest),
        ];
        let read = |(name, count): (_, &SimU64)| (name, count.load(Relaxed) as f64);

        let mut all = counts.map(read).to_vec();
        let sections = self.sections.get().max(1) as f64;
        let per_section = |(name, at): (_, usize)| (name, all[at].1 / sections);
        let [begins, ends] = observed::RESTARTS;
        all.extend([per_section((begins, 0)), per_section((ends, 1))]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::{TURNS, play};

    #[test]
    fn every_section_gets_a_generation_and_the_head_ends_with_the_newest() {
        const THREADS: usize = 5;
        for seed in 0..50 {
            let end = play(
                THREADS,
                seed,
                || List::new(THREADS),
                |list, me, _| {
                    list.lock(me);
                    list.unlock(me);
                },
                |list| {
                    let pair = |element: &Element| element.0.load(Relaxed);
                    let left = list.elements.iter().filter(|one| !is_marked(pair(one)));
                    let head = pair(&list.head);
                    (next_of(head), left.count(), head / GENERATION)
                },
            );
            assert_eq!(end, Some((0, 0, (1 + THREADS * TURNS) as u64)), "{seed}");
        }
    }
}
