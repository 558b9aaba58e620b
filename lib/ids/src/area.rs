//! The area that the kernel and one thread share for restartable sequences (`struct rseq`). Through
//! it the kernel tells the thread its CPU and its concurrency ID, and the thread tells the kernel
//! which sequence it is in.
//!
//! The C library registers an area for every thread (glibc from 2.35). Where it does not (older
//! versions, other C libraries, the tunable `glibc.pthread.rseq=0`), each thread registers an area
//! of its own, in a thread-local, at its first use of a restartable sequence. It unregisters the
//! area when it ends. A thread can have only one area: if other code has registered one that this
//! library cannot find, the kernel refuses ours.
//!
//! A thread whose first use is in the last round of the C library's destructors registers an area
//! that nothing unregisters. The kernel writes to the area until the thread is gone, so its memory
//! must last that long. It does with glibc, and on the main thread. A C library that unmaps the
//! stack of a detached thread before the thread has left it (musl) may let the write fault. Hence
//! the rule: no first use that late.
//!
//! A thread without a registered area uses the part of a per-ID structure that all such threads
//! share. Two kinds of threads have none: threads whose registration was refused, and, where areas
//! are our own, threads that already run the destructors of their `pthread` keys.
//!
//! The areas of the C library are all at the same distance from the thread pointers. So one number
//! serves all threads, and finding the area reads no thread-local, which costs a call if this
//! library is part of a shared object. If the registration of a thread has failed, the kernel has
//! written no CPU to the area; sequences check that.
//!
//! # The states of a thread where areas are our own
//!
//! | `AREA` | means | next |
//! | --- | --- | --- |
//! | null | not asked for yet | the address of `OWN`, or `NONE` |
//! | the address of `OWN` | registered | `NONE`, at thread exit |
//! | `NONE` | refused, or unregistered again | |
//!
//! A signal handler between two of these steps performs them itself, with the same result: the
//! kernel answers `EBUSY` to a second registration of the same area.
//!
//! # Invariants
//!
//! 1. An [`Area`] belongs to the calling thread: at its thread pointer plus the area's distance are
//!    32 bytes, aligned to 32, mapped for as long as the thread runs its own code. They are
//!    registered, or the CPU in them is negative.
//! 2. `OWN` is memory of the thread. It is registered only if a destructor will unregister it: on
//!    this thread, when the thread ends, before that memory goes. The exception is a first use in
//!    the last round of destructors; see above.
//! 3. The system call `rseq` is given the address of `OWN` of the calling thread, and touches
//!    nothing else.

use core::cell::Cell;
use core::num::NonZero;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicIsize, Ordering::Relaxed};

use super::thread;
use kinlock_linux::rseq;

/// Offsets in the area, as the kernel defines them.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
pub(super) mod at {
    /// The CPU on which the thread runs. Negative: not registered.
    pub(in super::super) const CPU_ID: usize = 4;
    /// The address of the descriptor of the thread's current sequence.
    pub(in super::super) const SEQUENCE: usize = 8;
    /// The concurrency ID.
    pub(in super::super) const MM_CID: usize = 24;
}

/// The least size of the area, in bytes, at which the kernel maintains a concurrency ID in it.
const WITH_MM_CID: usize = at::MM_CID + 4;

/// The kernel lets a thread go on at an abort address only if the four bytes before it equal this.
#[cfg(target_arch = "x86_64")]
pub(super) const SIGNATURE: u32 = 0x5305_3053;
/// The kernel checks this signature as on x86-64. It is the encoding of `brk #0x45e0`.
#[cfg(target_arch = "aarch64")]
pub(super) const SIGNATURE: u32 = 0xd428_bc00;

/// An area of the original size, which every kernel with restartable sequences accepts.
#[repr(C, align(32))]
struct Own(Cell<[u32; 8]>);

/// What the kernel expects to find: `cpu_id_start` 0, `cpu_id` "not registered" (-1), the rest 0.
const UNREGISTERED: [u32; 8] = [0, u32::MAX, 0, 0, 0, 0, 0, 0];

