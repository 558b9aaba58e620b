//! The parameters of the host: measured, derived or assumed.

use super::Latencies;
use crate::machine::{Origin, Parameter, Shape};

/// The parameter called `name`; `None` if a machine of this shape does not need it.
pub(super) fn get(name: &'static str, l: &Latencies, shape: &Shape) -> Option<Parameter> {
    let value = latency(name, l, shape).or_else(|| constant(name))?;
    let (number, unit, origin, source) = value;
    Some(Parameter {
        name,
        value: format!("{} {unit}", (number * 10.0).round() / 10.0),
        origin,
        source,
    })
}

/// A number, its unit, and where it comes from.
type Value = (f64, &'static str, Origin, String);

fn measured(ns: f64, how: impl Into<String>) -> Option<Value> {
    Some((ns, "ns", Origin::Measured, how.into()))
}

fn assumed(number: f64, unit: &'static str, why: &str) -> Option<Value> {
    Some((number, unit, Origin::Assumed, why.to_owned()))
}

fn latency(name: &str, l: &Latencies, shape: &Shape) -> Option<Value> {
    let (kind, distance) = match name {
        "memory_remote" if shape.sockets == 1 => return None,
        "modified" | "shared" | "invalidate" => (name, 0),
        _ => match name.split_once('_') {
            Some((kind, "other_cache")) if shape.caches_per_socket > 1 => (kind, 1),
            Some((kind, "1_hop")) if shape.sockets > 1 => (kind, 2),
            Some((kind, "2_hops")) if shape.hops.contains(&2) => (kind, 3),
            _ => (name, 0),
        },
    };
    let last_level = l.last_level();
    let modified = l.modified_or_nearer(distance);
    match kind {
        "own_cache" => measured(l.own_cache, "dependent loads within 4 KiB"),
        "last_level" if l.last_level.is_some() => measured(
            last_level,
            "dependent loads from more than the cache below holds; at most modified",
        ),
        "last_level" => assumed(
            last_level,
            "ns",
            "half of modified: the sizes of the caches are unknown",
        ),
        "modified" if l.modified(distance).is_some() => measured(
            modified,
            format!(
                "compare-and-swap ping between CPUs, one way, median of pairs ({}), less rmw",
                l.pairs[distance]
            ),
        ),
        "modified" => assumed(modified, "ns", "no two cores at this distance: as nearer"),
        "shared" if distance == 0 => assumed(
            last_level,
            "ns",
            "never asked for: a line shared in a cache is in that cache",
        ),
        "shared" => assumed(
            (modified * 0.8).max(last_level),
            "ns",
            "0.8 of modified: no core has to be asked",
        ),
        "invalidate" => assumed(
            modified,
            "ns",
            "as modified: the same round trip, without the data",
        ),
        "memory" => assumed(last_level + 70.0, "ns", "last_level and 70 ns"),
        "memory_remote" => {
            let hop = l.modified_or_nearer(2) - l.modified_or_nearer(0);
            assumed(
                last_level + 70.0 + hop.max(0.0),
                "ns",
                "memory, and what a hop adds to modified",
            )
        }
        "read_occupancy" => assumed(last_level / 3.0, "ns", "a third of last_level"),
        "next_line" => measured(
            l.next_line,
            "incrementing 128 lines that another core has modified, per line",
        ),
        "rmw" => measured(l.rmw(), "locked additions to one word, less own_cache"),
        "clock" => measured(l.clock, "reading the clock of the system"),
        "pause" => measured(l.pause, "a turn of a spin loop"),
        "unpark" => measured(
            l.wake.0,
            "waking a thread on another CPU that has slept for 20 us: what the waker pays",
        ),
        "wake_latency" => measured(l.wake.1, "the same: how long after that the thread runs"),
        _ => None,
    }
}

fn constant(name: &str) -> Option<Value> {
    const SIBLING: &str = "two threads on a core get 1.4 of its throughput together";
    match name {
        "spin_exit" => assumed(
            40.0,
            "cycles",
            "a mispredicted branch and the pause in flight",
        ),
        "sibling_computes" | "sibling_spins" => assumed(140.0, "%", SIBLING),
        "time_slice" => assumed(
            3e6,
            "ns",
            "Linux: minimum granularity of the fair scheduler from eight CPUs on",
        ),
        "context_switch" => assumed(1500.0, "ns", "usual"),
        "park" => assumed(800.0, "ns", "a system call and going to sleep"),
        "membarrier" => assumed(5000.0, "ns", "interrupts to all CPUs that run the process"),
        "tick" => assumed(2500.0, "ns", "an interrupt and the scheduler's accounting"),
        "tick_period" => assumed(1e6, "ns", "CONFIG_HZ=1000, as in Linux' x86_64_defconfig"),
        _ => None,
    }
}
