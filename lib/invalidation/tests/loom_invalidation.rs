//! Delayed invalidation in every interleaving (with a bounded number of preemptions) of small
//! scenarios.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-invalidation --test loom_invalidation \
//!     -- --nocapture
//! ```
//!
//! Each model prints how many executions it explored. Models of broken domains must fail, which
//! shows that the scenario can detect the defect.
#![cfg(loom)]

mod defects;
#[path = "../../core/tests/model/mod.rs"]
mod model;

use defects::{BoundRespected, TornTicket, WakeLost, end_erasing_late};
use kinlock_core::loom::Loom;
use kinlock_core::platform::{Atomic, NEVER};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueueKind;
use kinlock_invalidation::raw::{Backend, Config, Domain, Member, Place, Slots};
use loom::cell::UnsafeCell;
use model::explore;

#[derive(Clone, Copy, Debug)]
struct Unqueued;
impl LockConfig for Unqueued {
    fn queue() -> QueueKind {
        QueueKind::Unqueued
    }
}

impl Config for Unqueued {
    // A waiter sleeps without checking again.
    const SPINS: u32 = 0;
    const YIELDS: u32 = 0;
}

type Locked = kinlock_invalidation::raw::Locked<Loom, Unqueued>;

const PLACES: usize = 3;

type Places<L> = Box<[Place<Loom, L>]>;

/// A backend that the models can make.
trait Made: Backend<Loom> + Sized + 'static {
    fn made() -> Self;
    fn link() -> Self::Link;
}

impl Made for Locked {
    fn made() -> Self {
        Self::new(0)
    }
    fn link() -> Member<Loom> {
        Member::new()
    }
}

impl Made for Slots<Loom> {
    fn made() -> Self {
        Self::new(0)
    }
    fn link() -> Self::Link {
        Atomic::new(0)
    }
}

impl<B: Made> Made for WakeLost<B> {
    fn made() -> Self {
        WakeLost(B::made())
    }
    fn link() -> B::Link {
        B::link()
    }
}

impl Made for TornTicket<Loom> {
    fn made() -> Self {
        TornTicket(Slots::made())
    }
    fn link() -> Self::Link {
        Slots::<Loom>::link()
    }
}

impl Made for BoundRespected<Loom> {
    fn made() -> Self {
        BoundRespected(Slots::made())
    }
    fn link() -> Self::Link {
        Slots::<Loom>::link()
    }
}

/// A domain, and data that sections write and waiters read: loom reports data races.
struct Shared<B: Made> {
    domain: Domain<Loom, Unqueued, B, Places<B::Link>>,
    data: [UnsafeCell<u32>; PLACES],
    waited: loom::sync::atomic::AtomicBool,
}

impl<B: Made> Shared<B> {
    /// A domain in which the sections of the places 1 to `open` have begun.
    fn new(open: u16) -> Self {
        let places = (0..PLACES).map(|_| Place::new(B::link())).collect();
        let shared = Shared {
            domain: Domain::new(B::made(), places),
            data: std::array::from_fn(|_| UnsafeCell::new(0)),
            waited: loom::sync::atomic::AtomicBool::new(false),
        };
        for place in 1..=open {
            shared.begin(place);
        }
        shared
    }

    fn begin(&self, me: u16) -> u64 {
        self.domain.begin(me, || 0).expect("generations are left")
    }

    /// Writes the data of the section, then ends it.
    fn end(&self, me: u16) {
        self.write(me);
        self.domain.end(me);
    }

    fn write(&self, me: u16) {
        // SAFETY: a waiter reads after the section has ended; if the domain is broken, loom reports
        // the access before it happens.
        self.data[me as usize - 1].with_mut(|data| unsafe { *data += 1 });
    }

    /// Waits for `generation`, and checks that the sections of `places`, which are not newer, have
    /// ended.
    fn wait(&self, generation: u64, places: std::ops::RangeInclusive<u16>) {
        assert!(self.domain.wait(generation, NEVER));
        assert!(self.domain.passed(generation), "it has passed no more");
        for place in places {
            // SAFETY: as above.
            let data = self.data[place as usize - 1].with(|data| unsafe { *data });
            assert_eq!(data, 1, "the section of place {place} has not ended");
        }
    }

