//! Reads and writes machine files: TOML, every number with its unit, its origin and its source.

use super::{Costs, Machine, MachineError, Origin, Parameter, Shape};
use serde::Deserialize;
use std::fmt::{self, Write};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    let latency = file.latency.get_ref().numbers();
    let numbers = latency
        .chain(file.hyperthreads.get_ref().numbers())
        .chain(file.system.get_ref().numbers());
    let numbers: Vec<_> = numbers.collect();
    let costs = costs(&source, clock_mhz, &numbers)?;
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

/// The costs that the numbers of a file set.
fn costs(
    file: &Text<'_>,
    clock_mhz: u64,
    numbers: &[(&'static str, &Number)],
) -> Result<Costs, MachineError> {
    let mut costs = Costs {
        clock_mhz,
        ..Costs::default()
    };
    let cycles_of = |ns: f64| ns * clock_mhz as f64 / 1000.0;
    for &(name, number) in numbers {
        let q = number.get_ref();
        let wrong = |what: &str| Err(file.error(number.span().start, format!("`{name}` {what}")));
        let value = match (Costs::is_percentage(name), q.ns, q.cycles, q.percent) {
            (true, None, None, Some(p)) if (100.0..=1000.0).contains(&p) => p,
            (true, ..) => return wrong("needs `percent`, from 100 to 1000, and no other unit"),
            (false, Some(ns), None, None) => cycles_of(ns),
            (false, None, Some(cycles), None) => cycles,
            (false, ..) => return wrong("needs exactly one of `ns` and `cycles`"),
        };
        // No cost is as high as a second.
        if !(0.0..=cycles_of(1e9)).contains(&value) {
            return wrong("has to be between 0 and one second");
        }
        *costs.named(name).expect("every field is a cost") = value.round() as u64;
    }
    costs.time_slice = costs.time_slice.max(1);
    Ok(costs)
}

/// The first missing number that a machine of this shape needs.
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

/// The text of a machine file, for errors that name line and field.
struct Text<'a> {
    origin: &'a str,
    text: &'a str,
}

impl Text<'_> {
    fn error(&self, at: usize, what: impl fmt::Display) -> MachineError {
        let line = self.before(at).matches('\n').count() + 1;
        MachineError::new(self.origin, format!("line {line}: {what}"))
    }

    /// The parser's message, with the field that it often leaves out.
    fn parse_error(&self, error: &toml::de::Error) -> MachineError {
        let at = error.span().map_or(0, |span| span.start);
        let field = match DeTable::parse(self.text) {
            Ok(table) => field_at(table.get_ref(), at),
            // The text is not TOML. The first word of the line is the best guess.
            Err(_) => self.key_of_line(at),
        };
        match field {
            Some(field) => self.error(at, format!("`{field}`: {}", error.message())),
            None => self.error(at, error.message()),
        }
    }

    /// A number from `low` to `high`.
    fn whole(
        &self,
        name: &str,
        value: &Spanned<i64>,
        low: i64,
        high: i64,
    ) -> Result<usize, MachineError> {
        let v = *value.get_ref();
        if (low..=high).contains(&v) {
            Ok(v as usize)
        } else {
            Err(self.error(
                value.span().start,
                format!("`{name}` has to be {low} to {high}, not {v}"),
            ))
        }
    }

    fn before(&self, at: usize) -> &str {
        // A position inside a character does not occur; the whole text would be good enough.
        self.text.get(..at).unwrap_or(self.text)
    }

    fn key_of_line(&self, at: usize) -> Option<String> {
        let start = self.before(at).rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[start..].lines().next()?;
        let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
        let bare = |c: char| c.is_ascii_alphanumeric() || "_-.[]".contains(c);
        (!key.is_empty() && key.len() < 64 && key.chars().all(bare)).then(|| key.to_owned())
    }
}

/// The innermost field, such as `latency.rmw.ns`, whose key or value is at a position.
fn field_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    // The span of a table with a header covers only the header, not the table's content.
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let within = match value.get_ref() {
            DeValue::Table(inner) => field_at(inner, at).map(|rest| format!("{name}.{rest}")),
            _ => None,
        };
        let here = key.span().contains(&at) || value.span().contains(&at);
        within.or_else(|| here.then(|| name.to_string()))
    })
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
            let (number, unit) = p.value.split_once(' ').expect("values have a unit");
            let unit = if unit == "%" { "percent" } else { unit };
            let (name, origin, source) = (p.name, p.origin, quoted(&p.source));
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

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
