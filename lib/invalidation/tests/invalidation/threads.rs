//! Many threads, one after the other or at once.

use super::stamped;
use kinlock_invalidation::{Domain, Tag};
use std::sync::Barrier;
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