    /// No section is open, and all donations have arrived.
    fn check(&self) {
        assert_eq!(self.domain.sections().count(), 0);
        let newest = self.domain.newest();
        assert!(self.domain.passed(newest));
        assert!(!self.domain.passed(newest + 1));
        let next = self.begin(1);
        assert_eq!(next, newest + 1);
        self.domain.end(1);
        assert!(self.domain.passed(next));
    }
}

/// Explores a model of one backend, and checks that nothing is left at the end.
fn model<B: Made>(
    what: &str,
    preemptions: usize,
    threads: usize,
    make: fn() -> Shared<B>,
    body: fn(&Shared<B>, usize),
) {
    let name = format!("{}, {what}", B::NAME);
    explore(&name, preemptions, threads, make, body, |shared, _| {
        shared.check();
    });
}

/// One section is open. A waiter for it sleeps or not, and sees what it did.
fn a_sleeper_is_woken<B: Made>() {
    model(
        "a sleeper is woken",
        4,
        2,
        || Shared::<B>::new(1),
        |shared, i| match i {
            0 => shared.end(1),
            _ => shared.wait(1, 1..=1),
        },
    );
}

/// Two sections end concurrently. A waiter for the newer one waits for both.
fn donations_arrive<B: Made>() {
    model(
        "two sections end, one waits",
        3,
        3,
        || Shared::<B>::new(2),
        |shared, i| match i {
            0 => shared.end(1),
            1 => shared.end(2),
            _ => shared.wait(2, 1..=2),
        },
    );
}

/// Two sections end one after the other, or as the defect `ErasedLate` has it; one waiter waits for
/// each.
fn each_wait_has_its_wake_up<B: Made, const LATE: bool>() {
    model(
        "two sections end, one waits for each",
        3,
        2,
        || Shared::<B>::new(2),
        |shared, i| match i {
            0 => (1..=2).for_each(|me| match LATE {
                false => shared.end(me),
                true => {
                    shared.write(me);
                    end_erasing_late(&shared.domain, me);
                }
            }),
            _ => {
                shared.wait(1, 1..=1);
                shared.wait(2, 2..=2);
            }
        },
    );
}

/// Two sections end concurrently; one waiter for each.
fn waiters_meet_in_the_gate<B: Made>() {
    model(
        "two sections end, two wait",
        2,
        4,
        || Shared::<B>::new(2),
        |shared, i| match i {
            0 | 1 => shared.end(i as u16 + 1),
            2 => shared.wait(1, 1..=1),
            _ => shared.wait(2, 1..=2),
        },
    );
}

/// If a section has ended and its generation has not passed, an older section holds it up. A begin
/// that gets a newer generation holds up nothing, wherever its thread is preempted.
fn no_begin_holds_up_what_is_older<B: Made>() {
    let name = format!("{}, a begin does not hold up", B::NAME);
    explore(
        &name,
        3,
        2,
        || Shared::<B>::new(0),
        |shared, i| {
            let me = i as u16 + 1;
            let mine = shared.begin(me);
            shared.end(me);
            (mine, shared.domain.passed(mine))
        },
        |shared, ends| {
            let (oldest, passed) = ends.iter().min().unwrap();
            assert!(passed, "{oldest} was held up by a newer section");
            shared.check();
        },
    );
}

/// Three sections end concurrently: an element that is itself being donated receives a donation.
fn donations_pass_through<B: Made>() {
    model(
        "three sections end",
        3,
        3,
        || Shared::<B>::new(3),
        |shared, i| shared.end(i as u16 + 1),
    );
}

