//! Concurrency IDs: domains, leases, counters, memory for each ID, stacks of pointers.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;
use kinlock_ids::{
    Backend, BuildError, Counter, CounterArray, Domain, EnterError, Lease, PerId, Stack,
};
use std::alloc::{self, Layout};

/// `KINLOCK_IDS_ANY`, `KINLOCK_IDS_RESTARTABLE`, `KINLOCK_IDS_LEASE`.
const ANY: c_int = 0;
const RESTARTABLE: c_int = 1;
const LEASE: c_int = 2;

/// Gives `value` to the program, or returns the error number that says why there is none.
///
/// # Safety
///
/// Invariant 3.
unsafe fn give<T>(value: Result<T, BuildError>, result: *mut *mut T) -> c_int {
    match value {
        Ok(value) => {
            // SAFETY: as this function demands.
            unsafe { result.write(Box::into_raw(Box::new(value))) };
            0
        }
        Err(BuildError::Unavailable(_)) => libc::ENOTSUP,
        Err(BuildError::KernelDecides | BuildError::MaxIds(_)) => libc::EINVAL,
        Err(BuildError::TooManyDomains) => libc::EAGAIN,
        Err(_) => libc::ENOMEM,
    }
}

// ---- domains and leases -----------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_create(
    result: *mut *mut Domain,
    backend: c_int,
    max_ids: u32,
) -> c_int {
    let builder = match backend {
        ANY => Domain::builder(),
        RESTARTABLE => Domain::builder().backend(Backend::Restartable),
        LEASE => Domain::builder().backend(Backend::Lease),
        _ => return libc::EINVAL,
    };
    let builder = match max_ids {
        0 => builder,
        _ => builder.max_ids(max_ids),
    };
    // SAFETY: as this function demands.
    unsafe { give(builder.build(), result) }
}

