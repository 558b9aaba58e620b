//! Results of the grid: how our lock compares in each cell, and over all cells of a number of
//! threads.

use std::collections::BTreeMap;
use std::io::Write;

use kinlock_cli::report::cells::best_first;
use kinlock_cli::report::table::{Columns, Table, wrapped};
use kinlock_cli::report::units::time;
use kinlock_linux::config;
use kinlock_measure::stats::{Summary, geometric_mean};
use serde::Serialize;

use super::Locks;
use super::workloads::grid::{Cell, Part};
use crate::harness::overview::{cpu_over_least, fast};
use crate::harness::results::{Report, Shown};
use crate::harness::suite::Entry;

/// Our lock in a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    #[serde(flatten)]
    pub cell: Cell,
    /// The peer with the most throughput.
    pub peer: String,
    /// Throughput divided by that peer's in the same round, median over rounds.
    pub ratio: f64,
    /// The same for every peer.
    pub ratio_to: BTreeMap<String, f64>,
    pub cpu_ns_per_op: f64,
    pub peer_cpu_ns_per_op: f64,
    /// CPU time per operation divided by the peer's.
    pub cpu_ratio: f64,
    /// CPU time per operation divided by the least among locks within 5 % of the highest
    /// throughput.
    pub cpu_over_least: f64,
    /// The 99 % quantile of the waits.
    pub p99_wait_ns: u64,
    pub peer_p99_wait_ns: u64,
    /// `p99_wait_ns` divided by the least among peers within 5 % of the peer's throughput.
    pub p99_over_least: f64,
    pub longest_wait_ns: u64,
    pub peer_longest_wait_ns: u64,
    /// The longest wait of parking-lot, if it was measured.
    pub parking_lot_longest_wait_ns: Option<u64>,
    /// Whether our longest wait is longer than permitted.
    pub too_long: bool,
    /// Operations of the slowest thread divided by the mean.
    pub min_over_mean: f64,
    pub peer_min_over_mean: f64,
}

/// Our lock in all cells of a part of the grid, with a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Standings {
    pub part: Part,
    pub threads: usize,
    pub lock: String,
    /// Geometric mean over the cells of the ratio to each cell's best peer.
    pub ratio: f64,
    ratio_to: BTreeMap<String, f64>,
    /// Geometric mean of the CPU time per operation divided by the best peer's.
    cpu_ratio: f64,
    /// Cells with more than 1.1 times the CPU time per operation of a lock that is as fast.
    costly_cells: usize,
    /// Geometric mean of the 99 % waits divided by the least among the fast peers.
    p99_ratio: f64,
    too_long_waits: usize,
    least_min_over_mean: f64,
    pub cells: Vec<Standing>,
}

/// The part of the grid to which an entry belongs, if it belongs to the grid.
pub fn part_of(entry: &Entry<Locks>) -> Option<Part> {
    Cell::find(entry.workload).map(Cell::part)
}

/// How the first of our locks compares on the grid, by part and number of threads; nothing without
/// a peer.
pub fn standings(results: &[Entry<Locks>]) -> Vec<Standings> {
    let mut by_threads = BTreeMap::<(Part, usize), Vec<Standing>>::new();
    let is_there = |name: &&&str| {
        results
            .iter()
            .any(|e| e.lock == **name && part_of(e).is_some())
    };
    let Some(&ours) = Locks::OURS.iter().find(is_there) else {
        return Vec::new();
    };
    for cell in results.chunk_by(|a, b| (a.workload, a.threads) == (b.workload, b.threads)) {
        if let Some(standing) = Standing::of(ours, cell) {
            let key = (standing.cell.part(), cell[0].threads);
            by_threads.entry(key).or_default().push(standing);
        }
    }
    let all = by_threads.into_iter();
    all.map(|(key, cells)| Standings::new(ours, key, cells))
        .collect()
}

/// Throughput divided by another lock's in the same round, median over rounds.
pub fn throughput_ratio(own: &Entry<Locks>, other: &Entry<Locks>) -> f64 {
    let rounds = own.rounds.iter().zip(&other.rounds);
    Summary::of(rounds.map(|(own, other)| own.ops_per_s / other.ops_per_s)).median
}

