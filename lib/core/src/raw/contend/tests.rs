//! The policy as a table, without threads.

mod alone;
mod newcomer;
mod patience;
mod spin;
pub(in crate::raw) mod timed;

use super::constants::{
    FIRST_PAUSE_NS as LOOK, IDLE_NS as IDLE, SPIN_NS as SPIN, UNLOCKS_MEASURED,
    UNLOCKS_SAMPLED as UNLOCKS,
};
use super::policy::{Front, Seen, Step, Step::*};
use super::{Headship, QueueKind, Wait};
use crate::Native;
use crate::platform::{NEVER, Platform};
use crate::raw::osq::Osq;
use crate::slots::NESTING;
use crate::tuning::{Quantum, Tuning};
use std::thread;
use std::time::{Duration, Instant};

const QUANTUM: u64 = 250_000;
const TAKE: Step = Take { idle: false };
const TAKE_IDLE: Step = Take { idle: true };
/// How long a look takes when the line comes from the holder.
const TRANSFER: u64 = 60;

/// A look. The marks mean: `f` the lock is free, `w` no unlock since the watch began, `k` the lock
/// is kept, `t` the line came from the holder.
fn look(now: u64, marks: &str) -> Seen {
    Seen {
        now,
        look: marks.contains('t').then_some(TRANSFER),
        free: marks.contains('f'),
        no_unlock: marks.contains('w'),
        kept: marks.contains('k'),
    }
}

struct Row {
    name: &'static str,
    quantum: u64,
    trial: bool,
    /// The lock can be shared by readers.
    readers: bool,
    /// How many unlocks the waiter has seen before.
    unlocks: u32,
    looks: &'static [(u64, &'static str, Step)],
}

