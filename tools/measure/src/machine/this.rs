//! The host as a machine. Its shape is read, its latencies are measured within a second or so, and
//! the rest is assumed.

mod parameters;
#[cfg(test)]
mod tests;

use super::pingpong::{
    clock_ns, load_ns, locked_ns, median, next_line_ns, on_cpu, one_way_ns, pause_ns, wake_ns,
};
use super::{Distance, Machine, MachineError, Shape, file};
use crate::cpus;
use kinlock_linux::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

pub(super) fn measure() -> Result<Machine, MachineError> {
    let topology = Topology::current();
    let cpus = host_cpus(&topology);
    if cpus.len() < 2 {
        return Err(MachineError::new(
            Machine::THIS,
            "the process may use one CPU only: transfers between CPUs cannot be measured",
        ));
    }
    let (shape, note) = shape(&cpus, &node_distances(&topology))?;
    let latencies = Latencies::measure(&cpus, &shape)?;
    let clock_mhz = clock_mhz(cpus[0].cpu);
    let about = format!(
        "{}{}, measured; {note}",
        cpus::model(),
        ["", " (virtual)"][topology.is_virtual() as usize]
    );
    let text = file::text(Machine::THIS, &about, clock_mhz, &shape, |name| {
        parameters::get(name, &latencies, &shape)
    });
    file::parse(Machine::THIS, &text)
}

/// A CPU that the process may use, and what it belongs to. The numbers are only compared.
#[derive(Clone, Copy, Debug)]
struct HostCpu {
    cpu: usize,
    node: usize,
    socket: usize,
    cache: usize,
    core: usize,
}

fn host_cpus(topology: &Topology) -> Vec<HostCpu> {
    let allowed = topology.cpus().iter().filter(|cpu| cpu.allowed);
    let host_cpu = |cpu: &kinlock_linux::topology::Cpu| {
        let socket = cpu.socket.unwrap_or(0);
        HostCpu {
            cpu: cpu.number,
            node: cpu.node.unwrap_or(0),
            socket,
            // If the caches are unknown, each socket is given one, with a number that no real cache
            // has.
            cache: cpu.last_level_cache.unwrap_or(usize::MAX - socket),
            core: cpu.core.unwrap_or(cpu.number),
        }
    };
    allowed.map(host_cpu).collect()
}

fn node_distances(topology: &Topology) -> BTreeMap<(usize, usize), usize> {
    let nodes = topology.nodes();
    let mut distances = BTreeMap::new();
    for from in nodes {
        for (to, &distance) in nodes.iter().zip(&from.distances) {
            distances.insert((from.number, to.number), distance);
        }
    }
    distances
}

/// The regular shape that holds these CPUs, and a remark on how well it fits.
fn shape(
    cpus: &[HostCpu],
    distances: &BTreeMap<(usize, usize), usize>,
) -> Result<(Shape, String), MachineError> {
    let sockets: BTreeSet<usize> = cpus.iter().map(|s| s.socket).collect();
    let caches = counts(cpus.iter().map(|s| (s.socket, (s.socket, s.cache))));
    let cores = counts(
        cpus.iter()
            .map(|s| ((s.socket, s.cache), (s.socket, s.cache, s.core))),
    );
    let threads = counts(cpus.iter().map(|s| ((s.socket, s.cache, s.core), s.cpu)));
    let shape = Shape {
        sockets: sockets.len(),
        caches_per_socket: caches.1,
        cores_per_cache: cores.1,
        threads_per_core: threads.1,
        hops: hops(cpus, &sockets, distances),
    };
    if shape.caches() > Shape::MAX_CACHES || shape.cores() > Shape::MAX_CORES {
        let problem = format!(
            "{} last-level caches and {} cores are more than the {} and {} that can be simulated; \
             a smaller set of CPUs can be chosen with taskset",
            shape.caches(),
            shape.cores(),
            Shape::MAX_CACHES,
            Shape::MAX_CORES
        );
        return Err(MachineError::new(Machine::THIS, problem));
    }
    let uneven: Vec<String> = [
        ("last-level caches per socket", caches),
        ("cores per cache", cores),
        ("threads per core", threads),
    ]
    .iter()
    .filter(|(_, (least, most))| least != most)
    .map(|(what, (least, most))| format!("{least} to {most} {what}"))
    .collect();
    let mut note = format!("the {} CPUs that the process may use", cpus.len());
    if !uneven.is_empty() {
        let uneven = uneven.join(", ");
        note += &format!(" have {uneven}: the most are assumed everywhere");
    }
    Ok((shape, note))
}

