//! A run with a limited share of the CPUs, as containers have it.
//!
//! The command makes a control group, runs itself again as a member of that, waits, and removes the
//! group. So the group goes away however the run ends, and the locks find the limit as they find a
//! container's. The run knows that it is inside by the group's name, which has the number of its
//! parent.
//!
//! In version 2 a group that has members can have no limited groups below, so the new group stands
//! beside that of the process, with the root's exception. In version 1 it stands below.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. Between fork and exec only mere system calls are made, with numbers, a static text and a set
//!    of signals of the closure's own.
//! 2. The C library reads and writes only through the pointers it is given, which point to live
//!    locals; `sigemptyset` makes a set valid.
//! 3. The child has not been waited for, so that the number is still its own.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use kinlock_cli::outcome::Outcome;
use kinlock_measure::interrupt::Signal;

use super::suite::cpus;

/// The kernel's usual period, in microseconds.
const PERIOD: usize = 100_000;
/// What the groups are called, before the number of the process that made them.
const NAME: &str = "kinlock-quota-";

/// Whether this process is the run inside of a group.
pub fn is_inside() -> bool {
    let own = Place::of("self");
    let name = own.as_ref().and_then(|own| own.path.file_name()?.to_str());
    name.is_some_and(|name| name == format!("{NAME}{}", parent_id()))
}

/// Lets a process leave the group that this run is inside of.
///
/// # Errors
/// If the kernel refuses.
pub fn let_out(pid: u32) -> anyhow::Result<()> {
    let outside = Place::of(&parent_id().to_string()).context("cannot find the group outside")?;
    let members = outside.path.join("cgroup.procs");
    fs::write(&members, pid.to_string())
        .with_context(|| format!("cannot move a busy process to {}", members.display()))
}

/// Runs this command once more, inside of a group that may use `percent` of the CPUs that this
/// process may use. Returns how that ended.
///
/// # Errors
/// If there can be no such group.
pub fn run_inside(percent: usize) -> anyhow::Result<Outcome> {
    let time = percent * cpus() * PERIOD / 100;
    let group = Group::make(time).map_err(|error| {
        anyhow!(
            "--quota: cannot make a control group: {error:#}; be root, or limit it from outside: \
             systemd-run --user --scope -p CPUQuota={}% kinlock bench",
            percent * cpus()
        )
    })?;
    let signals = Signals::block();
    let mut child = group.start(signals.before)?;
    let status = signals.forward(&mut child)?;
    drop(group);
    let by_signal = || Some(128 + status.signal()?);
    let status = status.code().or_else(by_signal).unwrap_or(1);
    Ok(Outcome::Program(status as u8))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where a process is among the groups that limit CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    path: PathBuf,
    is_root: bool,
}

impl Place {
    /// That of a process: a number, or `self`.
    fn of(process: &str) -> Option<Self> {
        Self::among(&fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
    }

    /// The lines are `0::/path` in version 2, and `3:cpu,cpuacct:/path` in version 1. Where both
    /// are mounted, the controller of the CPUs belongs to version 1.
    fn among(lines: &str) -> Option<Self> {
        let fields = |line: &'_ str| -> Option<(String, String)> {
            let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
            Some((fields.next()?, fields.next()?))
        };
        let all: Vec<_> = lines.lines().filter_map(fields).collect();
        let find = |is: &dyn Fn(&str) -> bool| all.iter().find(|(names, _)| is(names));
        let place = |version, root: &str, path: &str| Self {
            version,
            path: Path::new(root).join(path.trim_start_matches('/')),
            is_root: path == "/",
        };
        let one = find(&|names| names.split(',').any(|name| name == "cpu"));
        let one = one.map(|(_, path)| place(Version::One, "/sys/fs/cgroup/cpu", path));
        let two = find(&str::is_empty);
        one.or(two.map(|(_, path)| place(Version::Two, "/sys/fs/cgroup", path)))
    }
}

/// A group that is removed in the end.
struct Group {
    path: PathBuf,
    /// Where the controller was switched on for it.
    switched_on: Option<PathBuf>,
}

impl Group {
    /// A group whose members may use `time` microseconds of CPU time in each period.
    fn make(time: usize) -> anyhow::Result<Self> {
        let own = Place::of("self").context("this system has none for CPU time")?;
        Self::make_at(&own, time)
    }