const fn row(name: &'static str, looks: &'static [(u64, &'static str, Step)]) -> Row {
    Row {
        name,
        quantum: QUANTUM,
        trial: false,
        readers: false,
        unlocks: UNLOCKS - 1,
        looks,
    }
}

const ROWS: &[Row] = &[
    row("free", &[(0, "f", TAKE)]),
    Row {
        quantum: 0,
        ..row("held, no quantum", &[(0, "", Request)])
    },
    Row {
        quantum: 1_000,
        ..row(
            "a quantum shorter than the spinning",
            &[(0, "", Poll(1_000)), (1_000, "", Request)],
        )
    },
    row(
        "free after spinning",
        &[(0, "", Poll(SPIN)), (SPIN / 2, "f", TAKE)],
    ),
    row(
        "spins, sleeps, is woken by an unlock",
        &[
            (0, "", Poll(SPIN)),
            (SPIN / 2, "", Poll(SPIN - SPIN / 2)),
            (SPIN, "", Sleep(QUANTUM - SPIN)),
            (2 * SPIN, "f", TAKE),
        ],
    ),
    row(
        "another has taken the lock before the woken thread: it rests, each time for longer",
        &[
            (0, "", Poll(SPIN)),
            (SPIN, "", Sleep(QUANTUM - SPIN)),
            (2 * SPIN, "", TimedSleep(SPIN)),
            (3 * SPIN, "", Poll(SPIN)),
            (4 * SPIN, "", Sleep(QUANTUM - 4 * SPIN)),
            (5 * SPIN, "", TimedSleep(2 * SPIN)),
            (7 * SPIN, "", Poll(SPIN)),
            (8 * SPIN, "", Sleep(QUANTUM - 8 * SPIN)),
            (QUANTUM - SPIN, "", TimedSleep(SPIN)),
            (QUANTUM, "", Request),
        ],
    ),
    row(
        "free after a rest",
        &[
            (0, "", Poll(SPIN)),
            (SPIN, "", Sleep(QUANTUM - SPIN)),
            (2 * SPIN, "", TimedSleep(SPIN)),
            (3 * SPIN, "f", TAKE),
        ],
    ),
    row(
        "kept meanwhile",
        &[
            (0, "", Poll(SPIN)),
            (SPIN, "", Sleep(QUANTUM - SPIN)),
            (2 * SPIN, "", TimedSleep(SPIN)),
            (3 * SPIN, "k", Watch(LOOK)),
        ],
    ),
    row(
        "kept and idle",
        &[(0, "fk", Watch(IDLE)), (IDLE, "fwk", TAKE_IDLE)],
    ),
    row(
        "kept, and not known to be idle yet",
        &[
            (0, "wk", Watch(LOOK)),
            (LOOK, "fwk", Pause(IDLE)),
            (LOOK + IDLE, "fwk", TAKE_IDLE),
        ],
    ),
    row(
        "kept, and taken again at once",
        &[
            (0, "k", Watch(LOOK)),
            (LOOK, "k", TimedSleep(SPIN)),
            (SPIN, "k", Watch(LOOK)),
            (SPIN + LOOK, "k", TimedSleep(QUANTUM - SPIN - LOOK)),
            (QUANTUM, "k", Request),
        ],
    ),
    row(
        "taken in turn by others, who queue meanwhile: then it is idle",
        &[
            (0, "k", Watch(LOOK)),
            (LOOK, "k", TimedSleep(SPIN)),
            (SPIN, "fk", Watch(IDLE)),
            (SPIN + IDLE, "fwk", TAKE_IDLE),
        ],
    ),
    Row {
        unlocks: UNLOCKS - 2,
        ..row(
            "kept, and a whole section between two looks",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fk", Watch(IDLE)),
                (LOOK + IDLE, "fk", TimedSleep(SPIN)),
            ],
        )
    },
    Row {
        unlocks: UNLOCKS - 2,
        ..row(
            "free on arrival, and taken since: that tells nothing",
            &[
                (0, "fk", Watch(IDLE)),
                (IDLE, "k", Watch(LOOK)),
                (IDLE + LOOK, "k", TimedSleep(SPIN)),
            ],
        )
    },
    Row {
        unlocks: 0,
        ..row(
            "kept, and unlocked since the last look",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fk", Watch(IDLE)),
                (LOOK + IDLE, "fwk", TAKE_IDLE),
            ],
        )
    },
    Row {
        unlocks: 0,
        ..row(
            "idle: free for longer than the line takes to come",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fkt", Watch(TRANSFER)),
                (LOOK + TRANSFER, "fwk", TAKE_IDLE),
            ],
        )
    },
    Row {
        unlocks: 0,
        ..row(
            "idle after the third unlock only",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fkt", Watch(TRANSFER)),
                (2 * LOOK, "kt", Watch(LOOK)),
                (3 * LOOK, "wk", Pause(LOOK)),
                (4 * LOOK, "fkt", Watch(TRANSFER)),
                (5 * LOOK, "fwk", TAKE_IDLE),
            ],
        )
    },
    Row {
        unlocks: 0,
        ..row(
            "an unlock that is not measured changes nothing",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fkt", Watch(TRANSFER)),
                (2 * LOOK, "fk", Watch(TRANSFER)),
                (2 * LOOK + TRANSFER, "fwk", TAKE_IDLE),
            ],
        )
    },
    row(
        "kept, in a long section",
        &[
            (0, "k", Watch(LOOK)),
            (LOOK, "wk", Pause(LOOK)),
            (2 * LOOK, "wk", Pause(2 * LOOK)),
            (2 * IDLE, "wk", Pause(IDLE)),
            (SPIN - 1, "wk", Pause(IDLE)),
            (SPIN, "wk", TimedSleep(SPIN)),
        ],
    ),
    Row {
        trial: true,
        ..row(
            "a trial finds an idle lock",
            &[(0, "f", Watch(IDLE)), (IDLE, "fw", TAKE_IDLE)],
        )
    },
    Row {
        trial: true,
        ..row(
            "a trial finds a long section",
            &[
                (0, "k", Watch(LOOK)),
                (SPIN, "wk", Share),
                (SPIN, "", Sleep(QUANTUM - SPIN)),
            ],
        )
    },
    Row {
        trial: true,
        ..row(
            "a trial finds that the lock is taken again at once; another trial shares it",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "k", TimedSleep(SPIN)),
                (QUANTUM - 1, "", Poll(1)),
            ],
        )
    },
    Row {
        readers: true,
        trial: true,
        ..row(
            "long sections that are to be shared",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "wk", Share),
                (LOOK, "", Poll(SPIN)),
                (LOOK + SPIN, "", Sleep(QUANTUM - LOOK - SPIN)),
            ],
        )
    },
    Row {
        readers: true,
        ..row(
            "short sections where long ones are shared",
            &[
                (0, "k", Watch(LOOK)),
                (LOOK, "fwk", Pause(IDLE)),
                (LOOK + IDLE, "wk", Pause(IDLE)),
            ],
        )
    },
];

#[test]
fn each_look_leads_to_its_step() {
    for row in ROWS {
        let mut front = Front::new(row.quantum, row.trial);
        if row.readers {
            front = front.among_readers();
        }
        front.unlocks = row.unlocks;
        for &(now, marks, step) in row.looks {
            assert_eq!(front.next(look(now, marks)), step, "{}, at {now}", row.name);
        }
    }
}

/// A waiter measures its looks only in a watch, and only until it has seen a few unlocks.
#[test]
fn the_first_unlocks_are_measured() {
    let mut front = Front::new(QUANTUM, false);
    let mut measured = Vec::new();
    for at in 0..UNLOCKS_MEASURED + 3 {
        measured.push(front.measures());
        assert!(matches!(front.next(look(u64::from(at), "k")), Watch(_)));
    }
    // The first look is before the watch.
    let expected = [
        &[false][..],
        &[true; UNLOCKS_MEASURED as usize],
        &[false; 2],
    ]
    .concat();
    assert_eq!(measured, expected);
    let mut front = Front::new(QUANTUM, false);
    assert!(matches!(front.next(look(0, "")), Poll(_)) && !front.measures());
}

