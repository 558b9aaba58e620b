//! Where reports go. A path that cannot be written fails before any work is done.
//!
//! Each form of a report is made and written by itself: if one fails, the others are still written.
//! A file is written next to its destination and renamed, so that no reader sees half a report and
//! an earlier report stays until there is a new one.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. A descriptor is only borrowed to duplicate it, which fails if it is not open.
//! 2. Numbers only.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The destinations of a report.
pub struct Outputs<R> {
    outputs: Vec<Output<R>>,
    /// Permissions of new files, subject to the user's mask.
    mode: u32,
}

/// Permissions of new files that other users collect, whatever the user's mask is.
const FOR_ALL: u32 = 0o644;

/// Writes a report in one form.
pub type Render<R> = Box<dyn Fn(&R, &mut dyn Write) -> anyhow::Result<()> + Send + Sync>;

struct Output<R> {
    to: Destination,
    render: Render<R>,
    is_picture: bool,
    mode: u32,
}

enum Destination {
    /// A regular file, without symbolic links.
    File(PathBuf),
    /// A pipe, a terminal, or a file that is already open: it is written to, never replaced.
    Stream(PathBuf, File),
    Stdout,
}

impl<R> Default for Outputs<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Outputs<R> {
    pub fn new() -> Self {
        Self {
            outputs: Vec::new(),
            mode: 0o666,
        }
    }

    /// For reports that contain the command line of a program, which may contain passwords: only
    /// the user can read new files.
    pub fn private() -> Self {
        Self {
            outputs: Vec::new(),
            mode: 0o600,
        }
    }

    /// Adds `path`, if there is one; `-` is stdout.
    pub fn add(
        &mut self,
        path: Option<&Path>,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let mode = self.mode;
        let add = |path| self.add_form(path, Box::new(render), false, mode);
        path.map_or(Ok(()), add)
    }

    /// Adds `path`, if there is one, as a file that other users collect: all can read a new one.
    pub fn add_for_all(
        &mut self,
        path: Option<&Path>,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let add = |path| self.add_form(path, Box::new(render), false, FOR_ALL);
        path.map_or(Ok(()), add)
    }

    /// Adds a file for a picture. Pictures are drawn after everything else has been written.
    pub fn add_picture(
        &mut self,
        path: &Path,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        self.add_form(path, Box::new(render), true, self.mode)
    }

    fn add_form(
        &mut self,
        path: &Path,
        render: Render<R>,
        is_picture: bool,
        mode: u32,
    ) -> anyhow::Result<()> {
        let to = open(path).with_context(|| format!("cannot write {}", path.display()))?;
        for other in &self.outputs {
            match (&other.to, &to) {
                (Destination::Stdout, Destination::Stdout) => {
                    bail!("only one kind of output can go to stdout")
                }
                (Destination::File(a), Destination::File(b)) if a == b => {
                    bail!("{} is given for two kinds of output", path.display())
                }
                // Two outputs to one terminal or to /dev/null do no harm.
                _ => {}
            }
        }
        self.outputs.push(Output {
            to,
            render,
            is_picture,
            mode,
        });
        Ok(())
    }

    /// Sends this form, for people, to stdout unless another output goes there.
    pub fn for_people(
        &mut self,
        render: impl Fn(&R, &mut dyn Write) -> anyhow::Result<()> + Send + Sync + 'static,
    ) {
        // The only error is that another output goes there.
        let _ = self.add_form(Path::new("-"), Box::new(render), false, self.mode);
    }

    /// Writes to stdout at once, for people, unless an output for programs goes there.
    pub fn say(&self, text: &str) -> anyhow::Result<()> {
        if !self.uses_stdout() {
            let said = Destination::Stdout.write(text.as_bytes(), self.mode);
            said.context("cannot write to stdout")?;
        }
        Ok(())
    }

