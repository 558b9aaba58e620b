//! `--trace-handoffs`: what hand-offs waited for.

mod draw;

use std::io::Write;
use std::path::Path;

use kinlock_cli::outcome::{Outcome, tell};
use kinlock_cli::report::plot;
use kinlock_cli::report::table::{Columns, Table};
use kinlock_cli::report::write::Outputs;
use kinlock_cli::report::write_json;
use kinlock_measure::machine::MachineEntry;
use kinlock_sim::Trace;
use kinlock_sim::trace::{Cause, Distance, Handoff, Part, Reach, Share, Stage, Step};
use serde::Serialize;

use super::plan::Plan;

/// The report of a traced run. Field names are a contract: add, don't rename.
#[derive(Serialize)]
struct Report {
    kind: &'static str,
    version: &'static str,
    commit: Option<&'static str>,
    command: Vec<String>,
    machine: MachineEntry,
    workload: &'static str,
    threads: usize,
    seed: u64,
    locks: Vec<Traced>,
}

/// One lock.
#[derive(Serialize)]
struct Traced {
    lock: &'static str,
    ops_per_us: f64,
    #[serde(flatten)]
    trace: Trace,
}

/// Traces, and writes the hand-offs to `file`, and a summary to stdout.
pub fn run(plan: &Plan, file: &Path) -> anyhow::Result<Outcome> {
    let runs = plan.traced()?;
    let outputs = open(file)?;
    let mut locks = Vec::new();
    for run in &runs {
        match run.execute() {
            Ok(outcome) => locks.push(Traced {
                lock: run.lock.name,
                ops_per_us: outcome.ops_per_us,
                trace: outcome.trace.expect("the run was traced"),
            }),
            Err(stuck) => {
                tell(&format!("kinlock-lab: {}: {stuck}", run.lock.name));
                return Ok(Outcome::CheckFailed);
            }
        }
    }
    let first = &runs[0];
    outputs.write(&Report {
        kind: "traced",
        version: kinlock_cli::VERSION,
        commit: kinlock_cli::COMMIT,
        command: plan.traced_command(),
        machine: MachineEntry::new(&plan.machine),
        workload: first.workload.name,
        threads: first.threads,
        seed: first.seed,
        locks,
    })?;
    Ok(Outcome::Done)
}

fn open(file: &Path) -> anyhow::Result<Outputs<Report>> {
    let mut outputs = Outputs::new();
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => outputs.add(Some(file), |report: &Report, out| report.csv().csv(out))?,
        Some("json") => outputs.add(Some(file), |report, out| write_json(report, out))?,
        None if file == Path::new("-") => {
            outputs.add(Some(file), |report, out| write_json(report, out))?;
        }
        Some("svg") => outputs.add_picture(file, |report: &Report, out| {
            plot::write(draw::size(report), out, |area| draw::draw(report, area))
        })?,
        _ => anyhow::bail!(
            "--trace-handoffs {}: the name has to end in .csv, .json or .svg",
            file.display()
        ),
    }
    outputs.for_people(Report::text);
    Ok(outputs)
}

/// A row of a table: its name, then a text for each lock.
type Row = Vec<String>;

