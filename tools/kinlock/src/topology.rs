//! `kinlock topology`: what this machine looks like to the locks.

use std::path::{Path, PathBuf};

use comfy_table::{Cell, ContentArrangement, Table, TableComponent, presets};
use kinlock_cli::machine::Machine as Host;
use kinlock_cli::outcome::Outcome;
use kinlock_cli::report::write::Outputs;
use kinlock_cli::report::write_json;
use kinlock_ids::Backend;
use kinlock_linux::config::{self, Decision, Tuning};
use kinlock_linux::native::{NoExtension, slice_extensions};
use kinlock_linux::topology::{self, Cpu, DomainKind, Features, Node, Topology};
use kinlock_measure::machine::{Machine, MachineEntry, Origin, Parameter};
use serde_json::{Value, json};

/// Show CPUs, locality domains, what `auto` makes of them, and the kernel features found.
///
/// Examples:
///   kinlock topology --json -
///   kinlock topology --measure --machine-file server.toml
///   kinlock-lab sim --machine server.toml
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Write everything as JSON; `-` writes it to stdout instead of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also measure what caches and transfers between CPUs cost, which takes up to two seconds on
    /// an idle machine. Takes at least two CPUs
    #[arg(long)]
    measure: bool,
    /// Write what was measured, with assumptions for the rest, as a machine that `sim --machine
    /// FILE` takes; `-` writes it to stdout instead of the tables
    #[arg(long, value_name = "FILE", requires = "measure")]
    machine_file: Option<PathBuf>,
}

pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut outputs = Outputs::new();
    outputs.add(args.json.as_deref(), |found: &Found, out| {
        write_json(&found.json(), out)
    })?;
    let path = args.machine_file.as_deref();
    outputs.add(path, |found: &Found, out| {
        let measured = found
            .measured
            .as_ref()
            .expect("the flag requires --measure");
        Ok(out.write_all(measured.machine.to_toml().as_bytes())?)
    })?;
    outputs.for_people(|found, out| Ok(out.write_all(found.text().as_bytes())?));
    let measured = args.measure.then(|| Measured::new(path)).transpose()?;
    outputs.write(&Found::new(measured))?;
    Ok(Outcome::Done)
}

/// This machine as one to simulate.
struct Measured {
    machine: Machine,
    /// A warning.
    is_busy: Option<String>,
}

impl Measured {
    /// Measures the machine, and names it after the file that it is written to.
    fn new(file: Option<&Path>) -> anyhow::Result<Self> {
        let is_busy = Host::current().is_busy();
        let mut machine = Machine::measure()?;
        let stem = file.and_then(|file| file.file_stem()?.to_str());
        if let Some(stem) = stem.filter(|stem| *stem != "-") {
            machine.name = stem.to_owned();
        }
        Ok(Self { machine, is_busy })
    }

    /// The measured values, for people.
    fn text(&self) -> String {
        let mut table = table(["latency", "ns", "measured"]);
        let measured = |p: &&Parameter| p.origin == Origin::Measured;
        for parameter in self.machine.parameters.iter().filter(measured) {
            let value = parameter.value.trim_end_matches(" ns");
            table.add_row([parameter.name, value, &parameter.source]);
        }
        let mut text = format!("{table}\nAll else in the machine file is assumed.");
        if let Some(warning) = &self.is_busy {
            text += &format!("\nnote: {warning}");
        }
        text
    }
}

struct Found {
    measured: Option<Measured>,
    topology: Topology,
    /// The domains of each kind, and what `auto` makes of them.
    kinds: Vec<(DomainKind, Vec<Vec<usize>>, Decision)>,
    /// Where the domains that locks use come from: `node`, `llc`, `socket`, or `KINLOCK_TOPOLOGY`.
    domains_by: String,
    /// What `auto` decides with these domains.
    auto: Option<Decision>,
    /// The decision in effect, which differs from `auto` if something else was asked for.
    decision: Decision,
    tuning: Tuning,
    features: Features,
    slices: Result<(), NoExtension>,
}