    /// Writes the report everywhere: files before stdout, pictures last. A closed pipe is no error.
    ///
    /// # Errors
    /// The first error. The other forms have been written all the same.
    pub fn write(&self, report: &R) -> anyhow::Result<()> {
        let mut outputs: Vec<_> = self.outputs.iter().collect();
        outputs.sort_by_key(|output| (output.is_picture, output.to.rank()));
        let outputs = outputs.into_iter();
        let results = outputs.map(|output| output.write(report));
        // Collected first, so that an error does not keep later outputs from being written.
        let results: Vec<_> = results.collect();
        results.into_iter().collect()
    }

    fn uses_stdout(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| matches!(output.to, Destination::Stdout))
    }
}

impl<R> Output<R> {
    fn write(&self, report: &R) -> anyhow::Result<()> {
        let cannot = match &self.to {
            Destination::Stdout => "cannot write to stdout".to_owned(),
            Destination::File(path) | Destination::Stream(path, _) => {
                format!("cannot write {}", path.display())
            }
        };
        let mut text = Vec::new();
        let rendered = (self.render)(report, &mut text);
        rendered.with_context(|| cannot.clone())?;
        match self.to.write(&text, self.mode) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result.context(cannot),
        }
    }
}

/// Finds out whether `path` can be written, without changing anything.
fn open(path: &Path) -> io::Result<Destination> {
    match descriptor(path) {
        Some(1) => return Ok(Destination::Stdout),
        Some(number) => return Ok(Destination::Stream(path.to_owned(), duplicate(number)?)),
        None => {}
    }
    let is_new = !path.exists();
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    let target = path.canonicalize()?;
    if is_new {
        fs::remove_file(&target)?;
    }
    Ok(match file.metadata()?.is_file() {
        true => Destination::File(target),
        // Kept open: closing a named pipe would be the end of the file to its reader.
        false => Destination::Stream(target, file),
    })
}

/// The number of the open file that `path` stands for: `-`, `/dev/stderr`, `/dev/fd/3`.
pub fn descriptor(path: &Path) -> Option<i32> {
    match path.to_str()? {
        "-" | "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        name => {
            let folders = ["/dev/fd/", "/proc/self/fd/"];
            let number = folders.iter().find_map(|folder| name.strip_prefix(folder));
            number?.parse().ok()
        }
    }
}

/// The same open file, at the same offset.
fn duplicate(number: i32) -> io::Result<File> {
    if number < 0 {
        return Err(ErrorKind::InvalidInput.into());
    }
    // SAFETY: invariant 1.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(borrowed.try_clone_to_owned()?.into())
}

impl Destination {
    /// Its place in the order of writing. Files are first: a pipe may block, a file does not.
    fn rank(&self) -> u8 {
        match self {
            Self::File(_) => 0,
            Self::Stream(..) => 1,
            Self::Stdout => 2,
        }
    }

    fn write(&self, text: &[u8], mode: u32) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            Self::Stream(_, file) => (&*file).write_all(text),
            Self::File(path) => match replace(path, text, mode) {
                Err(error) if may_not(&error) => overwrite(path, text),
                result => result,
            },
        }
    }
}

/// Replaces a file by a complete new one, which has the permissions of an old one.
fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let old = fs::metadata(path).ok();
    let owner = old.as_ref().map(|old| (old.uid(), old.gid()));
    let old = old.map(|old| old.permissions());
    let kept = old.or((mode == FOR_ALL).then(|| Permissions::from_mode(mode)));
    let new = tempfile::Builder::new()
        .prefix(".kinlock-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
    new.as_file().write_all(text)?;
    if let Some((user, group)) = owner {
        // Only root may change the owner. If another user owned the file, it stays readable for
        // that user.
        let _ = fchown(new.as_file(), Some(user), Some(group));
    }
    if let Some(permissions) = kept {
        new.as_file().set_permissions(permissions)?;
    }
    new.persist(path)?;
    Ok(())
}

/// Whether the folder may not get a new file, or the file may not be replaced because it is a mount
/// point, as in containers. The file itself may still be writable.
fn may_not(error: &io::Error) -> bool {
    let known = [libc::EACCES, libc::EPERM, libc::EROFS, libc::EBUSY];
    error
        .raw_os_error()
        .is_some_and(|error| known.contains(&error))
}

