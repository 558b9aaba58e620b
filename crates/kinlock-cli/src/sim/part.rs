//! Parts of a run, simulated apart and put together again.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::plan::{Setup, Shard};
use super::results::Report;
use super::sample::Sample;

/// What one part of a run writes. It is read by the same version of the command only.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Which part.
    pub shard: Shard,
    /// What the whole run is.
    pub setup: Setup,
    /// Simulations at a time.
    pub host_threads: usize,
    /// What came out of the part's simulations, in the order of the whole run.
    pub samples: Vec<Sample>,
}

/// Reads all parts of a run and makes the report of the whole of it.
///
/// # Errors
/// If a file cannot be read or is no part, if the parts are not of one run, or if one is missing or there twice.
pub fn merge(files: &[PathBuf]) -> anyhow::Result<Report> {
    let mut parts = Vec::new();
    for file in files {
        parts.push((read(file)?, file));
    }
    parts.sort_by_key(|(part, _)| part.shard.index);
    let (first, first_file) = &parts[0];
    for (part, file) in &parts {
        if let Some(what) = difference(part, first) {
            bail!(
                "{} and {} are parts of different runs: they differ in {what}",
                first_file.display(),
                file.display(),
            );
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
    let setup = first.setup.clone();
    let host_threads = parts.iter().map(|(part, _)| part.host_threads).sum();
    let variants = &setup.parameters.variants;
    let baseline = &setup.parameters.baseline;
    let mut locks = setup.parameters.locks.iter();
    ensure!(
        !variants.is_empty() && locks.any(|lock| lock.name == *baseline),
        "{} is damaged",
        first_file.display()
    );

    let mut remaining: Vec<_> = parts
        .iter()
        .map(|(part, file)| (part.shard, part.samples.iter(), *file))
        .collect();
    let mut samples = Vec::new();
    for place in 0..setup.simulations() {
        let expected = variants[place % variants.len()];
        let owner = remaining.iter_mut().find(|(shard, ..)| shard.has(place));
        let (_, own, file) = owner.expect("every place belongs to one of the parts");
        match own.next() {
            Some(sample) if sample.variant() == expected => samples.push(sample.clone()),
            _ => bail!("{} is damaged: results are missing", file.display()),
        }
    }
    for (_, mut rest, file) in remaining {
        ensure!(
            rest.next().is_none(),
            "{} is damaged: it has too many results",
            file.display()
        );
    }
    Ok(Report::new(setup, host_threads, samples))
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