/// `AREA` of a thread without an area. It is not aligned, so it is never the address of an area.
const NONE: *mut u8 = ptr::without_provenance_mut(1);

thread_local! {
    // No destructors: plain memory of the thread, accessible for as long as it runs.
    static AREA: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
    static OWN: Own = const { Own(Cell::new(UNREGISTERED)) };
}

/// The area of a thread: its distance from the thread pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area(NonZero<isize>);

impl Area {
    pub(super) fn at(address: NonNull<u8>) -> Option<Self> {
        // Sequences access it by the thread pointer.
        let address = address.as_ptr().expose_provenance();
        let distance = address.wrapping_sub(rseq::thread_pointer().addr());
        NonZero::new(distance as isize).map(Area)
    }

    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    #[inline]
    pub(super) fn distance(self) -> isize {
        self.0.get()
    }

    /// The address of the calling thread's area.
    #[inline]
    pub(super) fn address(self) -> *mut u8 {
        rseq::thread_pointer().wrapping_offset(self.0.get())
    }

    /// The CPU on which the calling thread ran a moment ago; `None` if it is not registered.
    #[inline]
    pub(super) fn cpu(self) -> Option<u32> {
        // SAFETY: invariant 1. The kernel writes it only while this thread does not run.
        let cpu = unsafe { self.address().add(at::CPU_ID).cast::<i32>().read_volatile() };
        u32::try_from(cpu).ok()
    }

    /// The concurrency ID with which the calling thread ran a moment ago; `None` if it is not
    /// registered.
    #[inline]
    pub(super) fn momentary_id(self) -> Option<u32> {
        self.cpu()?;
        // SAFETY: as above.
        Some(unsafe { self.address().add(at::MM_CID).cast::<u32>().read_volatile() })
    }
}

/// The distance of the C library's areas; 0: not asked for yet; [`NOT_COMMON`].
static COMMON: AtomicIsize = AtomicIsize::new(0);

/// The C library registers no areas. Not the distance of an area, which is aligned.
const NOT_COMMON: isize = 1;

/// The calling thread's own area, if it has registered it.
#[inline]
fn own() -> Option<Area> {
    let area = AREA.with(Cell::get);
    NonNull::new(area)
        .filter(|_| area != NONE)
        .and_then(Area::at)
}

/// How the operations of a structure find the areas of threads: a distance, or one of the two
/// constants below. One comparison tells the usual case from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reach(isize);

impl Reach {
    /// There are no sequences.
    const NONE: Self = Reach(0);
    /// Each thread registers an area of its own.
    const OWN: Self = Reach(NOT_COMMON);

    pub(super) fn new(sequences: bool) -> Self {
        if !sequences {
            return Self::NONE;
        }
        if COMMON.load(Relaxed) == 0 {
            // Relaxed: all threads store the same number.
            COMMON.store(rseq::registered_offset().unwrap_or(NOT_COMMON), Relaxed);
        }
        Reach(COMMON.load(Relaxed))
    }

    /// The distance of all threads' areas, where the C library registers them and there are
    /// sequences.
    pub(super) fn common(self) -> Option<isize> {
        (self.0 as usize > Self::OWN.0 as usize).then_some(self.0)
    }

    /// The calling thread's area. `None` without sequences, and for a thread that has not used an
    /// area of its own before.
    #[inline]
    pub(super) fn area(self) -> Option<Area> {
        if self.0 as usize > Self::OWN.0 as usize {
            return NonZero::new(self.0).map(Area);
        }
        if self.0 == Self::OWN.0 { own() } else { None }
    }
}

/// The calling thread's area; `None` if it has none. If [`available`] has returned `Ok`, the kernel
/// keeps a concurrency ID in it, unless the area is the C library's and this thread's registration
/// has failed.
#[inline]
pub(super) fn current() -> Option<Area> {
    Reach(COMMON.load(Relaxed)).area().or_else(find)
}

/// The CPU on which the calling thread ran a moment ago.
#[inline]
pub(super) fn cpu() -> Option<u32> {
    current().and_then(Area::cpu).or_else(rseq::current_cpu)
}

