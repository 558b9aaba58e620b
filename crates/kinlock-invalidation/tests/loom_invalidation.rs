//! Delayed invalidation in every interleaving (with a bounded number of preemptions) of small scenarios.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p kinlock --test loom_invalidation -- --nocapture`. Each model prints how many executions it
//! explored. Models of broken domains must fail: that shows that the scenario can see the defect.
//!
//! What cannot be seen here: `Fault::MarkedEarly`, which is only slow (the explorer and a unit test count its restarts), and the pairs of sixteen bytes, which hardware alone has.
#![cfg(loom)]

#[path = "../../kinlock-core/tests/model/mod.rs"]
mod model;

use kinlock_core::config::Tuning;
use kinlock_core::loom::Loom;
use kinlock_core::platform::{Atomic, NEVER};
use kinlock_core::raw::mutex::{MutexConfig, Queue};
use kinlock_invalidation::raw::{
    Backend, Config, Domain, Fault, Locked, Member, NearWrap, Packed, PackedPair, Pair, Place,
    Slots,
};
use loom::cell::UnsafeCell;
use model::explore;

#[derive(Clone, Copy, Debug)]
struct Unqueued;
impl MutexConfig for Unqueued {
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
    fn queue() -> Queue {
        Queue::Unqueued
    }
}

macro_rules! config {
    ($name:ident: patience $patience:expr, fault $fault:ident) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;
        impl Config for $name {
            type Mutex = Unqueued;
            const PATIENCE: u32 = $patience;
            // A waiter looks, and sleeps.
            const LOOKS: u32 = 0;
            const FAULT: Fault = Fault::$fault;
        }
    };
}

config!(Sound: patience 1000, fault None);
config!(LinesUp: patience 0, fault None);
config!(WakeLost: patience 1000, fault WakeLost);
config!(GenerationReadBeforeMark: patience 1000, fault GenerationReadBeforeMark);

const PLACES: usize = 3;

type Places<L> = Box<[Place<Loom, L>]>;

/// A backend that can be made here.
trait Made: Backend<Loom> + Sized + 'static {
    fn made(generation: u64) -> Self;
    fn link() -> Self::Link;
}

impl<C: Config> Made for Packed<Loom, C> {
    fn made(generation: u64) -> Self {
        Self::new(generation)
    }
    fn link() -> PackedPair<Loom> {
        PackedPair::new(0)
    }
}

impl<C: Config> Made for Locked<Loom, C> {
    fn made(generation: u64) -> Self {
        Self::new(generation)
    }
    fn link() -> Member<Loom> {
        Member::new()
    }
}

impl<C: Config> Made for Slots<Loom, C> {
    fn made(generation: u64) -> Self {
        Self::new(generation)
    }
    fn link() -> <Loom as kinlock_core::platform::Atomics>::AtomicU64 {
        Atomic::new(0)
    }
}

/// A domain, and data that sections write and waiters read: loom reports accesses that nothing orders.
struct Shared<C: Config, B: Made> {
    domain: Domain<Loom, C, B, Places<B::Link>>,
    data: [UnsafeCell<u32>; PLACES],
    refused: loom::sync::atomic::AtomicUsize,
    /// The newest generation that was begun before the threads were started.
    begun: u64,
}

impl<C: Config, B: Made> Shared<C, B> {
    /// With the sections of the places 1 to `open` begun already.
    fn new(open: u16) -> Self {
        Self::from(0, open)
    }

    fn from(generation: u64, open: u16) -> Self {
        let places = (0..PLACES).map(|_| Place::new(B::link())).collect();
        let mut shared = Shared {
            domain: Domain::new(B::made(generation), places),
            data: std::array::from_fn(|_| UnsafeCell::new(0)),
            refused: loom::sync::atomic::AtomicUsize::new(0),
            begun: generation,
        };
        for place in 1..=open {
            shared.begun = shared.begin(place);
        }
        shared
    }

    fn begin(&self, me: u16) -> u64 {
        self.domain.begin(me, || 0).expect("generations are left")
    }

