//! What `kinlock sim` is to simulate, and in which order.

use anyhow::{anyhow, ensure};
use kinlock_core::config::{LocalLimit, Numa, Scan, Tuning};
use kinlock_core::topology::DomainKind;
use kinlock_sim::locks::{self, Genre};
use kinlock_sim::{Machine, Placement, Run, workloads};
use serde::{Deserialize, Serialize};

use super::flags::{Sampling, Variant};
use super::pool::Job;
use super::provenance::{LockEntry, MachineEntry, WorkloadEntry};

/// Everything that decides what runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine as the command line has it: a name or a file.
    pub machine_name: String,
    /// The machine.
    pub machine: Machine,
    /// The workloads.
    pub workloads: Vec<workloads::Kind>,
    /// The locks, the baseline among them.
    pub locks: Vec<locks::Kind>,
    /// The lock that the others are compared with.
    pub baseline: locks::Kind,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// Simulated seconds, after the warm-up.
    pub seconds: f64,
    /// Where threads run; `None`: as the workload was measured.
    pub placement: Option<Placement>,
    /// Seeds and band.
    pub sampling: Sampling,
    /// The knobs of `cna`.
    pub knobs: Knobs,
}

/// What the library's NUMA-aware lock can be configured to.
#[derive(Clone, Copy, Debug)]
pub struct Knobs {
    /// Whether queues are reordered.
    pub numa: Numa,
    /// How a local waiter is looked for.
    pub scan: Scan,
    /// How long hand-offs may stay local.
    pub local_limit: LocalLimit,
    /// What a locality domain is.
    pub domain: DomainKind,
    /// Whether reordering starts with a small probability only.
    pub shuffle_reduction: bool,
}

/// All that a report says about what ran. The same for all parts of a run, and for a run with other host threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// `simulated`.
    pub kind: String,
    /// Version of the command.
    pub version: String,
    /// Commit that it was built from, if it was built in a checkout.
    pub commit: Option<String>,
    /// A command that gives these results, with nothing left to defaults.
    pub command: Vec<String>,
    /// The machine.
    pub machine: MachineEntry,
    /// How it was simulated.
    pub parameters: Parameters,
    /// The seeds.
    pub seeds: Vec<u64>,
}

/// How it was simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Simulated seconds per run, after the warm-up.
    pub seconds: f64,
    /// What every lock ran with, in order.
    pub variants: Vec<Variant>,
    /// The lock that the others are compared with.
    pub baseline: String,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// `auto`, `on` or `off`.
    pub numa: String,
    /// What `numa` came to on this machine.
    pub reorder: bool,
    /// How a local waiter is looked for.
    pub scan: String,
    /// How long hand-offs may stay local.
    pub local_limit: String,
    /// What a locality domain is.
    pub domain: String,
    /// Locality domains of the machine.
    pub domains: usize,
    /// Whether reordering starts with a small probability only.
    pub shuffle_reduction: bool,
    /// The locks.
    pub locks: Vec<LockEntry>,
    /// The workloads and their constants.
    pub workloads: Vec<WorkloadEntry>,
}