/// How many different members the smallest and the largest group have.
fn counts<G: Ord, M: Ord>(pairs: impl Iterator<Item = (G, M)>) -> (usize, usize) {
    let mut groups: BTreeMap<G, BTreeSet<M>> = BTreeMap::new();
    for (group, member) in pairs {
        groups.entry(group).or_default().insert(member);
    }
    let sizes = || groups.values().map(BTreeSet::len);
    (sizes().min().unwrap_or(1), sizes().max().unwrap_or(1))
}

/// Two hops where the firmware's distance is in the upper half of a wide range, one hop elsewhere.
fn hops(
    cpus: &[HostCpu],
    sockets: &BTreeSet<usize>,
    distances: &BTreeMap<(usize, usize), usize>,
) -> Vec<u8> {
    let nodes_of = |socket: usize| -> BTreeSet<usize> {
        let here = cpus.iter().filter(|s| s.socket == socket);
        here.map(|s| s.node).collect()
    };
    let mut between = Vec::new();
    for &a in sockets {
        for &b in sockets {
            let mut pairs = Vec::new();
            for &x in &nodes_of(a) {
                pairs.extend(nodes_of(b).iter().flat_map(|&y| [(x, y), (y, x)]));
            }
            let distances = pairs.iter().filter_map(|pair| distances.get(pair));
            between.push((a == b, distances.max().copied()));
        }
    }
    let remote = between.iter().filter(|(is_own, _)| !is_own);
    let remote = remote.filter_map(|&(_, distance)| distance);
    let (near, far) = (remote.clone().min(), remote.max());
    let (near, far) = (near.unwrap_or(0), far.unwrap_or(0));
    let is_wide = far * 5 >= near * 6;
    let hops = between.into_iter().map(|between| match between {
        (true, _) => 0,
        (_, Some(distance)) if is_wide && 2 * distance > near + far => 2,
        _ => 1,
    });
    hops.collect()
}

/// Measured latencies, in ns.
struct Latencies {
    own_cache: f64,
    /// `None` if the sizes of the caches are unknown.
    last_level: Option<f64>,
    /// The time of one way of a line; `None` at distances that the machine does not have.
    one_way: [Option<f64>; super::DISTANCES],
    locked: f64,
    pause: f64,
    clock: f64,
    /// The time per line when many lines are read that another core has modified.
    next_line: f64,
    /// How long waking a thread takes the waker, and how much later that thread runs.
    wake: (f64, f64),
    pairs: [usize; super::DISTANCES],
}

/// The least latency, in ns: a measurement below it is noise.
const LEAST: f64 = 0.3;

impl Latencies {
    fn measure(cpus: &[HostCpu], shape: &Shape) -> Result<Self, MachineError> {
        let sizes = cache_sizes(cpus[0].cpu);
        let (own_cache, last_level, locked, pause, clock) = on_cpu(cpus[0].cpu, || {
            let last_level = sizes.map(|(below, last)| {
                load_ns((2 * below).max(last / 16).min(last / 2).min(MOST_TO_READ))
            });
            (
                load_ns(4096),
                last_level,
                locked_ns(),
                pause_ns(),
                clock_ns(),
            )
        })?;
        let (mut one_way, mut pairs) = ([None; super::DISTANCES], [0; super::DISTANCES]);
        let start = Instant::now();
        let by_distance = pairs_by_distance(cpus, shape);
        for (distance, all) in by_distance.iter().enumerate() {
            let few = sample(all, PAIRS_PER_DISTANCE);
            let time = TIME_PER_DISTANCE / few.len().max(1) as u32;
            let mut measured = Vec::new();
            for &(a, b) in &few {
                if measured.is_empty() || start.elapsed() < TIME {
                    measured.push(one_way_ns(a, b, time.min(MOST_TIME_PER_PAIR))?);
                }
            }
            pairs[distance] = measured.len();
            one_way[distance] = median(measured);
        }
        // If there is only one core, these are two threads of it.
        let nearest = by_distance.iter().flatten().next();
        let (a, b) = nearest.copied().unwrap_or((cpus[0].cpu, cpus[1].cpu));
        let next_line = next_line_ns(a, b, TURNS)?;
        let wake = wake_ns(a, b, TURNS)?;
        Ok(Latencies {
            own_cache: own_cache.max(LEAST),
            last_level,
            one_way,
            locked,
            pause: pause.max(LEAST),
            clock: clock.max(LEAST),
            next_line: next_line.max(LEAST),
            wake: (wake.0.max(LEAST), wake.1.max(LEAST)),
            pairs,
        })
    }

