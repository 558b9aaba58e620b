//! The guarantees of delayed invalidation, tested on every backend.
#![cfg(not(loom))]

mod processes;
mod threads;
mod waits;

use kinlock_invalidation::{Backend, Domain, NeverIssued, Tag};
use processes::*;
use std::thread;
use std::time::Duration;
use threads::*;
use waits::*;

/// Long enough for a thread to have fallen asleep.
const MOMENT: Duration = Duration::from_millis(if cfg!(miri) { 1 } else { 30 });

/// Makes each function a test for each backend.
macro_rules! contract {
    ($($(#[$attribute:meta])* $name:ident),* $(,)?) => {
        contract!(@locked Locked $($(#[$attribute])* $name),*);
        contract!(@slots Slots $($(#[$attribute])* $name),*);
    };
    (@$module:ident $backend:ident $($(#[$attribute:meta])* $name:ident),*) => {
        mod $module {
            $(
                #[test]
                $(#[$attribute])*
                fn $name() {
                    super::$name(super::Domain::with_backend(super::Backend::$backend));
                }
            )*
        }
    };
}

contract!(
    a_new_tag_has_passed,
    a_younger_invalidation_delays_no_wait,
    the_middle_may_end_first,
    nested_invalidations_end_with_the_outermost,
    waiting_within_an_invalidation_is_an_error,
    domains_are_independent,
    a_wait_can_time_out,
    many_sleepers_are_woken,
    a_snapshot_covers_what_is_open_and_no_more,
    everything_open_can_be_waited_for,
    what_is_open_can_be_seen,
    #[cfg_attr(
        miri,
        ignore = "in `slots` the time, counted in steps, is up before a thread sleeps"
    )]
    waits_are_counted,
    a_foreign_tag_is_an_error,
    a_tag_keeps_the_newest_stamp,
    a_stored_generation_comes_back_only_if_it_was_given_out,
    places_are_used_again,
    invalidations_publish_what_they_did,
    a_thread_local_may_hold_an_invalidation,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_child_has_its_own_invalidations_only,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_child_reads_no_places_that_were_never_used,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_child_without_invalidations_has_none,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_thread_must_not_end_within_an_invalidation,
);

fn stamped(section: &kinlock_invalidation::Section<'_>) -> Tag {
    let tag = Tag::new();
    section.tag(&tag);
    tag
}

/// A thread that keeps a section open until told otherwise.
struct Holder<'scope> {
    tag: &'static Tag,
    let_go: std::sync::mpsc::Sender<()>,
    thread: thread::ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Holder<'scope> {
    fn start<'env: 'scope>(
        scope: &'scope thread::Scope<'scope, 'env>,
        domain: &'env Domain,
    ) -> Self {
        let (let_go, told) = std::sync::mpsc::channel();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let tag: &'static Tag = Box::leak(Box::new(Tag::new()));
        let thread = scope.spawn(move || {
            let section = domain.begin();
            section.tag(tag);
            begun.send(()).unwrap();
            told.recv().unwrap();
        });
        has_begun.recv().unwrap();
        Holder {
            tag,
            let_go,
            thread,
        }
    }

    fn end(self) {
        self.let_go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn a_new_tag_has_passed(domain: Domain) {
    let tag = Tag::new();
    assert!(domain.passed(&tag));
    assert_eq!(domain.wait(&tag), Ok(()));
    let section = domain.begin();
    assert!(domain.passed(&tag));
    drop(section);
    // SAFETY: zeroed memory is a tag, as documented.
    let zeroed: Tag = unsafe { std::mem::zeroed() };
    assert!(domain.passed(&zeroed));
}

fn a_younger_invalidation_delays_no_wait(domain: Domain) {
    thread::scope(|s| {
        let section = domain.begin();
        let tag = stamped(&section);
        let younger = Holder::start(s, &domain);
        drop(section);
        assert!(domain.passed(&tag));
        assert_eq!(domain.wait(&tag), Ok(()));
        assert!(!domain.passed(younger.tag));
        younger.end();
    });
}

fn the_middle_may_end_first(domain: Domain) {
    thread::scope(|s| {
        let mut holders: Vec<_> = (0..5).map(|_| Holder::start(s, &domain)).collect();
        let tags: Vec<_> = holders.iter().map(|holder| holder.tag).collect();
        let passed = || -> Vec<bool> { tags.iter().map(|tag| domain.passed(tag)).collect() };
        // Of 0 1 2 3 4, first 2, 1 and 4 end, then 0, then 3.
        holders.remove(2).end();
        holders.remove(1).end();
        holders.pop().unwrap().end();
        assert_eq!(passed(), [false; 5]);
        holders.remove(0).end();
        assert_eq!(passed(), [true, true, true, false, false]);
        holders.remove(0).end();
        assert_eq!(passed(), [true; 5]);
    });
}

fn nested_invalidations_end_with_the_outermost(domain: Domain) {
    let outer = domain.begin();
    let tag = stamped(&outer);
    let inner = domain.begin();
    assert_eq!(inner.generation(), outer.generation());
    drop(inner);
    assert!(!domain.passed(&tag));
    let inner = domain.begin();
    // The outer section may be dropped first.
    drop(outer);
    assert!(!domain.passed(&tag));
    drop(inner);
    assert!(domain.passed(&tag));
    assert_eq!(domain.begin().generation(), 2);
}

fn a_tag_keeps_the_newest_stamp(domain: Domain) {
    let (tag, other) = (Tag::new(), Tag::new());
    thread::scope(|s| {
        let older = domain.begin();
        let younger = Holder::start(s, &domain);
        let newest = younger.tag.generation();
        let section = domain.begin();
        section.tag(&tag);
        assert_eq!(tag.generation(), older.generation());
        drop(section);
        s.spawn(|| domain.begin().tag(&other)).join().unwrap();
        assert!(other.generation() > newest);
        older.tag(&other);
        assert!(other.generation() > newest);
        drop(older);
        younger.end();
    });
    assert!(domain.passed(&tag));
}

fn a_stored_generation_comes_back_only_if_it_was_given_out(domain: Domain) {
    assert_eq!(domain.tag_of(1).unwrap_err(), NeverIssued(1));
    let section = domain.begin();
    let stored: u64 = stamped(&section).generation();
    let tag = domain.tag_of(stored).unwrap();
    assert!(!domain.passed(&tag));
    drop(section);
    assert_eq!(domain.wait(&tag), Ok(()));
    assert!(domain.passed(&domain.tag_of(0).unwrap()));
    let refused = domain.tag_of(u64::MAX).unwrap_err();
    assert!(refused.to_string().contains(&u64::MAX.to_string()));
}
