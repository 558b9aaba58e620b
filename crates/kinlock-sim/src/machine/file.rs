//! Machine files: TOML, every number with its unit, its origin and its source.

use super::{Costs, DISTANCES, Machine, Shape};
use serde::Deserialize;
use std::fmt;
use toml::Spanned;

/// A number of a machine file.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in the file.
    pub name: &'static str,
    /// Its value as the file has it, with the unit.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The source, what it was fitted on, or why it is assumed.
    pub source: String,
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured and published by others.
    Published,
    /// Fitted: the source says on what.
    Fitted,
    /// Measured on this very machine.
    Measured,
    /// Plausible, from machines of the same kind.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Published => "published",
            Origin::Fitted => "fitted",
            Origin::Measured => "measured",
            Origin::Assumed => "assumed",
        })
    }
}

/// A machine file is wrong, or there is none. Its text is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(String);

impl MachineError {
    pub(super) fn unknown(name: &str, known: &[&str]) -> Self {
        MachineError(format!(
            "there is no machine `{name}`, nor such a file; known are {}",
            known.join(", ")
        ))
    }

    pub(super) fn unreadable(path: &str, error: &std::io::Error) -> Self {
        MachineError(format!("{path}: {error}"))
    }
}

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
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
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
        #[serde(deny_unknown_fields)]
        struct $name {
            $($field: Number,)*
            $($maybe: Option<Number>,)*
        }

        impl $name {
            fn numbers(&self) -> impl Iterator<Item = (&'static str, &Number)> {
                let all = [$((stringify!($field), Some(&self.$field)),)* $((stringify!($maybe), self.$maybe.as_ref()),)*];
                all.into_iter().filter_map(|(name, number)| Some((name, number?)))
            }
        }
    };
}

table! {
    LatencyTable {
        own_cache, last_level, modified, shared, invalidate, memory, read_occupancy, rmw, pause, spin_exit,
    } optional {
        modified_other_cache, shared_other_cache, invalidate_other_cache,
        modified_1_hop, shared_1_hop, invalidate_1_hop, memory_remote, modified_homed_at_reader, third_party_home,
        modified_2_hops, shared_2_hops, invalidate_2_hops,
    }
}

table! {
    HyperthreadTable { sibling_computes, sibling_spins, } optional {}
}

table! {
    SystemTable { time_slice, context_switch, park, unpark, wake_latency, membarrier, } optional {}
}

/// Where in which file.
struct Place<'a> {
    origin: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn error(&self, at: usize, what: impl fmt::Display) -> MachineError {
        let line = self.text[..at.min(self.text.len())].matches('\n').count() + 1;
        MachineError(format!("{}: line {line}: {what}", self.origin))
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
}

pub(super) fn parse(origin: &str, text: &str) -> Result<Machine, MachineError> {
    let place = Place { origin, text };
    let file: File = toml::from_str(text).map_err(|e| {
        let what = e.message().replace('\n', " ");
        place.error(e.span().map_or(0, |s| s.start), what)
    })?;
    let clock_mhz = place.whole("clock_mhz", &file.clock_mhz, 100, 10_000)? as u64;
    let shape = shape(&place, file.shape)?;
    let reader = Reader {
        place: &place,
        clock_mhz,
    };
    let costs = costs(
        &reader,
        &shape,
        &file.latency,
        &file.hyperthreads,
        &file.system,
    )?;
    let parameters = [
        parameters(file.latency.get_ref().numbers()),
        parameters(file.hyperthreads.get_ref().numbers()),
        parameters(file.system.get_ref().numbers()),
    ];
    Ok(Machine {
        name: file.name,
        about: file.about,
        shape,
        costs,
        parameters: parameters.concat(),
    })
}

fn shape(place: &Place<'_>, table: Spanned<ShapeTable>) -> Result<Shape, MachineError> {
    let at = table.span().start;
    let table = table.into_inner();
    let sockets = place.whole("sockets", &table.sockets, 1, Shape::MAX_CACHES as i64)?;
    let shape = Shape {
        sockets,
        caches_per_socket: place.whole(
            "caches_per_socket",
            &table.caches_per_socket,
            1,
            Shape::MAX_CACHES as i64,
        )?,
        cores_per_cache: place.whole(
            "cores_per_cache",
            &table.cores_per_cache,
            1,
            Shape::MAX_CORES as i64,
        )?,
        threads_per_core: place.whole("threads_per_core", &table.threads_per_core, 1, 8)?,
        hops: match table.hops {
            None => (0..sockets * sockets)
                .map(|i| (i / sockets != i % sockets) as u8)
                .collect(),
            Some(rows) => hops(place, rows, sockets)?,
        },
    };
    if shape.caches() > Shape::MAX_CACHES || shape.cores() > Shape::MAX_CORES {
        let (caches, cores) = (Shape::MAX_CACHES, Shape::MAX_CORES);
        let what = format!("`shape` has more than {caches} last-level caches or {cores} cores");
        return Err(place.error(at, what));
    }
    Ok(shape)
}

