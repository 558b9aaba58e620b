//! Single steps, on lists whose state was made by hand.

use super::*;
use kinlock_core::Native;
use kinlock_core::platform::NEVER;
use kinlock_core::raw::mutex::Queue;
use kinlock_core::raw::osq::Watch;
use kinlock_core::tuning::Tuning;

#[derive(Clone, Copy, Debug)]
struct Plain;
impl MutexConfig for Plain {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
    fn queue() -> Queue {
        Queue::Osq(Watch::CACHED)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sound;
impl Config for Sound {
    type Mutex = Plain;
}

#[derive(Clone, Copy, Debug)]
struct MarkedEarly;
impl Config for MarkedEarly {
    type Mutex = Plain;
    const FAULT: Fault = Fault::MarkedEarly;
}

type Pairs = PackedPair<Native>;
type Packed<C> = super::Packed<Native, C>;

struct Fixture<C: Config> {
    list: Packed<C>,
    places: Vec<Place<Native, Pairs>>,
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
            counts: Counts::new(),
        }
    }

    fn begin(&self, me: u16) -> u64 {
        let begun = self.list.begin(&self.places, &self.counts, me).unwrap();
        assert!(!begun.lets_pass);
        begun.generation
    }

    fn end(&self, me: u16) -> bool {
        self.list.end(&self.places, &self.counts, me)
    }

    fn element(&self, me: u16) -> &Pairs {
        &self.places[me as usize - 1].link
    }

    fn passed(&self, generation: u64) -> bool {
        self.list.passed(&self.places, generation)
    }

    fn newest(&self) -> u64 {
        self.list.newest(&self.places)
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
    let f = Fixture::<Sound>::new(0);
    f.begin(1);
    f.begin(2);
    let was = f.element(1).mark();
    std::thread::scope(|s| {
        let ender = s.spawn(|| f.end(2));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!ender.is_finished());
        f.element(1).publish(was);
        assert!(!ender.join().unwrap());
    });
    assert!(f.counts.read().end_restarts > 0);
    assert_eq!(f.element(1).load(), seen(2, 0, false));
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
    assert!(f.list.predecessor(&f.places, 4).is_none());
    let (before, was) = f.list.predecessor(&f.places, 1).unwrap();
    assert!(core::ptr::eq(before, f.element(3)) && was == seen(3, 1, false));
}

/// The sound list and the defect differ while an end searches for its predecessor: the defect has
/// marked its own element by then.
#[test]
fn only_the_defect_marks_before_it_has_found() {
    fn marked_while_searching<C: Config>(checks: u64) -> bool {
        let f = Fixture::<C>::new(0);
        f.begin(1);
        f.begin(2);
        f.begin(3);
        // The search cannot get past 1.
        let was = f.element(1).mark();
        let mut ever = false;
        std::thread::scope(|s| {
            let ender = s.spawn(|| f.end(3));
            for _ in 0..checks {
                ever |= f.element(3).load().marked;
                if ever {
                    break;
                }
                std::hint::spin_loop();
            }
            f.element(1).publish(was);
            ender.join().unwrap();
        });
        ever
    }
    assert!(!marked_while_searching::<Sound>(20_000));
    // No limit, since the other thread may wait long for a CPU.
    assert!(marked_while_searching::<MarkedEarly>(u64::MAX));
}

#[test]
fn generations_run_out() {
    let f = Fixture::<Sound>::new(Pairs::NEWEST - 1);
    assert_eq!(f.begin(1), Pairs::NEWEST);
    assert_eq!(f.list.begin(&f.places, &f.counts, 2), Err(NearWrap));
    assert!(f.end(1));
    assert_eq!(f.list.begin(&f.places, &f.counts, 2), Err(NearWrap));
    assert!(f.passed(Pairs::NEWEST));
}

/// A thread has stored the lower bound in its slot, but has not taken its ticket yet.
#[test]
fn slots_count_a_begin_without_a_ticket() {
    let slots = super::Slots::<Native, Sound>::new(3);
    let places: Vec<Place<Native, _>> = (0..3).map(|_| Place::new(Atomic::new(0))).collect();
    let counts = Counts::new();
    // Raises the highest place, so that all slots are scanned.
    assert_eq!(slots.begin(&places, &counts, 3).unwrap().generation, 4);
    slots.end(&places, &counts, 3);
    let first = slots.begin(&places, &counts, 1).unwrap();
    assert_eq!((first.generation, first.lets_pass), (5, false));
    // What `begin` does, by hand, with an outdated bound.
    Atomic::store(&places[1].link, 5, Relaxed);
    assert!(slots.end(&places, &counts, 1));
    assert!(slots.passed(&places, 4) && !slots.passed(&places, 5));
    Atomic::store(&places[1].link, 6, Relaxed);
    assert!(slots.passed(&places, 5));
    // What has passed stays passed.
    Atomic::store(&places[2].link, 3, Relaxed);
    assert!(slots.passed(&places, 5));
}

#[test]
fn waiting_has_an_end() {
    let domain = Domain::<Native, Sound, _, _>::new(
        Packed::<Sound>::new(0),
        (0..3)
            .map(|_| Place::new(Pairs::new(0)))
            .collect::<Box<[_]>>(),
    );
    assert_eq!(domain.begin(1, || 17), Ok(1));
    assert_eq!(domain.begin(1, || 18), Ok(1));
    assert_eq!(domain.depth(1), 2);
    assert!(!domain.wait(1, 0));
    assert_eq!(domain.tally().slow_waits, 0);
    // On a busy machine the time may be up before the thread falls asleep.
    while domain.tally().slow_waits == 0 {
        assert!(!domain.wait(1, Native::now() + 1_000_000));
    }
    assert!(domain.wait(0, 0));
    let open: Vec<_> = domain.sections().collect();
    assert_eq!((open.len(), open[0].since), (1, 17));
    domain.end(1);
    assert!(!domain.passed(1));
    domain.end(1);
    assert!(domain.wait(1, NEVER));
    assert_eq!(domain.tally().slow_waits, 1);
}
