//! Simulating, for the verbs that do: with which seeds and latencies ([`sampling`], [`draws`]), on
//! which threads of this machine ([`pool`]), what came out of one simulation ([`sample`]) and of
//! several ([`band`]), and what all of it rests on ([`provenance`]).

pub mod band;
pub mod draws;
pub mod pool;
pub mod provenance;
pub mod sample;
pub mod sampling;

use anyhow::ensure;
use kinlock_sim::locks::{self, Genre};
use kinlock_sim::workloads;

/// Whether a workload can be put to the locks, on a machine of `cpus` CPUs with each of these
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
