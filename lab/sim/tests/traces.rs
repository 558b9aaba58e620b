//! Traced runs: the trace changes nothing, adds up, and names the lines that travel.

use kinlock_sim::locks::{self, Genre};
use kinlock_sim::trace::{Cause, Distance, Handoff, Part, Reach, Stage, Step};
use kinlock_sim::{Outcome, Placement, Run, Trace, machine, workloads};

fn run(workload: &str, lock: &str, threads: usize) -> Run {
    Run {
        seconds: 0.001,
        trace: true,
        ..Run::new(
            machine::load("haswell-ex-4s").unwrap(),
            workloads::by_name(workload).unwrap(),
            locks::by_name(lock).unwrap(),
            threads,
        )
    }
}

fn trace(run: &Run) -> Trace {
    run.execute().unwrap().trace.unwrap()
}

/// Everything that a run measures.
fn facts(o: &Outcome) -> String {
    let measured = (&o.per_thread, o.handoffs, o.traffic, o.events);
    format!("{measured:?} {:?} {:?}", o.counters, o.acquire_ns)
}

#[test]
fn a_trace_changes_no_result() {
    // With and without sleeping, on CPUs of their own and on shared ones.
    for (workload, threads, seconds) in [
        ("lock2", 36, 0.0001),
        ("locktorture", 40, 0.0001),
        ("grid:2us/100ns/16", 150, 0.0002),
    ] {
        for lock in locks::all().filter(|lock| lock.genre() == Genre::Lock) {
            let traced = Run {
                seconds,
                ..run(workload, lock.name, threads)
            };
            let plain = Run {
                trace: false,
                ..traced.clone()
            };
            let (traced, plain) = (traced.execute().unwrap(), plain.execute().unwrap());
            assert_eq!(facts(&traced), facts(&plain), "{workload} {}", lock.name);
            assert!(plain.trace.is_none());
            check(&traced.trace.unwrap(), lock.name);
        }
    }
}

/// Stages follow each other, their steps have no gaps, and shares add up.
fn check(trace: &Trace, name: &str) {
    assert!(trace.cycles > 0, "{name}");
    for handoff in &trace.handoffs {
        let Handoff {
            acquired_ns,
            released_ns,
            asked_ns,
            handed_ns,
            ..
        } = *handoff;
        assert!(
            acquired_ns <= released_ns && released_ns <= asked_ns,
            "{name}"
        );
        fill(&handoff.held, acquired_ns, released_ns, name);
        fill(&handoff.handed, asked_ns, handed_ns, name);
    }
    for pair in trace.handoffs.windows(2) {
        assert_eq!(pair[0].handed_ns, pair[1].acquired_ns, "{name}");
        assert_eq!(pair[0].to, pair[1].from, "{name}");
    }
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * (1.0 + a.abs());
    let shares: f64 = trace.shares.iter().map(|share| share.ns).sum();
    assert!(near(shares, trace.ns), "{name}");
    let handed = |stage| move |share: &kinlock_sim::trace::Share| share.stage == stage;
    let by_distance: f64 = trace.distances.iter().map(|those| those.ns).sum();
    let handed = trace.mean_ns(handed(Stage::Handed)) * trace.cycles as f64;
    assert!(near(handed, by_distance), "{name}: {handed} {by_distance}");
    let counted: u64 = trace.distances.iter().map(|those| those.count).sum();
    assert_eq!(counted, trace.cycles, "{name}");
}

fn fill(steps: &[Step], from: f64, to: f64, name: &str) {
    let ends = steps.iter().map(|step| step.to_ns);
    let starts = steps.iter().map(|step| step.from_ns);
    let joints: Vec<_> = [from].into_iter().chain(ends).collect();
    let expected: Vec<_> = starts.chain([to]).collect();
    assert_eq!(joints, expected, "{name}: {steps:?}");
    assert!(steps.iter().all(|step| step.from_ns < step.to_ns), "{name}");
}

#[test]
fn a_saturated_lock_is_explained_from_beginning_to_end() {
    let run = run("lock2", "qspinlock", 36);
    let outcome = run.execute().unwrap();
    let trace = outcome.trace.unwrap();
    let whole = 1e9 * run.seconds;
    assert!((0.99 * whole..=whole).contains(&trace.ns), "{}", trace.ns);
    // Each operation takes the lock once.
    let difference = trace.cycles as f64 / outcome.ops as f64 - 1.0;
    assert!(difference.abs() < 0.05, "{} {}", trace.cycles, outcome.ops);
    // There is always a thread that waits.
    assert!(trace.mean_ns(|share| share.stage == Stage::Free) < 1.0);
}

fn ns_from(trace: &Trace, from: Reach) -> f64 {
    trace.mean_ns(|share| matches!(share.cause, Cause::Line(_, reach) if reach == from))
}

#[test]
fn lines_come_from_where_the_threads_are() {
    const LOCKS: &str = "tas ticket mcs qspinlock cna-v10 cna mutex futex";
    use Placement::{Compact, Spread};
    for lock in LOCKS.split(' ') {
        for (machine, threads, placement, from, not_from) in [
            (
                "haswell-ex-4s",
                4,
                Compact,
                Reach::SameCache,
                Reach::OtherSocket,
            ),
            (
                "haswell-ex-4s",
                4,
                Spread,
                Reach::OtherSocket,
                Reach::SameCache,
            ),
            // The threads fill two of the twelve caches of a socket.
            (
                "epyc-9654-2s",
                16,
                Compact,
                Reach::SameSocket,
                Reach::OtherSocket,
            ),
        ] {
            let trace = trace(&Run {
                machine: machine::load(machine).unwrap(),
                placement: Some(placement),
                ..run("grid:400ns/0/2", lock, threads)
            });
            // A mutex stays with a holder that takes it again at once.
            let stays = (lock, threads) == ("mutex", 16);
            assert!(stays || ns_from(&trace, from) > 0.0, "{lock} {from:?}");
            assert_eq!(ns_from(&trace, not_from), 0.0, "{lock} {from:?}");
        }
    }
}

#[test]
fn lines_are_called_what_they_are() {
    let moves = |trace: &Trace, part| -> f64 {
        Reach::ALL
            .into_iter()
            .flat_map(|reach| trace.moves(part, reach))
            .sum()
    };
    // A ticket lock has no nodes; of the data, 16 lines move with each hand-off.
    let ticket = trace(&run("grid:400ns/0/16", "ticket", 8));
    assert_eq!(moves(&ticket, Part::Node), 0.0);
    assert!(moves(&ticket, Part::Word) > 1.0);
    let data = moves(&ticket, Part::Data);
    assert!((15.9..16.1).contains(&data), "{data}");
    let lines = ticket
        .lines
        .iter()
        .filter(|moved| moved.line.part == Part::Data);
    let numbers: Vec<_> = lines.map(|moved| moved.line.number).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
}

/// With one thread no line moves, and the time between sections is the thread's own.
#[test]
fn a_thread_alone_waits_for_nothing() {
    let trace = trace(&run("lock2", "cna", 1));
    let only = |share: &kinlock_sim::trace::Share| share.cause != Cause::Own;
    assert_eq!(trace.mean_ns(only), 0.0);
    assert!(trace.mean_ns(|share| share.stage == Stage::Free) > 500.0);
    assert_eq!(trace.distances.len(), 1);
    assert_eq!(trace.distances[0].distance, Distance::Retaken);
    assert_eq!(trace.handoffs.len(), Trace::KEPT.min(trace.cycles as usize));
}