impl Plan {
    /// All simulations: by workload, number of threads, lock and variant.
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &workload in &self.workloads {
            for &threads in &self.threads {
                for &lock in &self.locks {
                    jobs.extend(self.variants().into_iter().map(|variant| Job {
                        run: self.run(workload, lock, threads, variant),
                        variant,
                    }));
                }
            }
        }
        jobs
    }

    /// What a report says about this.
    pub fn setup(&self) -> Setup {
        let knobs = &self.knobs;
        let workloads = self.workloads.iter();
        Setup {
            kind: "simulated".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("KINLOCK_COMMIT").map(str::to_owned),
            command: self.command(),
            machine: MachineEntry::new(&self.machine),
            parameters: Parameters {
                seconds: self.seconds,
                variants: self.variants(),
                baseline: self.baseline.name.to_owned(),
                threads: self.threads.clone(),
                numa: knobs.numa.to_string(),
                reorder: self.reorder(),
                scan: knobs.scan.to_string(),
                local_limit: knobs.local_limit.to_string(),
                domain: knobs.domain.to_string(),
                domains: self.domains(),
                shuffle_reduction: knobs.shuffle_reduction,
                locks: self.locks.iter().map(LockEntry::new).collect(),
                workloads: workloads
                    .map(|kind| WorkloadEntry::new(kind, self.placement))
                    .collect(),
            },
            seeds: self.sampling.all_seeds(),
        }
    }

    fn variants(&self) -> Vec<Variant> {
        self.sampling.variants(self.machine.shape.sockets)
    }

    fn run(
        &self,
        workload: workloads::Kind,
        lock: locks::Kind,
        threads: usize,
        variant: Variant,
    ) -> Run {
        let mut tuning = Tuning::DEFAULT;
        tuning.reorder = self.reorder();
        tuning.scan = self.knobs.scan;
        tuning.limit = self.knobs.local_limit;
        tuning.shuffle_reduction = self.knobs.shuffle_reduction;
        let machine = self.machine.clone();
        let machine = machine.with_remote_latency(variant.remote_factor);
        Run {
            placement: self.placement,
            tuning,
            domain: self.knobs.domain,
            seconds: self.seconds,
            seed: variant.seed,
            ..Run::new(machine, workload, lock, threads)
        }
    }

    fn domains(&self) -> usize {
        match self.knobs.domain {
            DomainKind::LastLevelCache => self.machine.shape.caches(),
            DomainKind::Node | DomainKind::Socket => self.machine.shape.sockets,
        }
    }

    fn reorder(&self) -> bool {
        match self.knobs.numa {
            Numa::Auto => self.domains() > 1,
            Numa::On => true,
            Numa::Off => false,
        }
    }

    fn command(&self) -> Vec<String> {
        let names = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(",");
        let knobs = &self.knobs;
        let sampling = &self.sampling;
        let mut command = vec!["kinlock".to_owned(), "sim".to_owned()];
        let mut flag = |name: &str, value: String| {
            command.push(format!("--{name}"));
            command.push(value);
        };
        flag("machine", self.machine_name.clone());
        let workloads = &mut self.workloads.iter().map(|kind| kind.name.to_owned());
        flag("workload", names(workloads));
        let locks = &mut self.locks.iter().map(|kind| kind.name.to_owned());
        flag("locks", names(locks));
        let threads = &mut self.threads.iter().map(usize::to_string);
        flag("threads", names(threads));
        flag("seconds", self.seconds.to_string());
        flag("seeds", sampling.seeds.to_string());
        flag("seed", sampling.seed.to_string());
        flag("band", sampling.band.to_string());
        if let Some(placement) = self.placement {
            flag("placement", placement.name().to_owned());
        }
        flag("numa", knobs.numa.to_string());
        flag("scan", knobs.scan.to_string());
        flag("local-limit", knobs.local_limit.to_string());
        flag("domain", knobs.domain.to_string());
        let reduction = if knobs.shuffle_reduction { "on" } else { "off" };
        flag("shuffle-reduction", reduction.to_owned());
        flag("baseline", self.baseline.name.to_owned());
        command
    }
}

/// The numbers of threads that are simulated unless asked otherwise: doubling, and all CPUs.
pub fn usual_threads(cpus: usize) -> Vec<usize> {
    let doubling = std::iter::successors(Some(1), |n| Some(2 * n));
    let mut threads: Vec<usize> = doubling.take_while(|n| 3 * n <= 2 * cpus).collect();
    threads.push(cpus);
    threads
}

/// What the workloads are put to unless asked otherwise, and the baseline.
pub fn usual_locks(genre: Genre) -> (Vec<locks::Kind>, locks::Kind) {
    let known = |name| locks::by_name(name).expect("the defaults are known");
    match genre {
        Genre::Policy => (locks::POLICIES.to_vec(), known("lowest-free")),
        Genre::Invalidation => (
            locks::invalidation::ALL.to_vec(),
            known("invalidation-locked"),
        ),
        Genre::Lock => {
            let names = ["tas", "ticket", "mcs", "qspinlock", "cna-v10", "cna"];
            (names.map(known).to_vec(), known("qspinlock"))
        }
    }
}

