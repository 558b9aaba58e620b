//! Machine files: TOML, every number with its unit, its origin and its source.

use super::text::Text;
use super::{Costs, Machine, MachineError, Origin, Parameter, Shape};
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    about: String,
    clock_mhz: Spanned<i64>,
    shape: Spanned<ShapeTable>,
    latency: Spanned<LatencyTable>,
    hyperthreads: Spanned<HyperthreadTable>,
    system: Spanned<SystemTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct ShapeTable {
    sockets: Spanned<i64>,
    caches_per_socket: Spanned<i64>,
    cores_per_cache: Spanned<i64>,
    threads_per_core: Spanned<i64>,
    /// Only if some sockets are two hops apart.
    hops: Option<Spanned<Vec<Vec<i64>>>>,
}

type Number = Spanned<Quantity>;

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { ns = 5, origin = \"assumed\", source = \"why\" }"
)]
struct Quantity {
    ns: Option<f64>,
    cycles: Option<f64>,
    percent: Option<f64>,
    origin: Origin,
    source: String,
}

macro_rules! table {
    ($name:ident { $($field:ident,)* } optional { $($maybe:ident,)* }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, expecting = "a table")]
        pub(super) struct $name {
            $($field: Number,)*
            $($maybe: Option<Number>,)*
        }

        impl $name {
            pub(super) const NAMES: &'static [&'static str] =
                &[$(stringify!($field),)* $(stringify!($maybe),)*];

            fn numbers(&self) -> impl Iterator<Item = (&'static str, &Number)> {
                let numbers = [$(Some(&self.$field),)* $(self.$maybe.as_ref(),)*];
                let all = Self::NAMES.iter().zip(numbers);
                all.filter_map(|(&name, number)| Some((name, number?)))
            }
        }
    };
}

table! {
    LatencyTable {
        own_cache, last_level, modified, shared, invalidate, memory, read_occupancy, rmw, pause,
        spin_exit,
    } optional {
        modified_other_cache, shared_other_cache, invalidate_other_cache,
        modified_1_hop, shared_1_hop, invalidate_1_hop,
        memory_remote, modified_homed_at_reader, third_party_home, next_line, clock,
        modified_2_hops, shared_2_hops, invalidate_2_hops,
    }
}

table! {
    HyperthreadTable { sibling_computes, sibling_spins, } optional {}
}

table! {
    SystemTable { time_slice, context_switch, park, unpark, wake_latency, membarrier, }
    optional { tick, tick_period, }
}

pub(super) fn parse(origin: &str, text: &str) -> Result<Machine, MachineError> {
    let source = Text { origin, text };
    let file: File = toml::from_str(text).map_err(|e| source.parse_error(&e))?;
    let clock_mhz = source.whole("clock_mhz", &file.clock_mhz, 100, 10_000)? as u64;
    let shape = shape(&source, file.shape)?;
    let reader = Reader {
        file: &source,
        clock_mhz,
    };
    let latency = file.latency.get_ref().numbers();
    let numbers = latency
        .chain(file.hyperthreads.get_ref().numbers())
        .chain(file.system.get_ref().numbers());
    let numbers: Vec<_> = numbers.collect();
    let costs = costs(&reader, &numbers)?;
    if let Some(name) = missing(&shape, &numbers) {
        let problem = format!("`{name}` is missing: this machine's shape needs it");
        return Err(source.error(file.latency.span().start, problem));
    }
    Ok(Machine {
        name: file.name,
        about: file.about,
        shape,
        costs,
        parameters: numbers.iter().map(parameter).collect(),
    })
}

fn shape(file: &Text<'_>, table: Spanned<ShapeTable>) -> Result<Shape, MachineError> {
    let at = table.span().start;
    let table = table.into_inner();
    let (most_caches, most_cores) = (Shape::MAX_CACHES as i64, Shape::MAX_CORES as i64);
    let sockets = file.whole("sockets", &table.sockets, 1, most_caches)?;
    let caches = &table.caches_per_socket;
    let cores = &table.cores_per_cache;
    let shape = Shape {
        sockets,
        caches_per_socket: file.whole("caches_per_socket", caches, 1, most_caches)?,
        cores_per_cache: file.whole("cores_per_cache", cores, 1, most_cores)?,
        threads_per_core: file.whole("threads_per_core", &table.threads_per_core, 1, 8)?,
        hops: match table.hops {
            None => (0..sockets * sockets)
                .map(|i| (i / sockets != i % sockets) as u8)
                .collect(),
            Some(rows) => hops(file, rows, sockets)?,
        },
    };
    if shape.caches() > Shape::MAX_CACHES || shape.cores() > Shape::MAX_CORES {
        let (caches, cores) = (Shape::MAX_CACHES, Shape::MAX_CORES);
        let what = format!("`shape` has more than {caches} last-level caches or {cores} cores");
        return Err(file.error(at, what));
    }
    Ok(shape)
}