/// One section ends while another begins and ends. A waiter for the first must not wait for the
/// second.
fn newcomers_delay_no_waiter<B: Made>() {
    model(
        "one ends, one begins, one waits",
        3,
        3,
        || Shared::<B>::new(1),
        |shared, i| match i {
            0 => shared.end(1),
            1 => {
                let mine = shared.begin(2);
                assert!(mine == 2 && !shared.domain.passed(mine));
                // Ends after the waiter is done. A waiter that waited for this section would never
                // be done.
                while !shared.waited.load(loom::sync::atomic::Ordering::Relaxed) {
                    loom::thread::yield_now();
                }
                shared.end(2);
            }
            _ => {
                shared.wait(1, 1..=1);
                shared
                    .waited
                    .store(true, loom::sync::atomic::Ordering::Relaxed);
            }
        },
    );
}

/// The newest generation of three sections. With `slots` each scan for what has passed may make
/// both other begins skip a number.
fn most<B: Made>() -> u64 {
    if B::NAME == "slots" { 9 } else { 3 }
}

/// All sections begin and end concurrently.
fn all_begin<B: Made>() {
    let name = format!("{}, three sections begin and end", B::NAME);
    explore(
        &name,
        3,
        3,
        || Shared::<B>::new(0),
        |shared, i| {
            let me = i as u16 + 1;
            let mine = shared.begin(me);
            assert!((1..=most::<B>()).contains(&mine), "{mine}");
            assert!(!shared.domain.passed(mine), "an open section has passed");
            shared.end(me);
            mine
        },
        |shared, mut generations| {
            generations.sort_unstable();
            let distinct = generations.windows(2).all(|two| two[0] < two[1]);
            assert!(distinct, "two sections have one generation");
            assert!((3..=most::<B>()).contains(&shared.domain.newest()));
            shared.check();
        },
    );
}

/// A snapshot, taken while sections begin and end, covers the section that was open before.
fn a_snapshot_covers_what_was_open<B: Made>() {
    model(
        "a snapshot while others begin and end",
        3,
        3,
        || Shared::<B>::new(1),
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
    );
}

macro_rules! models {
    ($($module:ident: $backend:ty),*) => {$(
        mod $module {
            use super::*;
            type B = $backend;

            #[test]
            fn waiting() {
                a_sleeper_is_woken::<B>();
                donations_arrive::<B>();
            }

            #[test]
            fn waking() {
                each_wait_has_its_wake_up::<B, false>();
                waiters_meet_in_the_gate::<B>();
            }

            #[test]
            #[ignore = "must fail; run by are_caught"]
            fn broken_erased_late() {
                each_wait_has_its_wake_up::<B, true>();
            }

            #[test]
            fn ending() {
                donations_pass_through::<B>();
            }

            #[test]
            fn beginning() {
                newcomers_delay_no_waiter::<B>();
                all_begin::<B>();
            }

            #[test]
            fn snapshots() {
                a_snapshot_covers_what_was_open::<B>();
            }

            #[test]
            #[ignore = "must fail; run by are_caught"]
            fn broken_wake_lost() {
                a_sleeper_is_woken::<WakeLost<B>>();
            }
        }
    )*};
}

models!(locked: Locked, slots: Slots<Loom>);

#[test]
fn a_begin_in_the_slots() {
    no_begin_holds_up_what_is_older::<Slots<Loom>>();
}

#[test]
#[ignore = "must fail; run by are_caught"]
fn broken_bound_respected() {
    no_begin_holds_up_what_is_older::<BoundRespected<Loom>>();
}

#[test]
#[ignore = "must fail; run by are_caught"]
fn broken_torn_ticket() {
    all_begin::<TornTicket<Loom>>();
}

/// Broken domains, each in a process of its own, since loom may abort when it finds a deadlock.
#[test]
fn are_caught() {
    model::catches(&[
        ("locked::broken_wake_lost", "deadlock"),
        ("slots::broken_wake_lost", "deadlock"),
        ("locked::broken_erased_late", "deadlock"),
        ("slots::broken_erased_late", "deadlock"),
        ("broken_bound_respected", "held up by a newer section"),
        ("broken_torn_ticket", "two sections have one generation"),
    ]);
}
