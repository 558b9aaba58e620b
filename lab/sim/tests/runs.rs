//! Runs on the simulated machine are repeatable and complete, and their speeds are in a plausible
//! order.

use kinlock_sim::{Outcome, Placement, Run, locks, machine, workloads};

fn run(machine: &str, workload: &str, lock: &str, threads: usize) -> Run {
    let machine = machine::load(machine).unwrap();
    let workload = workloads::by_name(workload).unwrap();
    let lock = locks::by_name(lock).unwrap();
    Run {
        seconds: 0.002,
        ..Run::new(machine, workload, lock, threads)
    }
}

fn facts(o: &Outcome) -> (Vec<u64>, u64, u64) {
    (o.per_thread.clone(), o.events, o.acquire_ns.max)
}

#[test]
fn the_same_seed_gives_the_same_run_on_any_host_thread() {
    for workload in workloads::ALL.iter().chain(workloads::IDS) {
        for lock in locks::all().filter(|lock| workload.takes() == lock.genre()) {
            let run = Run {
                seconds: 0.0003,
                ..run("haswell-ex-4s", workload.name, lock.name, 24)
            };
            let copy = run.clone();
            let elsewhere = std::thread::spawn(move || copy.execute().unwrap());
            let here = facts(&run.execute().unwrap());
            let elsewhere = facts(&elsewhere.join().unwrap());
            assert_eq!(here, elsewhere, "{} {}", workload.name, lock.name);
        }
    }
}

#[test]
fn every_machine_runs_with_a_thread_per_cpu_and_fair_locks_let_each_progress() {
    for (name, _) in machine::BUILT_IN {
        let cpus = machine::load(name).unwrap().shape.cpus();
        // With hundreds of CPUs this run is too short for ours, whose threads first claim slots.
        let ours = (cpus < 200).then_some("fifo");
        for lock in ["ticket", "mcs", "qspinlock"].into_iter().chain(ours) {
            let outcome = run(name, "lock2", lock, cpus).execute().unwrap();
            assert!(
                outcome.per_thread.iter().all(|&ops| ops > 0),
                "{name} {lock}"
            );
        }
    }
}

#[test]
fn distance_slows_a_lock_down_on_every_machine_that_has_any() {
    for (name, _) in machine::BUILT_IN {
        let ops = |placement| {
            let run = Run {
                placement: Some(placement),
                ..run(name, "lock2", "mcs", 4)
            };
            run.execute().unwrap().ops
        };
        let is_flat = machine::load(name).unwrap().shape.caches() == 1;
        assert!(
            is_flat || ops(Placement::Compact) > ops(Placement::Spread),
            "{name}"
        );
    }
}

/// What a lock has counted in a short run, by name.
fn observed(workload: &str, lock: &str, threads: usize) -> impl Fn(&str) -> f64 {
    let outcome = run("haswell-ex-4s", workload, lock, threads)
        .execute()
        .unwrap();
    move |name| outcome.observed[name]
}

#[test]
fn each_layout_of_the_queue_has_fewer_misses_per_look_than_the_one_before() {
    let layouts = [
        "polled-osq-shared",
        "polled-osq-own-line",
        "polled-osq-cached",
    ];
    let misses = layouts.map(|lock| observed("osq", lock, 128)("misses_per_look"));
    assert!(misses[0] > 1.5 * misses[1] && misses[1] > 1.5 * misses[2]);
}

#[test]
fn threads_with_priority_wait_shorter() {
    let wait = |lock| observed("locktorture", lock, 36)("sixteenth_wait_ns");
    assert!(wait("cna-v10-priority") < 0.5 * wait("qspinlock"));
}

#[test]
fn a_scan_looks_at_one_waiter_per_handoff_on_average() {
    let of = observed("lock2", "cna-v10", 72);
    assert!(of("scan_steps_per_handoff") < 1.5 && of("most_scan_steps") > 10.0);
    assert!(observed("lock2", "cna-v11", 72)("most_scan_steps") <= 2.0);
}
