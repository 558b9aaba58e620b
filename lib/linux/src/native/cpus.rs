//! How many CPUs the process may use: its affinity, and the CPU time that control groups allow.
//!
//! # Quotas
//!
//! A control group may limit its members to a certain CPU time per period: `cpu.max` in version 2,
//! `cpu.cfs_quota_us` and `cpu.cfs_period_us` in version 1. Such limits hold for all groups below,
//! so the least one counts, from the group of the process up to the root. `/proc/self/cgroup` names
//! the groups. They are looked for where they are usually mounted, in `/sys/fs/cgroup` and
//! `/sys/fs/cgroup/cpu`. A container may not see its own group there, only the root, which then is
//! its group. A file that is missing or malformed sets no limit.

use crate::sys::{KeepErrno, RawFile, Text};
use crate::topology::CpuSet;
use core::fmt;

/// The number of CPUs that the calling thread may run on. Here and below nothing is inlined: what
/// these functions put on the stack, one after the other, would add up in a thread that waits.
#[inline(never)]
pub(super) fn of_calling_thread() -> u32 {
    // Miri has no affinity.
    if cfg!(miri) {
        return 4;
    }
    CpuSet::of_calling_thread().count() as u32
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
/// If the calling thread may run on as many, that is the answer. Otherwise it is pinned or the
/// number has changed, and it asks about all others, with a system call for each.
#[inline(never)]
pub(super) fn allowed(before: u32) -> Allowed {
    let mine = of_calling_thread();
    let asked_all = !(mine == before && mine > 1 || cfg!(miri));
    let count = match asked_all {
        true => CpuSet::of_process().count() as u32,
        false => mine,
    };
    Allowed { count, asked_all }
}

/// How many CPUs' time the quotas of the process allow, rounded up; `u32::MAX` if there is none.
#[inline(never)]
pub(super) fn quota() -> u32 {
    if cfg!(miri) {
        return u32::MAX;
    }
    let _errno = KeepErrno::hold();
    least_quota(RawFile::open)
}

/// The longest line of `/proc/self/cgroup` that is understood.
const LONGEST: usize = 400;

fn least_quota<B: Iterator<Item = u8>>(open: impl Fn(fmt::Arguments<'_>) -> Option<B>) -> u32 {
    let mut least = u32::MAX;
    let Some(mut groups) = open(format_args!("/proc/self/cgroup")) else {
        return least;
    };
    loop {
        let mut line = Text::<LONGEST>::empty();
        let ended = groups.by_ref().any(|byte| {
            if byte != b'\n' {
                line.push(byte);
            }
            byte == b'\n'
        });
        if !line.is_cut() {
            if let Some((version, path)) = group_in(line.as_bytes()) {
                least = least.min(least_upwards(version, path, &open));
            }
        }
        if !ended {
            return least;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The group that a line of `/proc/self/cgroup` names: `0::/path` in version 2, and
/// `3:cpu,cpuacct:/path` in version 1. `None` if it does not limit CPU time.
fn group_in(line: &[u8]) -> Option<(Version, &str)> {
    let mut fields = core::str::from_utf8(line).ok()?.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match controllers {
        "" => Version::Two,
        some if some.split(',').any(|name| name == "cpu") => Version::One,
        _ => return None,
    };
    Some((version, path))
}

/// The least quota of the group at `path` and those above it.
fn least_upwards<B: Iterator<Item = u8>>(
    version: Version,
    path: &str,
    open: &impl Fn(fmt::Arguments<'_>) -> Option<B>,
) -> u32 {
    let number_in = |name: &str, path: &str| {
        number(&mut open(format_args!("/sys/fs/cgroup/cpu{path}/{name}"))?)
    };
    let mut least = u32::MAX;
    let mut path = Some(path.trim_end_matches('/'));
    while let Some(group) = path {
        let quota = match version {
            Version::Two => open(format_args!("/sys/fs/cgroup{group}/cpu.max"))
                .and_then(|mut text| Some((number(&mut text)?, number(&mut text)?))),
            Version::One => {
                number_in("cpu.cfs_quota_us", group).zip(number_in("cpu.cfs_period_us", group))
            }
        };
        if let Some((time, period)) = quota.filter(|&(_, period)| period > 0) {
            let cpus = time.div_ceil(period).max(1);
            least = least.min(u32::try_from(cpus).unwrap_or(u32::MAX));
        }
        path = group.rfind('/').map(|end| &group[..end]);
    }
    least
}

/// The decimal number at the start of `text`, and consumes the byte after it. `None` for other text
/// (`max`, and `-1`, mean that there is no limit).
fn number(text: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let digits = text.take_while(|&byte| byte != b' ' && byte != b'\n');
    let add = |sum: Option<u64>, byte: u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(Some(sum.unwrap_or(0).checked_mul(10)?.checked_add(digit)?))
    };
    digits.into_iter().try_fold(None, add)?
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The quota that a process reads from these files.
    fn quota(files: &[(&str, &str)]) -> u32 {
        least_quota(|path| {
            let path = path.to_string();
            let (_, text) = files.iter().find(|(name, _)| *name == path)?;
            Some(text.bytes())
        })
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
        assert_eq!(quota(&files[1..]), u32::MAX);
        // No group of the CPU controller.
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
        // A line that is too long does not hide the next.
        let long = format!("0::/{}\n0::/\n", "x".repeat(2 * LONGEST));
        assert_eq!(quota(&[(GROUP, &long), (max, "7 2")]), 4);
    }
}
