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
        "[shape]\nsockets = {}\ncaches_per_socket = {}\ncores_per_cache = {}\n\
         threads_per_core = {}",
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

/// The number as the file has it, or as in use if the program has changed the cost since.
fn as_in_use(name: &'static str, written: Option<&Parameter>, costs: &Costs) -> Option<Parameter> {
    let cost = *costs.clone().named(name)?;
    let unit = if Costs::is_percentage(name) {
        "%"
    } else {
        "cycles"
    };
    let changed = |source: String| Parameter {
        name,
        value: format!("{cost} {unit}"),
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