fn hops(
    file: &Text<'_>,
    rows: Spanned<Vec<Vec<i64>>>,
    sockets: usize,
) -> Result<Vec<u8>, MachineError> {
    let at = rows.span().start;
    let rows = rows.into_inner();
    let wrong = |what: String| Err(file.error(at, format!("`hops` {what}")));
    if rows.len() != sockets || rows.iter().any(|row| row.len() != sockets) {
        return wrong(format!(
            "has to be {sockets} rows of {sockets} numbers, one for each pair of sockets"
        ));
    }
    for (a, row) in rows.iter().enumerate() {
        for (b, &n) in row.iter().enumerate() {
            if a == b && n != 0 || a != b && !(1..=2).contains(&n) || n != rows[b][a] {
                return wrong(format!(
                    "says {n} from socket {a} to {b}: it has to be 0 on the diagonal, else 1 or 2, \
                     and the same both ways"
                ));
            }
        }
    }
    Ok(rows.concat().into_iter().map(|n| n as u8).collect())
}

struct Reader<'a> {
    file: &'a Text<'a>,
    clock_mhz: u64,
}

impl Reader<'_> {
    /// Cycles, from either unit of time.
    fn time(&self, name: &str, number: &Number) -> Result<u64, MachineError> {
        let q = number.get_ref();
        let cycles = match (q.ns, q.cycles, q.percent) {
            (Some(ns), None, None) => ns * self.clock_mhz as f64 / 1000.0,
            (None, Some(cycles), None) => cycles,
            _ => return Err(self.error(name, number, "needs exactly one of `ns` and `cycles`")),
        };
        // A second is more than anything here takes.
        if !(0.0..=1e9 * self.clock_mhz as f64 / 1000.0).contains(&cycles) {
            return Err(self.error(name, number, "has to be between 0 and one second"));
        }
        Ok(cycles.round() as u64)
    }

    fn percent(&self, name: &str, number: &Number) -> Result<u64, MachineError> {
        let q = number.get_ref();
        match (q.ns, q.cycles, q.percent) {
            (None, None, Some(p)) if (100.0..=1000.0).contains(&p) => Ok(p.round() as u64),
            _ => Err(self.error(
                name,
                number,
                "needs `percent`, from 100 to 1000, and no other unit",
            )),
        }
    }

    fn error(&self, name: &str, number: &Number, what: &str) -> MachineError {
        self.file
            .error(number.span().start, format!("`{name}` {what}"))
    }
}

/// The costs that the numbers of a file set.
fn costs(reader: &Reader<'_>, numbers: &[(&'static str, &Number)]) -> Result<Costs, MachineError> {
    let mut costs = Costs {
        clock_mhz: reader.clock_mhz,
        ..Costs::default()
    };
    for &(name, number) in numbers {
        let value = match Costs::is_percentage(name) {
            true => reader.percent(name, number)?,
            false => reader.time(name, number)?,
        };
        *costs.named(name).expect("every field is a cost") = value;
    }
    costs.time_slice = costs.time_slice.max(1);
    Ok(costs)
}

/// The first number that is not there though a machine of this shape needs it.
fn missing(shape: &Shape, numbers: &[(&'static str, &Number)]) -> Option<&'static str> {
    let needed = |name: &str| match name {
        _ if name.ends_with("_other_cache") => shape.caches_per_socket > 1,
        _ if name.ends_with("_1_hop") || name == "memory_remote" => shape.sockets > 1,
        _ if name.ends_with("_2_hops") => shape.hops.contains(&2),
        _ => false,
    };
    let is_there = |name: &str| numbers.iter().any(|&(known, _)| known == name);
    let mut names = LatencyTable::NAMES.iter().copied();
    names.find(|name| needed(name) && !is_there(name))
}

fn parameter(&(name, number): &(&'static str, &Number)) -> Parameter {
    let q = number.get_ref();
    let units = [(q.ns, "ns"), (q.cycles, "cycles"), (q.percent, "%")];
    let value = units
        .iter()
        .find_map(|(v, unit)| v.map(|v| format!("{v} {unit}")));
    Parameter {
        name,
        value: value.unwrap_or_default(),
        origin: q.origin,
        source: q.source.clone(),
    }
}
