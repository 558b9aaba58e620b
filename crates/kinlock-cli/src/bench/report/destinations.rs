//! What `bench` writes, and where to.

use std::path::PathBuf;

use super::{csv, markdown, plot, table};
use crate::bench::results::Report;
use crate::output::files::Outputs;
use crate::output::picture::Format;
use crate::output::write_json;

/// The destinations as given on the command line. `-` is stdout.
#[derive(clap::Args, Debug, Default)]
pub struct Destinations {
    /// Write the full report, raw rounds included, as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per lock and cell as CSV (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables as Markdown (- for stdout)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw throughput over threads, and tail over throughput; the name ends in .svg or .png
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
}