    /// Invalidates, and ends.
    fn end(&self, me: u16) {
        // SAFETY: a waiter reads after the section has ended; if the domain is broken, loom reports the access before it happens.
        self.data[me as usize - 1].with_mut(|data| unsafe { *data += 1 });
        self.domain.end(me);
    }

    /// Waits for `generation`, of which the sections of these places are not newer.
    fn wait(&self, generation: u64, places: std::ops::RangeInclusive<u16>) {
        assert!(self.domain.wait(generation, NEVER));
        assert!(self.domain.passed(generation), "it has passed no more");
        for place in places {
            // SAFETY: as above.
            let data = self.data[place as usize - 1].with(|data| unsafe { *data });
            assert_eq!(data, 1, "the section of place {place} has not ended");
        }
    }

    /// Nothing is left, and everything that was donated has arrived.
    fn check(&self) {
        assert_eq!(self.domain.sections().count(), 0);
        // Not the newest that the list knows of, which would be lost with the donation.
        let newest = self.begun.max(self.domain.newest());
        assert!(self.domain.passed(newest), "a donation was lost");
        assert!(!self.domain.passed(newest + 1));
        let next = self.begin(1);
        assert_eq!(next, newest + 1);
        self.domain.end(1);
        assert!(self.domain.passed(next));
    }
}

/// One section is open; who waits for it sleeps or not, and sees what it did.
fn a_sleeper_is_woken<C: Config, B: Made>() {
    let name = format!("{}, a sleeper is woken", B::NAME);
    explore(
        &name,
        4,
        2,
        || Shared::<C, B>::new(1),
        |shared, i| match i {
            0 => shared.end(1),
            _ => shared.wait(1, 1..=1),
        },
        |shared, _| shared.check(),
    );
}

/// Two sections end at a time, and one waits for the newer one: so for both.
fn donations_arrive<C: Config, B: Made>() {
    let name = format!("{}, two sections end, one waits", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<C, B>::new(2),
        |shared, i| match i {
            0 => shared.end(1),
            1 => shared.end(2),
            _ => shared.wait(2, 1..=2),
        },
        |shared, _| shared.check(),
    );
}

/// Two neighbours end at a time.
fn neighbours_end<C: Config, B: Made>() {
    let name = format!("{}, two sections end", B::NAME);
    explore(
        &name,
        4,
        2,
        || Shared::<C, B>::new(2),
        |shared, i| shared.end(i as u16 + 1),
        |shared, _| shared.check(),
    );
}

/// Three sections end at a time: a donation to an element that is being donated itself.
fn donations_pass_through<C: Config, B: Made>() {
    let name = format!("{}, three sections end", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<C, B>::new(3),
        |shared, i| shared.end(i as u16 + 1),
        |shared, _| shared.check(),
    );
}

/// One section ends while another begins and ends, and somebody waits for the first: the second must not keep the waiter.
fn newcomers_keep_nobody_waiting<C: Config, B: Made>() {
    let name = format!("{}, one ends, one begins, one waits", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<C, B>::new(1),
        |shared, i| match i {
            0 => shared.end(1),
            1 => {
                let mine = shared.begin(2);
                assert!(mine == 2 && !shared.domain.passed(mine));
                // Ends when the waiter has gone: were it waiting for us, that would never be.
                while shared.refused.load(loom::sync::atomic::Ordering::Relaxed) == 0 {
                    loom::thread::yield_now();
                }
                shared.end(2);
            }
            _ => {
                shared.wait(1, 1..=1);
                shared
                    .refused
                    .store(1, loom::sync::atomic::Ordering::Relaxed);
            }
        },
        |shared, _| shared.check(),
    );
}

/// An element leaves and joins again at the end, while its old successor looks for its predecessor: the search misses.
fn a_search_misses<C: Config, B: Made>() {
    let name = format!("{}, one leaves and joins again, others end", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<C, B>::new(3),
        |shared, i| match i {
            0 => {
                shared.domain.end(1);
                assert_eq!(shared.begin(1), 4);
                assert!(!shared.domain.passed(4));
                shared.domain.end(1);
            }
            1 => shared.domain.end(2),
            _ => shared.domain.end(3),
        },
        |shared, _| shared.check(),
    );
}

