//! Waits, snapshots and statistics.

use super::{Holder, MOMENT, stamped};
use kinlock_invalidation::{Backend, Domain, Tag, WaitError};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

pub fn waiting_within_an_invalidation_is_an_error(domain: Domain) {
    let section = domain.begin();
    let tag = stamped(&section);
    assert_eq!(domain.wait(&tag), Err(WaitError::InsideSection));
    assert_eq!(domain.wait(&Tag::new()), Err(WaitError::InsideSection));
    assert_eq!(domain.wait_all(), Err(WaitError::InsideSection));
    assert_eq!(
        domain.wait_timeout(&tag, Duration::from_secs(60)),
        Err(WaitError::InsideSection)
    );
    drop(section);
    assert_eq!(domain.wait(&tag), Ok(()));
}

pub fn domains_are_independent(domain: Domain) {
    let other = Domain::with_backend(domain.backend());
    let section = other.begin();
    let own = domain.begin();
    let tag = stamped(&own);
    drop(own);
    // This thread waits within a section of the other domain.
    assert_eq!(domain.wait(&tag), Ok(()));
    assert_eq!((other.dump().len(), domain.dump().len()), (1, 0));
    drop(section);
}

pub fn a_wait_can_time_out(domain: Domain) {
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let start = Instant::now();
        assert_eq!(
            domain.wait_timeout(holder.tag, MOMENT),
            Err(WaitError::TimedOut)
        );
        assert!(start.elapsed() >= MOMENT);
        assert_eq!(
            domain.wait_timeout(holder.tag, Duration::ZERO),
            Err(WaitError::TimedOut)
        );
        let tag = holder.tag;
        holder.end();
        assert_eq!(domain.wait_timeout(tag, Duration::ZERO), Ok(()));
    });
}

pub fn many_sleepers_are_woken(domain: Domain) {
    thread::scope(|s| {
        let first = Holder::start(s, &domain);
        let second = Holder::start(s, &domain);
        let (early, late) = (first.tag, second.tag);
        let waiters: Vec<_> = (0..8)
            .map(|i| {
                let (domain, tag) = (&domain, if i % 2 == 0 { early } else { late });
                s.spawn(move || domain.wait(tag))
            })
            .collect();
        while domain.stats().slow_waits < 8 {
            thread::yield_now();
        }
        thread::sleep(MOMENT);
        first.end();
        for waiter in waiters.into_iter().step_by(2) {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert!(!domain.passed(late));
        second.end();
    });
}

pub fn a_snapshot_covers_what_is_open_and_no_more(domain: Domain) {
    assert!(domain.passed(&domain.snapshot()));
    thread::scope(|s| {
        let older = Holder::start(s, &domain);
        let snapshot = domain.snapshot();
        let younger = Holder::start(s, &domain);
        assert!(!domain.passed(&snapshot));
        older.end();
        assert!(domain.passed(&snapshot));
        assert!(!domain.passed(&domain.snapshot()));
        younger.end();
        assert!(domain.passed(&domain.snapshot()));
    });
}

pub fn everything_open_can_be_waited_for(domain: Domain) {
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let (a, b) = (Holder::start(s, &domain), Holder::start(s, &domain));
        let waiter = s.spawn(|| {
            domain.wait_all().unwrap();
            assert!(done.load(Acquire));
        });
        thread::sleep(MOMENT);
        b.end();
        done.store(true, Release);
        a.end();
        waiter.join().unwrap();
    });
}

pub fn what_is_open_can_be_seen(domain: Domain) {
    assert!(domain.dump().is_empty());
    let start = Instant::now();
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let section = domain.begin();
        let mut open = domain.dump();
        // The clock of ages may stand still for a while.
        while open[0].age < MOMENT && start.elapsed() < Duration::from_secs(300) {
            thread::yield_now();
            open = domain.dump();
        }
        assert_eq!(open.len(), 2);
        assert_eq!(
            (open[0].generation, open[1].generation),
            (1, section.generation())
        );
        assert!(cfg!(miri) || open[0].thread != open[1].thread);
        // Not older than this test, except for the lag of a coarse clock.
        let oldest = start.elapsed() + Duration::from_secs(60);
        assert!((MOMENT..oldest).contains(&open[0].age));
        assert!(open[0].to_string().contains("generation 1, open for "));
        drop(section);
        let open = domain.dump();
        assert_eq!((open.len(), open[0].generation), (1, 1));
        // The older section passes on what the newer one donated; slots know no donations.
        let donated = domain.backend() != Backend::Slots;
        assert_eq!(open[0].current, 1 + donated as u64);
        assert_eq!(open[0].to_string().contains("(now 2)"), donated);
        holder.end();
    });
    assert!(domain.dump().is_empty());
}

pub fn waits_are_counted(domain: Domain) {
    let before = domain.stats();
    assert_eq!((before.waits, before.slow_waits), (0, 0));
    assert_eq!(before.backend, domain.backend());
    domain.wait(&Tag::new()).unwrap();
    assert_eq!(domain.stats().waits, 0);
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let mut waits = 0;
        // On a busy machine the time may be up before the thread falls asleep.
        while domain.stats().slow_waits == 0 {
            let _ = domain.wait_timeout(holder.tag, MOMENT * (1 << waits.min(6)));
            waits += 1;
        }
        assert_eq!(domain.stats().waits, waits);
        let timeout = domain.wait_timeout(holder.tag, Duration::ZERO);
        assert_eq!(timeout, Err(WaitError::TimedOut));
        let _section = domain.begin();
        holder.end();
    });
    let stats = domain.stats();
    assert_eq!(stats.slow_waits, 1);
    let longest = if domain.backend() == Backend::Slots {
        1
    } else {
        2
    };
    assert_eq!(stats.longest_queue, longest);
}

/// Without the error the wait would never end.
pub fn a_foreign_tag_is_an_error(domain: Domain) {
    let other = Domain::with_backend(domain.backend());
    drop(other.begin());
    let tag = stamped(&other.begin());
    drop(domain.begin());
    assert!(!domain.passed(&tag));
    // With a timeout, so that the test ends even if the wait would not.
    assert_eq!(
        domain.wait_timeout(&tag, MOMENT),
        Err(WaitError::ForeignTag)
    );
    // Once as many sections have begun here, the tag looks like one of this domain.
    drop(domain.begin());
    assert_eq!(domain.wait(&tag), Ok(()));
}