    fn make_at(own: &Place, time: usize) -> anyhow::Result<Self> {
        let above = match own.version {
            Version::Two if !own.is_root => own.path.parent().unwrap_or(&own.path),
            _ => &own.path,
        };
        let switched_on = match own.version {
            Version::One => None,
            Version::Two => switch_on(above)?,
        };
        remove_old(above);
        let mut group = Group {
            path: above.join(format!("{NAME}{}", std::process::id())),
            switched_on,
        };
        let made = fs::create_dir(&group.path);
        if let Err(error) = made {
            let path = std::mem::take(&mut group.path);
            return Err(error).context(path.display().to_string());
        }
        match own.version {
            Version::One => {
                group.set("cpu.cfs_period_us", &PERIOD.to_string())?;
                group.set("cpu.cfs_quota_us", &time.to_string())?;
            }
            Version::Two => group.set("cpu.max", &format!("{time} {PERIOD}"))?,
        }
        Ok(group)
    }

    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        write(&self.path.join(name), value)
    }

    /// Starts this command as its member, with these signals blocked.
    fn start(&self, blocked: libc::sigset_t) -> anyhow::Result<Child> {
        let members = self.path.join("cgroup.procs");
        let members = fs::OpenOptions::new().write(true).open(&members);
        let members = members.with_context(|| format!("cannot open {}", self.path.display()))?;
        let mut command = Command::new("/proc/self/exe");
        let mut words = std::env::args_os();
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words);
        let file = members.as_raw_fd();
        let enter = move || {
            // SAFETY: invariant 1.
            let failed = unsafe {
                libc::write(file, c"0".as_ptr().cast(), 1) != 1
                    // It ends with the process that has to remove its group.
                    || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0
                    || libc::sigprocmask(libc::SIG_SETMASK, &blocked, std::ptr::null_mut()) != 0
            };
            match failed {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            }
        };
        // SAFETY: invariant 1.
        unsafe { command.pre_exec(enter) };
        let child = command.spawn();
        child.with_context(|| format!("--quota: cannot run in {}", self.path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Busy processes end a moment after the run.
        let begin = Instant::now();
        while !self.path.as_os_str().is_empty()
            && fs::remove_dir(&self.path)
                .is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            && begin.elapsed() < Duration::from_secs(2)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(control) = &self.switched_on {
            let _ = fs::write(control, "-cpu");
        }
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Lets groups below this one limit CPU time. Returns the file, if that was not so before.
fn switch_on(above: &Path) -> anyhow::Result<Option<PathBuf>> {
    let control = above.join("cgroup.subtree_control");
    let on = fs::read_to_string(&control).with_context(|| control.display().to_string())?;
    if on.split_whitespace().any(|name| name == "cpu") {
        return Ok(None);
    }
    write(&control, "+cpu")?;
    Ok(Some(control))
}

/// Removes groups whose makers were killed.
fn remove_old(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The signals that end a run, and the one that tells of its end.
struct Signals {
    set: libc::sigset_t,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl Signals {
    /// Leaves them pending.
    fn block() -> Self {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: invariant 2.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let ends = Signal::ALL.map(Signal::number);
            for signal in ends.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self {
                set: set.assume_init(),
                before: before.assume_init(),
            }
        }
    }

    /// Passes them on until the child has ended. The same signal twice at once, from a terminal
    /// and from here, is one signal for the child.
    fn forward(&self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let mut signal = 0;
            // SAFETY: invariant 2.
            let failed = unsafe { libc::sigwait(&self.set, &mut signal) };
            if failed == 0 && signal != libc::SIGCHLD {
                // SAFETY: invariant 3.
                unsafe { libc::kill(child.id() as i32, signal) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found() {
        let place = |version, path: &str, is_root| {
            let path = PathBuf::from(path);
            Some(Place {
                version,
                path,
                is_root,
            })
        };
        for (lines, expected) in [
            ("0::/\n", place(Version::Two, "/sys/fs/cgroup/", true)),
            (
                "0::/a/b c:d\n",
                place(Version::Two, "/sys/fs/cgroup/a/b c:d", false),
            ),
            (
                "9:cpuset:/x\n4:cpuacct,cpu:/k8s/pod\n0::/y\n",
                place(Version::One, "/sys/fs/cgroup/cpu/k8s/pod", false),
            ),
            ("", None),
            ("0\n:\n", None),
        ] {
            assert_eq!(Place::among(lines), expected, "{lines}");
        }
    }

    /// In version 2 it stands beside the own group, or below the root.
    #[test]
    fn a_group_of_version_two_is_made_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path();
        let control = above.join("cgroup.subtree_control");
        let name = format!("{NAME}{}", std::process::id());
        for (path, is_root) in [(above.join("own"), false), (above.to_owned(), true)] {
            let own = Place {
                version: Version::Two,
                path,
                is_root,
            };
            for (on, then, finally) in [
                ("memory cpu", "memory cpu", "memory cpu"),
                ("", "+cpu", "-cpu"),
            ] {
                fs::write(&control, on).unwrap();
                let group = Group::make_at(&own, 150_000).unwrap();
                assert_eq!(fs::read_to_string(&control).unwrap(), then);
                let max = above.join(&name).join("cpu.max");
                assert_eq!(fs::read_to_string(&max).unwrap(), "150000 100000");
                // In a real group its files go with it.
                fs::remove_file(max).unwrap();
                drop(group);
                assert!(!above.join(&name).exists());
                assert_eq!(fs::read_to_string(&control).unwrap(), finally);
            }
        }
    }

    #[test]
    fn tests_are_not_inside() {
        assert!(!is_inside());
    }
}