/// Why restartable sequences with a concurrency ID are not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel refuses to register threads or cannot, or other code has registered them.
    Registration,
    /// The kernel keeps no concurrency IDs (Linux before 6.3).
    ConcurrencyId,
    /// The kernel refuses the `membarrier` command that restarts sequences (Linux before 5.10, some
    /// sandboxes).
    Membarrier,
    /// This version of the kernel is known not to restart a sequence whose thread is preempted
    /// (Linux 6.19 and 7.0 on aarch64).
    KnownKernel,
    /// A sequence was preempted and went on: this kernel does not restart it.
    NotRestarted,
    /// The architecture is neither x86-64 nor aarch64; no sequences are written for it.
    Architecture,
}

impl core::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Unavailable::Registration => {
                "restartable sequences are not available: the kernel does not register this thread \
                 for them"
            }
            Unavailable::ConcurrencyId => {
                "restartable sequences have no concurrency ID: the kernel is older than Linux 6.3"
            }
            Unavailable::Membarrier => {
                "restartable sequences cannot be restarted from outside: the kernel refuses \
                 membarrier"
            }
            Unavailable::KnownKernel => {
                "restartable sequences are not restarted after a preemption by Linux 6.19 and 7.0 \
                 on aarch64"
            }
            Unavailable::NotRestarted => {
                "restartable sequences are not restarted by this kernel: one that was preempted \
                 went on"
            }
            Unavailable::Architecture => {
                "restartable sequences are written for x86-64 and aarch64 only"
            }
        })
    }
}

impl core::error::Error for Unavailable {}

/// Whether restartable sequences are written for this architecture.
const WRITTEN: bool = cfg!(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(miri)
));

/// Whether the calling thread can use restartable sequences with a concurrency ID, as far as the
/// kernel says. Registers the thread if need be.
pub(super) fn available() -> Result<(), Unavailable> {
    if !WRITTEN {
        return Err(Unavailable::Architecture);
    }
    let area = current().ok_or(Unavailable::Registration)?;
    // The kernel's own figure decides, not the C library's: glibc registers 32 bytes and reports
    // 20.
    if rseq::feature_size() < WITH_MM_CID {
        return Err(Unavailable::ConcurrencyId);
    }
    area.cpu().ok_or(Unavailable::Registration)?;
    if !kinlock_linux::native::futex::prepare_to_restart_sequences() {
        return Err(Unavailable::Membarrier);
    }
    Ok(())
}

#[inline(never)]
fn find() -> Option<Area> {
    let reach = Reach::new(true);
    if reach == Reach::OWN && AREA.with(Cell::get).is_null() {
        let area = register_own().map_or(NONE, NonNull::as_ptr);
        AREA.with(|own| own.set(area));
    }
    reach.area()
}

fn register_own() -> Option<NonNull<u8>> {
    OWN.with(|own| {
        let address = ptr::from_ref(own).cast_mut().cast::<u8>();
        // The promise to unregister comes before the registration.
        let registered =
            thread::will_end() && matches!(rseq_call(address, 0), Ok(()) | Err(libc::EBUSY));
        registered.then(|| NonNull::new(address)).flatten()
    })
}

/// Unregisters the calling thread's area if it is our own. Called when the thread ends.
pub(super) fn unregister_own() {
    const UNREGISTER: i32 = 1;
    let own = OWN.with(|own| ptr::from_ref(own).cast_mut().cast::<u8>());
    if AREA.with(Cell::get) == own {
        // Before the system call: a signal handler must not start a sequence on an area about to
        // go.
        AREA.with(|area| area.set(NONE));
        let _ = rseq_call(own, UNREGISTER);
    }
}

/// The system call `rseq`. Returns the error number if it fails; `errno` stays as it was.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
fn rseq_call(area: *mut u8, flags: i32) -> Result<(), i32> {
    let _errno = kinlock_linux::sys::KeepErrno::hold();
    // SAFETY: invariants 2 and 3.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rseq,
            area,
            size_of::<Own>() as u32,
            flags,
            SIGNATURE,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(kinlock_linux::sys::system_call_error())
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn rseq_call(_: *mut u8, _: i32) -> Result<(), i32> {
    Err(libc::ENOSYS)
}
