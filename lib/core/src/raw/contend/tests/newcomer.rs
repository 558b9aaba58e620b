//! How long a newcomer barges before it queues, as a table.

use super::timed::{HELD, Lock, NOW, Timed};
use crate::platform::NEVER;
use crate::raw::contend::constants::{BARGE_NS as BARGE, SPIN_NS as SPIN};
use crate::raw::contend::{Sight, Wait, barge};
use crate::raw::osq::Osq;
use crate::tuning::{Quantum, Tuning};
use std::cell::Cell;

/// When each newcomer comes. Not 0, since times are absolute.
const BEGUN: u64 = 1_000_000;

struct Row {
    name: &'static str,
    /// When the lock is free for a moment, in ascending order, and whether this thread is then the
    /// fastest.
    free: &'static [(u64, bool)],
    /// The time limit of the wait.
    limit: u64,
    /// After this time newcomers have to queue.
    reserved: u64,
    quantum: Quantum,
    trial: bool,
    spin: u64,
    /// Whether the newcomer gets the lock, and when it gets it or queues.
    expected: (bool, u64),
}

const fn row(name: &'static str, free: &'static [(u64, bool)], expected: (bool, u64)) -> Row {
    Row {
        name,
        free,
        limit: NEVER,
        reserved: NEVER,
        quantum: Tuning::DEFAULT.quantum,
        trial: false,
        spin: SPIN,
        expected,
    }
}

fn outcome<const PARKS: bool>(row: &Row) -> (bool, u64) {
    let queue = Osq::<Timed>::new();
    NOW.set(BEGUN);
    let wait = Wait {
        deadline: BEGUN.saturating_add(row.limit),
        tuning: Tuning {
            quantum: row.quantum,
            ..Tuning::DEFAULT
        },
        trial: row.trial,
        spin: row.spin,
    };
    let free = Cell::new(row.free);
    let reserved = BEGUN.saturating_add(row.reserved);
    let mut newcomer = Lock::<PARKS> {
        sight: &|| Sight {
            reserved: NOW.get() >= reserved,
            ..HELD
        },
        is_taken: &|| {
            let (_, fastest) = free.get()[0];
            free.set(&free.get()[1..]);
            fastest
        },
        wait_until_free: &|nanos| {
            let until = NOW.get() + nanos;
            let next = free.get().first().map(|&(at, _)| BEGUN + at);
            let free = next.filter(|&at| at < until);
            NOW.set(free.unwrap_or(until));
            free.is_some()
        },
        sleep: &|_| unreachable!("it barges"),
    };
    let taken = barge(&mut newcomer, &queue, &wait).is_some();
    (taken, NOW.get() - BEGUN)
}

const LATE: &[(u64, bool)] = &[(SPIN - 1, true)];

#[test]
fn a_newcomer_waits_for_the_end_of_the_section_that_it_finds() {
    for case in [
        row("short", &[(3_000, true)], (true, 3_000)),
        row("long", LATE, (true, SPIN - 1)),
        row("too long", &[(SPIN, true)], (false, SPIN)),
        row(
            "lost, but soon free again",
            &[(100, false), (BARGE - 1, true)],
            (true, BARGE - 1),
        ),
        row("lost", &[(100, false), (BARGE, true)], (false, BARGE)),
        row(
            "lost after a long section",
            &[(12_000, false), (12_100, true)],
            (false, 12_000),
        ),
        Row {
            limit: 80_000,
            ..row("an eighth of its time", LATE, (false, 10_000))
        },
        Row {
            limit: 16_000,
            ..row("a short time limit", LATE, (false, BARGE))
        },
        Row {
            limit: 3_000,
            ..row("a shorter one", &[(3_500, true)], (false, 3_000))
        },
        Row {
            limit: 3_000,
            ..row(
                "a shorter one, and lost",
                &[(100, false), (3_500, true)],
                (false, 3_000),
            )
        },
        Row {
            reserved: 7_000,
            ..row("requested meanwhile", LATE, (false, 2 * BARGE))
        },
        Row {
            reserved: 0,
            ..row("requested before", &[(0, true)], (false, 0))
        },
        Row {
            reserved: 100,
            ..row(
                "lost, and then requested",
                &[(200, false), (300, true)],
                (false, 200),
            )
        },
        Row {
            trial: true,
            ..row("a trial", &[(0, true)], (false, 0))
        },
        Row {
            quantum: Quantum::FAIR,
            ..row("in order", LATE, (false, BARGE))
        },
    ] {
        assert_eq!(outcome::<true>(&case), case.expected, "{}", case.name);
    }
    let spinning = row("where waiters spin", LATE, (false, BARGE));
    assert_eq!(outcome::<false>(&spinning), spinning.expected);
}
