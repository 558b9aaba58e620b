//! Machines as text, in the format that `file` reads.

use super::file::{HyperthreadTable, LatencyTable, SystemTable};
use super::{Costs, Machine, Origin, Parameter, Shape};
use std::fmt::Write;

pub(super) fn machine(machine: &Machine) -> String {
    text(
        &machine.name,
        &machine.about,
        machine.costs.clock_mhz,
        &machine.shape,
        |name| {
            let written = machine.parameters.iter().find(|p| p.name == name);
            as_in_use(name, written, &machine.costs)
        },
    )
}

/// A machine file with the parameters that `parameter` knows.
pub(super) fn text(
    name: &str,
    about: &str,
    clock_mhz: u64,
    shape: &Shape,
    parameter: impl Fn(&'static str) -> Option<Parameter>,
) -> String {
    let mut out = format!(
        "name = {}\nabout = {}\nclock_mhz = {clock_mhz}\n\n",
        quoted(name),
        quoted(about)
    );
    write_shape(&mut out, shape);
    let tables = [
        ("latency", LatencyTable::NAMES),
        ("hyperthreads", HyperthreadTable::NAMES),
        ("system", SystemTable::NAMES),
    ];
    for (table, names) in tables {
        write!(out, "\n[{table}]\n").unwrap();
        for p in names.iter().filter_map(|name| parameter(name)) {
            let (number, unit) = number_and_unit(&p.value);
            let (origin, source) = (p.origin, quoted(&p.source));
            let name = p.name;
            writeln!(
                out,
                "{name} = {{ {unit} = {number}, origin = \"{origin}\", source = {source} }}"
            )
            .unwrap();
        }
    }
    out
}

fn write_shape(out: &mut String, shape: &Shape) {
    writeln!(
        out,
        "[shape]\nsockets = {}\ncaches_per_socket = {}\ncores_per_cache = {}\nthreads_per_core = {}",
        shape.sockets, shape.caches_per_socket, shape.cores_per_cache, shape.threads_per_core
    )
    .unwrap();
    if shape.hops.contains(&2) {
        out.push_str("hops = [\n");
        for row in shape.hops.chunks(shape.sockets) {
            writeln!(out, "    {row:?},").unwrap();
        }
        out.push_str("]\n");
    }
}

/// What the file says, unless the program has changed the cost since.
fn as_in_use(name: &'static str, written: Option<&Parameter>, costs: &Costs) -> Option<Parameter> {
    let (cost, is_percent) = cost(name, costs)?;
    let changed = |source: String| Parameter {
        name,
        value: format!("{cost} {}", if is_percent { "%" } else { "cycles" }),
        origin: Origin::Assumed,
        source,
    };
    match written {
        None if cost == 0 => None,
        None => Some(changed("set by the program".into())),
        Some(p) => {
            let (number, unit) = number_and_unit(&p.value);
            let then = match unit {
                "ns" => costs.cycles(number),
                _ => number.round() as u64,
            };
            // A file's time slice of 0 becomes 1.
            if then.max(u64::from(name == "time_slice")) == cost {
                return Some(p.clone());
            }
            let was = format!(
                "{} ({}: {}), then changed by the program",
                p.value, p.origin, p.source
            );
            Some(changed(was))
        }
    }
}

/// The number and its unit as the file spells it.
fn number_and_unit(value: &str) -> (f64, &str) {
    let (number, unit) = value.split_once(' ').unwrap_or((value, "cycles"));
    let unit = if unit == "%" { "percent" } else { unit };
    (number.parse().unwrap_or_default(), unit)
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The cost that a parameter sets, and whether it is a percentage. `None` if there is no such
/// parameter.
fn cost(name: &str, c: &Costs) -> Option<(u64, bool)> {
    let cycles = match name {
        "own_cache" => c.own_cache,
        "last_level" => c.last_level,
        "modified" => c.modified[0],
        "modified_other_cache" => c.modified[1],
        "modified_1_hop" => c.modified[2],
        "modified_2_hops" => c.modified[3],
        "modified_homed_at_reader" => c.modified_homed_at_reader,
        "third_party_home" => c.third_party_home,
        "shared" => c.shared[0],
        "shared_other_cache" => c.shared[1],
        "shared_1_hop" => c.shared[2],
        "shared_2_hops" => c.shared[3],
        "invalidate" => c.invalidate[0],
        "invalidate_other_cache" => c.invalidate[1],
        "invalidate_1_hop" => c.invalidate[2],
        "invalidate_2_hops" => c.invalidate[3],
        "memory" => c.memory[0],
        "memory_remote" => c.memory[1],
        "read_occupancy" => c.read_occupancy,
        "rmw" => c.rmw,
        "pause" => c.pause,
        "spin_exit" => c.spin_exit,
        "time_slice" => c.time_slice,
        "context_switch" => c.context_switch,
        "park" => c.park,
        "unpark" => c.unpark,
        "wake_latency" => c.wake_latency,
        "membarrier" => c.membarrier,
        "sibling_computes" => return Some((c.sibling_computes_pct, true)),
        "sibling_spins" => return Some((c.sibling_spins_pct, true)),
        _ => return None,
    };
    Some((cycles, false))
}
