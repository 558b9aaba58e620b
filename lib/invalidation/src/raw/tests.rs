//! Single steps, on lists whose state was made by hand.

#[path = "../../tests/defects/mod.rs"]
mod defects;

use self::defects::marked_early;
use super::*;
use kinlock_core::platform::{Atomics, NEVER};
use kinlock_core::raw::mutex::{QueueKind, QueuedMutex};
use kinlock_linux::Native;

#[derive(Clone, Copy, Debug)]
struct Plain;
impl LockConfig for Plain {
    fn queue() -> QueueKind {
        QueueKind::Osq
    }
}

#[derive(Clone, Copy, Debug)]
struct Sound;
impl Config for Sound {
    type Mutex = Plain;
}

type Pairs = PackedPair<Native>;
type Packed<C> = super::Packed<Native, C>;

struct Fixture<C: Config> {
    list: Packed<C>,
    places: Vec<Place<Native, Pairs>>,
    highest: <Native as Atomics>::AtomicU32,
    counts: Counts<Native>,
}

fn seen(generation: u64, next: u16, marked: bool) -> Seen {
    Seen {
        generation,
        next,
        marked,
    }
}

impl<C: Config> Fixture<C> {
    fn new(generation: u64) -> Self {
        Fixture {
            list: List::new(generation),
            places: (0..6).map(|_| Place::new(Pairs::new(0))).collect(),
            highest: Atomic::new(6),
            counts: Counts::new(),
        }
    }

    fn view(&self) -> Places<'_, Native, Pairs> {
        Places {
            all: &self.places,
            highest: &self.highest,
        }
    }

    fn begin(&self, me: u16) -> u64 {
        self.list.begin(self.view(), &self.counts, me).unwrap()
    }

    fn end(&self, me: u16) -> bool {
        self.list.end(self.view(), &self.counts, me).is_some()
    }

    fn element(&self, me: u16) -> &Pairs {
        &self.places[me as usize - 1].link
    }

    fn passed(&self, generation: u64) -> bool {
        self.list.passed(self.view(), generation)
    }

    fn newest(&self) -> u64 {
        self.list.newest(self.view())
    }
}

#[test]
fn elements_are_linked_in_order_and_generations_donated() {
    let f = Fixture::<Sound>::new(7);
    assert_eq!((f.begin(2), f.begin(5), f.begin(1)), (8, 9, 10));
    assert_eq!(f.element(2).load(), seen(8, 5, false));
    assert_eq!(f.element(5).load(), seen(9, 1, false));
    assert_eq!(f.element(1).load(), seen(10, 0, false));
    assert_eq!(f.counts.read().longest_queue, 3);

    // The middle one donates its generation to the one before it.
    assert!(!f.end(5));
    assert_eq!(f.element(2).load(), seen(9, 1, false));
    // The last one does, too: the list's newest generation is that of the one before.
    assert!(!f.end(1));
    assert_eq!(f.element(2).load(), seen(10, 0, false));
    assert!(f.passed(7) && !f.passed(8));
    assert_eq!(f.begin(5), 11);
    // The head advances to the generations that were donated to the first one.
    assert!(f.end(2));
    assert!(f.passed(10) && !f.passed(11));
    assert!(f.end(5));
    assert_eq!(f.newest(), 11);
    assert_eq!(f.counts.read().begin_restarts, 0);
}

#[test]
fn a_pair_keeps_its_parts_apart() {
    for generation in [0, 1, (1 << 50) - 1] {
        for next in [0, 1, 8191] {
            for marked in [false, true] {
                let pair = Pairs::new(0);
                pair.publish(seen(generation, next, marked));
                assert_eq!(pair.load(), seen(generation, next, marked));
                assert_eq!(pair.generation(), generation);
                if !marked {
                    assert_eq!(pair.mark(), seen(generation, next, false));
                    assert_eq!(pair.load(), seen(generation, next, true));
                }
            }
        }
    }
}

#[test]
fn what_is_marked_cannot_be_exchanged() {
    let pair = Pairs::new(3);
    let was = pair.load();
    pair.mark();
    assert!(!pair.exchange(was, seen(4, 0, false)));
    pair.publish(was);
    assert!(pair.exchange(was, seen(4, 0, false)));
}