impl Report {
    fn text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "simulated: {}", self.machine.about)?;
        writeln!(
            out,
            "{}, {} threads, seed {}\n",
            self.workload, self.threads, self.seed
        )?;
        for (heading, rows) in [
            (
                "From one acquisition to the next, ns by what was waited for",
                self.cycle(),
            ),
            ("Hand-offs: share of them, and ns of each", self.distances()),
            ("Lines moved per acquisition", self.traffic()),
        ] {
            let locks = self.locks.iter().map(|traced| traced.lock.to_owned());
            let table = Table {
                headings: [String::new()].into_iter().chain(locks).collect(),
                rows,
            };
            let text = table.text(1..table.headings.len());
            writeln!(out, "{heading}\n{}\n", table.fitted(text))?;
        }
        Ok(())
    }

    /// A row, unless its value is zero for all locks.
    fn row(&self, name: &str, decimals: usize, of: impl Fn(&Trace) -> f64) -> Option<Row> {
        let values: Vec<f64> = self.locks.iter().map(|traced| of(&traced.trace)).collect();
        let shown = |value: &f64| format!("{value:.decimals$}");
        let least = 0.5 * 0.1_f64.powi(decimals as i32);
        let matters = values.iter().any(|value| *value >= least);
        let cells = [name.to_owned()]
            .into_iter()
            .chain(values.iter().map(shown));
        matters.then(|| cells.collect())
    }

    /// The stages, and below each the causes of its waits.
    fn cycle(&self) -> Vec<Row> {
        let mut causes: Vec<Cause> = Vec::new();
        for traced in &self.locks {
            causes.extend(traced.trace.shares.iter().map(|share| share.cause));
        }
        causes.sort_unstable();
        causes.dedup();
        let mut rows = Vec::new();
        for (stage, name) in [(Stage::Held, "held"), (Stage::Handed, "handed over")] {
            let of_stage = |share: &Share| share.stage == stage;
            rows.extend(self.row(name, 1, |trace| trace.mean_ns(of_stage)));
            rows.extend(causes.iter().filter_map(|&cause| {
                let those = move |share: &Share| share.stage == stage && share.cause == cause;
                self.row(&format!("  {cause}"), 1, |trace| trace.mean_ns(those))
            }));
        }
        let free = |share: &Share| share.stage == Stage::Free;
        rows.extend(self.row("free, no thread asks", 1, |trace| trace.mean_ns(free)));
        rows.extend(self.row("all", 1, |trace| trace.mean_ns(|_| true)));
        rows.extend(self.row("acquisitions", 0, |trace| trace.cycles as f64));
        rows
    }

    fn distances(&self) -> Vec<Row> {
        let of = |trace: &Trace, distance: Distance| {
            let mut those = trace.distances.iter();
            let those = those.find(|those| those.distance == distance);
            those.map_or_else(
                || "-".to_owned(),
                |those| {
                    let share = 100.0 * those.count as f64 / trace.cycles as f64;
                    format!("{share:.1}% {:.1}", those.ns / those.count as f64)
                },
            )
        };
        let row = |distance: Distance| {
            let cells = self.locks.iter().map(|traced| of(&traced.trace, distance));
            [distance.name().to_owned()]
                .into_iter()
                .chain(cells)
                .collect()
        };
        let rows = Distance::ALL.into_iter().map(row);
        rows.filter(|row: &Row| row[1..].iter().any(|cell| cell != "-"))
            .collect()
    }

    fn traffic(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for part in Part::ALL {
            for (kind, verb) in ["read", "written"].into_iter().enumerate() {
                rows.extend(Reach::ALL.into_iter().filter_map(|reach| {
                    let name = format!("{} {verb} from {}", part.name(), reach.name());
                    self.row(&name, 2, |trace| trace.moves(part, reach)[kind])
                }));
            }
        }
        rows
    }

    /// A row for each hand-off that was kept.
    fn csv(&self) -> Table {
        let all = self.locks.iter().flat_map(|traced| {
            let handoffs = traced.trace.handoffs.iter();
            handoffs.map(|handoff| (traced.lock, handoff.clone()))
        });
        let all: Vec<_> = all.collect();
        Columns::<(&str, Handoff)>::new()
            .add("lock", |(lock, _)| *lock)
            .add("from_thread", |(_, h)| h.from.thread)
            .add("from_socket", |(_, h)| h.from.socket)
            .add("to_thread", |(_, h)| h.to.thread)
            .add("to_socket", |(_, h)| h.to.socket)
            .add("distance", |(_, h)| h.distance.name())
            .number("acquired_ns", 1, |(_, h)| h.acquired_ns)
            .number("held_ns", 1, |(_, h)| h.released_ns - h.acquired_ns)
            .number("free_ns", 1, |(_, h)| h.asked_ns - h.released_ns)
            .number("handed_ns", 1, |(_, h)| h.handed_ns - h.asked_ns)
            .add("steps", |(_, h)| {
                h.handed.iter().map(step).collect::<Vec<_>>().join("; ")
            })
            .of(&all)
    }
}

/// A step in a word or two: `thread 3: queue node 5 from other socket 134.1`.
fn step(step: &Step) -> String {
    let ns = step.to_ns - step.from_ns;
    format!("thread {}: {} {ns:.1}", step.thread, waited(step))
}

/// What a step waited for, with the name of the line.
fn waited(step: &Step) -> String {
    match (step.line, step.cause) {
        (Some(line), Cause::Line(_, reach)) => format!("{line} from {}", reach.name()),
        (Some(line), Cause::Queue(_)) => format!("{line} behind others"),
        (_, cause) => cause.to_string(),
    }
}
