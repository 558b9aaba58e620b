//! What `sim` writes, and where to.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{csv, markdown, plot, table};
use crate::output::files::Outputs;
use crate::output::picture::Format;
use crate::output::write_json;
use crate::sim::part::Part;
use crate::sim::results::Report;

/// The destinations as given on the command line. `-` is stdout.
#[derive(clap::Args, Debug, Default)]
pub struct Destinations {
    /// Write the full report, every run included, as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per lock, workload and number of threads as CSV (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables as Markdown (- for stdout)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw throughput over threads; the name ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Destinations {
    /// Opens everything. Without a destination on stdout, the tables for people go there.
    ///
    /// # Errors
    /// If a file cannot be written, or two destinations are the same.
    pub fn open(&self) -> anyhow::Result<Outputs<Report>> {
        let mut outputs = Outputs::new();
        outputs.add(self.json.as_deref(), |report, out| write_json(report, out))?;
        outputs.add(self.csv.as_deref(), |report, out| csv::write(report, out))?;
        outputs.add(self.markdown.as_deref(), |report, out| {
            markdown::write(report, out)
        })?;
        if let Some(path) = &self.plot {
            let format = Format::of(path)?;
            outputs.add(Some(path), move |report, out| {
                plot::write(format, report, out)
            })?;
        }
        outputs.for_people(|report, out| table::write(report, out));
        Ok(outputs)
    }

    /// Opens what a part of a run goes to.
    ///
    /// # Errors
    /// If the file cannot be written, there is none, or something is asked for that only the whole run can give.
    pub fn open_for_part(&self) -> anyhow::Result<Outputs<Part>> {
        let whole = [
            ("--csv", &self.csv),
            ("--markdown", &self.markdown),
            ("--plot", &self.plot),
        ];
        if let Some((flag, _)) = whole.iter().find(|(_, path)| path.is_some()) {
            bail!("{flag} needs all parts: give it with --merge, and --json with --shard");
        }
        let path: Option<&Path> = self.json.as_deref();
        let path = path.context("--shard needs --json FILE, for the part to go to")?;
        let mut outputs = Outputs::new();
        outputs.add(Some(path), |part, out| write_json(part, out))?;
        Ok(outputs)
    }
}
