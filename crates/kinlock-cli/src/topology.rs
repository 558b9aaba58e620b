//! `kinlock topology`: what this machine looks like to the locks.

use std::io::Write;
use std::path::PathBuf;

use comfy_table::{Cell, ContentArrangement, Table, TableComponent, presets};
use kinlock_core::config::{self, Decision};
use kinlock_core::topology::{self, Cpu, DomainKind, Features, Node, Topology};
use serde::Serialize;

use crate::outcome::Outcome;
use crate::report::write::Outputs;
use crate::report::write_json;

/// Show CPUs, locality domains, what `auto` makes of them, and the kernel features found.
///
/// Example: kinlock topology --json -
#[derive(clap::Args)]
pub struct Args {
    /// Write everything as JSON; `-` writes it to stdout instead of the tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// If the output cannot be written.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    let mut outputs = Outputs::new();
    outputs.add(args.json.as_deref(), |report, out| write_json(report, out))?;
    outputs.for_people(write_text);
    outputs.write(&Report::new(&Topology::current()))?;
    Ok(Outcome::Done)
}

/// What is shown. The field names are a contract: add, don't rename.
#[derive(Serialize)]
struct Report {
    cpus: Vec<CpuEntry>,
    nodes: Vec<NodeEntry>,
    #[serde(rename = "virtual")]
    is_virtual: bool,
    kinds: Vec<KindEntry>,
    in_use: InUse,
    features: FeaturesEntry,
}

#[derive(Serialize)]
struct CpuEntry {
    cpu: usize,
    online: bool,
    allowed: bool,
    node: Option<usize>,
    socket: Option<usize>,
    llc: Option<usize>,
    core: Option<usize>,
    thread: Option<usize>,
}

#[derive(Serialize)]
struct NodeEntry {
    node: usize,
    cpus: Vec<usize>,
    has_memory: Option<bool>,
    distances: Vec<usize>,
}

/// The domains of one kind, and what `auto` would choose with them.
#[derive(Serialize)]
struct KindEntry {
    kind: String,
    domains: Vec<Vec<usize>>,
    auto: DecisionEntry,
}

/// What the locks of this process use, after the environment has been heeded.
#[derive(Serialize)]
struct InUse {
    /// `node`, `llc`, `socket`, or `KINLOCK_TOPOLOGY`.
    domains_by: String,
    domain_count: usize,
    /// What `auto` means with these domains.
    auto: Option<DecisionEntry>,
    /// What was decided: differs from `auto` if something else was asked for.
    decision: DecisionEntry,
    scan: String,
    local_limit: String,
    stealing: bool,
    quantum: String,
}

#[derive(Serialize)]
struct DecisionEntry {
    reorder: bool,
    reason: &'static str,
}

#[derive(Serialize)]
struct FeaturesEntry {
    rseq: bool,
    rseq_feature_size: usize,
    node_id: bool,
    mm_cid: bool,
    membarrier_private_expedited: bool,
    futex: bool,
    futex_waitv: bool,
    futex2: bool,
}

impl Report {
    fn new(topology: &Topology) -> Self {
        let kinds = DomainKind::ALL.map(|kind| KindEntry {
            kind: kind.to_string(),
            domains: topology.domains(kind),
            auto: topology.automatic_decision(kind).into(),
        });
        Report {
            cpus: topology.cpus().iter().map(CpuEntry::from).collect(),
            nodes: topology.nodes().iter().map(NodeEntry::from).collect(),
            is_virtual: topology.is_virtual(),
            kinds: kinds.into(),
            in_use: InUse::new(),
            features: Features::detect().into(),
        }
    }
}

impl InUse {
    fn new() -> Self {
        let tuning = config::tuning();
        let kind = topology::domain_kind_in_use();
        InUse {
            domains_by: kind.map_or_else(|| "KINLOCK_TOPOLOGY".into(), |kind| kind.to_string()),
            domain_count: topology::domain_count(),
            auto: topology::automatic_decision().map(DecisionEntry::from),
            decision: config::decision().into(),
            scan: tuning.scan.to_string(),
            local_limit: tuning.limit.to_string(),
            stealing: tuning.stealing,
            quantum: tuning.quantum.to_string(),
        }
    }
}

impl From<&Cpu> for CpuEntry {
    fn from(cpu: &Cpu) -> Self {
        CpuEntry {
            cpu: cpu.number,
            online: cpu.online,
            allowed: cpu.allowed,
            node: cpu.node,
            socket: cpu.socket,
            llc: cpu.last_level_cache,
            core: cpu.core,
            thread: cpu.thread,
        }
    }
}

