//! How many CPUs the process may use: its affinity, and the CPU time that control groups allow.
//!
//! # Quotas
//!
//! A control group may limit its members to a certain CPU time per period: `cpu.max` in version 2,
//! `cpu.cfs_quota_us` and `cpu.cfs_period_us` in version 1. Such a limit holds for all groups
//! below, too. So the lowest limit counts, of the groups from the process's own up to the root.
//! `/proc/self/cgroup` names the groups. They are looked for where they are usually mounted, in
//! `/sys/fs/cgroup` and `/sys/fs/cgroup/cpu`. A container may not see its own group there, only the
//! root, which then is its group. A file that is missing or malformed sets no limit.

use crate::environment::futex_alone;
use crate::sys::{Folder, KeepErrno, Text};
use crate::topology::CpuSet;

/// In place of a number of CPUs: the kernel does not say, so that there may be any number.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// The number of CPUs that the calling thread may run on. Nothing here and below is inlined: the
/// stack frames of these functions, which run one after the other, would add up in a thread that
/// waits.
#[inline(never)]
pub(super) fn of_calling_thread() -> u32 {
    // Miri has no affinity.
    if cfg!(miri) {
        return 4;
    }
    count(&CpuSet::of_calling_thread())
}

fn count(cpus: &CpuSet) -> u32 {
    match cpus.count() {
        0 => UNKNOWN,
        some => some as u32,
    }
}

/// How many CPUs the threads of the process may run on.
pub(super) struct Allowed {
    pub(super) count: u32,
    /// Finding it took a system call for each thread.
    pub(super) asked_all: bool,
}

/// The number of CPUs that any thread of the process may run on. `before` was the last answer; 0 =
/// none.
///
/// If the calling thread may run on `before` CPUs, that is the answer. Otherwise this thread is
/// pinned or the number has changed, and it asks about all threads, with a system call for each.
#[inline(never)]
pub(super) fn allowed(before: u32) -> Allowed {
    let mine = of_calling_thread();
    let asked_all = !(mine == before && mine > 1 || mine == UNKNOWN || cfg!(miri));
    let count = match asked_all {
        true => count(&CpuSet::of_process()),
        false => mine,
    };
    Allowed { count, asked_all }
}

/// The number of CPUs whose time the quotas of the process allow, rounded up; `u32::MAX` if there
/// is no quota. `None` if the quotas cannot be read now: perhaps no descriptor is left.
#[inline(never)]
pub(super) fn quota() -> Option<u32> {
    if cfg!(miri) || futex_alone() {
        return Some(u32::MAX);
    }
    let _errno = KeepErrno::hold();
    least_quota(&Folder::open(format_args!("/"))?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Like [`quota`], where `root` is the root of the file system.
fn least_quota(root: &Folder) -> Option<u32> {
    let mut own = root.file(b"proc/self/cgroup")?;
    let mut least = u32::MAX;
    // The number of a hierarchy ends at the first colon.
    while own.by_ref().any(|byte| byte == b':') {
        let mut line = Line(Some(&mut own));
        if let Some(version) = version_in(&mut line) {
            least = least.min(least_downwards(root, version, &mut line));
        }
        line.for_each(drop);
    }
    Some(least)
}

/// The rest of a line, without its end.
struct Line<'a, B>(Option<&'a mut B>);

impl<B: Iterator<Item = u8>> Iterator for Line<'_, B> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let byte = self.0.as_mut()?.next().filter(|&byte| byte != b'\n');
        if byte.is_none() {
            self.0 = None;
        }
        byte
    }
}

/// The version that the second field of a line of `/proc/self/cgroup` shows: it is empty
/// (`0::/path`) in version 2, and lists the controllers (`3:cpu,cpuacct:/path`) in version 1.
/// `None` if the line's hierarchy does not limit CPU time.
fn version_in(line: &mut impl Iterator<Item = u8>) -> Option<Version> {
    let (mut name, mut length, mut has_cpu) = (Text::<4>::empty(), 0, false);
    loop {
        let byte = line.next()?;
        if byte == b':' || byte == b',' {
            has_cpu |= name.as_bytes() == b"cpu" && !name.is_cut();
            name = Text::empty();
        } else {
            name.push(byte);
        }
        match byte {
            b':' if length == 0 => return Some(Version::Two),
            b':' => return has_cpu.then_some(Version::One),
            _ => length += 1,
        }
    }
}

/// The least quota of the groups from the root to the one at `path`, as far as they can be seen.
fn least_downwards(root: &Folder, version: Version, path: &mut impl Iterator<Item = u8>) -> u32 {
    let root = root.folder(match version {
        Version::One => b"sys/fs/cgroup/cpu",
        Version::Two => b"sys/fs/cgroup",
    });
    let root = root.filter(|_| path.next() == Some(b'/'));
    let Some(mut folder) = root else {
        return u32::MAX;
    };
    let mut least = quota_in(version, &folder);
    loop {
        let mut name = Text::<256>::empty();
        let ended = !path.by_ref().any(|byte| {
            if byte != b'/' {
                name.push(byte);
            }
            byte == b'/'
        });
        if !name.as_bytes().is_empty() {
            // The path of a group that the process cannot see begins with `..`.
            let below = match name.as_bytes() {
                b".." => None,
                _ if name.is_cut() => None,
                name => folder.folder(name),
            };
            let Some(below) = below else {
                return least;
            };
            folder = below;
            least = least.min(quota_in(version, &folder));
        }
        if ended {
            return least;
        }
    }
}

