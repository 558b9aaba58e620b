//! What `kinlock-lab sim` is to simulate, and in which order.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use kinlock_cli::args::{ThreadCounts, keep_first};
use kinlock_cli::parameters::Parameters as Flags;
use kinlock_core::config::{Numa, Tuning};
use kinlock_linux::topology::DomainKind;
use kinlock_measure::machine::MachineEntry;
use kinlock_sim::locks::{self, Genre};
use kinlock_sim::workloads::Prepare;
use kinlock_sim::workloads::grid::{self, Cell};
use kinlock_sim::{Machine, Run, machine, workloads};

use super::args::{Args, Asked};
use super::results::{Parameters, Setup};
use crate::simulation::check;
use crate::simulation::pool::Job;
use crate::simulation::provenance::WorkloadEntry;
use crate::simulation::sampling::Variant;

/// The arguments, and the values that follow from them.
pub struct Plan<'a> {
    args: &'a Args,
    pub machine: Machine,
    workloads: Vec<workloads::Kind>,
    /// All locks, including the baseline.
    locks: Vec<locks::Kind>,
    baseline: locks::Kind,
    threads: Vec<usize>,
    variants: Vec<Variant>,
}

impl<'a> Plan<'a> {
    /// Makes a plan, with defaults for everything that was not asked for.
    pub fn new(args: &'a Args) -> anyhow::Result<Self> {
        let machine = machine::load(&args.machine)?;
        let mut workloads = workloads(args)?;
        let (usual, first) = usual_locks(&workloads[0]);
        let mut locks = match &args.locks[..] {
            [] => usual,
            chosen => chosen.to_vec(),
        };
        let baseline = args.baseline.unwrap_or(first);
        locks.push(baseline);
        keep_first(&mut locks, |kind| kind.name);
        keep_first(&mut workloads, |kind| kind.name);
        let all = machine.shape.cpus();
        let cpus = args.cpus.unwrap_or(all);
        ensure!(cpus <= all, "--cpus {cpus}: the machine has {all}");
        let threads = match &args.threads {
            Some(ThreadCounts(threads)) => threads.clone(),
            None => threads_on_grid(&workloads).unwrap_or_else(|| usual_threads(cpus)),
        };
        for workload in &workloads {
            check(workload, &locks, cpus, &threads)?;
        }
        Ok(Self {
            variants: args.sampling.variants(machine.shape.sockets),
            args,
            machine,
            workloads,
            locks,
            baseline,
            threads,
        })
    }

    /// All runs: by workload, number of threads and lock.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        for &workload in &self.workloads {
            for &threads in &self.threads {
                let run = |&lock| self.run(workload, lock, threads);
                runs.extend(self.locks.iter().map(run));
            }
        }
        runs
    }

    /// All simulations: each run with each variant.
    pub fn jobs(&self, runs: &[Run]) -> Vec<Job> {
        let variants = |run| Job::variants(run, &self.machine, &self.variants);
        runs.iter().flat_map(variants).collect()
    }

    /// One traced simulation of each lock that was asked for.
    pub fn traced(&self) -> anyhow::Result<Vec<Run>> {
        let (&[workload], &[threads]) = (&self.workloads[..], &self.threads[..]) else {
            bail!("--trace-handoffs takes one workload, and one number of threads: --threads 36");
        };
        ensure!(
            workload.takes() == Genre::Lock && !workload.has_many_locks(),
            "--trace-handoffs takes a workload with one lock, and {} takes {}",
            workload.name,
            match workload.has_many_locks() {
                true => "several",
                false => workload.takes().plural(),
            }
        );
        let asked = |lock: &&locks::Kind| {
            let named = self.args.locks.iter().any(|asked| asked.name == lock.name);
            named || self.args.locks.is_empty()
        };
        let run = |&lock: &locks::Kind| Run {
            seed: self.args.sampling.seed,
            trace: true,
            ..self.run(workload, lock, threads)
        };
        Ok(self.locks.iter().filter(asked).map(run).collect())
    }

    /// A command that gives this trace, with nothing left to defaults.
    pub fn traced_command(&self) -> Vec<String> {
        let args = self.args;
        let asked: Vec<_> = args.locks.iter().map(|kind| kind.name).collect();
        let mut flags = self
            .flags()
            .without(&["seeds", "band", "bands", "baseline"]);
        if !asked.is_empty() {
            flags = flags.with("locks", asked);
        }
        let flags = flags.add("trace-handoffs", &args.trace_handoffs);
        command(&flags)
    }

    /// The part of a report about this plan.
    pub fn setup(&self) -> Setup {
        let args = self.args;
        let workloads = self.workloads.iter();
        Setup {
            kind: "simulated",
            version: kinlock_cli::VERSION,
            commit: kinlock_cli::COMMIT,
            command: command(&self.flags()),
            machine: MachineEntry::new(&self.machine),
            parameters: Parameters {
                seconds: args.seconds,
                variants: self.variants.clone(),
                baseline: self.baseline.name,
                threads: self.threads.clone(),
                cpus: args.cpus,
                numa: args.numa.to_string(),
                reorder: self.reorder(),
                local_limit: args.local_limit.to_string(),
                domain: args.domain.to_string(),
                domains: self.domains(),
                locks: self.locks.clone(),
                workloads: workloads
                    .map(|kind| WorkloadEntry::new(kind, args.placement))
                    .collect(),
            },
            seeds: args.sampling.all_seeds(),
        }
    }

    fn run(&self, workload: workloads::Kind, lock: locks::Kind, threads: usize) -> Run {
        let args = self.args;
        let mut tuning = Tuning::DEFAULT;
        tuning.reorder = self.reorder();
        tuning.limit = args.local_limit;
        Run {
            cpus: args.cpus,
            placement: args.placement,
            tuning,
            domain: args.domain,
            seconds: args.seconds,
            ..Run::new(self.machine.clone(), workload, lock, threads)
        }
    }

    fn domains(&self) -> usize {
        match self.args.domain {
            DomainKind::LastLevelCache => self.machine.shape.caches(),
            DomainKind::Node | DomainKind::Socket => self.machine.shape.sockets,
        }
    }

    fn reorder(&self) -> bool {
        match self.args.numa {
            Numa::Auto => self.domains() > 1,
            Numa::On => true,
            Numa::Off => false,
        }
    }

    /// All flags that affect the results.
    fn flags(&self) -> Flags {
        let args = self.args;
        let workloads: Vec<_> = self.workloads.iter().map(|kind| kind.name).collect();
        let locks: Vec<_> = self.locks.iter().map(|kind| kind.name).collect();
        Flags::default()
            .add("machine", &args.machine)
            .add("workload", workloads)
            .add("locks", locks)
            .add("threads", &self.threads)
            .add("cpus", args.cpus)
            .add("seconds", args.seconds)
            .add("seeds", args.sampling.seeds)
            .add("seed", args.sampling.seed)
            .add("band", args.sampling.band)
            .add("bands", args.sampling.bands)
            .add(
                "placement",
                args.placement.map(|placement| placement.name()),
            )
            .add("numa", args.numa.to_string())
            .add("local-limit", args.local_limit.to_string())
            .add("domain", args.domain.to_string())
            .add("baseline", self.baseline.name)
    }
}

