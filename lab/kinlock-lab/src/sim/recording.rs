//! A recorded program as a workload.

use std::fs;

use anyhow::Context;
use kinlock_sim::workloads;
use kinlock_sim::workloads::recorded::{Recording, Replay};

/// Reads a file of `kinlock record`.
pub fn load(path: &str) -> anyhow::Result<workloads::Kind> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let recording: Recording = serde_json::from_str(&text)
        .with_context(|| format!("{path} is no recording of `kinlock record`"))?;
    let replay = Replay::new(&recording).with_context(|| path.to_owned())?;
    Ok(replay.workload(path))
}
