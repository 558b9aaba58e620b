//! Where reports go. That they can be written is found out before any work is done: a run must not fail at its end.
//!
//! Each form of a report is made and written for itself: one that fails takes no other with it. A file is replaced as a whole: however the process ends, nobody finds half a report, and the results of an earlier run stay until there are new ones.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::descriptors::{self, Leads};

/// Destinations that can be written.
pub struct Outputs<R> {
    outputs: Vec<Output<R>>,
}

/// Writes a report in one form.
pub type Render<R> = Box<dyn Fn(&R, &mut dyn Write) -> anyhow::Result<()>>;

struct Output<R> {
    to: Destination,
    render: Render<R>,
    is_picture: bool,
}

enum Destination {
    Stdout,
    /// A pipe, a terminal, a file that somebody has open: there is nothing to replace.
    Stream(PathBuf, File),
    Replaced(Replaced),
}

/// A file that is to be replaced.
struct Replaced {
    /// As it was given.
    path: PathBuf,
    /// Where it is, without symbolic links.
    target: PathBuf,
    /// The file, if there is one. Its owner and its permissions are kept.
    old: Option<Metadata>,
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
        match path {
            Some(path) => self.add_form(path, Box::new(render), false),
            None => Ok(()),
        }
    }

    /// Adds a file for a picture. Pictures are drawn after all else has been written.
    ///
    /// # Errors
    /// As [`add`](Self::add) has them.
    pub fn add_picture(
        &mut self,
        path: &Path,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + 'static,
    ) -> anyhow::Result<()> {
        self.add_form(path, Box::new(render), true)
    }

    fn add_form(&mut self, path: &Path, render: Render<R>, is_picture: bool) -> anyhow::Result<()> {
        let to = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        if matches!(to, Destination::Stdout) && self.uses_stdout() {
            bail!("only one kind of output can go to stdout");
        }
        // Two outputs to one terminal or to /dev/null do no harm.
        if let Some(target) = to.target().filter(|target| self.has(target)) {
            let (path, target) = (path.display(), target.display());
            bail!("{path} is given for two kinds of output (it is {target})");
        }
        self.outputs.push(Output {
            to,
            render,
            is_picture,
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
                is_picture: false,
            });
        }
    }

    /// Writes to stdout at once what people read while the work goes on. With an output on stdout it is for programs, and nothing else goes there.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn say(&self, text: &str) -> anyhow::Result<()> {
        if !self.uses_stdout() {
            let mut out = io::stdout().lock();
            let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            said.with_context(|| Destination::Stdout.cannot())?;
        }
        Ok(())
    }

    /// Writes the report everywhere; files before stdout, pictures last. Whoever does not read to the end has seen enough: that is no error.
    ///
    /// # Errors
    /// The first one, if a form of the report cannot be had, or a destination cannot be written after all. The others have been written nevertheless.
    pub fn write(mut self, report: &R) -> anyhow::Result<()> {
        self.outputs
            .sort_by_key(|output| (output.is_picture, output.to.rank()));
        let outputs = self.outputs.into_iter();
        let errors = outputs.filter_map(|output| output.write(report).err());
        // All of them first: what comes after an error is written, too.
        let errors: Vec<_> = errors.collect();
        errors.into_iter().next().map_or(Ok(()), Err)
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

impl<R> Output<R> {
    fn write(self, report: &R) -> anyhow::Result<()> {
        let cannot = self.to.cannot();
        let mut text = Vec::new();
        let rendered = (self.render)(report, &mut text);
        rendered.with_context(|| cannot.clone())?;
        match self.to.write(&text) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.context(cannot),
        }
    }
}