/// Whether the workloads can be put to the locks, on a machine of so many CPUs with so many threads.
///
/// # Errors
/// If a workload takes something else than what it is given; if concurrency IDs ask for more CPUs than there are, or than fit.
pub fn check(
    workloads: &[workloads::Kind],
    locks: &[locks::Kind],
    cpus: usize,
    threads: &[usize],
) -> anyhow::Result<()> {
    for workload in workloads {
        for lock in locks {
            ensure!(
                workload.takes() == lock.genre(),
                "{} takes {}, and {} is {}",
                workload.name,
                workload.takes().plural(),
                lock.name,
                lock.genre().singular()
            );
        }
        let ids = workload.takes() == Genre::Policy;
        let most = threads.iter().max().copied().unwrap_or(0);
        ensure!(
            !ids || most <= cpus,
            "{} pins each thread to a CPU of its own: the machine has {cpus}, not {most}",
            workload.name
        );
        ensure!(
            !ids || cpus <= workloads::MAX_CPUS_FOR_IDS,
            "{} runs on machines of at most {} CPUs",
            workload.name,
            workloads::MAX_CPUS_FOR_IDS
        );
    }
    Ok(())
}

/// The workload called `name`.
///
/// # Errors
/// If there is none; names the known ones.
pub fn workload(name: &str) -> Result<workloads::Kind, String> {
    let known = workloads::ALL.iter().chain(workloads::IDS);
    let known = known.map(|kind| kind.name);
    workloads::by_name(name).ok_or_else(|| unknown("workload", known))
}

/// The lock called `name`.
///
/// # Errors
/// If there is none; names the known ones.
pub fn lock(name: &str) -> Result<locks::Kind, String> {
    let known = locks::all().map(|kind| kind.name);
    locks::by_name(name).ok_or_else(|| unknown("lock", known))
}

/// The placement called `name`.
///
/// # Errors
/// If there is none; names the known ones.
pub fn placement(name: &str) -> Result<Placement, String> {
    let all = Placement::ALL.iter();
    let found = all.clone().find(|(known, _)| *known == name);
    found
        .map(|&(_, placement)| placement)
        .ok_or_else(|| unknown("placement", all.map(|&(name, _)| name)))
}

fn unknown<'a>(what: &str, known: impl Iterator<Item = &'a str>) -> String {
    format!(
        "no such {what}; known: {}",
        known.collect::<Vec<_>>().join(", ")
    )
}

/// One of several parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Which one, from 1.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Shard {
    /// The most parts.
    const MOST: usize = 10_000;

    /// Whether the job with this place in the order belongs to it. Neighbours cost alike, so they are dealt out in turn.
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.index - 1
    }

    /// Parses `2/5`.
    ///
    /// # Errors
    /// If it is not one of that many.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parse = || -> anyhow::Result<Self> {
            let (index, of) = text.split_once('/').ok_or_else(|| anyhow!("no /"))?;
            let (index, of) = (index.parse()?, of.parse()?);
            ensure!(of <= Self::MOST && (1..=of).contains(&index));
            Ok(Self { index, of })
        };
        parse().map_err(|_| {
            let most = Self::MOST;
            format!("it has to be PART/PARTS, as 2/5: one of at most {most} parts, from 1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_numbers_of_threads() {
        assert_eq!(usual_threads(144), [1, 2, 4, 8, 16, 32, 64, 144]);
        assert_eq!(usual_threads(64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(usual_threads(2), [1, 2]);
        assert_eq!(usual_threads(1), [1]);
    }

    #[test]
    fn shards_are_a_partition() {
        let shards = [1, 2, 3].map(|index| Shard { index, of: 3 });
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(place)).count(), 1);
        }
    }
}