fn quota_in(version: Version, folder: &Folder) -> u32 {
    let number_in = |name: &str| number(&mut folder.file(name.as_bytes())?);
    let quota = match version {
        Version::Two => folder
            .file(b"cpu.max")
            .and_then(|mut text| Some((number(&mut text)?, number(&mut text)?))),
        Version::One => number_in("cpu.cfs_quota_us").zip(number_in("cpu.cfs_period_us")),
    };
    match quota.filter(|&(_, period)| period > 0) {
        Some((time, period)) => u32::try_from(time.div_ceil(period).max(1)).unwrap_or(u32::MAX),
        None => u32::MAX,
    }
}

/// Returns the decimal number at the start of `text`, and consumes the byte after it. `None` for
/// other text (`max`, and `-1`, mean that there is no limit).
fn number(text: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let digits = text.take_while(|&byte| byte != b' ' && byte != b'\n');
    let add = |sum: Option<u64>, byte: u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(Some(sum.unwrap_or(0).checked_mul(10)?.checked_add(digit)?))
    };
    digits.into_iter().try_fold(None, add)?
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// The quota that a process reads if these files exist, with these texts.
    fn quota(files: &[(&str, &str)]) -> u32 {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("kinlock-quota-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        std::fs::create_dir(&root).unwrap();
        for (path, text) in files {
            let path = root.join(&path[1..]);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let folder = Folder::open(format_args!("{}", root.display())).unwrap();
        let quota = least_quota(&folder).unwrap_or(0);
        std::fs::remove_dir_all(&root).unwrap();
        quota
    }

    const GROUP: &str = "/proc/self/cgroup";

    #[test]
    fn the_least_of_version_two_counts() {
        let files = [
            (GROUP, "0::/a/b.slice/c\n"),
            ("/sys/fs/cgroup/a/b.slice/c/cpu.max", "800000 100000\n"),
            ("/sys/fs/cgroup/a/b.slice/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "500000 100000\n"),
        ];
        assert_eq!(quota(&files), 3);
        assert_eq!(quota(&files[..3]), 8);
        assert_eq!(quota(&files[..1]), u32::MAX);
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        for group in ["0::/", "0::/../..", "0::/docker/0123"] {
            let max = ("/sys/fs/cgroup/cpu.max", "150000 100000\n");
            assert_eq!(quota(&[(GROUP, group), max]), 2, "{group}");
        }
    }

    #[test]
    fn version_one_is_understood() {
        let files = [
            (GROUP, "9:cpuset:/x\n4:cpuacct,cpu:/k8s/pod\n0::/\n"),
            ("/sys/fs/cgroup/cpu/k8s/pod/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/k8s/pod/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/k8s/cpu.cfs_quota_us", "1000\n"),
            ("/sys/fs/cgroup/cpu/k8s/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(&files), 1);
        assert_eq!(quota(&files[..4]), u32::MAX);
        assert_eq!(quota(&files[1..]), 0, "nothing is known");
        // The process is in no group of the CPU controller.
        assert_eq!(
            quota(&[(GROUP, "9:cpuset:/k8s\n"), files[3], files[4]]),
            u32::MAX
        );
    }

    #[test]
    fn malformed_files_set_no_limit() {
        let max = "/sys/fs/cgroup/cpu.max";
        for text in [
            "",
            "\n",
            "1",
            "x 1",
            "100 0",
            "1 -1",
            "99999999999999999999 1",
        ] {
            assert_eq!(quota(&[(GROUP, "0::/"), (max, text)]), u32::MAX, "{text:?}");
        }
        for groups in ["", "0", "0:", "0:/", "\u{7f}:::"] {
            assert_eq!(
                quota(&[(GROUP, groups), (max, "1 1")]),
                u32::MAX,
                "{groups:?}"
            );
        }
    }

    /// Containers within containers have long paths, and a path has up to 4095 bytes.
    #[test]
    fn lines_of_any_length_are_understood() {
        let folders: Vec<_> = (0..30).map(|n| format!("{n:0>100}")).collect();
        let deep = folders.join("/");
        for (line, folder) in [("0::/", ""), ("13:cpu,cpuacct:/", "/cpu")] {
            let line = format!("{line}{deep}\n{}", "5:memory:/y\n");
            let file = |at: usize, name: &str| {
                let above = folders[..at].join("/");
                format!("/sys/fs/cgroup{folder}/{above}/{name}").replace("//", "/")
            };
            for at in [0, 1, 15, 30] {
                let names = ["cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"];
                let [max, quota_us, period_us] = names.map(|name| file(at, name));
                let below = file(30, "cgroup.procs");
                let files = [
                    (GROUP, &*line),
                    (&max, "300000 100000\n"),
                    (&quota_us, "300000\n"),
                    (&period_us, "100000\n"),
                    (&below, ""),
                ];
                assert_eq!(quota(&files), 3, "{folder}, {at}");
            }
        }
        // A name that no folder can have does not hide the next line.
        let long = format!("0::/{}\n0::/\n", "x".repeat(5000));
        let max = "/sys/fs/cgroup/cpu.max";
        assert_eq!(quota(&[(GROUP, &long), (max, "7 2")]), 4);
    }
}
