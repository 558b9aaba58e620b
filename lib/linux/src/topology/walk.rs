//! Reads from sysfs how CPUs are grouped, without allocation.
//!
//! The result is in a [`Table`]: the one that locks use, or one from which a
//! [`Topology`](super::Topology) is made. The files are the running kernel's, read with plain
//! system calls, or are in any other folder.
//!
//! A missing file means that the fact is unknown. A malformed list is used up to the error.

use core::fmt;

use super::cpulist::{CpuList, CpuListError};
use super::table::Table;

/// A sysfs.
pub(crate) trait Files {
    /// The bytes of one file.
    type Bytes: Iterator<Item = u8>;

    /// Opens the file at `path`, which is relative to sysfs; `None` if there is none.
    fn open(&self, path: fmt::Arguments<'_>) -> Option<Self::Bytes>;

    /// Reports that the list at `path` is malformed.
    fn malformed(&self, path: fmt::Arguments<'_>, error: CpuListError);
}

/// Groups CPUs by NUMA node; a group is the kernel's node number. Without NUMA there are no groups.
///
/// Nodes without CPUs make no group. Node numbers may have gaps.
pub(crate) fn nodes(files: &impl Files, groups: &Table) {
    for_each_node(files, |node| {
        for_each(files, format_args!("{NODES}/node{node}/cpulist"), |cpu| {
            groups.put(cpu, node);
        });
    });
}

/// Groups CPUs by last-level cache; a group is the lowest CPU in it. CPUs whose caches are unknown
/// are in no group.
pub(crate) fn last_level_caches(files: &impl Files, groups: &Table) {
    for_each_online_cpu(files, |cpu| {
        if groups.group_of(cpu).is_some() {
            return;
        }
        if let Some(index) = last_level_cache_of(files, cpu) {
            for_each(
                files,
                format_args!("{CPUS}/cpu{cpu}/cache/index{index}/shared_cpu_list"),
                |member| groups.put(member, cpu),
            );
        }
    });
}

/// Groups CPUs by socket; a group is the lowest CPU in it. CPUs whose socket is unknown, which the
/// kernel writes as -1, are in no group.
pub(crate) fn sockets(files: &impl Files, groups: &Table) {
    for_each_online_cpu(files, |cpu| {
        if groups.group_of(cpu).is_none() && socket_of(files, cpu).is_some() {
            // The second name is that of the list before Linux 5.3.
            put_siblings(
                files,
                groups,
                cpu,
                ["package_cpus_list", "core_siblings_list"],
            );
        }
    });
}

/// Groups hardware threads by core; a group is the lowest CPU in it.
pub(crate) fn cores(files: &impl Files, groups: &Table) {
    for_each_online_cpu(files, |cpu| {
        put_siblings(
            files,
            groups,
            cpu,
            ["core_cpus_list", "thread_siblings_list"],
        );
    });
}

/// The kernel's number of the socket that holds `cpu`.
pub(crate) fn socket_of(files: &impl Files, cpu: usize) -> Option<usize> {
    number(files.open(format_args!("{CPUS}/cpu{cpu}/topology/physical_package_id"))?)
}

/// Calls `action` for every CPU that is online.
pub(crate) fn for_each_online_cpu(files: &impl Files, action: impl FnMut(usize)) {
    for_each(files, format_args!("{CPUS}/online"), action);
}

/// Calls `action` for every CPU that is present, online or not.
pub(crate) fn for_each_present_cpu(files: &impl Files, action: impl FnMut(usize)) {
    for_each(files, format_args!("{CPUS}/present"), action);
}

/// Calls `action` for every NUMA node, with or without CPUs.
pub(crate) fn for_each_node(files: &impl Files, action: impl FnMut(usize)) {
    for_each(files, format_args!("{NODES}/online"), action);
}

/// Calls `action` for every NUMA node that has memory.
pub(crate) fn for_each_node_with_memory(files: &impl Files, action: impl FnMut(usize)) {
    for_each(files, format_args!("{NODES}/has_memory"), action);
}

/// The distance of `node` from every node, in the order of [`for_each_node`]. By convention the
/// distance from itself is 10.
pub(crate) fn distances(files: &impl Files, node: usize) -> impl Iterator<Item = usize> {
    let row = files.open(format_args!("{NODES}/node{node}/distance"));
    numbers(row.into_iter().flatten())
}

/// Whether some node is farther from another node than from itself.
pub(crate) fn remote_is_farther(files: &impl Files) -> bool {
    let mut farther = false;
    let mut rank = 0;
    for_each_node(files, |node| {
        farther |= row_says_farther(distances(files, node), rank);
        rank += 1;
    });
    farther
}

/// Whether a node's `row` of distances has a greater number than the one in its own column.
pub(crate) fn row_says_farther(row: impl Iterator<Item = usize>, own_column: usize) -> bool {
    let mut greatest = 0;
    let mut own = usize::MAX;
    for (column, distance) in row.enumerate() {
        greatest = greatest.max(distance);
        if column == own_column {
            own = distance;
        }
    }
    greatest > own
}

const CPUS: &str = "devices/system/cpu";
const NODES: &str = "devices/system/node";

/// Puts `cpu` and its siblings into one group, by the first of `lists` that exists.
fn put_siblings(files: &impl Files, groups: &Table, cpu: usize, lists: [&str; 2]) {
    for list in lists {
        if groups.group_of(cpu).is_none() {
            for_each(
                files,
                format_args!("{CPUS}/cpu{cpu}/topology/{list}"),
                |member| {
                    groups.put(member, cpu);
                },
            );
        }
    }
}

/// The index of the highest-level cache of `cpu` that holds data.
fn last_level_cache_of(files: &impl Files, cpu: usize) -> Option<usize> {
    let mut last: Option<(usize, usize)> = None;
    for index in 0.. {
        let cache = |file| files.open(format_args!("{CPUS}/cpu{cpu}/cache/index{index}/{file}"));
        let Some(level) = cache("level") else { break };
        let level = number(level).unwrap_or(0);
        // The types are Data, Instruction and Unified.
        let holds_data = cache("type").is_none_or(|mut kind| kind.next() != Some(b'I'));
        if holds_data && last.is_none_or(|(highest, _)| level > highest) {
            last = Some((level, index));
        }
    }
    last.map(|(_, index)| index)
}

/// Calls `action` for every number in the list at `path`, if that file exists.
fn for_each(files: &impl Files, path: fmt::Arguments<'_>, mut action: impl FnMut(usize)) {
    let Some(bytes) = files.open(path) else {
        return;
    };
    for range in CpuList::new(bytes) {
        match range {
            Ok(range) => range.for_each(&mut action),
            Err(error) => files.malformed(path, error),
        }
    }
}

/// The number that a file contains; `None` if it is negative or malformed.
fn number(bytes: impl Iterator<Item = u8>) -> Option<usize> {
    let mut bytes = bytes.peekable();
    bytes
        .peek()?
        .is_ascii_digit()
        .then(|| numbers(bytes).next())?
}

/// The numbers in `bytes`, separated by any other bytes.
fn numbers(mut bytes: impl Iterator<Item = u8>) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let mut number: Option<usize> = None;
        for byte in bytes.by_ref() {
            match (byte, number) {
                (b'0'..=b'9', _) => {
                    let digit = usize::from(byte - b'0');
                    let tenfold = number.unwrap_or(0).saturating_mul(10);
                    number = Some(tenfold.saturating_add(digit));
                }
                (_, Some(_)) => break,
                (_, None) => {}
            }
        }
        number
    })
}
