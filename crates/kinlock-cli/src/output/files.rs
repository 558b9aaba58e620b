//! Where reports go. Every file is opened before any work is done: a run must not fail at its end.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Opened destinations. Files that did not exist before and are not written in the end are removed again.
pub struct Outputs<R> {
    outputs: Vec<Output<R>>,
}

/// Writes a report in one form.
pub type Render<R> = Box<dyn Fn(&R, &mut dyn Write) -> anyhow::Result<()>>;

struct Output<R> {
    /// `None`: stdout.
    file: Option<OpenFile>,
    render: Render<R>,
}

struct OpenFile {
    path: PathBuf,
    file: File,
    /// Nobody would miss it.
    is_new: bool,
}

impl<R> Outputs<R> {
    /// None yet.
    pub fn new() -> Self {
        Self {
            outputs: Vec::new(),
        }
    }

    /// Opens `path`, if there is one; `-` is stdout.
    ///
    /// # Errors
    /// If the file cannot be written, or another output goes there.
    pub fn add(
        &mut self,
        path: Option<&Path>,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + 'static,
    ) -> anyhow::Result<()> {
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
        self.outputs.push(Output {
            file,
            render: Box::new(render),
        });
        Ok(())
    }

    /// Without an output on stdout, this one goes there: what people read.
    pub fn for_people(
        &mut self,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + 'static,
    ) {
        if !self.uses_stdout() {
            self.outputs.push(Output {
                file: None,
                render: Box::new(render),
            });
        }
    }

    /// Writes the report everywhere.
    ///
    /// # Errors
    /// If a destination cannot be written after all.
    pub fn write(mut self, report: &R) -> anyhow::Result<()> {
        for output in &mut self.outputs {
            match &mut output.file {
                Some(open) => {
                    write_file(open, report, &output.render)
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

impl<R> Drop for Outputs<R> {
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

fn write_file<R>(open: &mut OpenFile, report: &R, render: &Render<R>) -> anyhow::Result<()> {
    if open.file.metadata()?.is_file() {
        open.file.set_len(0)?;
    }
    let mut out = BufWriter::new(&open.file);
    render(report, &mut out)?;
    out.flush()?;
    Ok(())
}
