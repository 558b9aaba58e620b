//! The bounds on waiting that `docs/guide/mutex.md` states, on machines with a CPU for each thread.

use kinlock_sim::{Run, locks, machine, workloads};

const MILLI: u64 = 1_000_000;
/// The quantum, and the length of a round.
const QUANTUM: u64 = MILLI;
const ROUND: u64 = 2 * QUANTUM;
/// The least share of a round.
const LEAST: u64 = 20_000;
/// How long a newcomer spins before it queues.
const NEWCOMER: u64 = 20_000;
/// How long a thread takes to fall asleep and to run again, on the simulated machines.
const WAKE_UP: u64 = 50_000;

/// The longest that one of `threads` threads waits, if each holds the lock for `section`
/// nanoseconds. All others may be ahead of it, and have their turns first.
fn bound(threads: u64, section: u64) -> u64 {
    let ahead = threads - 1;
    let share = |waiters: u64| (ROUND / waiters).clamp(LEAST, QUANTUM);
    let to_the_front: u64 = (1..=ahead).map(share).sum();
    let at_the_front = QUANTUM;
    NEWCOMER + to_the_front + at_the_front + 2 * threads * section + threads * WAKE_UP
}

#[test]
fn no_wait_for_the_mutex_is_longer_than_the_guide_says() {
    for (machine, threads) in [("laptop", 4), ("haswell-ex-4s", 16), ("epyc-9654-2s", 64)] {
        for (cell, section) in [
            ("0/0/2", 0),
            ("400ns/100ns/2", 400),
            ("2us/1us/2", 2_000),
            ("20us/10us/2", 20_000),
            ("200us/10us/2", 200_000),
        ] {
            let machine = machine::load(machine).unwrap();
            let workload = workloads::by_name(&format!("grid:{cell}")).unwrap();
            let lock = locks::by_name("mutex").unwrap();
            let run = Run {
                seconds: 0.02,
                ..Run::new(machine, workload, lock, threads)
            };
            let outcome = run.execute().unwrap();
            let (longest, bound) = (outcome.acquire_ns.max, bound(threads as u64, section));
            assert!(
                longest <= bound,
                "{cell}, {threads} threads: {longest} ns, over {bound}"
            );
            assert!(outcome.ops > 0);
        }
    }
}