/// The command with these flags.
fn command(flags: &Flags) -> Vec<String> {
    let words = ["kinlock-lab", "sim"].map(str::to_owned).into_iter();
    words.chain(flags.arguments()).collect()
}

/// The workloads that were asked for, with the grid replaced by its cells.
fn workloads(args: &Args) -> anyhow::Result<Vec<workloads::Kind>> {
    let is_grid = |asked: &Asked| matches!(asked, Asked::Grid(_));
    ensure!(
        !args.quick || args.workload.iter().any(is_grid),
        "--quick is for the workloads grid, grid-core and grid-wide, which --workload leaves out"
    );
    let kinds = |asked: &Asked| match asked {
        Asked::Kind(kind) => vec![*kind],
        Asked::Grid(parts) => {
            let cells = Cell::chosen(parts, args.quick).into_iter();
            cells.map(grid::workload).collect()
        }
    };
    Ok(args.workload.iter().flat_map(kinds).collect())
}

/// The numbers of threads that the cells are meant for, if all workloads are cells.
fn threads_on_grid(workloads: &[workloads::Kind]) -> Option<Vec<usize>> {
    let cells = workloads.iter().map(|kind| Cell::find(kind.name));
    let cells: Vec<Cell> = cells.collect::<Option<_>>()?;
    let threads = cells.iter().flat_map(|cell| cell.part().threads());
    let threads: BTreeSet<usize> = threads.collect();
    Some(threads.into_iter().collect())
}

/// The default numbers of threads: doubling, and all CPUs.
fn usual_threads(cpus: usize) -> Vec<usize> {
    let doubling = std::iter::successors(Some(1), |n| Some(2 * n));
    let mut threads: Vec<usize> = doubling.take_while(|n| 3 * n <= 2 * cpus).collect();
    threads.push(cpus);
    threads
}

/// The default locks and the default baseline for workloads of which this is the first.
fn usual_locks(first: &workloads::Kind) -> (Vec<locks::Kind>, locks::Kind) {
    let known = |name| locks::by_name(name).expect("the defaults are known");
    match first.takes() {
        Genre::Policy => (locks::POLICIES.to_vec(), known("lowest-free")),
        Genre::Invalidation => (
            locks::invalidation::ALL.to_vec(),
            known("invalidation-locked"),
        ),
        Genre::ReaderWriter => (locks::rwlock::ALL.to_vec(), known("rwlock-central")),
        Genre::Lock if matches!(first.prepare, Prepare::Cell(..) | Prepare::Recorded(_)) => {
            let names = ["futex", "mutex", "mutex-cna"];
            (names.map(known).to_vec(), known("futex"))
        }
        Genre::Lock => {
            let names = ["tas", "ticket", "mcs", "qspinlock", "cna-v10", "cna"];
            (names.map(known).to_vec(), known("qspinlock"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::usual_threads;

    #[test]
    fn usual_numbers_of_threads() {
        assert_eq!(usual_threads(144), [1, 2, 4, 8, 16, 32, 64, 144]);
        assert_eq!(usual_threads(64), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(usual_threads(2), [1, 2]);
        assert_eq!(usual_threads(1), [1]);
    }
}
