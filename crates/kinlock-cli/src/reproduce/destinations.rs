//! What `reproduce` writes, and where to.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use super::results::Report;
use super::{csv, markdown, plot, table};
use crate::output::files::Outputs;
use crate::output::picture::Format;
use crate::output::write_json;

/// The destinations as given on the command line. `-` is stdout.
#[derive(clap::Args, Debug, Default)]
pub struct Destinations {
    /// Write the full report as JSON (- for stdout)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write one line per published number as CSV (- for stdout)
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the tables as Markdown (- for stdout)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw each table; the name ends in .svg or .png, and with several tables each one's name is put before that
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Destinations {
    /// Opens everything for tables of these names. Without a destination on stdout, the tables for people go there.
    ///
    /// # Errors
    /// If a file cannot be written, or two destinations are the same.
    pub fn open(&self, tables: &[&str]) -> anyhow::Result<Outputs<Report>> {
        let mut outputs = Outputs::new();
        outputs.add(self.json.as_deref(), |report, out| write_json(report, out))?;
        outputs.add(self.csv.as_deref(), |report, out| csv::write(report, out))?;
        outputs.add(self.markdown.as_deref(), |report, out| {
            markdown::write(report, out)
        })?;
        if let Some(path) = &self.plot {
            let format = Format::of(path)?;
            ensure!(
                !tables.is_empty(),
                "--plot: tables about concurrency IDs have no picture"
            );
            for (index, name) in tables.iter().enumerate() {
                let path = match tables.len() {
                    1 => path.clone(),
                    _ => with_name(path, name),
                };
                outputs.add(Some(&path), move |report, out| {
                    plot::write(format, report, index, out)
                })?;
            }
        }
        outputs.for_people(|report, out| table::write(report, out));
        Ok(outputs)
    }
}

/// `plots/all.svg` with `cna-lock2` is `plots/all-cna-lock2.svg`.
fn with_name(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{name}.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_before_the_extension() {
        let named = with_name(Path::new("plots/all.x.svg"), "lock2");
        assert_eq!(named, Path::new("plots/all.x-lock2.svg"));
    }
}
