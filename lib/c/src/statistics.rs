//! Counters of what slow paths did, over all locks of this copy of the library.

use core::ffi::{c_char, c_int};
use kinlock_core::events::{self, Event};

/// Starts or stops counting.
#[unsafe(no_mangle)]
extern "C" fn kinlock_stats_enable(on: c_int) {
    events::set_enabled(on != 0);
}

/// How many counters there are.
#[unsafe(no_mangle)]
extern "C" fn kinlock_stats_count() -> usize {
    Event::ALL.len()
}

/// Copies the name of counter `index`, with a zero byte, to `buffer` of `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_stats_name(index: usize, buffer: *mut c_char, size: usize) -> c_int {
    let Some(event) = Event::ALL.get(index) else {
        return libc::EINVAL;
    };
    let name = event.name();
    if name.len() >= size {
        return libc::ERANGE;
    }
    // SAFETY: invariant 3; there is room for the name and for the zero byte.
    unsafe {
        let buffer = buffer.cast::<u8>();
        buffer.copy_from_nonoverlapping(name.as_ptr(), name.len());
        buffer.add(name.len()).write(0);
    }
    0
}

/// Writes the first `count` counters to `values`, or all if there are fewer. Returns how many it
/// has written.
#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_stats_read(values: *mut u64, count: usize) -> usize {
    let snapshot = events::snapshot();
    let events = Event::ALL.iter().take(count);
    for (index, &event) in events.clone().enumerate() {
        // SAFETY: invariant 3; `index` is below `count`.
        unsafe { values.add(index).write(snapshot.get(event)) };
    }
    events.len()
}
