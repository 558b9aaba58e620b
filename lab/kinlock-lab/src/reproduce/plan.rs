//! What has to be simulated for a table, and the targets of its numbers.

use anyhow::bail;
use kinlock_sim::published::{Measure, Row, Table};
use kinlock_sim::{Machine, Outcome, Placement, Run, locks, machine, workloads};

use crate::simulation::check;
use crate::simulation::pool::Job;
use crate::simulation::sampling::Variant;

/// How far a throughput, a time or an observation may be off, in percent.
const NUMBER: f64 = 25.0;
/// How far a ratio may be off, in percent.
const RATIO: f64 = 10.0;
/// Ratios that are this near to 1, in percent, count as no difference. This is less than most
/// published deviations of a speed-up, whose median is 4.8.
const NO_DIFFERENCE: f64 = 3.0;
/// An explanation of targets, which follows their number.
pub const TARGETS: &str = "targets met (! misses): columns within 25 % of the published number, \
                           ratios within 10 % with the same lock ahead; a better number misses \
                           as a worse one does, and one simulation counts once";

/// A table, and the machine to simulate it on.
#[derive(Clone, Debug)]
pub struct Plan {
    pub table: Table,
    pub machine: Machine,
    pub workload: workloads::Kind,
    /// Simulated seconds per run; the workload decides if there is none.
    pub seconds: Option<f64>,
    /// The locks behind the columns.
    pub locks: Vec<locks::Kind>,
    /// The rows, those with the fewest threads first.
    pub rows: Vec<Row>,
    /// The published number of the first column and row, to which throughputs are scaled.
    pub scale_to: Option<f64>,
    /// Numbers of threads to simulate, and where they run.
    pub runs: Vec<(usize, Option<Placement>)>,
}

impl Plan {
    /// All rows of a table, on its own machine or on `machine`. An error if there is no such
    /// machine.
    pub fn new(table: Table, machine: Option<&str>, seconds: Option<f64>) -> anyhow::Result<Self> {
        let rows = table.rows();
        let mut runs: Vec<_> = rows
            .iter()
            .map(|row| (row.threads, row.placement))
            .collect();
        runs.dedup();
        let workload = workloads::by_name(table.workload);
        let locks = table.columns.iter().map(|(_, lock)| locks::by_name(lock));
        let locks: Option<Vec<_>> = locks.collect();
        Ok(Self {
            machine: machine::load(machine.unwrap_or(table.machine))?,
            workload: workload.expect("tables name known workloads"),
            seconds: seconds.or(table.seconds),
            locks: locks.expect("tables name known locks"),
            scale_to: match table.measure {
                Measure::Throughput(_) => rows[0].published[0],
                Measure::Bursts => None,
            },
            rows,
            table,
            runs,
        })
    }

    /// Whether there are rows with these numbers of threads.
    pub fn check_has(&self, threads: &[usize]) -> anyhow::Result<()> {
        let has = |wanted| self.runs.iter().any(|(threads, _)| *threads == wanted);
        if let Some(wanted) = threads.iter().find(|&&wanted| !has(wanted)) {
            let known: Vec<_> = self.runs.iter().map(|(n, _)| n.to_string()).collect();
            let (name, known) = (self.table.name, known.join(","));
            bail!("{name} has no row with {wanted} threads; it has {known}");
        }
        Ok(())
    }

    /// Keeps only the rows with these numbers of threads; all rows if there are no numbers. The row
    /// that decides the scale is simulated in any case.
    pub fn keep(&mut self, threads: &[usize]) {
        if threads.is_empty() {
            return;
        }
        let first = self.scale_to.map(|_| self.rows[0].threads);
        self.rows.retain(|row| threads.contains(&row.threads));
        let is_run = |n: &usize| threads.contains(n) || first == Some(*n);
        self.runs.retain(|(threads, _)| is_run(threads));
    }

    /// Checks that the machine can run the table.
    pub fn check_fits(&self) -> anyhow::Result<()> {
        let threads: Vec<_> = self.runs.iter().map(|(threads, _)| *threads).collect();
        check(&self.workload, &[], self.machine.shape.cpus(), &threads)
    }

    /// All simulations: by number of threads, lock and variant.
    pub fn jobs(&self, variants: &[Variant]) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &(threads, placement) in &self.runs {
            for &lock in &self.locks {
                let run = Run {
                    // Workloads with concurrency IDs decide how long they take.
                    seconds: self.seconds.unwrap_or(0.0),
                    placement,
                    ..Run::new(self.machine.clone(), self.workload, lock, threads)
                };
                jobs.extend(Job::variants(&run, &self.machine, variants));
            }
        }
        jobs
    }

    /// The number that a column shows, in operations per microsecond or nanoseconds per burst.
    pub fn value(&self, outcome: &Outcome) -> f64 {
        match self.table.measure {
            Measure::Throughput(_) => outcome.ops_per_us,
            Measure::Bursts => outcome.ids.map_or(0.0, |ids| ids.mean(ids.nanos)),
        }
    }

    /// The number of the table's units in that unit.
    pub fn unit(&self) -> f64 {
        match self.table.measure {
            Measure::Throughput(per_ops_per_us) => per_ops_per_us,
            Measure::Bursts => 1.0,
        }
    }
}

/// Whether a throughput, a time or an observation meets its target.
pub fn number_is_met(published: f64, simulated: f64) -> bool {
    error_pct(published, simulated).abs() <= NUMBER
}

/// Whether a ratio meets its target. `deviation`: the published ratio's, if it is known. If a ratio
/// differs from 1 by no more than that, it may be chance, and no lock is ahead.
pub fn ratio_is_met(published: f64, deviation: Option<f64>, simulated: f64) -> bool {
    let nothing = NO_DIFFERENCE.max(100.0 * deviation.unwrap_or(0.0));
    error_pct(published, simulated).abs() <= RATIO
        && ahead(published, nothing) == ahead(simulated, nothing)
}

/// How far a number is off, in percent of the published one.
pub fn error_pct(published: f64, simulated: f64) -> f64 {
    100.0 * (simulated / published - 1.0)
}

/// Which lock is ahead: -1 the first, 1 the second, 0 neither, if they differ by less than this
/// percentage.
fn ahead(ratio: f64, nothing: f64) -> i8 {
    let percent = 100.0 * (ratio - 1.0);
    (percent > nothing) as i8 - (percent < -nothing) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_too_good_misses_as_one_that_is_too_bad() {
        assert!(number_is_met(100.0, 124.0) && number_is_met(100.0, 76.0));
        assert!(!number_is_met(100.0, 126.0) && !number_is_met(100.0, 74.0));
        assert!(ratio_is_met(1.5, None, 1.64) && ratio_is_met(1.5, None, 1.36));
        assert!(!ratio_is_met(1.5, None, 1.66) && !ratio_is_met(1.5, None, 1.34));
    }

    #[test]
    fn the_same_lock_has_to_be_ahead_unless_it_may_be_chance() {
        assert!(!ratio_is_met(1.04, None, 0.99));
        assert!(!ratio_is_met(1.04, None, 1.0));
        assert!(ratio_is_met(1.02, None, 0.99));
        assert!(ratio_is_met(1.04, Some(0.05), 0.99));
        assert!(ratio_is_met(1.005, None, 0.995));
        // A deviation does not excuse the size of an error.
        assert!(!ratio_is_met(0.98, Some(0.3), 0.8));
    }
}