impl Standing {
    fn of(ours: &str, entries: &[Entry<Locks>]) -> Option<Self> {
        let cell = Cell::find(entries[0].workload)?;
        let own = entries.iter().find(|entry| entry.lock == ours)?;
        let mut peers = best_first(entries);
        peers.retain(|entry| !Locks::OURS.contains(&&*entry.lock));
        let peer = *peers.first()?;
        let ratio = |peer| throughput_ratio(own, peer);
        let longest = |entry: &Entry<Locks>| entry.detail.acquire_ns.max;
        let p99 = |entry: &Entry<Locks>| entry.detail.acquire_ns.p99;
        let least_p99 = fast(peers.iter().copied()).map(p99).min()?;
        let parking_lot = peers.iter().find(|entry| entry.lock == "parking-lot");
        let parking_lot = parking_lot.map(|entry| longest(entry));
        let allowed = 3 * parking_lot.unwrap_or(u64::MAX / 3);
        Some(Self {
            cell,
            peer: peer.lock.clone(),
            ratio: ratio(peer),
            ratio_to: peers.iter().map(|p| (p.lock.clone(), ratio(p))).collect(),
            cpu_ns_per_op: own.cpu_ns_per_op.median,
            peer_cpu_ns_per_op: peer.cpu_ns_per_op.median,
            cpu_ratio: own.cpu_ns_per_op.median / peer.cpu_ns_per_op.median,
            cpu_over_least: cpu_over_least(own, entries),
            p99_wait_ns: p99(own),
            peer_p99_wait_ns: p99(peer),
            p99_over_least: p99(own).max(1) as f64 / least_p99.max(1) as f64,
            longest_wait_ns: longest(own),
            peer_longest_wait_ns: longest(peer),
            parking_lot_longest_wait_ns: parking_lot,
            too_long: longest(own) > allowed.max(bound(own.threads, cell.section_ns)),
            min_over_mean: own.fairness.min_over_mean,
            peer_min_over_mean: peer.fairness.min_over_mean,
        })
    }
}

/// The longest permitted wait in ns, however long others' waits are: for each thread a section and
/// its share of a round (see "Bounds" in `docs/guide/mutex.md`), and time for the system to run the
/// threads.
fn bound(threads: usize, section_ns: u32) -> u64 {
    let quantum = config::tuning().quantum.nanos();
    let share = |waiters: u64| (2 * quantum / waiters).max(20_000).min(quantum);
    let threads = threads as u64;
    let shares: u64 = (1..=threads).map(share).sum();
    shares + (threads + 1) * u64::from(section_ns) + 20_000_000
}

impl Standings {
    fn new(ours: &str, (part, threads): (Part, usize), cells: Vec<Standing>) -> Self {
        let mean = |value: &dyn Fn(&Standing) -> f64| geometric_mean(cells.iter().map(value));
        let count = |is: &dyn Fn(&&Standing) -> bool| cells.iter().filter(is).count();
        let peers = cells[0].ratio_to.keys();
        let fairness = cells.iter().map(|cell| cell.min_over_mean);
        Self {
            part,
            threads,
            lock: ours.to_owned(),
            ratio: mean(&|cell| cell.ratio),
            ratio_to: peers
                .map(|peer| (peer.clone(), mean(&|cell| cell.ratio_to[peer])))
                .collect(),
            cpu_ratio: mean(&|cell| cell.cpu_ratio),
            costly_cells: count(&|cell| cell.cpu_over_least > 1.1),
            p99_ratio: mean(&|cell| cell.p99_over_least),
            too_long_waits: count(&|cell| cell.too_long),
            least_min_over_mean: fairness.fold(f64::INFINITY, f64::min),
            cells,
        }
    }

    fn worst_first(&self) -> Vec<&Standing> {
        let mut cells: Vec<_> = self.cells.iter().collect();
        cells.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        cells
    }
}

/// How many of the worst cells are shown without `--details`.
const WORST: usize = 5;

