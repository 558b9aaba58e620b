//! Parts of a run, simulated apart and put together again.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use kinlock_cli::report::write::Outputs;
use kinlock_cli::report::{Destinations, write_json};
use serde::{Deserialize, Serialize};

use super::results::Report;
use super::setup::Setup;
use crate::simulation::sample::Sample;

/// Which one of several parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Which one, from 1.
    index: usize,
    of: usize,
}

impl Shard {
    const MOST: usize = 10_000;

    /// Whether the job with this place in the order belongs to it. Neighbours cost alike, so they
    /// are dealt out in turn.
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.index - 1
    }

    /// Parses `2/5`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parse = || -> anyhow::Result<Self> {
            let (index, of) = text.split_once('/').ok_or_else(|| anyhow!("no /"))?;
            let (index, of) = (index.parse()?, of.parse()?);
            ensure!(of <= Self::MOST && (1..=of).contains(&index));
            Ok(Self { index, of })
        };
        parse().map_err(|_| {
            let most = Self::MOST;
            format!("it has to be PART/PARTS, as 2/5: one of at most {most} parts, from 1")
        })
    }
}

/// What one part of a run writes. It is read by the same version of the command only.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    pub shard: Shard,
    pub setup: Setup,
    pub host_threads: usize,
    /// What came out of the part's simulations, in the order of the whole run.
    pub samples: Vec<Sample>,
}

/// Opens what a part of a run goes to.
pub fn open(destinations: &Destinations<Report>) -> anyhow::Result<Outputs<Part>> {
    let whole = [
        ("--csv", &destinations.csv),
        ("--markdown", &destinations.markdown),
        ("--plot", &destinations.plot),
        ("--html", &destinations.html),
    ];
    if let Some((flag, _)) = whole.iter().find(|(_, path)| path.is_some()) {
        bail!("{flag} needs all parts: give it with --merge, and --json with --shard");
    }
    let path = destinations.json.as_deref();
    let path = path.context("--shard needs --json FILE, for the part to go to")?;
    let mut outputs = Outputs::new();
    outputs.add(Some(path), |part, out| write_json(part, out))?;
    Ok(outputs)
}

/// Reads all parts of a run and makes the report of the whole of it.
pub fn merge(files: &[PathBuf]) -> anyhow::Result<Report> {
    let mut parts = Vec::new();
    for file in files {
        parts.push((read(file)?, &**file));
    }
    parts.sort_by_key(|(part, _)| part.shard.index);
    check_whole(&parts)?;
    let setup = parts[0].0.setup.clone();
    let host_threads = parts.iter().map(|(part, _)| part.host_threads).sum();
    let samples = interleave(&setup, parts)?;
    Ok(Report::new(setup, host_threads, samples))
}

/// Whether the parts, sorted, are all of one run, each once.
fn check_whole(parts: &[(Part, &Path)]) -> anyhow::Result<()> {
    let (first, first_file) = &parts[0];
    for (part, file) in parts {
        if let Some(what) = difference(part, first) {
            let (a, b) = (first_file.display(), file.display());
            bail!("{a} and {b} are parts of different runs: they differ in {what}");
        }
    }
    let of = first.shard.of;
    for index in 1..=of {
        let mut found = parts.iter().filter(|(part, _)| part.shard.index == index);
        ensure!(found.next().is_some(), "part {index}/{of} is missing");
        if let Some((_, file)) = found.next() {
            bail!("part {index}/{of} is there twice: {}", file.display());
        }
    }
    let parameters = &first.setup.parameters;
    let mut locks = parameters.locks.iter();
    ensure!(
        !parameters.variants.is_empty() && locks.any(|lock| lock.name == parameters.baseline),
        "{} is damaged",
        first_file.display()
    );
    Ok(())
}

/// The samples of all parts in the order of the whole run.
fn interleave(setup: &Setup, parts: Vec<(Part, &Path)>) -> anyhow::Result<Vec<Sample>> {
    let parts = parts.into_iter();
    let parts = parts.map(|(part, file)| (part.shard, part.samples.into_iter(), file.display()));
    let mut parts: Vec<_> = parts.collect();
    let variants = &setup.parameters.variants;
    let mut samples = Vec::new();
    for place in 0..setup.simulations() {
        let owner = parts.iter_mut().find(|(shard, ..)| shard.has(place));
        let (_, own, file) = owner.expect("every place belongs to one of the parts");
        match own.next() {
            Some(sample) if sample.variant == variants[place % variants.len()] => {
                samples.push(sample);
            }
            _ => bail!("{file} is damaged: results are missing"),
        }
    }
    for (_, mut rest, file) in parts {
        let is_empty = rest.next().is_none();
        ensure!(is_empty, "{file} is damaged: it has too many results");
    }
    Ok(samples)
}

fn read(path: &Path) -> anyhow::Result<Part> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let part: Part = serde_json::from_reader(BufReader::new(file))
        .with_context(|| format!("{} is not a part written by --shard", path.display()))?;
    let Shard { index, of } = part.shard;
    ensure!(
        (1..=of).contains(&index),
        "{}: there is no part {index}/{of}",
        path.display()
    );
    Ok(part)
}

/// In what two parts differ that should be the same.
fn difference(a: &Part, b: &Part) -> Option<&'static str> {
    let (s, t) = (&a.setup, &b.setup);
    let checks = [
        (a.shard.of == b.shard.of, "the number of parts"),
        (s.version == t.version, "the version of kinlock"),
        (s.commit == t.commit, "the commit of kinlock"),
        (s.command == t.command, "what was asked for"),
        (s.machine == t.machine, "the machine"),
        (s == t, "the parameters"),
    ];
    checks
        .into_iter()
        .find_map(|(same, what)| (!same).then_some(what))
}

#[cfg(test)]
mod tests {
    use super::Shard;

    #[test]
    fn shards_are_a_partition() {
        let shards = [1, 2, 3].map(|index| Shard { index, of: 3 });
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(place)).count(), 1);
        }
    }
}