/// How long the step lasts before the waiter looks again.
fn length(step: Step) -> u64 {
    match step {
        Watch(nanos) | Pause(nanos) | Poll(nanos) | TimedSleep(nanos) | Sleep(nanos) => nanos,
        Take { .. } | Share | Request => 1,
    }
}

const MARKS: [&str; 8] = ["", "f", "w", "fw", "k", "fk", "wk", "fwk"];

/// Whatever a waiter has seen, at its first look after its quantum it requests a hand-off: it
/// neither waits nor tries to take the lock again.
#[test]
fn an_overdue_waiter_requests() {
    fn explore(front: Front, now: u64, depth: u32) {
        for marks in MARKS {
            let mut front = front;
            let step = front.next(look(now, marks));
            if now >= QUANTUM {
                let step = match step {
                    // In a long section it first shares the lock, which takes no time.
                    Share => front.next(look(now, marks)),
                    step => step,
                };
                assert_eq!(step, Request, "{front:?} at {now} sees {marks:?}");
            } else if depth > 0 {
                let next = now + length(step);
                assert!(next <= QUANTUM + SPIN, "{step:?} at {now} is too long");
                explore(front, next, depth - 1);
                explore(front, QUANTUM, 0);
            }
        }
    }
    for trial in [false, true] {
        explore(Front::new(QUANTUM, trial), 0, 4);
        explore(Front::new(QUANTUM, trial).among_readers(), 0, 4);
    }
}

fn head<'a>(kind: QueueKind, queue: &'a Osq<Native>) -> Headship<'a, Native> {
    let node = Native::waiters().take_node().expect("a slot is free");
    Headship::join(kind, queue, node, Tuning::DEFAULT).unwrap_or_else(|place| {
        let told = place.wait(true, NEVER).expect("no deadline");
        place.come(told)
    })
}

/// The second waiter gives up.
#[test]
fn a_waiter_in_the_queue_counts_those_ahead_and_may_leave() {
    for (kind, ahead) in [(QueueKind::Osq, Some(1)), (QueueKind::Cna, None)] {
        let queue = Osq::new();
        let front = head(kind, &queue);
        let node = Native::waiters().take_node().expect("a slot is free");
        let place = Headship::join(kind, &queue, node, Tuning::DEFAULT).expect_err("not the first");
        assert_eq!(place.count_ahead(8), ahead);
        assert_eq!(place.wait(true, 0), None);
        assert!(place.quit().is_none());
        drop(front);
        assert_eq!(queue.last(), 0);
        // No node was left behind.
        let nodes = [(); NESTING].map(|()| Native::waiters().take_node());
        assert!(nodes.iter().all(Option::is_some));
    }
}

/// The waiter at the front requests a hand-off after its share of a round. Other waiters sleep
/// behind it.
#[test]
fn the_quantum_is_a_share_of_the_round() {
    let wait = |tuning, deadline| Wait {
        deadline,
        tuning,
        trial: false,
        spin: SPIN,
    };
    let usual = wait(Tuning::DEFAULT, NEVER);
    let quantum = Tuning::DEFAULT.quantum.nanos();
    let share = |waiters| 2 * quantum / waiters;
    for kind in [QueueKind::Osq, QueueKind::Cna] {
        let queue = Osq::new();
        let front = head(kind, &queue);
        thread::scope(|s| {
            assert_eq!(usual.quantum(&front), quantum, "alone");
            for behind in 1..=3 {
                s.spawn(|| drop(head(kind, &queue)));
                let limit = Instant::now() + Duration::from_secs(300);
                while front.followers() < behind && Instant::now() < limit {
                    thread::yield_now();
                }
                let share = share(u64::from(behind) + 1);
                assert_eq!(usual.quantum(&front), share, "{behind} behind");
            }
            let short = |micros| Tuning {
                quantum: Quantum::from_micros(micros).unwrap(),
                ..Tuning::DEFAULT
            };
            assert_eq!(wait(short(30), NEVER).quantum(&front), SPIN, "not less");
            assert_eq!(wait(short(7), NEVER).quantum(&front), 7_000, "or all");
            assert_eq!(wait(short(0), NEVER).quantum(&front), 0, "fair");
            let limited = wait(Tuning::DEFAULT, Native::now() + 800_000).quantum(&front);
            assert!(limited <= 100_000, "an eighth of the limit: {limited}");
            drop(front);
        });
        assert_eq!(queue.last(), 0);
    }
}