pub fn write(report: &Report<Locks>, out: &mut dyn Write) -> anyhow::Result<()> {
    let all = standings(&report.results);
    if all.is_empty() {
        return Ok(());
    }
    let lock = &all[0].lock;
    writeln!(
        out,
        "{lock} on the grid: geometric means of ratios to peers"
    )?;
    let table = means(&all);
    let text = table.text(0..table.headings.len());
    writeln!(out, "{}\n", table.fitted(text))?;
    let which = match report.details {
        true => "All cells, the worst first",
        false => "Its worst cells",
    };
    writeln!(
        out,
        "{which} (section / private work / cache lines, and threads)"
    )?;
    let table = worst(&all, if report.details { usize::MAX } else { WORST });
    let text = table.text(1..table.headings.len());
    writeln!(out, "{}\n", table.fitted(text))?;
    let meaning = format!(
        "x best: throughput over that of the peer with the most, which is the peer named. p99: the \
         99 % wait, and over the least of the peers within 5 % of that peer's throughput. cpu/op: \
         over the least of all locks within 5 % of the most throughput; costly: over 1.1 times \
         that. min/mean: the slowest thread over the mean. Too long: a wait over 3 times \
         parking-lot's longest and the bound: a section for each thread, its share of a round with \
         a quantum of {} us, and 20 ms.",
        config::tuning().quantum.micros()
    );
    writeln!(out, "{}", wrapped(&meaning, ""))?;
    Ok(())
}

/// A row per part and number of threads.
fn means(all: &[Standings]) -> Table {
    let mut columns = Columns::<Standings>::new()
        .add("grid", |s| s.part.name())
        .add("threads", |s| s.threads)
        .add("cells", |s| s.cells.len())
        .number("x best", 3, |s| s.ratio)
        .number("least", 2, |s| s.worst_first()[0].ratio);
    for peer in all[0].ratio_to.keys() {
        let heading = format!("x {peer}").replace('-', "\n");
        let peer = peer.clone();
        let ratio = move |s: &Standings| s.ratio_to.get(&peer).copied().unwrap_or(f64::NAN);
        columns = columns.number(heading, 3, ratio);
    }
    columns
        .number("p99 x\nleast", 2, |s| s.p99_ratio)
        .number("cpu/op\nx best's", 2, |s| s.cpu_ratio)
        .add("costly\ncells", |s| s.costly_cells)
        .add("waits\ntoo long", |s| s.too_long_waits)
        .number("least\nmin/mean", 2, |s| s.least_min_over_mean)
        .of(all)
}

