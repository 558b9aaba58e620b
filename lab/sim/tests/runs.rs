//! Runs on the simulated machine: repeatable, complete, and in the order that physics asks for.

use kinlock_sim::{Outcome, Placement, Run, locks, machine, workloads};

fn run(workload: &str, lock: &str, threads: usize) -> Run {
    let machine = machine::load("haswell-ex-4s").unwrap();
    Run {
        seconds: 0.002,
        ..Run::new(
            machine,
            workloads::by_name(workload).unwrap(),
            locks::by_name(lock).unwrap(),
            threads,
        )
    }
}

fn facts(o: &Outcome) -> (u64, Vec<u64>, u64, u64) {
    (o.ops, o.per_thread.clone(), o.events, o.waits.max())
}

#[test]
fn the_same_seed_gives_the_same_run_on_any_host_thread() {
    for workload in workloads::ALL {
        for lock in locks::all().filter(|lock| workload.takes() == lock.genre()) {
            let run = Run {
                seconds: 0.0003,
                ..run(workload.name, lock.name, 24)
            };
            let copy = run.clone();
            let elsewhere = std::thread::spawn(move || copy.execute().unwrap());
            let here = run.execute().unwrap();
            let elsewhere = elsewhere.join().unwrap();
            assert_eq!(
                facts(&here),
                facts(&elsewhere),
                "{} {}",
                workload.name,
                lock.name
            );
        }
    }
}

#[test]
fn another_seed_gives_another_run() {
    let one = run("lock2", "qspinlock", 24).execute().unwrap();
    let two = Run {
        seed: 2,
        ..run("lock2", "qspinlock", 24)
    }
    .execute()
    .unwrap();
    assert_ne!(facts(&one), facts(&two));
}

#[test]
fn fair_locks_let_every_thread_progress() {
    for lock in ["ticket", "mcs", "qspinlock", "fifo"] {
        let o = run("lock2", lock, 142).execute().unwrap();
        assert!(
            o.per_thread.iter().all(|&ops| ops > 0),
            "{lock}: {:?}",
            o.per_thread
        );
    }
}

#[test]
fn more_threads_than_cpus_end() {
    for lock in ["cna", "fifo"] {
        let o = Run {
            seconds: 0.02,
            ..run("lock2", lock, 300)
        }
        .execute()
        .unwrap();
        assert!(o.ops > 0, "{lock}");
    }
}

#[test]
fn handing_over_between_sockets_is_slower_than_within() {
    let within = Run {
        placement: Some(Placement::Compact),
        ..run("lock2", "mcs", 4)
    };
    let between = Run {
        placement: Some(Placement::Spread),
        ..run("lock2", "mcs", 4)
    };
    assert!(within.execute().unwrap().ops > between.execute().unwrap().ops);
}

fn throughput(machine: &str, workload: &str, lock: &str, threads: usize, seconds: f64) -> f64 {
    let run = Run {
        seconds,
        ..Run::new(
            machine::load(machine).unwrap(),
            workloads::by_name(workload).unwrap(),
            locks::by_name(lock).unwrap(),
            threads,
        )
    };
    run.execute().unwrap().ops_per_us()
}

#[test]
fn spinners_of_a_mutex_had_better_queue_on_eight_nodes_but_not_on_one() {
    let of = |lock, threads| throughput("westmere-ex-8s", "mutex-spinners", lock, threads, 0.02);
    assert!(of("polled-fifo", 80) > 1.05 * of("polled", 80));
    let one_node = of("polled-fifo", 10) / of("polled", 10);
    assert!((0.95..1.05).contains(&one_node), "{one_node}");
}

#[test]
fn a_copied_cpu_number_keeps_spinners_off_their_predecessors_lines() {
    // Measured in misses per critical section, since the throughput of so short a run is mostly
    // noise. With each of eight seeds 3 ms save 7 to 9 %; 1 ms, a hundred critical sections, 1 to 9
    // %.
    let misses = |lock| {
        let run = Run {
            seconds: 0.003,
            ..Run::new(
                machine::load("epyc-9654-2s").unwrap(),
                workloads::by_name("osq").unwrap(),
                locks::by_name(lock).unwrap(),
                128,
            )
        };
        let o = run.execute().unwrap();
        (o.traffic.local + o.traffic.remote + o.traffic.last_level) as f64 / o.ops as f64
    };
    let (shared, cached) = (misses("polled-osq-shared"), misses("polled-osq-cached"));
    assert!(cached < 0.95 * shared, "{cached} {shared}");
}

#[test]
fn every_mutex_lets_its_threads_end() {
    for kind in locks::ALL.iter().filter(|kind| kind.name.contains("mutex")) {
        assert!(run("mutex-spinners", kind.name, 160).execute().unwrap().ops > 0);
    }
}

#[test]
fn locks_say_what_they_have_counted() {
    let of = |workload, lock| {
        let outcome = run(workload, lock, 24).execute().unwrap();
        let names: Vec<_> = outcome.observed.iter().map(|(name, _)| *name).collect();
        assert!(outcome.observed.iter().all(|(_, count)| *count >= 0.0));
        names
    };
    assert_eq!(
        of("mutex-spinners", "polled-fifo"),
        ["queued_ns", "polled_ns"]
    );
    let names = of("invalidation", "invalidation-list");
    assert!(names.starts_with(&["begin_restarts", "end_restarts", "longest_queue"]));
    let names = of("invalidation", "invalidation-slots");
    assert_eq!(names, ["longest_queue"]);
    assert!(of("lock2", "qspinlock").contains(&"sixteenth_wait_ns"));
    assert!(of("lock2", "ticket").is_empty());
}

/// What a lock has counted in a short run.
fn observed(workload: &str, lock: &str, threads: usize) -> impl Fn(&str) -> f64 {
    let machine = machine::load("haswell-ex-4s").unwrap();
    let workload = workloads::by_name(workload).unwrap();
    let lock = locks::by_name(lock).unwrap();
    let run = Run {
        seconds: 0.002,
        ..Run::new(machine, workload, lock, threads)
    };
    let counts = run.execute().unwrap().observed;
    move |name| counts.iter().find(|count| count.0 == name).unwrap().1
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
