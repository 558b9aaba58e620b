//! The predecessor of the published list, modelled step by step from the source of that kernel:
//! open sections in a list under a mutex, the newest first. Our own backend `locked` differs: it
//! appends to the end, and looks for sleepers after it has released the mutex.
//!
//! * A *begin* takes the generation after the first element's, and puts its own element first.
//! * An *end* passes its generation to the next older element. The end of the oldest section
//!   instead stores its generation as the newest that has passed. It does so, and looks for
//!   sleepers, under the spinlock of the sleepers' hash chain, and still under the mutex.

use super::Delay;
use crate::locks::Lock;
use crate::platform::{Sim, SimU32, SimU64};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// FreeBSD's adaptive mutex. A compare-and-swap takes it and another one releases it. A waiter
/// polls the word, with pauses that double. No waiter sleeps while the holder runs.
///
/// Without back-off, for comparison, waiters poll all the time.
struct Adaptive<const BACKS_OFF: bool>(SimU32);

const FREE: u32 = 0;
const HELD: u32 = 1;

impl<const BACKS_OFF: bool> Adaptive<BACKS_OFF> {
    fn new() -> Self {
        Adaptive(SimU32::new(FREE))
    }

    fn lock(&self) {
        let mut delay = Delay::new();
        while self
            .0
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            if !BACKS_OFF {
                Sim::wait(&self.0, Relaxed, |word| word == FREE);
                continue;
            }
            while self.0.load(Relaxed) != FREE {
                delay.wait();
            }
        }
    }

    fn unlock(&self) {
        let _ = self.0.compare_exchange(HELD, FREE, Release, Relaxed);
    }
}

/// A value on a line of its own.
#[repr(align(128))]
struct Alone<T>(T);

struct Tracked<const BACKS_OFF: bool> {
    mutex: Alone<Adaptive<BACKS_OFF>>,
    /// The newest open section, a thread's number + 1; 0 = none.
    first: Alone<SimU32>,
    /// The newest generation that has passed.
    passed: Alone<SimU64>,
    sleepers: Alone<Chain>,
    elements: &'static [Alone<Element>],
}

/// A chain of the hash table of sleepers.
struct Chain {
    lock: SimU32,
    first: SimU64,
}

struct Element {
    /// 0: not open.
    generation: SimU64,
    /// The section that began before this one, as a name; 0 = none.
    next: SimU32,
    /// The section that began after this one.
    previous: SimU32,
}

pub(super) fn place<const BACKS_OFF: bool>(threads: usize) -> &'static dyn Lock {
    Tracked::<BACKS_OFF>::new(threads)
}

impl<const BACKS_OFF: bool> Tracked<BACKS_OFF> {
    fn new(threads: usize) -> &'static Self {
        let element = |_| {
            Alone(Element {
                generation: SimU64::new(0),
                next: SimU32::new(0),
                previous: SimU32::new(0),
            })
        };
        crate::place(Tracked {
            mutex: Alone(Adaptive::new()),
            first: Alone(SimU32::new(0)),
            passed: Alone(SimU64::new(1)),
            sleepers: Alone(Chain {
                lock: SimU32::new(FREE),
                first: SimU64::new(0),
            }),
            elements: crate::place_slice(threads, element),
        })
    }

    fn element(&self, name: u32) -> &Element {
        &self.elements[name as usize - 1].0
    }

    /// The newest generation, which the first element has.
    fn newest(&self, first: u32) -> u64 {
        match first {
            0 => self.passed.0.load(Relaxed),
            first => self.element(first).generation.load(Relaxed),
        }
    }

    /// Called when the oldest section ends.
    fn pass(&self, generation: u64) {
        let chain = &self.sleepers.0;
        while chain
            .lock
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_err()
        {
            Sim::wait(&chain.lock, Relaxed, |word| word == FREE);
        }
        chain.first.load(Relaxed);
        self.passed.0.store(generation, Release);
        chain.lock.store(FREE, Release);
    }
}

impl<const BACKS_OFF: bool> Lock for Tracked<BACKS_OFF> {
    fn lock(&self, me: usize) {
        let name = me as u32 + 1;
        let own = self.element(name);
        self.mutex.0.lock();
        let first = self.first.0.load(Relaxed);
        own.generation.store(self.newest(first) + 1, Relaxed);
        own.next.store(first, Relaxed);
        if first != 0 {
            self.element(first).previous.store(name, Relaxed);
        }
        self.first.0.store(name, Relaxed);
        own.previous.store(0, Relaxed);
        self.mutex.0.unlock();
    }

    fn unlock(&self, me: usize) {
        let own = self.element(me as u32 + 1);
        self.mutex.0.lock();
        let (generation, next) = (own.generation.load(Relaxed), own.next.load(Relaxed));
        let previous = own.previous.load(Relaxed);
        if next == 0 {
            self.pass(generation);
        } else {
            let next = self.element(next);
            next.generation.store(generation, Relaxed);
            next.previous.store(previous, Relaxed);
        }
        match previous {
            0 => self.first.0.store(next, Relaxed),
            previous => self.element(previous).next.store(next, Relaxed),
        }
        self.mutex.0.unlock();
        own.generation.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::{TURNS, play};

    #[test]
    fn every_section_gets_a_generation_and_the_newest_has_passed_in_the_end() {
        const THREADS: usize = 5;
        for seed in 0..50 {
            let end = play(
                THREADS,
                seed,
                || Tracked::<true>::new(THREADS),
                |list, me, _| {
                    list.lock(me);
                    list.unlock(me);
                },
                |list| {
                    let words = [&list.first.0, &list.mutex.0.0, &list.sleepers.0.lock];
                    let words = words.map(|word| word.load(Relaxed));
                    (list.passed.0.load(Relaxed), words)
                },
            );
            let passed = (1 + THREADS * TURNS) as u64;
            assert_eq!(end, Some((passed, [0, FREE, FREE])), "{seed}");
        }
    }
}
