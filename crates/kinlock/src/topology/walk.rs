//! Reads from sysfs which CPUs belong together; written once for both readers.
//!
//! The domain map that locks use may not allocate and reads with plain system calls; [`Topology`](super::Topology)
//! reads whole files from any folder. Both are a [`Files`] here, and both collect the result in a [`Groups`].

use core::fmt;

use super::cpulist::{CpuList, CpuListError};
use super::syscalls::RawFile;

/// Where the files are.
pub(crate) trait Files {
    /// The bytes of one file.
    type Bytes: Iterator<Item = u8>;

    /// Opens the file at `path`, which is relative to sysfs; `None` if there is none.
    fn open(&self, path: fmt::Arguments<'_>) -> Option<Self::Bytes>;
}

/// Where the walk leaves which CPU is in which group. Group numbers mean nothing but "the same" or "another".
pub(crate) trait Groups {
    /// Whether `cpu` has been put in a group.
    fn has(&self, cpu: usize) -> bool;

    /// Puts `cpu` in `group`.
    fn put(&mut self, cpu: usize, group: usize);
}

/// A file of sysfs is not as the kernel writes it.
pub(crate) type Malformed = CpuListError;

/// The CPUs of every NUMA node; group numbers are the kernel's node numbers. Without NUMA: nothing.
///
/// Nodes without CPUs (memory only) leave no trace; node numbers may have holes.
pub(crate) fn nodes(files: &impl Files, groups: &mut impl Groups) -> Result<(), Malformed> {
    for_each(files, format_args!("{NODES}/online"), |node| {
        for_each(files, format_args!("{NODES}/node{node}/cpulist"), |cpu| {
            groups.put(cpu, node);
            Ok(())
        })
    })
}

/// The CPUs that share each last-level cache. CPUs whose caches are unknown are left out.
pub(crate) fn last_level_caches(
    files: &impl Files,
    groups: &mut impl Groups,
) -> Result<(), Malformed> {
    for_each_online_cpu(files, |cpu| match last_level_cache_of(files, cpu) {
        Some(index) if !groups.has(cpu) => group_of(
            files,
            groups,
            cpu,
            format_args!("{CPUS}/cpu{cpu}/cache/index{index}/shared_cpu_list"),
        ),
        _ => Ok(()),
    })
}

/// The CPUs in each socket. CPUs whose socket is unknown, which the kernel writes as -1, are left out.
pub(crate) fn sockets(files: &impl Files, groups: &mut impl Groups) -> Result<(), Malformed> {
    for_each_online_cpu(files, |cpu| {
        if groups.has(cpu) || socket_of(files, cpu).is_none() {
            return Ok(());
        }
        group_of(
            files,
            groups,
            cpu,
            format_args!("{CPUS}/cpu{cpu}/topology/package_cpus_list"),
        )?;
        if groups.has(cpu) {
            return Ok(());
        }
        // The same list, under the name it had before Linux 5.3.
        group_of(
            files,
            groups,
            cpu,
            format_args!("{CPUS}/cpu{cpu}/topology/core_siblings_list"),
        )
    })
}

/// The kernel's number of the socket that holds `cpu`.
pub(crate) fn socket_of(files: &impl Files, cpu: usize) -> Option<usize> {
    number(files.open(format_args!("{CPUS}/cpu{cpu}/topology/physical_package_id"))?)
}

/// Calls `action` for every CPU that is online.
pub(crate) fn for_each_online_cpu(
    files: &impl Files,
    action: impl FnMut(usize) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for_each(files, format_args!("{CPUS}/online"), action)
}

/// Whether some node's distance table says that another node is farther away than the node itself.
pub(crate) fn remote_is_farther(files: &impl Files) -> bool {
    let mut farther = false;
    let mut rank = 0;
    let walked = for_each(files, format_args!("{NODES}/online"), |node| {
        farther |= files
            .open(format_args!("{NODES}/node{node}/distance"))
            .is_some_and(|row| row_says_farther(row, rank));
        rank += 1;
        Ok(())
    });
    farther && walked.is_ok()
}

const CPUS: &str = "devices/system/cpu";
const NODES: &str = "devices/system/node";

/// The running kernel's sysfs, read with plain system calls.
pub(crate) struct RawSysfs;

impl Files for RawSysfs {
    type Bytes = RawFile;

    fn open(&self, path: fmt::Arguments<'_>) -> Option<RawFile> {
        RawFile::open(format_args!("/sys/{path}"))
    }
}

/// Puts all CPUs of the list at `path` in the group named after `cpu`.
fn group_of(
    files: &impl Files,
    groups: &mut impl Groups,
    cpu: usize,
    path: fmt::Arguments<'_>,
) -> Result<(), Malformed> {
    for_each(files, path, |member| {
        groups.put(member, cpu);
        Ok(())
    })
}

/// The index of the highest-level cache of `cpu` that holds data.
fn last_level_cache_of(files: &impl Files, cpu: usize) -> Option<usize> {
    let mut last: Option<(usize, usize)> = None;
    for index in 0.. {
        let Some(level) = files.open(format_args!("{CPUS}/cpu{cpu}/cache/index{index}/level"))
        else {
            break;
        };
        let kind = files.open(format_args!("{CPUS}/cpu{cpu}/cache/index{index}/type"));
        let holds_data = kind.is_none_or(|mut bytes| bytes.next() != Some(b'I'));
        let level = number(level).unwrap_or(0);
        if holds_data && last.is_none_or(|(highest, _)| level > highest) {
            last = Some((level, index));
        }
    }
    last.map(|(_, index)| index)
}

/// Calls `action` for every number in the list at `path`; not at all if there is no such file.
fn for_each(
    files: &impl Files,
    path: fmt::Arguments<'_>,
    mut action: impl FnMut(usize) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let Some(bytes) = files.open(path) else {
        return Ok(());
    };
    for range in CpuList::new(bytes) {
        range?.try_for_each(&mut action)?;
    }
    Ok(())
}

fn row_says_farther(row: impl Iterator<Item = u8>, own_column: usize) -> bool {
    let mut greatest = 0;
    let mut own = usize::MAX;
    for (column, distance) in numbers(row).enumerate() {
        greatest = greatest.max(distance);
        if column == own_column {
            own = distance;
        }
    }
    greatest > own
}

/// The number that a file consists of; `None` if it is negative or something else.
fn number(bytes: impl Iterator<Item = u8>) -> Option<usize> {
    let mut bytes = bytes.peekable();
    bytes
        .peek()?
        .is_ascii_digit()
        .then(|| numbers(bytes).next())
        .flatten()
}

/// The numbers between any other characters.
pub(crate) fn numbers(bytes: impl Iterator<Item = u8>) -> impl Iterator<Item = usize> {
    let mut bytes = bytes;
    core::iter::from_fn(move || {
        let mut number: Option<usize> = None;
        for byte in bytes.by_ref() {
            match (byte, number) {
                (b'0'..=b'9', _) => {
                    let digit = usize::from(byte - b'0');
                    number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
                }
                (_, Some(_)) => break,
                (_, None) => {}
            }
        }
        number
    })
}
