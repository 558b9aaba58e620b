//! Where the calling thread runs, and how much of the machine the process may use.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::*};
use kinlock_linux::native::usable_cpus;
use kinlock_linux::rseq::current_cpu;
use kinlock_linux::topology::{Cpu, Topology};

/// The CPU on which the calling thread ran a moment ago, or -1.
#[unsafe(no_mangle)]
extern "C" fn kinlock_cpu() -> c_int {
    current_cpu().map_or(-1, |cpu| cpu as c_int)
}

/// The NUMA node of that CPU, or -1.
#[unsafe(no_mangle)]
extern "C" fn kinlock_node() -> c_int {
    here().map_or(-1, |places| places.node)
}

/// The lowest CPU among those that share the last-level cache with that CPU, or -1.
#[unsafe(no_mangle)]
extern "C" fn kinlock_cache() -> c_int {
    here().map_or(-1, |places| places.cache)
}

/// How many CPUs' time the process may use now.
#[unsafe(no_mangle)]
extern "C" fn kinlock_usable_cpus() -> u32 {
    usable_cpus()
}

/// Where a CPU is: its NUMA node, and the lowest CPU that shares its last-level cache. -1: unknown.
#[derive(Clone, Copy)]
struct Places {
    node: c_int,
    cache: c_int,
}

const UNKNOWN: Places = Places {
    node: -1,
    cache: -1,
};

/// The places of all CPUs, by the CPU's number. Null until a thread has read the topology.
///
/// Not a `Once`, because in the child of a fork that might wait for a thread that does not exist
/// there. If two threads read the topology at the same time, one of their tables is dropped.
static TABLE: AtomicPtr<Vec<Places>> = AtomicPtr::new(ptr::null_mut());

fn here() -> Option<Places> {
    let cpu = current_cpu()?;
    table().get(cpu as usize).copied()
}

fn table() -> &'static [Places] {
    // Acquire pairs with the release in `read`, so that the table is seen complete.
    let mut table = TABLE.load(Acquire);
    if table.is_null() {
        table = read();
    }
    // SAFETY: `TABLE` is null, or a box made into a pointer that is never freed.
    unsafe { &*table }
}

#[cold]
fn read() -> *mut Vec<Places> {
    let mut places = Vec::new();
    for cpu in Topology::current().cpus() {
        places.resize(cpu.number + 1, UNKNOWN);
        places[cpu.number] = place(cpu);
    }
    let mine = Box::into_raw(Box::new(places));
    match TABLE.compare_exchange(ptr::null_mut(), mine, AcqRel, Acquire) {
        Ok(_) => mine,
        Err(others) => {
            // SAFETY: it was just made, and no other thread has seen it.
            drop(unsafe { Box::from_raw(mine) });
            others
        }
    }
}

fn place(cpu: &Cpu) -> Places {
    let number = |number: Option<usize>| number.map_or(-1, |number| number as c_int);
    Places {
        node: number(cpu.node),
        cache: number(cpu.last_level_cache),
    }
}