impl From<&Node> for NodeEntry {
    fn from(node: &Node) -> Self {
        NodeEntry {
            node: node.number,
            cpus: node.cpus.clone(),
            has_memory: node.has_memory,
            distances: node.distances.clone(),
        }
    }
}

impl From<Decision> for DecisionEntry {
    fn from(Decision { reorder, reason }: Decision) -> Self {
        DecisionEntry { reorder, reason }
    }
}

impl From<Features> for FeaturesEntry {
    fn from(features: Features) -> Self {
        FeaturesEntry {
            rseq: features.rseq,
            rseq_feature_size: features.rseq_feature_size,
            node_id: features.node_id,
            mm_cid: features.mm_cid,
            membarrier_private_expedited: features.membarrier_private_expedited,
            futex: features.futex,
            futex_waitv: features.futex_waitv,
            futex2: features.futex2,
        }
    }
}

/// Writes all in one piece, so that nobody who reads only the beginning breaks it off.
fn write_text(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut parts = vec![summary(report), domains(report).to_string()];
    if report.nodes.len() > 1 {
        parts.push(distances(&report.nodes).to_string());
    }
    parts.push(in_use(&report.in_use).to_string());
    parts.push(features(&report.features).to_string());
    let text = parts.join("\n\n") + "\n";
    Ok(out.write_all(text.as_bytes())?)
}

fn summary(report: &Report) -> String {
    let count =
        |wanted: fn(&CpuEntry) -> bool| report.cpus.iter().filter(|cpu| wanted(cpu)).count();
    let machine = if report.is_virtual {
        "virtual machine"
    } else {
        "machine"
    };
    format!(
        "{machine} with {} CPUs: {} online, {} allowed to this process",
        report.cpus.len(),
        count(|cpu| cpu.online),
        count(|cpu| cpu.allowed),
    )
}

/// The domains of every kind, and what `auto` would make of them.
fn domains(report: &Report) -> Table {
    let mut table = table(["kind", "domain", "CPUs", "auto"]);
    for entry in &report.kinds {
        for (number, cpus) in entry.domains.iter().enumerate() {
            let (kind, auto) = match number {
                0 => (entry.kind.clone(), shown(&entry.auto)),
                _ => (String::new(), String::new()),
            };
            table.add_row([kind, number.to_string(), cpu_list(cpus), auto]);
        }
    }
    table
}

fn distances(nodes: &[NodeEntry]) -> Table {
    let numbers = nodes.iter().map(|node| node.node.to_string());
    let mut table = table(["distance".to_owned()].into_iter().chain(numbers));
    for node in nodes {
        let row = node.distances.iter().map(usize::to_string);
        table.add_row([format!("node {}", node.node)].into_iter().chain(row));
    }
    table
}

fn in_use(in_use: &InUse) -> Table {
    let mut table = table(["in use by locks", ""]);
    let domains = format!("{} (by {})", in_use.domain_count, in_use.domains_by);
    table.add_row(["domains", &domains]);
    if let Some(auto) = &in_use.auto {
        table.add_row(["auto means", &shown(auto)]);
    }
    table.add_row(["reordering", &shown(&in_use.decision)]);
    table.add_row(["scan", &in_use.scan]);
    table.add_row(["local limit", &in_use.local_limit]);
    table.add_row(["stealing", on_off(in_use.stealing)]);
    table.add_row(["quantum", &in_use.quantum]);
    table
}

fn features(features: &FeaturesEntry) -> Table {
    let mut table = table(["feature", "found", "what for"]);
    let size = format!(
        "the CPU number without a call; {} bytes are live",
        features.rseq_feature_size
    );
    for (name, found, purpose) in [
        ("rseq", features.rseq, &*size),
        (
            "rseq node_id",
            features.node_id,
            "the NUMA node without a call",
        ),
        (
            "rseq mm_cid",
            features.mm_cid,
            "cache-local concurrency IDs",
        ),
        (
            "membarrier",
            features.membarrier_private_expedited,
            if features.membarrier_private_expedited {
                "fences for all threads of the process"
            } else {
                "refused: who falls asleep looks up after a while, in case nobody has noticed"
            },
        ),
        ("futex", features.futex, "parking of waiters"),
        (
            "futex_waitv",
            features.futex_waitv,
            "sleeping on several words",
        ),
        ("futex2", features.futex2, "the newer futex calls"),
    ] {
        table.add_row([name, if found { "yes" } else { "no" }, purpose]);
    }
    table
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

fn shown(decision: &DecisionEntry) -> String {
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
