//! A run with a limited share of the CPUs, as in a container.
//!
//! The command makes a control group, enters it when its busy processes have been started, and
//! leaves and removes it at the end. So the locks see the limit as they see a container's.
//!
//! In version 2 a group that has members cannot have limited groups below it. So the new group is a
//! sibling of the process's group, unless that is the root. In version 1 it is a child.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use super::suite::cpus;

/// The kernel's usual period, in microseconds.
const PERIOD: usize = 100_000;
/// The prefix of the groups' names. The number of the process that made the group follows.
const NAME: &str = "kinlock-quota-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The place of this process in the hierarchy of groups that limit CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    version: Version,
    path: PathBuf,
    is_root: bool,
}

impl Place {
    /// Parses lines, which are `0::/path` in version 2, and `3:cpu,cpuacct:/path` in version 1. If
    /// both are mounted, the CPU controller belongs to version 1.
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

/// A group that this process leaves and removes at the end.
pub struct Group {
    path: PathBuf,
    /// The group in which the process was before.
    outside: PathBuf,
    /// The file in which the controller was switched on for this group, if it was off.
    switched_on: Option<PathBuf>,
    /// A process that stays in the old group: systemd removes a scope without processes.
    keeper: Option<Child>,
}

impl Group {
    /// A group that may use `percent` of the CPUs that this process may use.
    ///
    /// # Errors
    /// If there can be no such group.
    pub fn make(percent: usize) -> anyhow::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = Place::among(&own).context("this system has none for CPU time");
        let made = own.and_then(|own| Self::make_at(&own, percent * cpus() * PERIOD / 100));
        made.map_err(|error| {
            anyhow!(
                "--quota: cannot make a control group: {error:#}; be root, or limit it from \
                 outside: systemd-run --user --scope -p CPUQuota={}% kinlock bench",
                percent * cpus()
            )
        })
    }

    /// A group whose members may use `time` microseconds of CPU time in each period.
    fn make_at(own: &Place, time: usize) -> anyhow::Result<Self> {
        let above = match own.version {
            Version::Two if !own.is_root => own.path.parent().unwrap_or(&own.path),
            _ => &own.path,
        };
        remove_old(above);
        let path = above.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let mut group = Group {
            path,
            outside: own.path.clone(),
            switched_on: None,
            keeper: None,
        };
        match own.version {
            Version::One => {
                group.set("cpu.cfs_period_us", &PERIOD.to_string())?;
                group.set("cpu.cfs_quota_us", &time.to_string())?;
            }
            Version::Two => {
                group.switched_on = switch_on(above)?;
                group.set("cpu.max", &format!("{time} {PERIOD}"))?;
            }
        }
        Ok(group)
    }

    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        write(&self.path.join(name), value)
    }

    /// Makes this process a member of the group.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&mut self) -> anyhow::Result<()> {
        // The keeper ends with this process, whose end closes its input. Signals of the terminal do
        // not reach it.
        let mut keeper = Command::new("cat");
        keeper.stdin(Stdio::piped()).stdout(Stdio::null());
        self.keeper = keeper.process_group(0).spawn().ok();
        self.set("cgroup.procs", "0").context("--quota")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.outside.join("cgroup.procs"), "0");
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
        // The kernel may take a moment to notice that the group is empty.
        let begin = Instant::now();
        while fs::remove_dir(&self.path).is_err_and(|error| error.kind() != ErrorKind::NotFound)
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

/// Lets groups below this one limit CPU time. Returns the file that was changed, if they could not
/// before.
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

    /// In version 2 the group is a sibling of the process's own group, or a child of the root.
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
                // The files of a real group disappear with it.
                fs::remove_file(max).unwrap();
                drop(group);
                assert!(!above.join(&name).exists());
                assert_eq!(fs::read_to_string(&control).unwrap(), finally);
            }
        }
    }
}