destroy!(kinlock_ids_destroy, Domain);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_backend(domain: *const Domain) -> c_int {
    // SAFETY: invariant 5.
    match unsafe { (*domain).backend() } {
        Backend::Restartable => RESTARTABLE,
        Backend::Lease => LEASE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_max(domain: *const Domain) -> u32 {
    // SAFETY: invariant 5.
    unsafe { (*domain).max_ids() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_momentary(domain: *const Domain) -> i64 {
    // SAFETY: invariant 5.
    unsafe { (*domain).momentary_id() }.map_or(-1, i64::from)
}

/// `kinlock_lease_t`.
#[repr(C)]
struct Held {
    lease: MaybeUninit<Lease<'static>>,
    id: u32,
}

const _: () = assert!(size_of::<Held>() == 24 && align_of::<Held>() == 8);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_enter(domain: *const Domain, held: *mut Held) -> c_int {
    // SAFETY: invariant 5. The header demands that the lease ends before the domain.
    let domain: &'static Domain = unsafe { &*domain };
    match domain.enter() {
        Ok(lease) => {
            let id = lease.id();
            let lease = MaybeUninit::new(lease);
            // SAFETY: invariant 3.
            unsafe { held.write(Held { lease, id }) };
            0
        }
        Err(EnterError::Exhausted) => libc::EAGAIN,
        Err(EnterError::NothingToHold) => libc::ENOTSUP,
        Err(_) => libc::ESRCH,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_ids_leave(held: *mut Held) {
    // SAFETY: invariant 2: the lease was given to this thread here, and has not been given back.
    drop(unsafe { (*held).lease.assume_init_read() });
}

// ---- counters ---------------------------------------------

/// `kinlock_counter_t`. The inline function of the header reads the fields before `counter`.
#[repr(C)]
struct OneCounter {
    /// The distance of a thread's area from its thread pointer; 0: the header's function calls the
    /// library.
    area: isize,
    base: *mut u8,
    limit: u32,
    /// The words of neighbouring IDs are `1 << shift` bytes apart.
    shift: u32,
    counter: Counter,
}

const _: () = assert!(
    offset_of!(OneCounter, base) == 8
        && offset_of!(OneCounter, limit) == 16
        && offset_of!(OneCounter, shift) == 20
);

/// The only `shift` for which the header has a sequence.
const SHIFT: u32 = 17;

impl OneCounter {
    fn new(counter: Counter) -> Self {
        let parts = counter.parts().filter(|parts| parts.shift == SHIFT);
        OneCounter {
            area: parts.map_or(0, |parts| parts.area),
            base: parts.map_or(core::ptr::null_mut(), |parts| parts.base.as_ptr()),
            limit: parts.map_or(0, |parts| parts.limit),
            shift: parts.map_or(0, |parts| parts.shift),
            counter,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counter_create(
    domain: *const Domain,
    result: *mut *mut OneCounter,
) -> c_int {
    // SAFETY: invariants 3 and 5.
    unsafe { give(Counter::new(&*domain).map(OneCounter::new), result) }
}

destroy!(kinlock_counter_destroy, OneCounter);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counter_add(counter: *const OneCounter, n: u64) {
    // SAFETY: invariant 5.
    unsafe { (*counter).counter.add(n) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counter_add_with(
    counter: *const OneCounter,
    held: *const Held,
    n: u64,
) {
    // SAFETY: invariants 2 and 5.
    unsafe {
        (*counter)
            .counter
            .add_with((*held).lease.assume_init_ref(), n)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counter_sum(counter: *const OneCounter) -> u64 {
    // SAFETY: invariant 5.
    unsafe { (*counter).counter.sum() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counters_create(
    domain: *const Domain,
    count: usize,
    result: *mut *mut CounterArray,
) -> c_int {
    if count == 0 {
        return libc::EINVAL;
    }
    // SAFETY: invariants 3 and 5.
    unsafe { give(CounterArray::new(&*domain, count), result) }
}

destroy!(kinlock_counters_destroy, CounterArray);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counters_add(
    counters: *const CounterArray,
    index: usize,
    n: u64,
) -> c_int {
    // SAFETY: invariant 5.
    let counters = unsafe { &*counters };
    if index >= counters.len() {
        return libc::EINVAL;
    }
    counters.add(index, n);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_counters_sum(
    counters: *const CounterArray,
    index: usize,
    result: *mut u64,
) -> c_int {
    // SAFETY: invariant 5.
    let counters = unsafe { &*counters };
    if index >= counters.len() {
        return libc::EINVAL;
    }
    // SAFETY: invariant 3.
    unsafe { result.write(counters.sum(index)) };
    0
}

// ---- memory for each ID -----------------------------------

/// Zeroed memory of one ID, made at its first use.
struct Block {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a thread that has the block is the only one to use the memory, unless the program's own
// code sees to that, as the header demands of `kinlock_area_each`.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(layout: Layout) -> Self {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        match NonNull::new(memory) {
            Some(memory) => Block { memory, layout },
            None => alloc::handle_alloc_error(layout),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nothing else has it.
        unsafe { alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

type Area = PerId<Block>;
type OnMemory = unsafe extern "C" fn(*mut c_void, *mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_area_create(
    domain: *const Domain,
    size: usize,
    result: *mut *mut Area,
) -> c_int {
    // Each block has its own cache lines: pairs of lines, because of the prefetcher of x86-64.
    let layout = match Layout::from_size_align(size, 128) {
        Ok(layout) if size > 0 => layout.pad_to_align(),
        _ => return libc::EINVAL,
    };
    // SAFETY: invariants 3 and 5.
    unsafe { give(PerId::new(&*domain, move || Block::new(layout)), result) }
}

destroy!(kinlock_area_destroy, Area);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_area_with(
    area: *const Area,
    function: OnMemory,
    argument: *mut c_void,
) {
    // SAFETY: invariant 5.
    unsafe { &*area }.with(|block| {
        // SAFETY: invariant 4.
        unsafe { function(block.memory.as_ptr().cast(), argument) }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_area_each(
    area: *const Area,
    function: OnMemory,
    argument: *mut c_void,
) {
    // SAFETY: invariant 5.
    unsafe { &*area }.for_each(|block| {
        // SAFETY: invariant 4.
        unsafe { function(block.memory.as_ptr().cast(), argument) }
    });
}

// ---- stacks of pointers -----------------------------------

/// A pointer of the program. This library does not look at what it points to.
struct Pointer(Cell<*mut c_void>);

// SAFETY: it is moved from thread to thread, and never read through.
unsafe impl Send for Pointer {}

impl Pointer {
    fn new(pointer: *mut c_void) -> Self {
        Pointer(Cell::new(pointer))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_stack_create(
    domain: *const Domain,
    result: *mut *mut Stack<Pointer>,
) -> c_int {
    // SAFETY: invariants 3 and 5.
    unsafe { give(Stack::new(&*domain), result) }
}

destroy!(kinlock_stack_destroy, Stack<Pointer>);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_stack_push(stack: *const Stack<Pointer>, pointer: *mut c_void) {
    // SAFETY: invariant 5.
    unsafe { (*stack).push(Pointer::new(pointer)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_stack_pop(stack: *const Stack<Pointer>) -> *mut c_void {
    // SAFETY: invariant 5.
    let popped = unsafe { (*stack).pop() };
    popped.map_or(core::ptr::null_mut(), |pointer| pointer.0.get())
}
