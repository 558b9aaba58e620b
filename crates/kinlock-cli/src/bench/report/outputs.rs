//! Where results go. Every file is opened before anything is measured: a run must not fail at its end.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{csv, json, markdown, plot, table};
use crate::bench::results::Report;

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

/// Opened destinations. Files that did not exist before and are not written in the end are removed again.
pub struct Outputs {
    outputs: Vec<Output>,
}

type Render = fn(&Report, &mut dyn Write) -> anyhow::Result<()>;

struct Output {
    /// `None`: stdout.
    file: Option<OpenFile>,
    render: Render,
}

struct OpenFile {
    path: PathBuf,
    file: File,
    /// Nobody would miss it.
    is_new: bool,
}

impl Destinations {
    /// Opens everything. Without a destination on stdout, the tables for people go there.
    ///
    /// # Errors
    /// If a file cannot be written, or two destinations are the same.
    pub fn open(&self) -> anyhow::Result<Outputs> {
        let mut outputs = Outputs {
            outputs: Vec::new(),
        };
        outputs.add(&self.json, |report, out| json::write(report, out))?;
        outputs.add(&self.csv, |report, out| csv::write(report, out))?;
        outputs.add(&self.markdown, |report, out| markdown::write(report, out))?;
        if let Some(path) = &self.plot {
            outputs.add(&self.plot, picture_format(path)?)?;
        }
        if !outputs.uses_stdout() {
            outputs.outputs.push(Output {
                file: None,
                render: |report, out| table::write(report, out),
            });
        }
        Ok(outputs)
    }
}

impl Outputs {
    /// Writes the report everywhere.
    ///
    /// # Errors
    /// If a destination cannot be written after all.
    pub fn write(mut self, report: &Report) -> anyhow::Result<()> {
        for output in &mut self.outputs {
            match &mut output.file {
                Some(open) => {
                    write_file(open, report, output.render)
                        .with_context(|| format!("cannot write {}", open.path.display()))?;
                    open.is_new = false;
                }
                None => {
                    let mut out = BufWriter::new(io::stdout().lock());
                    (output.render)(report, &mut out)?;
                    out.flush()?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Option<PathBuf>, render: Render) -> anyhow::Result<()> {
        let Some(path) = path else {
            return Ok(());
        };
        let file = if path == Path::new("-") {
            if self.uses_stdout() {
                bail!("only one kind of output can go to stdout");
            }
            None
        } else {
            Some(self.open_file(path)?)
        };
        self.outputs.push(Output { file, render });
        Ok(())
    }

    fn open_file(&self, path: &Path) -> anyhow::Result<OpenFile> {
        let cannot = || format!("cannot write {}", path.display());
        let is_new = !path.exists();
        // Not truncated yet: the old results stay until there are new ones.
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .clone();
        let file = options.open(path).with_context(cannot)?;
        let identity = |file: &File| {
            file.metadata()
                .map(|data| (data.dev(), data.ino(), data.is_file()))
        };
        let new_identity = identity(&file).with_context(cannot)?;
        for other in self
            .outputs
            .iter()
            .filter_map(|output| output.file.as_ref())
        {
            // Two outputs to one terminal or to /dev/null do no harm.
            if new_identity.2 && identity(&other.file).with_context(cannot)? == new_identity {
                bail!("{} is given for two kinds of output", path.display());
            }
        }
        Ok(OpenFile {
            path: path.to_owned(),
            file,
            is_new,
        })
    }

    fn uses_stdout(&self) -> bool {
        self.outputs.iter().any(|output| output.file.is_none())
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        for open in self
            .outputs
            .iter()
            .filter_map(|output| output.file.as_ref())
        {
            if open.is_new {
                let _ = std::fs::remove_file(&open.path);
            }
        }
    }
}

fn picture_format(path: &Path) -> anyhow::Result<Render> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Ok(plot::write_svg),
        Some("png") => Ok(plot::write_png),
        _ => bail!(
            "--plot {}: the name has to end in .svg or .png",
            path.display()
        ),
    }
}

fn write_file(open: &mut OpenFile, report: &Report, render: Render) -> anyhow::Result<()> {
    if open.file.metadata()?.is_file() {
        open.file.set_len(0)?;
    }
    let mut out = BufWriter::new(&open.file);
    render(report, &mut out)?;
    out.flush()?;
    Ok(())
}
