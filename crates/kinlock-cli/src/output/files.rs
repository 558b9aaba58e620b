//! Where reports go. That they can be written is found out before any work is done: a run must not fail at its end.
//!
//! A file is replaced as a whole, once all forms of the report are complete: however the process ends, nobody finds half a report, and the results of an earlier run stay until there are new ones.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Destinations that can be written.
pub struct Outputs<R> {
    outputs: Vec<Output<R>>,
}

/// Writes a report in one form.
pub type Render<R> = Box<dyn Fn(&R, &mut dyn Write) -> anyhow::Result<()>>;

struct Output<R> {
    to: Destination,
    render: Render<R>,
}

enum Destination {
    Stdout,
    /// A pipe, a terminal: there is nothing to replace.
    Stream(PathBuf, File),
    Replaced(Replaced),
}

/// A file that is to be replaced.
struct Replaced {
    /// As it was given.
    path: PathBuf,
    /// Where it is, without symbolic links.
    target: PathBuf,
    /// Those of a file that exists.
    permissions: Option<Permissions>,
}

impl<R> Outputs<R> {
    /// None yet.
    pub fn new() -> Self {
        Self {
            outputs: Vec::new(),
        }
    }

    /// Adds `path`, if there is one; `-` is stdout.
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
        let to = if path == Path::new("-") {
            if self.uses_stdout() {
                bail!("only one kind of output can go to stdout");
            }
            Destination::Stdout
        } else {
            let to = open(path).with_context(|| format!("cannot write {}", path.display()))?;
            // Two outputs to one terminal or to /dev/null do no harm.
            if let Some(target) = to.target().filter(|target| self.has(target)) {
                let (path, target) = (path.display(), target.display());
                bail!("{path} is given for two kinds of output (it is {target})");
            }
            to
        };
        self.outputs.push(Output {
            to,
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
                to: Destination::Stdout,
                render: Box::new(render),
            });
        }
    }

    /// Writes the report everywhere; files first.
    ///
    /// # Errors
    /// If it cannot be had in one of its forms, before anything is written; if a destination cannot be written after all.
    pub fn write(self, report: &R) -> anyhow::Result<()> {
        let mut forms = Vec::new();
        for Output { to, render } in self.outputs {
            let mut text = Vec::new();
            render(report, &mut text).with_context(|| to.cannot())?;
            forms.push((to, text));
        }
        forms.sort_by_key(|(to, _)| to.target().is_none());
        for (to, text) in forms {
            let cannot = to.cannot();
            to.write(&text).context(cannot)?;
        }
        Ok(())
    }

    fn has(&self, target: &Path) -> bool {
        let mut targets = self.outputs.iter().filter_map(|output| output.to.target());
        targets.any(|other| other == target)
    }

    fn uses_stdout(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| matches!(output.to, Destination::Stdout))
    }
}

/// Finds out whether `path` can be written, and leaves everything as it was.
fn open(path: &Path) -> io::Result<Destination> {
    let is_new = !path.exists();
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let data = file.metadata()?;
    // What has no name, as /dev/fd/3 may have none, cannot be replaced either.
    let target = path.canonicalize().ok().filter(|_| data.is_file());
    let Some(target) = target else {
        return Ok(Destination::Stream(path.to_owned(), file));
    };
    if is_new {
        fs::remove_file(&target)?;
    }
    Ok(Destination::Replaced(Replaced {
        path: path.to_owned(),
        target,
        permissions: (!is_new).then(|| data.permissions()),
    }))
}

impl Destination {
    /// The file that is to be replaced, if it is one.
    fn target(&self) -> Option<&Path> {
        match self {
            Self::Replaced(file) => Some(&file.target),
            Self::Stdout | Self::Stream(..) => None,
        }
    }

    /// What is wrong if it is.
    fn cannot(&self) -> String {
        match self {
            Self::Stdout => "cannot write to stdout".to_owned(),
            Self::Stream(path, _) => format!("cannot write {}", path.display()),
            Self::Replaced(file) => format!("cannot write {}", file.path.display()),
        }
    }

    fn write(self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            Self::Stream(_, mut file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                file.write_all(text)
            }
            Self::Replaced(file) => match file.replace(text) {
                // A file that can be written in a folder that cannot, or on which something is mounted: better as it goes than not at all.
                Err(error) if is_refused(&error) => fs::write(&file.target, text),
                result => result,
            },
        }
    }
}

/// Whether a file may not be replaced, for reasons that have nothing to do with whether it can be written.
fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(
        error.kind(),
        PermissionDenied | ReadOnlyFilesystem | ResourceBusy
    )
}

impl Replaced {
    /// By a complete file beside it, which then gets its name.
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let folder = self.target.parent().unwrap_or(Path::new("/"));
        let usual = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .prefix(".kinlock-")
            // The usual ones are subject to the user's mask.
            .permissions(self.permissions.clone().unwrap_or(usual))
            .tempfile_in(folder)?;
        file.write_all(text)?;
        if let Some(permissions) = &self.permissions {
            fs::set_permissions(file.path(), permissions.clone())?;
        }
        file.persist(&self.target)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Text = Outputs<String>;

    fn text(report: &String, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(write!(out, "{report}")?)
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_not_written_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut outputs = Text::new();
        outputs.add(Some(&folder.path().join("new")), text).unwrap();
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn files_are_replaced_where_links_lead_and_keep_their_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "longer than what comes").unwrap();
        fs::set_permissions(path("old"), Permissions::from_mode(0o604)).unwrap();
        std::os::unix::fs::symlink("old", path("link")).unwrap();
        let before = File::open(path("old")).unwrap();

        let mut outputs = Text::new();
        outputs.add(Some(&path("link")), text).unwrap();
        assert!(outputs.add(Some(&path("old")), text).is_err());
        outputs.add(Some(&path("new")), text).unwrap();
        outputs.write(&"short".to_owned()).unwrap();
        for name in ["old", "link", "new"] {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "short");
        }
        assert_eq!(files(folder.path()), ["link", "new", "old"]);
        let mode = fs::metadata(path("old")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o604);
        // Whoever has the old one open still reads it whole.
        let old = io::read_to_string(before).unwrap();
        assert_eq!(old, "longer than what comes");
    }

    #[test]
    fn two_outputs_cannot_go_to_one_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut outputs = Text::new();
        outputs.add(Some(&folder.path().join("new")), text).unwrap();
        let again = folder.path().join(".").join("new");
        let error = outputs.add(Some(&again), text).unwrap_err();
        assert!(error.to_string().contains("two kinds of output"));
    }

    #[test]
    fn if_one_form_fails_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut outputs = Text::new();
        outputs.add(Some(&folder.path().join("a")), text).unwrap();
        let failing = |_: &String, _: &mut dyn Write| bail!("cannot draw");
        outputs
            .add(Some(&folder.path().join("b")), failing)
            .unwrap();
        assert!(outputs.write(&String::new()).is_err());
        assert!(files(folder.path()).is_empty());
    }
}