/// All begin and end at a time.
fn all_begin<C: Config, B: Made>(preemptions: usize) {
    let name = format!("{}, three sections begin and end", B::NAME);
    explore(
        &name,
        preemptions,
        3,
        || Shared::<C, B>::new(0),
        |shared, i| {
            let me = i as u16 + 1;
            let mine = shared.begin(me);
            assert!((1..=3).contains(&mine) && !shared.domain.passed(mine));
            shared.end(me);
        },
        |shared, _| {
            assert_eq!(shared.domain.newest(), 3);
            shared.check();
        },
    );
}

/// A snapshot while sections come and go covers the one that was there before.
fn a_snapshot_covers_what_was_open<C: Config, B: Made>() {
    let name = format!("{}, a snapshot while others begin and end", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<C, B>::new(1),
        |shared, i| match i {
            0 => shared.end(1),
            1 => {
                shared.begin(2);
                shared.end(2);
            }
            _ => {
                let newest = shared.domain.newest();
                assert!((1..=2).contains(&newest));
                shared.wait(newest, 1..=1);
            }
        },
        |shared, _| shared.check(),
    );
}

macro_rules! models {
    ($($module:ident: $backend:ident),*) => {$(
        mod $module {
            use super::*;
            type B<C> = $backend<Loom, C>;

            #[test]
            fn waiting() {
                a_sleeper_is_woken::<Sound, B<Sound>>();
                donations_arrive::<Sound, B<Sound>>();
            }

            #[test]
            fn ending() {
                neighbours_end::<Sound, B<Sound>>();
                donations_pass_through::<Sound, B<Sound>>();
                a_search_misses::<Sound, B<Sound>>();
            }

            #[test]
            fn beginning() {
                newcomers_keep_nobody_waiting::<Sound, B<Sound>>();
                all_begin::<Sound, B<Sound>>(3);
            }

            #[test]
            fn snapshots() {
                a_snapshot_covers_what_was_open::<Sound, B<Sound>>();
            }

            #[test]
            #[ignore = "must fail; run by are_caught"]
            fn broken_wake_lost() {
                a_sleeper_is_woken::<WakeLost, B<WakeLost>>();
            }
        }
    )*};
}

models!(packed: Packed, locked: Locked, slots: Slots);

#[test]
fn the_starter_lock() {
    all_begin::<LinesUp, Packed<Loom, LinesUp>>(2);
}

#[test]
#[ignore = "must fail; run by are_caught"]
fn broken_generation_read_before_mark() {
    neighbours_end::<GenerationReadBeforeMark, Packed<Loom, GenerationReadBeforeMark>>();
}

/// Broken domains, each in a process of its own, since loom may abort when it finds a deadlock.
#[test]
fn are_caught() {
    model::catches(&[
        ("packed::broken_wake_lost", "deadlock"),
        ("locked::broken_wake_lost", "deadlock"),
        ("slots::broken_wake_lost", "deadlock"),
        ("broken_generation_read_before_mark", "a donation was lost"),
    ]);
}

/// One generation is left, and two want it.
#[test]
fn the_last_generation_is_given_once() {
    explore(
        "packed, the last generation",
        4,
        2,
        || Shared::<Sound, Packed<Loom, Sound>>::from(PackedPair::<Loom>::NEWEST - 1, 0),
        |shared, i| {
            let me = i as u16 + 1;
            match shared.domain.begin(me, || 0) {
                Ok(generation) => {
                    assert_eq!(generation, PackedPair::<Loom>::NEWEST);
                    shared.end(me);
                }
                Err(NearWrap) => {
                    shared
                        .refused
                        .fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
                }
            }
        },
        |shared, _| {
            let refused = shared.refused.load(loom::sync::atomic::Ordering::Relaxed);
            assert_eq!(refused, 1);
            assert!(shared.domain.passed(PackedPair::<Loom>::NEWEST));
            assert_eq!(shared.domain.begin(1, || 0), Err(NearWrap));
        },
    );
}