/// Writes a file in place. It keeps its content if there is no room for the new text.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let (keep, length) = (libc::FALLOC_FL_KEEP_SIZE, text.len() as libc::off_t);
    // SAFETY: invariant 2.
    if length > 0 && unsafe { libc::fallocate(file.as_raw_fd(), keep, 0, length) } != 0 {
        let error = io::Error::last_os_error();
        let no_room = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];
        // Some file systems cannot allocate in advance; for those this is no error.
        if error
            .raw_os_error()
            .is_some_and(|error| no_room.contains(&error))
        {
            return Err(error);
        }
    }
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Text = Outputs<String>;

    fn text(report: &String, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(write!(out, "{report}")?)
    }

    fn write(paths: &[&Path], report: &str) -> anyhow::Result<()> {
        let mut outputs = Text::new();
        for path in paths {
            outputs.add(Some(path), text)?;
        }
        outputs.write(&report.to_owned())
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
            .into_iter()
            .map(|name| name.into_string().unwrap())
            .collect()
    }

    #[test]
    fn an_output_that_is_not_written_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        let mut outputs = Text::new();
        outputs.add(Some(&new), text).unwrap();
        assert!(files(folder.path()).is_empty());
        let again = folder.path().join(".").join("new");
        let error = outputs.add(Some(&again), text).unwrap_err();
        assert!(error.to_string().contains("two kinds of output"));
    }

    #[test]
    fn files_are_replaced_where_links_lead_and_keep_their_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("old"), "longer than what comes").unwrap();
        fs::set_permissions(path("old"), Permissions::from_mode(0o604)).unwrap();
        for (link, target) in [("link", "old"), ("dangling", "later")] {
            std::os::unix::fs::symlink(target, path(link)).unwrap();
        }
        let before = File::open(path("old")).unwrap();
        assert!(write(&[&path("link"), &path("old")], "").is_err());
        write(&[&path("link"), &path("new"), &path("dangling")], "short").unwrap();
        let all = ["dangling", "later", "link", "new", "old"];
        assert_eq!(files(folder.path()), all);
        for name in all {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "short");
        }
        assert!(path("link").is_symlink() && path("dangling").is_symlink());
        let mode = fs::metadata(path("old")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o604);
        // A reader that has the old one open still reads it whole.
        let old = io::read_to_string(before).unwrap();
        assert_eq!(old, "longer than what comes");
    }

    #[test]
    fn what_contains_a_command_line_is_for_its_user_only() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        let mut outputs = Text::private();
        outputs.add(Some(&new), text).unwrap();
        outputs.write(&"--password=".to_owned()).unwrap();
        let mode = fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    /// The content of a file on a full file system after a longer report could not be written to
    /// it. The command `spoil` may make the file one that cannot be replaced. `None` if there are
    /// no namespaces in which to mount a file system.
    fn after_a_full_disk(spoil: &str) -> Option<String> {
        const NAME: &str = "FULL_DISK_OF_A_TEST";
        let script = format!(
            "mount -t tmpfs -o size=64k tmpfs ${NAME} && cd ${NAME} && mkdir folder &&
             printf before >folder/report && {{ {spoil}; }} &&
             {{ head -c 1000000 /dev/zero >fill; \"$0\" --exact --quiet --ignored \
                report::write::tests::writes_a_long_report >/dev/null; cat folder/report; }}"
        );
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
        command.arg(std::env::current_exe().unwrap());
        let output = command.env(NAME, folder.path()).output().unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Called in a folder on a full file system.
    #[test]
    #[ignore = "a part of another test"]
    fn writes_a_long_report() {
        let long = "x".repeat(10_000);
        assert!(write(&[Path::new("folder/report")], &long).is_err());
    }

    #[test]
    fn a_full_disk_leaves_the_earlier_report() {
        // In a folder that may get new files, and as a file that is a mount point.
        for spoil in ["true", "mount --bind folder/report folder/report"] {
            match after_a_full_disk(spoil) {
                Some(left) => assert!(left == "before", "{spoil}"),
                None => eprintln!("NOT tested: no namespaces here"),
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_written_as_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "longer than what comes").unwrap();
        overwrite(&file, b"short").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "short");
        overwrite(&file, b"").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        let errors = [libc::EACCES, libc::EROFS, libc::EBUSY, libc::ENOSPC];
        let may_not = errors.map(|error| may_not(&io::Error::from_raw_os_error(error)));
        assert_eq!(may_not, [true, true, true, false]);
    }

    /// The file mode mask belongs to the whole process, so a child sets another one.
    #[test]
    fn what_others_collect_can_be_read_by_all() {
        const NAME: &str = "KINLOCK_TEST_FOLDER";
        let own = "report::write::tests::what_others_collect_can_be_read_by_all";
        let Some(folder) = std::env::var_os(NAME) else {
            let folder = tempfile::tempdir().unwrap();
            let mut child = std::process::Command::new("sh");
            child.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
            child.arg(std::env::current_exe().unwrap());
            child.args(["--exact", own]).env(NAME, folder.path());
            let output = child.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(files(folder.path()), ["all", "private"]);
            return;
        };
        let folder = PathBuf::from(folder);
        let (all, private) = (folder.join("all"), folder.join("private"));
        let mut outputs = Text::private();
        outputs.add_for_all(Some(&all), text).unwrap();
        outputs.add(Some(&private), text).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        outputs.write(&"here".to_owned()).unwrap();
        assert_eq!([mode(&all), mode(&private)], [0o644, 0o600]);
        fs::set_permissions(&all, Permissions::from_mode(0o640)).unwrap();
        outputs.write(&"here".to_owned()).unwrap();
        assert_eq!(mode(&all), 0o640);
    }

    #[test]
    fn a_failing_form_does_not_affect_the_others_and_pictures_come_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut outputs = Text::new();
        let failing = |_: &String, _: &mut dyn Write| bail!("cannot draw");
        outputs.add_picture(&path("picture"), failing).unwrap();
        outputs.add(Some(&path("bad")), failing).unwrap();
        outputs.add(Some(&path("good")), text).unwrap();
        let data = path("good");
        let copy = move |_: &String, out: &mut dyn Write| Ok(out.write_all(&fs::read(&data)?)?);
        outputs.add_picture(&path("another"), copy).unwrap();
        let error = outputs.write(&"here".to_owned()).unwrap_err();
        // The first error, and data come before pictures.
        let error = format!("{error:#}");
        assert!(error.contains("bad: cannot draw"), "{error}");
        assert_eq!(files(folder.path()), ["another", "good"]);
        for name in ["another", "good"] {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "here");
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let pipe = format!("/dev/fd/{}", writer.as_raw_fd());
        drop(reader);
        let other = folder.path().join("other");
        write(&[Path::new(&pipe), &other], "here").unwrap();
        assert_eq!(fs::read_to_string(other).unwrap(), "here");
        drop(writer);
        assert!(write(&[Path::new("/dev/fd/999999")], "here").is_err());
    }

    #[test]
    fn a_file_that_is_open_already_is_written_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = File::create(&path).unwrap();
        log.write_all(b"before, ").unwrap();
        for folder in ["/dev/fd", "/proc/self/fd"] {
            let name = format!("{folder}/{}", log.as_raw_fd());
            write(&[Path::new(&name)], "in between, ").unwrap();
        }
        log.write_all(b"after").unwrap();
        let all = "before, in between, in between, after";
        assert_eq!(fs::read_to_string(&path).unwrap(), all);
    }

    #[test]
    fn stdout_has_several_names() {
        for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            let mut outputs = Text::new();
            outputs.add(Some(Path::new(name)), text).unwrap();
            assert!(outputs.uses_stdout(), "{name}");
            assert!(outputs.add(Some(Path::new("-")), text).is_err());
        }
    }
}