fn hops(
    place: &Place<'_>,
    rows: Spanned<Vec<Vec<i64>>>,
    sockets: usize,
) -> Result<Vec<u8>, MachineError> {
    let at = rows.span().start;
    let rows = rows.into_inner();
    let wrong = |what: String| Err(place.error(at, format!("`hops` {what}")));
    if rows.len() != sockets || rows.iter().any(|row| row.len() != sockets) {
        return wrong(format!(
            "has to be {sockets} rows of {sockets} numbers, one for each pair of sockets"
        ));
    }
    for (a, row) in rows.iter().enumerate() {
        for (b, &n) in row.iter().enumerate() {
            if a == b && n != 0 || a != b && !(1..=2).contains(&n) || n != rows[b][a] {
                return wrong(format!(
                    "says {n} from socket {a} to {b}: it has to be 0 on the diagonal, else 1 or 2, and the same both ways"
                ));
            }
        }
    }
    Ok(rows.concat().into_iter().map(|n| n as u8).collect())
}

struct Reader<'a> {
    place: &'a Place<'a>,
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
        self.place
            .error(number.span().start, format!("`{name}` {what}"))
    }
}

fn costs(
    reader: &Reader<'_>,
    shape: &Shape,
    latency: &Spanned<LatencyTable>,
    hyperthreads: &Spanned<HyperthreadTable>,
    system: &Spanned<SystemTable>,
) -> Result<Costs, MachineError> {
    let (l, h, s) = (latency.get_ref(), hyperthreads.get_ref(), system.get_ref());
    let needed = |name: &str, number: &Option<Number>, why: bool| match number {
        Some(number) => reader.time(name, number),
        None if why => Err(reader.place.error(
            latency.span().start,
            format!("`{name}` is missing: this machine's shape needs it"),
        )),
        None => Ok(0),
    };
    let clusters = shape.caches_per_socket > 1;
    let remote = shape.sockets > 1;
    let two_hops = shape.hops.contains(&2);
    let by_distance = |[a, b, c, d]: [(&str, Option<&Number>); DISTANCES]| -> Result<[u64; DISTANCES], MachineError> {
        let get = |(name, number): (&str, Option<&Number>), why| match number {
            Some(number) => reader.time(name, number),
            None => needed(name, &None, why),
        };
        Ok([get(a, true)?, get(b, clusters)?, get(c, remote)?, get(d, two_hops)?])
    };
    Ok(Costs {
        clock_mhz: reader.clock_mhz,
        own_cache: reader.time("own_cache", &l.own_cache)?,
        last_level: reader.time("last_level", &l.last_level)?,
        modified: by_distance([
            ("modified", Some(&l.modified)),
            ("modified_other_cache", l.modified_other_cache.as_ref()),
            ("modified_1_hop", l.modified_1_hop.as_ref()),
            ("modified_2_hops", l.modified_2_hops.as_ref()),
        ])?,
        modified_homed_at_reader: needed(
            "modified_homed_at_reader",
            &l.modified_homed_at_reader,
            false,
        )?,
        third_party_home: needed("third_party_home", &l.third_party_home, false)?,
        shared: by_distance([
            ("shared", Some(&l.shared)),
            ("shared_other_cache", l.shared_other_cache.as_ref()),
            ("shared_1_hop", l.shared_1_hop.as_ref()),
            ("shared_2_hops", l.shared_2_hops.as_ref()),
        ])?,
        invalidate: by_distance([
            ("invalidate", Some(&l.invalidate)),
            ("invalidate_other_cache", l.invalidate_other_cache.as_ref()),
            ("invalidate_1_hop", l.invalidate_1_hop.as_ref()),
            ("invalidate_2_hops", l.invalidate_2_hops.as_ref()),
        ])?,
        memory: [
            reader.time("memory", &l.memory)?,
            needed("memory_remote", &l.memory_remote, remote)?,
        ],
        read_occupancy: reader.time("read_occupancy", &l.read_occupancy)?,
        rmw: reader.time("rmw", &l.rmw)?,
        pause: reader.time("pause", &l.pause)?,
        spin_exit: reader.time("spin_exit", &l.spin_exit)?,
        sibling_computes_pct: reader.percent("sibling_computes", &h.sibling_computes)?,
        sibling_spins_pct: reader.percent("sibling_spins", &h.sibling_spins)?,
        time_slice: reader.time("time_slice", &s.time_slice)?.max(1),
        context_switch: reader.time("context_switch", &s.context_switch)?,
        park: reader.time("park", &s.park)?,
        unpark: reader.time("unpark", &s.unpark)?,
        wake_latency: reader.time("wake_latency", &s.wake_latency)?,
        membarrier: reader.time("membarrier", &s.membarrier)?,
    })
}

fn parameters<'a>(numbers: impl Iterator<Item = (&'static str, &'a Number)>) -> Vec<Parameter> {
    numbers
        .map(|(name, number)| {
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
        })
        .collect()
}
