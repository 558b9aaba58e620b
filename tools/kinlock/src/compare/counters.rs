//! The processor's counters over a run, where the kernel lets them be read.
//!
//! They are counted in a separate run under each lock, after the rounds. The kernel saves and loads
//! the counters in each context switch, and in the rounds a lock with more switches would pay more
//! for that.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The attributes are a live local of the size that they state.
//! 2. The descriptor is new, and nothing else has it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use serde::Serialize;

/// What a run counted, in user mode, over all threads and child processes. Null if this machine
/// does not count it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counters {
    pub instructions: Option<u64>,
    pub cache_misses: Option<u64>,
}

/// Something that can be counted: the kernel's type (`PERF_TYPE_HARDWARE`, ...) and number for it.
type Event = (u32, u64);

const INSTRUCTIONS: Event = (0, 1);
const CACHE_MISSES: Event = (0, 3);

/// The first version of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`), which all kernels take.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Flags: off until a child executes a program, in children too, not in the kernel.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const ENABLE_ON_EXEC: u64 = 1 << 12;
/// What is read: the count, the time for which the counter was enabled, and the time for which it
/// ran.
const TIMES: u64 = 1 << 0 | 1 << 1;

/// Counters that count what children of this thread do from their exec on.
pub struct Open([Option<File>; 2]);

impl Open {
    /// Opens the counters that this machine has. An error if it has none.
    pub fn new() -> io::Result<Self> {
        match [INSTRUCTIONS, CACHE_MISSES].map(open) {
            [Err(error), Err(_)] => Err(error),
            opened => Ok(Open(opened.map(Result::ok))),
        }
    }

    /// The counts for children that have ended.
    pub fn read(&self) -> Counters {
        let [instructions, cache_misses] = self.0.each_ref().map(|file| read(file.as_ref()?));
        Counters {
            instructions,
            cache_misses,
        }
    }
}

/// Why there are no counters, for people.
pub fn refused(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine, or the virtual machine that it is, has none for its users".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel keeps them from users (/proc/sys/kernel/perf_event_paranoid above 2, or a \
             container's filter)"
                .to_owned()
        }
        Some(libc::ENOSYS) => "the kernel is built without them".to_owned(),
        _ => error.to_string(),
    };
    format!("no hardware counters (instructions, cache misses): {why}")
}

fn open((kind, config): Event) -> io::Result<File> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        read_format: TIMES,
        flags: DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | ENABLE_ON_EXEC,
        ..Attributes::default()
    };
    let (this_thread, any_cpu, no_group, close_on_exec) = (0, -1, -1, 1 << 3);
    // SAFETY: invariant 1.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    match descriptor {
        0.. => {
            // SAFETY: invariant 2.
            Ok(unsafe { File::from_raw_fd(descriptor as i32) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// The count. If other users of the processor's counters had them for a part of the time, the count
/// is extrapolated to all of it.
fn read(mut file: &File) -> Option<u64> {
    let mut bytes = [0; 24];
    file.read_exact(&mut bytes).ok()?;
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().expect("8 bytes"));
    let [count, asked, counted] = [0, 1, 2].map(word);
    match (asked, counted) {
        (0, _) | (_, 0) => None,
        (asked, counted) if asked == counted => Some(count),
        (asked, counted) => Some((count as f64 * asked as f64 / counted as f64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The kernel counts page faults itself, also on machines without hardware counters.
    const PAGE_FAULTS: Event = (1, 2);

    #[test]
    fn what_a_child_and_its_children_do_is_counted_and_nothing_else() {
        let faults = |script: &str| -> Option<u64> {
            let file = match open(PAGE_FAULTS) {
                Ok(file) => file,
                Err(error) => {
                    eprintln!("WARNING: {error}: NOT tested");
                    return None;
                }
            };
            let own: Vec<_> = (0..4000).map(|page| vec![page as u8; 4096]).collect();
            assert_eq!(own.len(), 4000);
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            assert!(status.success());
            Some(read(&file).expect("the child ran"))
        };
        let (Some(one), Some(ten)) = (
            faults("true"),
            faults("for i in 1 2 3 4 5 6 7 8 9; do sh -c true; done"),
        ) else {
            return;
        };
        // Each shell has some tens of page faults. This process has had 4000 while it was open.
        assert!(one > 10 && one < 4000 && ten > 5 * one, "{one} {ten}");
    }
}