/// Finds out whether `path` can be written, and leaves everything as it was.
fn open(path: &Path) -> io::Result<Destination> {
    if path == Path::new("-") {
        return Ok(Destination::Stdout);
    }
    match descriptors::leads(path)? {
        Leads::Stdout => return Ok(Destination::Stdout),
        Leads::Open(file) => return Ok(Destination::Stream(path.to_owned(), file)),
        Leads::Elsewhere => {}
    }
    let (target, old) = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => {
            let target = path.canonicalize();
            fs::remove_file(path)?;
            (target?, None)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match path.canonicalize() {
            Ok(target) => {
                let file = OpenOptions::new().write(true).open(path)?;
                let data = file.metadata()?;
                if !data.is_file() {
                    return Ok(Destination::Stream(path.to_owned(), file));
                }
                (target, Some(data))
            }
            // A link to what is not there yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().unwrap_or(Path::new(""));
                return open(&folder.join(fs::read_link(path)?));
            }
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
    };
    Ok(Destination::Replaced(Replaced {
        path: path.to_owned(),
        target,
        old,
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

    /// Its place in the order of writing: what may block for ever comes after what does not.
    fn rank(&self) -> u8 {
        match self {
            Self::Replaced(_) => 0,
            Self::Stream(..) => 1,
            Self::Stdout => 2,
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
            Self::Stream(_, mut file) => file.write_all(text),
            Self::Replaced(file) => match file.replace(text) {
                // A file that can be written in a folder that cannot, or whose owner cannot be kept, or on which something is mounted: better as it goes than not at all.
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
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kinlock-");
        if self.old.is_none() {
            // The usual ones, subject to the user's mask.
            builder.permissions(Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(text)?;
        if let Some(old) = &self.old {
            keep_owner_and_permissions(file.as_file(), old)?;
        }
        // Else, after a crash of the machine, the name may lead to an empty file.
        file.as_file().sync_all()?;
        file.persist(&self.target)?;
        Ok(())
    }
}

/// Makes `file` as accessible as the `old` one.
fn keep_owner_and_permissions(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    // After the change of the owner, which takes some of them away.
    file.set_permissions(old.permissions())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

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
        // Only root may give files away; for others the owner stays as it is anyway.
        let _ = std::os::unix::fs::chown(path("old"), Some(12_345), Some(54_321));
        let owner = |name: &str| fs::metadata(path(name)).map(|data| (data.uid(), data.gid()));
        let owner_before = owner("old").unwrap();
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
        assert_eq!(owner("old").unwrap(), owner_before);
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
    fn one_form_that_fails_takes_no_other_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut outputs = Text::new();
        let failing = |_: &String, _: &mut dyn Write| bail!("cannot draw");
        outputs.add_picture(&path("picture"), failing).unwrap();
        outputs.add(Some(&path("bad")), failing).unwrap();
        outputs.add(Some(&path("good")), text).unwrap();
        outputs.add_picture(&path("another"), text).unwrap();
        let error = outputs.write(&"here".to_owned()).unwrap_err();
        // The first error, and data come before pictures.
        assert!(
            format!("{error:#}").contains("bad: cannot draw"),
            "{error:#}"
        );
        assert_eq!(files(folder.path()), ["another", "good"]);
        assert_eq!(fs::read_to_string(path("good")).unwrap(), "here");
    }

    #[test]
    fn pictures_see_that_data_have_been_written() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut outputs = Text::new();
        let seen = data.clone();
        let draw = move |_: &String, out: &mut dyn Write| Ok(out.write_all(&fs::read(&seen)?)?);
        let picture = folder.path().join("picture");
        outputs.add_picture(&picture, draw).unwrap();
        outputs.add(Some(&data), text).unwrap();
        outputs.write(&"here".to_owned()).unwrap();
        assert_eq!(fs::read_to_string(picture).unwrap(), "here");
    }

    #[test]
    fn who_does_not_read_to_the_end_has_seen_enough() {
        let folder = tempfile::tempdir().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let pipe = format!("/dev/fd/{}", writer.as_raw_fd());
        let mut outputs = Text::new();
        outputs.add(Some(Path::new(&pipe)), text).unwrap();
        drop((reader, writer));
        let picture = folder.path().join("picture");
        outputs.add_picture(&picture, text).unwrap();
        outputs.write(&"here".to_owned()).unwrap();
        assert_eq!(fs::read_to_string(picture).unwrap(), "here");
    }

    #[test]
    fn a_file_that_is_open_already_is_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = File::create(&path).unwrap();
        log.write_all(b"before, ").unwrap();
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let name = format!("{folder}/{}", log.as_raw_fd());
            let mut outputs = Text::new();
            outputs.add(Some(Path::new(&name)), text).unwrap();
            outputs.write(&"in between, ".to_owned()).unwrap();
        }
        log.write_all(b"after").unwrap();
        let all = "before, in between, in between, after";
        assert_eq!(fs::read_to_string(&path).unwrap(), all);
    }

    #[test]
    fn stdout_has_several_names() {
        for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let mut outputs = Text::new();
            outputs.add(Some(Path::new(name)), text).unwrap();
            assert!(outputs.uses_stdout(), "{name}");
            assert!(outputs.add(Some(Path::new("-")), text).is_err());
        }
    }

    #[test]
    fn a_link_may_lead_to_what_is_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("new", path("link")).unwrap();
        let mut outputs = Text::new();
        outputs.add(Some(&path("link")), text).unwrap();
        assert_eq!(files(folder.path()), ["link"]);
        outputs.write(&"here".to_owned()).unwrap();
        assert_eq!(fs::read_to_string(path("new")).unwrap(), "here");
        assert!(path("link").is_symlink());
    }
}
