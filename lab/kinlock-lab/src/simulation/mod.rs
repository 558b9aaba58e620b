//! Simulations, for the verbs that run them: the seeds and latencies ([`sampling`], [`draws`]), the
//! threads of this machine that run them ([`pool`]), the results of one simulation ([`sample`]) and
//! of several ([`band`]), and the origins of their parameters ([`provenance`]).

pub mod band;
pub mod draws;
pub mod pool;
pub mod provenance;
pub mod sample;
pub mod sampling;

use anyhow::ensure;
use kinlock_sim::locks::{self, Genre};
use kinlock_sim::workloads;

/// Checks that a workload can run with the locks, on a machine of `cpus` CPUs, with each of these
/// numbers of threads.
pub fn check(
    workload: &workloads::Kind,
    locks: &[locks::Kind],
    cpus: usize,
    threads: &[usize],
) -> anyhow::Result<()> {
    let name = workload.name;
    for lock in locks {
        ensure!(
            workload.takes().admits(lock.genre()),
            "{name} takes {}, and {} is {}",
            workload.takes().plural(),
            lock.name,
            lock.genre().singular()
        );
    }
    if workload.takes() == Genre::Policy {
        let most = threads.iter().max().copied().unwrap_or(0);
        ensure!(
            most <= cpus,
            "{name} pins each thread to a CPU of its own: the machine has {cpus}, not {most}"
        );
        let limit = workloads::MAX_CPUS_FOR_IDS;
        ensure!(
            cpus <= limit,
            "{name} runs on machines of at most {limit} CPUs"
        );
    }
    Ok(())
}
