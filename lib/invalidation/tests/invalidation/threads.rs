//! Many threads at once, with an exact oracle.

use super::stamped;
use kinlock::SpinLock;
use kinlock_invalidation::{Domain, Tag};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::thread;

pub fn places_are_used_again(domain: Domain) {
    // More threads than places, one after the other.
    let threads = if cfg!(miri) { 40 } else { 300 };
    for _ in 0..threads {
        thread::scope(|s| {
            s.spawn(|| drop(domain.begin()));
        });
    }
    let tag = domain.snapshot();
    assert_eq!(tag.generation(), threads);
    assert!(domain.passed(&tag));
}

/// A thing that is removed under its lock, and of which a stale copy exists until the batch is
/// done.
struct Thing {
    state: SpinLock<State>,
    tag: Tag,
    stale: AtomicU32,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Used,
    Free,
    /// A thread is about to use it, and waits without holding the lock, since sections take it.
    Reserved,
}

/// The exact oracle: if a wait is left out or ends early, a reuser finds a stale copy.
pub fn reusers_never_meet_a_stale_copy(domain: Domain) {
    let rounds = if cfg!(miri) { 8 } else { 3000 };
    let met = churn(&domain, rounds, true);
    assert_eq!(met, 0);
    assert!(domain.dump().is_empty());
}

/// Removes, invalidates and reuses things in several threads. Returns how many stale copies were
/// found.
fn churn(domain: &Domain, rounds: usize, waits: bool) -> usize {
    const THINGS: usize = 8;
    let things: Vec<Thing> = (0..THINGS)
        .map(|_| Thing {
            state: SpinLock::new(State::Used),
            tag: Tag::new(),
            stale: AtomicU32::new(0),
        })
        .collect();
    let met = AtomicUsize::new(0);
    thread::scope(|s| {
        for me in 0..4usize {
            let (things, met) = (&things, &met);
            s.spawn(move || {
                for round in 0..rounds {
                    let section = domain.begin();
                    let mut batch = Vec::new();
                    for i in 0..3 {
                        let thing = &things[(me + round * 5 + i) % THINGS];
                        let mut state = thing.state.lock();
                        if *state == State::Used {
                            thing.stale.fetch_add(1, Relaxed);
                            *state = State::Free;
                            section.tag(&thing.tag);
                            batch.push(thing);
                        }
                    }
                    if round % 16 == me {
                        thread::yield_now();
                    }
                    for thing in batch {
                        thing.stale.fetch_sub(1, Relaxed);
                    }
                    drop(section);
                    for i in 0..3 {
                        let thing = &things[(me * 3 + round * 7 + i) % THINGS];
                        let mut state = thing.state.lock();
                        if *state != State::Free {
                            continue;
                        }
                        *state = State::Reserved;
                        drop(state);
                        if waits {
                            domain.wait(&thing.tag).unwrap();
                        }
                        // Relaxed: the wait provides the order.
                        met.fetch_add((thing.stale.load(Relaxed) != 0) as usize, Relaxed);
                        *thing.state.lock() = State::Used;
                    }
                }
            });
        }
    });
    met.into_inner()
}

#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn the_oracle_notices_a_missing_wait() {
    let domain = Domain::new();
    let mut met = 0;
    for _ in 0..100 {
        met += churn(&domain, 3000, false);
        if met > 0 {
            return;
        }
    }
    panic!("no stale copy was found without waiting");
}

/// Plain data written within a section is read after the wait. Miri and ThreadSanitizer report a
/// race if nothing orders the accesses.
pub fn invalidations_publish_what_they_did(domain: Domain) {
    struct Plain(std::cell::UnsafeCell<u64>);
    // SAFETY: this is what the test checks.
    unsafe impl Sync for Plain {}
    for round in 0..if cfg!(miri) { 3 } else { 200 } {
        let (cells, tag) = ([Plain(0.into()), Plain(0.into())], Tag::new());
        let (cells, tag, both) = (&cells, &tag, &Barrier::new(3));
        let domain = &domain;
        thread::scope(|s| {
            for cell in cells {
                s.spawn(move || {
                    let section = domain.begin();
                    section.tag(tag);
                    both.wait();
                    // SAFETY: no thread reads before the section has ended.
                    unsafe { *cell.0.get() = round + 1 };
                });
            }
            both.wait();
            domain.wait(tag).unwrap();
            for cell in cells {
                // SAFETY: both sections have ended, and are not newer than the tag.
                assert_eq!(unsafe { *cell.0.get() }, round + 1);
            }
        });
    }
}

/// The thread-local is used before the thread's first section, so that it is destroyed last.
pub fn a_thread_local_may_hold_an_invalidation(domain: Domain) {
    use std::cell::RefCell;
    thread_local! {
        static HELD: RefCell<Option<kinlock_invalidation::Section<'static>>> =
            const { RefCell::new(None) };
    }
    let domain: &'static Domain = Box::leak(Box::new(domain));
    let ends = || {
        HELD.with_borrow(|held| assert!(held.is_none()));
        let section = domain.begin();
        let tag = stamped(&section);
        HELD.set(Some(section));
        assert!(!domain.passed(&tag));
        tag
    };
    // A scope does not wait for destructors of thread-locals; `join` does.
    let tag = thread::spawn(ends).join().unwrap();
    assert!(domain.passed(&tag) && domain.dump().is_empty());
}