/// Another thread marks the last element for a while. A begin starts over, counts that, and
/// succeeds when the mark is gone.
#[test]
fn a_mark_makes_beginners_start_over() {
    let f = Fixture::<Sound>::new(0);
    f.begin(1);
    let was = f.element(1).mark();
    std::thread::scope(|s| {
        let beginner = s.spawn(|| f.begin(2));
        // The count appears only when the begin is done, so wait until it holds the starter lock.
        while !f.list.starter.is_locked() {
            std::thread::yield_now();
        }
        assert!(!beginner.is_finished());
        f.element(1).publish(was);
        assert_eq!(beginner.join().unwrap(), 2);
    });
    assert!(f.counts.read().begin_restarts as u32 >= Sound::PATIENCE);
    assert_eq!(f.element(1).load(), seen(1, 2, false));
}

/// The predecessor is marked, as if it were ending. The end of the successor takes its own mark
/// back and tries again.
#[test]
fn an_end_waits_for_its_predecessors_mark() {
    /// Returns whether the ender met the mark, which is there for this many milliseconds.
    fn met(milliseconds: u64) -> bool {
        let f = Fixture::<Sound>::new(0);
        f.begin(1);
        f.begin(2);
        let was = f.element(1).mark();
        std::thread::scope(|s| {
            let ender = s.spawn(|| f.end(2));
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            assert!(!ender.is_finished());
            f.element(1).publish(was);
            assert!(!ender.join().unwrap());
        });
        assert_eq!(f.element(1).load(), seen(2, 0, false));
        f.counts.read().end_restarts > 0
    }
    // The restarts are counted only when the end is done, and a busy machine may start its thread
    // late.
    assert!((0..12).any(|doublings| met(20 << doublings)));
}

/// A walk misses its target: an element that left and joined again at the end is behind the target.
#[test]
fn a_search_may_miss() {
    let f = Fixture::<Sound>::new(0);
    f.begin(1);
    f.begin(2);
    f.begin(3);
    let stale = f.element(1).load();
    assert!(f.end(1));
    assert_eq!(f.begin(1), 4);
    // head -> 2 -> 3 -> 1. A walk that stood on 1 when it left goes on from the end, and finds
    // neither 2 nor 3.
    assert_eq!(f.element(1).load(), seen(4, 0, false));
    assert!(!f.element(1).exchange(stale, seen(9, 3, false)));
    assert!(f.list.predecessor(f.view(), 4).is_none());
    let (before, was) = f.list.predecessor(f.view(), 1).unwrap();
    assert!(core::ptr::eq(before, f.element(3)) && was == seen(3, 1, false));
}

/// The sound list and the defect differ while an end searches for its predecessor: the defect has
/// marked its own element by then.
#[test]
fn only_the_defect_marks_before_it_has_found() {
    fn marked_while_searching<B: Backend<Native, Link = Pairs>>(backend: B, checks: u64) -> bool {
        let domain = domain(backend, || Pairs::new(0));
        (1..=3).for_each(|place| assert_eq!(domain.begin(place, || 0), Ok(place.into())));
        let element = |place: usize| &domain.places[place - 1].link;
        // The search cannot get past 1.
        let was = element(1).mark();
        let mut ever = false;
        std::thread::scope(|s| {
            let ender = s.spawn(|| domain.end(3));
            for _ in 0..checks {
                ever |= element(3).load().marked;
                if ever {
                    break;
                }
                std::hint::spin_loop();
            }
            element(1).publish(was);
            ender.join().unwrap();
        });
        ever
    }
    let list = || Packed::<Sound>::new(0);
    assert!(!marked_while_searching(list(), 20_000));
    // No limit, since the other thread may wait long for a CPU.
    assert!(marked_while_searching(marked_early(list()), u64::MAX));
}

#[test]
fn generations_run_out() {
    let f = Fixture::<Sound>::new(Pairs::NEWEST - 1);
    assert_eq!(f.begin(1), Pairs::NEWEST);
    assert_eq!(f.list.begin(f.view(), &f.counts, 2), Err(NearWrap));
    assert!(f.end(1));
    assert_eq!(f.list.begin(f.view(), &f.counts, 2), Err(NearWrap));
    assert!(f.passed(Pairs::NEWEST));
}

type Of<B> = super::Domain<Native, Sound, B, Box<[Place<Native, <B as Backend<Native>>::Link>]>>;

fn domain<B: Backend<Native>>(backend: B, link: impl Fn() -> B::Link) -> Of<B> {
    super::Domain::new(backend, (0..3).map(|_| Place::new(link())).collect())
}

