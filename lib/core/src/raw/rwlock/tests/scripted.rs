//! A machine with one thread that plays the parts of several. A look or a sleep of one part calls
//! what the others do at that moment.

use super::*;
use crate::atomic::Atomics;
use crate::platform::{Clock, Fences, Parking, Place, Spinning};
use crate::raw::waiter::{Table, Waiters};
use crate::visible_readers::{Row, VisibleReaders};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};

/// The machine. Each test has its own state, except for the table of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scripted;

static TABLE: Table<Scripted, 64, 2> = Table::new();
static WAITERS: Waiters<Scripted> = TABLE.waiters();
const ROWS: usize = 8;

/// What others do once, and after how many looks or sleeps.
type Others = Option<(u32, Box<dyn FnOnce()>)>;

/// A sleep: its address, the word there, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sleep {
    pub(super) key: usize,
    pub(super) word: u32,
    pub(super) at: u64,
}

thread_local! {
    /// Each test has its own, since other tests run at the same time.
    static ANNOUNCED: &'static VisibleReaders<Scripted> = {
        let rows: Vec<Row<Scripted>> = (0..ROWS).map(|_| Row::default()).collect();
        let in_use = Box::leak(Box::new(AtomicU32::new(ROWS as u32)));
        Box::leak(Box::new(VisibleReaders::new(rows.leak(), in_use)))
    };
    static BLIND: Cell<bool> = const { Cell::new(false) };
    static NOW: Cell<u64> = const { Cell::new(1) };
    static PART: Cell<usize> = const { Cell::new(0) };
    static FORKS: Cell<u8> = const { Cell::new(0) };
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    static AT_A_LOOK: RefCell<Others> = const { RefCell::new(None) };
    static IN_A_SLEEP: RefCell<Others> = const { RefCell::new(None) };
    static SLEEPS: RefCell<Vec<Sleep>> = const { RefCell::new(Vec::new()) };
    /// The park sets of the thread that sleeps while others do something; 0: it has been woken.
    static ASLEEP: Cell<u32> = const { Cell::new(0) };
    static WAKES: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

/// From now on the thread plays this part: it announces itself in this row.
pub(super) fn play(part: usize) {
    PART.set(part);
}

/// Runs `body` as another part.
pub(super) fn as_part<R>(part: usize, body: impl FnOnce() -> R) -> R {
    let me = PART.replace(part);
    let result = body();
    PART.set(me);
    result
}

/// Runs `body` as code without the table in which others announce themselves.
pub(super) fn blind<R>(body: impl FnOnce() -> R) -> R {
    with_table(false, body)
}

/// Runs `body` as code that has the table.
pub(super) fn seeing<R>(body: impl FnOnce() -> R) -> R {
    with_table(true, body)
}

fn with_table<R>(has: bool, body: impl FnOnce() -> R) -> R {
    let before = BLIND.replace(!has);
    let result = body();
    BLIND.set(before);
    result
}

/// Whether `body`, run by code without a table, would end the process.
pub(super) fn meets_a_stranger(body: impl FnOnce()) -> bool {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| blind(body)));
    BLIND.set(false);
    result.is_err_and(|panic| panic.is::<Stranger>())
}

/// The panic of code that finds that readers are announced where it cannot see them.
struct Stranger;

/// From now on `times` forks, each in the child of the previous one, have led to this process.
pub(super) fn forked(times: u8) {
    FORKS.set(times);
}

/// Runs `others` once, at the next look at the table after `after` looks.
pub(super) fn at_a_look(after: u32, others: impl FnOnce() + 'static) {
    AT_A_LOOK.set(Some((after, Box::new(others))));
}

/// Runs `others` once, in the next sleep after `after` sleeps.
pub(super) fn in_a_sleep(after: u32, others: impl FnOnce() + 'static) {
    IN_A_SLEEP.set(Some((after, Box::new(others))));
}

/// Advances the clock.
pub(super) fn pass_time(nanos: u64) {
    NOW.set(NOW.get() + nanos);
}

/// How often threads have looked at the table.
pub(super) fn looks() -> u32 {
    LOOKS.get()
}

/// All sleeps so far.
pub(super) fn sleeps() -> Vec<Sleep> {
    SLEEPS.with_borrow(Clone::clone)
}

/// How many wake-ups were sent to waiters at the front so far, and how many threads they may have
/// woken at most.
pub(super) fn wakes() -> [u32; 2] {
    WAKES.get()
}

fn others(script: &'static std::thread::LocalKey<RefCell<Others>>) -> bool {
    let due = script.with_borrow_mut(|script| match script {
        Some((0, _)) => script.take(),
        Some((left, _)) => {
            *left -= 1;
            None
        }
        None => None,
    });
    due.map(|(_, others)| others()).is_some()
}

impl Atomics for Scripted {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

impl Clock for Scripted {
    /// Each look at the clock takes a tenth of a microsecond.
    fn now() -> u64 {
        NOW.set(NOW.get() + 100);
        NOW.get()
    }
}

impl Spinning for Scripted {
    type Clock = Self;
}

impl Parking for Scripted {
    const CAN_PARK: bool = true;

    /// Sleeps until the time is up, unless others do something during the sleep.
    fn park_in(
        key: *const u32,
        expected: u32,
        until: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let word = current();
        if word != expected {
            return Parked::Differed;
        }
        ASLEEP.set(sets);
        let (key, at) = (key.addr(), NOW.get());
        SLEEPS.with_borrow_mut(|sleeps| sleeps.push(Sleep { key, word, at }));
        let are_others = others(&IN_A_SLEEP);
        ASLEEP.set(0);
        if are_others {
            return Parked::Woken;
        }
        assert_ne!(until, NEVER, "a thread sleeps for ever");
        NOW.set(NOW.get().max(until));
        Parked::Unwoken
    }

    fn unpark_in(_: *const u32, n: u32, sets: u32) -> u32 {
        if sets == FRONT {
            let [wakes, threads] = WAKES.get();
            WAKES.set([wakes + 1, threads.saturating_add(n)]);
        }
        u32::from(ASLEEP.get() & sets != 0 && ASLEEP.replace(0) != 0)
    }
}

impl Fences for Scripted {}

impl Place for Scripted {
    fn forks() -> u8 {
        FORKS.get()
    }
}

impl Platform for Scripted {
    type Clock = Self;
    type Spinning = Self;
    type Parking = Self;
    type Fences = Self;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }

    fn visible_readers() -> Option<&'static VisibleReaders<Self>> {
        LOOKS.set(LOOKS.get() + 1);
        others(&AT_A_LOOK);
        (!BLIND.get()).then(|| ANNOUNCED.with(|table| *table))
    }

    fn row() -> Option<&'static Row<Self>> {
        (!BLIND.get()).then(|| ANNOUNCED.with(|table| table.row(PART.get())))
    }

    fn on_foreign_readers(_: *const u32) {
        std::panic::panic_any(Stranger);
    }
}

/// The lock of these tests. It is never freed: otherwise a name in the table could become another
/// lock's.
pub(super) type ScriptedLock<C, P = Scripted> = QueuedRwLock<P, C>;

pub(super) fn lock<C: LockConfig, P: Platform>() -> &'static ScriptedLock<C, P> {
    Box::leak(Box::default())
}