impl Found {
    fn new(measured: Option<Measured>) -> Self {
        let topology = Topology::current();
        let of_kind = |kind| {
            (
                kind,
                topology.domains(kind),
                topology.automatic_decision(kind),
            )
        };
        let kind = topology::domain_kind_in_use();
        Found {
            measured,
            kinds: DomainKind::ALL.map(of_kind).into(),
            domains_by: kind.map_or_else(|| "KINLOCK_TOPOLOGY".into(), |kind| kind.to_string()),
            auto: topology::automatic_decision(),
            decision: config::decision(),
            tuning: config::tuning(),
            features: Features::detect(),
            slices: slice_extensions(),
            topology,
        }
    }

    /// The report for programs. The field names are a contract: add, never rename.
    fn json(&self) -> Value {
        let cpu = |cpu: &Cpu| {
            json!({
                "cpu": cpu.number, "online": cpu.online, "allowed": cpu.allowed,
                "node": cpu.node, "socket": cpu.socket, "llc": cpu.last_level_cache,
                "core": cpu.core, "thread": cpu.thread,
            })
        };
        let node = |node: &Node| {
            json!({
                "node": node.number, "cpus": node.cpus,
                "has_memory": node.has_memory, "distances": node.distances,
            })
        };
        let decision =
            |decision: &Decision| json!({ "reorder": decision.reorder, "reason": decision.reason });
        let kinds = self.kinds.iter().map(|(kind, domains, auto)| {
            json!({ "kind": kind.to_string(), "domains": domains, "auto": decision(auto) })
        });
        let (tuning, features) = (&self.tuning, &self.features);
        let (kind, reason) = self.topology.automatic_kind();
        let mut report = json!({
            "cpus": self.topology.cpus().iter().map(cpu).collect::<Vec<_>>(),
            "nodes": self.topology.nodes().iter().map(node).collect::<Vec<_>>(),
            "virtual": self.topology.is_virtual(),
            "kinds": kinds.collect::<Vec<_>>(),
            "in_use": {
                "auto_domain": { "kind": kind.to_string(), "reason": reason },
                "domains_by": self.domains_by,
                "domain_count": topology::domain_count(),
                "auto": self.auto.as_ref().map(decision),
                "decision": decision(&self.decision),
                "local_limit": tuning.limit.to_string(),
                "stealing": tuning.stealing,
                "quantum": tuning.quantum.to_string(),
                "slice_extension": tuning.slice_extension,
            },
            "features": {
                "rseq": features.rseq,
                "rseq_feature_size": features.rseq_feature_size,
                "node_id": features.node_id,
                "mm_cid": features.mm_cid,
                "restartable_sequences": restartable().map_or_else(
                    |why| json!({ "used": false, "reason": why }),
                    |how| json!({ "used": true, "reason": how }),
                ),
                "slice_extension": match self.slices {
                    Ok(()) => json!({ "offered": true }),
                    Err(why) => json!({ "offered": false, "reason": why.to_string() }),
                },
                "membarrier_private_expedited": features.membarrier_private_expedited,
                "futex": features.futex,
                "futex_waitv": features.futex_waitv,
                "futex2": features.futex2,
            },
        });
        if let Some(measured) = &self.measured {
            report["machine"] = json!(MachineEntry::new(&measured.machine));
        }
        report
    }

    /// The report for people. It is written in one piece, so that a reader that stops early does
    /// not interrupt it.
    fn text(&self) -> String {
        let mut parts = vec![self.summary(), self.domains()];
        if self.topology.nodes().len() > 1 {
            parts.push(distances(self.topology.nodes()));
        }
        parts.extend([self.in_use(), self.features()]);
        parts.extend(self.measured.as_ref().map(Measured::text));
        parts.join("\n\n") + "\n"
    }

    fn summary(&self) -> String {
        let cpus = self.topology.cpus();
        let count = |wanted: fn(&&Cpu) -> bool| cpus.iter().filter(wanted).count();
        let kind = if self.topology.is_virtual() {
            "virtual "
        } else {
            ""
        };
        format!(
            "{kind}machine with {} CPUs: {} online, {} allowed to this process",
            cpus.len(),
            count(|cpu| cpu.online),
            count(|cpu| cpu.allowed),
        )
    }

    /// The domains of every kind, and what `auto` would make of them.
    fn domains(&self) -> String {
        let mut table = table(["kind", "domain", "CPUs", "auto"]);
        for (kind, domains, auto) in &self.kinds {
            for (number, cpus) in domains.iter().enumerate() {
                let (kind, auto) = match number {
                    0 => (kind.to_string(), shown(auto)),
                    _ => (String::new(), String::new()),
                };
                table.add_row([kind, number.to_string(), cpu_list(cpus), auto]);
            }
        }
        table.to_string()
    }

