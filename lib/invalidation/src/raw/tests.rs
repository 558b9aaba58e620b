//! Single steps, on domains whose state was made by hand.

use super::*;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueueKind;
use kinlock_linux::Native;

#[derive(Clone, Copy, Debug)]
struct Plain;
impl LockConfig for Plain {
    fn queue() -> QueueKind {
        QueueKind::Osq
    }
}
impl Config for Plain {}

type Of<B> = super::Domain<Native, Plain, B, Box<[Place<Native, <B as Backend<Native>>::Link>]>>;

fn domain<B: Backend<Native>>(backend: B, link: impl Fn() -> B::Link) -> Of<B> {
    super::Domain::new(backend, (0..3).map(|_| Place::new(link())).collect())
}

fn locked(generation: u64) -> Of<Locked<Native, Plain>> {
    domain(Locked::new(generation), Member::new)
}

fn slots(generation: u64) -> Of<Slots<Native>> {
    domain(Slots::new(generation), || Atomic::new(0))
}

/// A thread has stored the bound in its slot, but has not taken its ticket yet. A wait for
/// an older section is not for it.
#[test]
fn slots_wait_for_no_begin_without_a_ticket() {
    let domain = slots(3);
    // All slots are looked at.
    assert_eq!(domain.begin(3, || 0), Ok(4));
    domain.end(3);
    assert_eq!(domain.begin(1, || 0), Ok(5));
    // What `begin` does, by hand, with a bound that is as old as the open section.
    Atomic::store(&domain.places[1].link, 5 | BOUND, Relaxed);
    assert!(!domain.passed(5));
    domain.end(1);
    assert!(domain.passed(5));
    // The bound was raised. The begin will notice.
    assert_eq!(Atomic::load(&domain.places[1].link, Relaxed), 6 | BOUND);
    Atomic::store(&domain.places[1].link, 6, Relaxed);
    assert!(domain.passed(5));
    // What has passed stays passed.
    Atomic::store(&domain.places[2].link, 3, Relaxed);
    assert!(domain.passed(5));
}

/// The generation of another domain may be far above the ticket: no bound is raised that far.
#[test]
fn slots_raise_bounds_to_the_ticket_only() {
    let domain = slots(3);
    assert_eq!(domain.begin(3, || 0), Ok(4));
    domain.end(3);
    Atomic::store(&domain.places[1].link, 4 | BOUND, Relaxed);
    assert!(!domain.passed(1000));
    assert_eq!(Atomic::load(&domain.places[1].link, Relaxed), 5 | BOUND);
}

/// Waits for generation 1, which does not pass, until one of the waits has slept. On a busy machine
/// the time of a short wait is up before the thread falls asleep, however often it is tried.
fn time_out_asleep<B: Backend<Native>>(domain: &Of<B>) {
    let mut limit = 1_000_000;
    while domain.tally().slow_waits == 0 {
        assert!(!domain.wait(1, Native::now() + limit));
        limit *= 2;
    }
}

/// Waits for `generation` in another thread, and calls `meanwhile` when that thread sleeps.
fn with_sleeper<B: Backend<Native>>(domain: &Of<B>, generation: u64, meanwhile: impl FnOnce()) {
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| domain.wait(generation, NEVER));
        while domain.tally().slow_waits == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        meanwhile();
        assert!(sleeper.join().unwrap());
    });
}

/// Ends of sections for which no thread waits wake no thread.
fn wakes_only_who_may_go<B: Backend<Native>>(domain: &Of<B>) {
    for (place, generation) in [(1, 1), (2, 2)] {
        assert_eq!(domain.begin(place, || 0), Ok(generation));
    }
    with_sleeper(domain, 2, || {
        // Newer sections end, then an older one.
        for generation in 3..10 {
            assert_eq!(domain.begin(3, || 0), Ok(generation));
            domain.end(3);
        }
        domain.end(1);
        assert_eq!(domain.tally().wakes, 0, "{}", B::NAME);
        domain.end(2);
    });
    assert_eq!(domain.tally().wakes, 1, "{}", B::NAME);
}

#[test]
fn an_end_wakes_only_who_may_go() {
    wakes_only_who_may_go(&locked(0));
    wakes_only_who_may_go(&slots(0));
}

/// A waiter whose time is up leaves its generation behind; later waiters are still woken.
#[test]
fn a_wait_that_timed_out_is_in_nobodys_way() {
    fn check<B: Backend<Native>>(domain: &Of<B>) {
        domain.begin(1, || 0).unwrap();
        domain.begin(2, || 0).unwrap();
        time_out_asleep(domain);
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| domain.wait(2, NEVER));
            while domain.tally().slow_waits < 2 {
                std::thread::yield_now();
            }
            domain.end(1);
            domain.end(2);
            assert!(sleeper.join().unwrap());
        });
    }
    check(&locked(0));
    check(&slots(0));
}

#[test]
fn reports_show_a_section_that_begins() {
    let domain = slots(0);
    // The state in which a thread leaves its place if it is preempted before it takes its ticket.
    assert_eq!(domain.begin(1, || 0), Ok(1));
    Atomic::store(&domain.places[0].link, 4 | BOUND, Relaxed);
    Atomic::store(&domain.places[0].owner.begun, 0, Relaxed);
    let shown: Vec<_> = domain
        .sections()
        .map(|s| (s.generation, s.current))
        .collect();
    assert_eq!(shown, [(0, 4)]);
}

#[test]
fn generations_run_out_with_an_error() {
    fn check<B: Backend<Native>>(domain: &Of<B>, last: u64) {
        assert_eq!(domain.begin(1, || 0), Ok(last));
        assert_eq!(domain.begin(2, || 0), Err(NearWrap));
        // A nested begin needs no generation.
        assert_eq!(domain.begin(1, || 0), Ok(last));
        domain.end(1);
        domain.end(1);
        assert!(domain.passed(last));
        assert_eq!(domain.begin(1, || 0), Err(NearWrap));
        assert_eq!(domain.sections().count(), 0);
    }
    let last = u64::MAX - 1;
    check(&locked(last - 1), last);
    let last = (1 << 63) - (1 << 32);
    check(&slots(last - 1), last);
}