    fn rmw(&self) -> f64 {
        (self.locked - self.own_cache).max(LEAST)
    }

    /// A transfer of a modified line.
    fn modified(&self, distance: Distance) -> Option<f64> {
        let floor = self.own_cache;
        self.one_way[distance].map(|ns| (ns - self.rmw()).max(floor))
    }

    /// As [`modified`](Self::modified), for the next nearer distance if this one was not measured.
    /// If none was, which is so with a single core, it is a hit in the own cache.
    fn modified_or_nearer(&self, distance: Distance) -> f64 {
        let nearer = (0..=distance).rev().find_map(|d| self.modified(d));
        nearer.unwrap_or(self.own_cache)
    }

    fn last_level(&self) -> f64 {
        let guess = (self.modified_or_nearer(0) / 2.0).max(self.own_cache);
        // A modified line also comes through the last-level cache, so a hit there takes no longer.
        // Slower loads were not hits: another process had evicted the lines.
        let most = self.modified(0).unwrap_or(f64::INFINITY);
        self.last_level
            .map_or(guess, |ns| ns.min(most).max(self.own_cache))
    }
}

/// How many turns or wake-ups a median is taken from. All of them take some milliseconds.
const TURNS: usize = 200;
const PAIRS_PER_DISTANCE: usize = 50;
const TIME_PER_DISTANCE: Duration = Duration::from_millis(80);
const MOST_TIME_PER_PAIR: Duration = Duration::from_millis(20);
/// After this time, one pair per distance is enough.
const TIME: Duration = Duration::from_millis(800);
/// The most bytes to measure loads in: more would take too long to write.
const MOST_TO_READ: usize = 16 << 20;

/// The pairs of CPUs on different cores.
fn pairs_by_distance(cpus: &[HostCpu], shape: &Shape) -> [Vec<(usize, usize)>; super::DISTANCES] {
    let sockets: BTreeSet<usize> = cpus.iter().map(|s| s.socket).collect();
    let sockets: Vec<usize> = sockets.into_iter().collect();
    let number = |socket| sockets.binary_search(&socket).unwrap_or(0);
    let mut pairs: [Vec<(usize, usize)>; super::DISTANCES] = Default::default();
    for (i, a) in cpus.iter().enumerate() {
        for b in &cpus[i + 1..] {
            let distance = match (a.socket == b.socket, a.cache == b.cache) {
                (true, true) if a.core == b.core => continue,
                (true, true) => 0,
                (true, false) => 1,
                _ => 1 + shape.hops[number(a.socket) * sockets.len() + number(b.socket)] as usize,
            };
            pairs[distance].push((a.cpu, b.cpu));
        }
    }
    pairs
}

/// At most `most` of the values, evenly spread.
fn sample<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let n = all.len().min(most);
    (0..n).map(|i| all[i * all.len() / n]).collect()
}

/// The sizes of the last two levels of a CPU's caches, the last-level cache second.
fn cache_sizes(cpu: usize) -> Option<(usize, usize)> {
    let mut by_level = BTreeMap::new();
    for index in 0.. {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
        let Some(level) = read("level") else { break };
        let size =
            read("size").and_then(|size| size.trim().strip_suffix('K')?.parse::<usize>().ok());
        let holds_data = read("type").is_some_and(|kind| kind.trim() != "Instruction");
        if let (Ok(level), Some(size), true) = (level.trim().parse::<u32>(), size, holds_data) {
            by_level.insert(level, size * 1024);
        }
    }
    let last = by_level.pop_last()?.1;
    let below = by_level.pop_last()?.1;
    (below < last).then_some((below, last))
}

/// The frequency of the clock. It is only a unit here: latencies are measured in ns.
fn clock_mhz(cpu: usize) -> u64 {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq");
    let most = fs::read_to_string(path).ok();
    let most = most.and_then(|khz| Some(khz.trim().parse::<f64>().ok()? / 1000.0));
    let now = || cpus::info("cpu MHz").and_then(|mhz| mhz.parse().ok());
    most.or_else(now)
        .unwrap_or(2500.0)
        .clamp(100.0, 10_000.0)
        .round() as u64
}
