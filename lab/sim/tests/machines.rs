//! Every machine that comes with the crate, full of threads.

use kinlock_sim::{Machine, Placement, Run, locks, machine, workloads};

fn run(machine: &Machine, lock: &str, threads: usize) -> Run {
    let workload = workloads::by_name("lock2").unwrap();
    let lock = locks::by_name(lock).unwrap();
    Run {
        seconds: 0.001,
        ..Run::new(machine.clone(), workload, lock, threads)
    }
}

#[test]
fn every_machine_runs_with_a_thread_per_cpu() {
    for (name, _) in machine::BUILT_IN {
        let machine = machine::load(name).unwrap();
        let cpus = machine.shape.cpus();
        let outcome = run(&machine, "mcs", cpus).execute().unwrap();
        assert_eq!(outcome.per_thread.len(), cpus, "{name}");
        assert!(outcome.per_thread.iter().all(|&ops| ops > 0), "{name}");
    }
}

#[test]
fn distance_slows_a_lock_down_on_every_machine_that_has_any() {
    for (name, _) in machine::BUILT_IN {
        let machine = machine::load(name).unwrap();
        if machine.shape.caches() == 1 {
            continue;
        }
        let ops = |placement| {
            let run = Run {
                placement: Some(placement),
                ..run(&machine, "mcs", 4)
            };
            run.execute().unwrap().ops
        };
        assert!(ops(Placement::Compact) > ops(Placement::Spread), "{name}");
    }
}
