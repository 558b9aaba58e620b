//! Delayed invalidation.
//!
//! A section of the Rust library is a value that ends the section when it is dropped. Here the
//! value is in the program's `kinlock_section_t` until the program ends the section.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::time::Duration;
use kinlock_core::platform::NEVER;
use kinlock_invalidation::{BeginError, Domain, OpenSection, Section, Tag, WaitError};

/// `kinlock_section_t`.
#[repr(C)]
struct Place {
    section: MaybeUninit<Section<'static>>,
    generation: u64,
}

const _: () = assert!(size_of::<Place>() == 32 && align_of::<Place>() == 8);
const _: () = assert!(size_of::<Tag>() == 8 && align_of::<Tag>() == 8);

/// `kinlock_open_section_t`.
#[repr(C)]
struct Open {
    generation: u64,
    current: u64,
    age: u64,
    thread: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_create(result: *mut *mut Domain) -> c_int {
    // SAFETY: invariant 3.
    unsafe { result.write(Box::into_raw(Box::new(Domain::new()))) };
    0
}

destroy!(kinlock_invalidation_destroy, Domain);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_begin(domain: *const Domain, place: *mut Place) -> c_int {
    // SAFETY: invariant 5. The header demands that the section ends before the domain.
    let domain: &'static Domain = unsafe { &*domain };
    match domain.try_begin() {
        Ok(section) => {
            let generation = section.generation();
            let section = MaybeUninit::new(section);
            // SAFETY: invariant 3.
            unsafe {
                place.write(Place {
                    section,
                    generation,
                })
            };
            0
        }
        Err(BeginError::TooManyThreads | BeginError::NoKey) => libc::EAGAIN,
        Err(BeginError::NearWrap) => libc::EOVERFLOW,
        Err(BeginError::ThreadEnding) => libc::ESRCH,
        Err(_) => libc::EPERM,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_end(place: *mut Place) {
    // SAFETY: invariant 2: the section has begun here, on this thread, and has not ended.
    drop(unsafe { (*place).section.assume_init_read() });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_tag(place: *const Place, tag: *const Tag) {
    // SAFETY: invariants 1 and 2.
    unsafe { (*place).section.assume_init_ref().tag(&*tag) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_passed(domain: *const Domain, tag: *const Tag) -> c_int {
    // SAFETY: invariants 1 and 5.
    c_int::from(unsafe { (*domain).passed(&*tag) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_wait(domain: *const Domain, tag: *const Tag) -> c_int {
    // SAFETY: invariants 1 and 5.
    waited(unsafe { (*domain).wait(&*tag) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_wait_for(
    domain: *const Domain,
    tag: *const Tag,
    nanos: u64,
) -> c_int {
    // SAFETY: invariants 1 and 5.
    let (domain, tag) = unsafe { (&*domain, &*tag) };
    waited(match nanos {
        NEVER => domain.wait(tag),
        _ => domain.wait_timeout(tag, Duration::from_nanos(nanos)),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_wait_all(domain: *const Domain) -> c_int {
    // SAFETY: invariant 5.
    waited(unsafe { (*domain).wait_all() })
}

fn waited(result: Result<(), WaitError>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(WaitError::TimedOut) => libc::ETIMEDOUT,
        Err(WaitError::InsideSection) => libc::EDEADLK,
        Err(WaitError::ForeignTag) => libc::EINVAL,
        Err(_) => libc::EPERM,
    }
}

type Each = unsafe extern "C" fn(*mut c_void, *const Open);

#[unsafe(no_mangle)]
unsafe extern "C" fn kinlock_invalidation_dump(
    domain: *const Domain,
    each: Each,
    argument: *mut c_void,
) {
    // SAFETY: invariant 5.
    for open in unsafe { (*domain).dump() } {
        // SAFETY: invariant 4.
        unsafe { each(argument, &as_c(open)) };
    }
}

fn as_c(open: OpenSection) -> Open {
    Open {
        generation: open.generation,
        current: open.current,
        age: u64::try_from(open.age.as_nanos()).unwrap_or(u64::MAX),
        thread: open.thread,
    }
}