    /// What the locks of this process use, with the environment taken into account.
    fn in_use(&self) -> String {
        let tuning = &self.tuning;
        let domains = format!("{} (by {})", topology::domain_count(), self.domains_by);
        let mut table = table(["in use by locks", ""]);
        table.add_row(["domains", &domains]);
        let (kind, reason) = self.topology.automatic_kind();
        table.add_row(["auto domains", &format!("{kind}: {reason}")]);
        if let Some(auto) = &self.auto {
            table.add_row(["auto means", &shown(auto)]);
        }
        table.add_row(["reordering", &shown(&self.decision)]);
        table.add_row(["local limit", &tuning.limit.to_string()]);
        table.add_row(["stealing", on_off(tuning.stealing)]);
        table.add_row(["quantum", &tuning.quantum.to_string()]);
        table.add_row(["slice extension", on_off(tuning.slice_extension)]);
        table.to_string()
    }

    fn features(&self) -> String {
        let found = &self.features;
        let size = found.rseq_feature_size;
        let size = format!("the CPU number without a call; {size} bytes are live");
        let slices = match self.slices {
            Ok(()) => "more time for holders, with KINLOCK_SLICE_EXTENSION=on".to_owned(),
            Err(why) => why.to_string(),
        };
        let membarrier = match found.membarrier_private_expedited {
            true => "fences for all threads of the process",
            false => "refused: a sleeping waiter looks up from time to time instead",
        };
        let restartable = restartable();
        let (Ok(sequences) | Err(sequences)) = &restartable;
        let node = "the NUMA node without a call";
        let mut table = table(["feature", "found", "what for"]);
        for (name, found, purpose) in [
            ("rseq", found.rseq, &*size),
            ("rseq node_id", found.node_id, node),
            ("rseq mm_cid", found.mm_cid, "cache-local concurrency IDs"),
            ("rseq sequences", restartable.is_ok(), sequences),
            ("rseq slices", self.slices.is_ok(), &slices),
            ("membarrier", found.membarrier_private_expedited, membarrier),
            ("futex", found.futex, "parking of waiters"),
            (
                "futex_waitv",
                found.futex_waitv,
                "sleeping on several words",
            ),
            ("futex2", found.futex2, "the newer futex calls"),
        ] {
            table.add_row([name, if found { "yes" } else { "no" }, purpose]);
        }
        table.to_string()
    }
}

fn distances(nodes: &[Node]) -> String {
    let numbers = nodes.iter().map(|node| node.number.to_string());
    let mut table = table(std::iter::once("distance".to_owned()).chain(numbers));
    for node in nodes {
        let row = node.distances.iter().map(usize::to_string);
        table.add_row(std::iter::once(format!("node {}", node.number)).chain(row));
    }
    table.to_string()
}

/// Why restartable sequences are believed to work, or why they are not used.
fn restartable() -> Result<String, String> {
    match Backend::Restartable.available() {
        Err(why) => Err(why.to_string()),
        Ok(()) if Backend::Restartable.tried() => {
            Ok("IDs without leases; one that was preempted has started again".to_owned())
        }
        Ok(()) => Ok("IDs without leases; not tried, as none could be preempted".to_owned()),
    }
}

fn table<T: Into<Cell>>(header: impl IntoIterator<Item = T>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.remove_style(TableComponent::HorizontalLines);
    table.remove_style(TableComponent::MiddleIntersections);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.into_iter().map(Into::into).collect::<Vec<Cell>>());
    table
}

fn shown(decision: &Decision) -> String {
    format!("{}: {}", on_off(decision.reorder), decision.reason)
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Ascending numbers as the kernel writes them: `0-3,8`.
fn cpu_list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    let run = |cpus: &[usize]| match cpus {
        [only] => only.to_string(),
        _ => format!("{}-{}", cpus[0], cpus[cpus.len() - 1]),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(cpu_list(&[]), "");
        assert_eq!(cpu_list(&[4]), "4");
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(cpu_list(&[0, 2, 4]), "0,2,4");
    }
}