/// The worst cells, in at most `most` rows per part and number of threads.
fn worst(all: &[Standings], most: usize) -> Table {
    let cells = all.iter().flat_map(|standings| {
        let worst = standings.worst_first().into_iter().take(most);
        worst.map(|cell| (standings.threads, cell))
    });
    let cells: Vec<_> = cells.collect();
    let longest = cells.iter().map(|(_, cell)| cell.cell.name().len()).max();
    let width = longest.unwrap_or(0);
    let name = move |&(threads, cell): &(usize, &Standing)| {
        let name = cell.cell.name();
        format!("{name:<width$} {threads:>2}")
    };
    let short = |ns: f64| time(ns).replace(' ', "");
    let wait = move |ns: u64| short(ns as f64);
    Columns::<(usize, &Standing)>::new()
        .add("cell and threads", name)
        .number("x best", 2, |(_, c)| c.ratio)
        .add("best\npeer", |(_, c)| c.peer.replace("-mutex", ""))
        .add("p99\nwait", move |(_, c)| wait(c.p99_wait_ns))
        .number("x\nleast", 2, |(_, c)| c.p99_over_least)
        .add("longest\nwait", move |(_, c)| wait(c.longest_wait_ns))
        .add("peer's", move |(_, c)| wait(c.peer_longest_wait_ns))
        .add("cpu/op", move |(_, c)| short(c.cpu_ns_per_op))
        .number("x\nleast", 2, |(_, c)| c.cpu_over_least)
        .number("min/\nmean", 2, |(_, c)| c.min_over_mean)
        .number("peer's", 2, |(_, c)| c.peer_min_over_mean)
        .of(&cells)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::harness::slice::Sample;
    use crate::locks::contenders::LockName;
    use crate::locks::round::Watched;
    use crate::locks::trace::Step;
    use crate::locks::workloads::WorkloadName;

    /// What a lock did in a second: operations of two threads, CPU time, longest wait in ms.
    type Did = (LockName, [u64; 2], u64, u64);

    fn entries(name: &str, did: &[Did]) -> Vec<Entry<Locks>> {
        let cell = WorkloadName::Cell(Cell::find(name).unwrap());
        let measured = did.iter().map(|(lock, ops, cpu_ms, wait_ms)| {
            let mut extra = Watched::default();
            extra.note(wait_ms * 1_000_000, Step::First);
            let sample = Sample {
                ops: ops.to_vec(),
                elapsed: Duration::from_secs(1),
                cpu: Duration::from_millis(*cpu_ms),
                extra,
            };
            (lock, vec![(0, sample)])
        });
        let suite = Locks::of(vec![], LockName::StdMutex);
        Entry::of_cell(&suite, cell, 2, &measured.collect::<Vec<_>>())
    }

    #[test]
    fn our_lock_is_compared_with_the_best_peer_of_each_cell() {
        use LockName::{KinlockMutex, ParkingLot, StdMutex};
        let mut results = entries(
            "grid:0/100ns/2",
            &[
                (KinlockMutex, [300, 500], 1600, 90),
                (StdMutex, [500, 500], 1000, 1),
                (ParkingLot, [490, 490], 490, 10),
            ],
        );
        results.extend(entries(
            "grid:20us/0/16",
            &[
                (KinlockMutex, [100, 100], 100, 20),
                (StdMutex, [30, 30], 30, 1),
                (ParkingLot, [50, 50], 100, 1),
            ],
        ));
        results.extend(entries("grid:0/0/2", &[(StdMutex, [1, 1], 1, 1)]));
        let all = standings(&results);
        assert_eq!((all.len(), all[0].threads), (1, 2));
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        // 0.8 times the throughput of std, and 2 times that of parking-lot.
        close(all[0].ratio, (0.8f64 * 2.0).sqrt());
        close(all[0].ratio_to["std-mutex"], (0.8f64 * 200.0 / 60.0).sqrt());
        close(all[0].cpu_ratio, (2.0f64 * 0.5).sqrt());
        close(all[0].least_min_over_mean, 0.75);
        // All waits of a cell are as long as its longest one. In the first cell 90 ms are divided
        // by std's 1 ms, in the second one 20 ms by parking-lot's 1 ms.
        let p99: Vec<_> = all[0]
            .cells
            .iter()
            .map(|cell| cell.p99_over_least)
            .collect();
        assert!(
            (p99[0] - 90.0).abs() < 2.0 && (p99[1] - 20.0).abs() < 1.0,
            "{p99:?}"
        );
        assert_eq!(all[0].cells[0].peer_longest_wait_ns / 100_000, 10);
        // parking-lot is nearly as fast as std for half of its CPU time.
        close(all[0].cells[0].cpu_over_least, 4.0);
        let (costly, too_long) = (all[0].costly_cells, all[0].too_long_waits);
        // 90 ms are above both three times 10 ms and the bound of 22 ms; 20 ms are not.
        assert_eq!((costly, too_long), (1, 1));
        let worst: Vec<_> = all[0].worst_first();
        assert_eq!(worst[0].peer, "std-mutex");
        assert_eq!(worst[0].parking_lot_longest_wait_ns.unwrap() / 100_000, 100);
    }

    #[test]
    fn the_parts_of_the_grid_stand_apart() {
        use LockName::{KinlockMutex, StdMutex};
        let did = [(KinlockMutex, [1, 1], 1, 1), (StdMutex, [1, 1], 1, 1)];
        let mut results = entries("grid:50us-exp/0/2", &did);
        results.extend(entries("grid:0/0/2", &did));
        let all = standings(&results);
        let parts: Vec<_> = all.iter().map(|s| (s.part, s.cells.len())).collect();
        assert_eq!(parts, [(Part::Core, 1), (Part::Wide, 1)]);
        assert!(worst(&all, 5).width() <= 110 && means(&all).width() <= 110);
    }

    #[test]
    fn without_a_peer_nothing_is_compared() {
        let alone = [(LockName::KinlockMutex, [1, 1], 1, 1)];
        assert!(standings(&entries("grid:0/0/2", &alone)).is_empty());
    }
}