fn slots(generation: u64) -> Of<Slots<Native>> {
    domain(Slots::new(generation), || Atomic::new(0))
}

/// A thread has stored the bound in its slot, but has not taken its ticket yet. A wait for
/// an older section is not for it.
#[test]
fn slots_wait_for_no_begin_without_a_ticket() {
    const BOUND: u64 = 1 << 63;
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

/// The generation of another domain may be far above the ticket: no bound is raised so far.
#[test]
fn slots_raise_bounds_to_the_ticket_only() {
    const BOUND: u64 = 1 << 63;
    let domain = slots(3);
    assert_eq!(domain.begin(3, || 0), Ok(4));
    domain.end(3);
    Atomic::store(&domain.places[1].link, 4 | BOUND, Relaxed);
    assert!(!domain.passed(1000));
    assert_eq!(Atomic::load(&domain.places[1].link, Relaxed), 5 | BOUND);
}

/// Waits for generation 1, in vain, until one of the waits has slept. On a busy machine the time of
/// a short wait is up before the thread falls asleep, however often it is tried.
fn time_out_asleep<B: Backend<Native>>(domain: &Of<B>) {
    let mut limit = 1_000_000;
    while domain.tally().slow_waits == 0 {
        assert!(!domain.wait(1, Native::now() + limit));
        limit *= 2;
    }
}

/// Waits for `generation` in another thread, and calls `meanwhile` when that sleeps.
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

/// Ends of sections for which no thread waits wake none.
fn wakes_only_who_may_go<B: Backend<Native>>(domain: &Of<B>) {
    for (place, generation) in [(1, 1), (2, 2)] {
        assert_eq!(domain.begin(place, || 0), Ok(generation));
    }
    with_sleeper(domain, 2, || {
        // Newer ones, then an older one.
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
    wakes_only_who_may_go(&domain(Packed::<Sound>::new(0), || Pairs::new(0)));
    wakes_only_who_may_go(&domain(
        Locked::<Native, QueuedMutex<Native, Plain>>::new(0),
        Member::new,
    ));
    wakes_only_who_may_go(&slots(0));
}

/// A waiter whose time is up leaves its generation behind; later waiters are woken all the same.
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
    check(&domain(Packed::<Sound>::new(0), || Pairs::new(0)));
    check(&domain(
        Locked::<Native, QueuedMutex<Native, Plain>>::new(0),
        Member::new,
    ));
    check(&slots(0));
}

/// A thread that is preempted between mark and unmark is in everyone's way: reports show the mark,
/// and the generation that was donated.
#[test]
fn reports_show_marks_and_donations() {
    let domain = domain(Packed::<Sound>::new(0), || Pairs::new(0));
    for place in 1..=3 {
        domain.begin(place, || 0).unwrap();
    }
    domain.end(2);
    let seen = domain.places[2].link.mark();
    let shown = domain.sections();
    let shown: Vec<_> = shown.map(|s| (s.generation, s.current, s.marked)).collect();
    assert_eq!(shown, [(1, 2, false), (3, 3, true)]);
    domain.places[2].link.publish(seen);
    // As a thread leaves it that is preempted while it begins.
    domain.places[1].link.publish(self::seen(4, 0, true));
    Atomic::store(&domain.places[1].owner.begun, 0, Relaxed);
    Atomic::store(&domain.places[1].owner.depth, 1, Relaxed);
    let beginning = domain.sections().find(|s| s.place == 2).unwrap();
    assert_eq!(
        (beginning.generation, beginning.current, beginning.marked),
        (0, 4, true)
    );
}

#[test]
fn waiting_has_an_end() {
    let domain = domain(Packed::<Sound>::new(0), || Pairs::new(0));
    assert_eq!(domain.begin(1, || 17), Ok(1));
    assert_eq!(domain.begin(1, || 18), Ok(1));
    assert_eq!(domain.depth(1), 2);
    assert!(!domain.wait(1, 0));
    assert_eq!(domain.tally().slow_waits, 0);
    time_out_asleep(&domain);
    assert!(domain.wait(0, 0));
    let open: Vec<_> = domain.sections().collect();
    assert_eq!((open.len(), open[0].since), (1, 17));
    domain.end(1);
    assert!(!domain.passed(1));
    domain.end(1);
    assert!(domain.wait(1, NEVER));
    assert_eq!(domain.tally().slow_waits, 1);
}
