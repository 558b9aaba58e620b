//! The area through which the kernel tells the calling thread its CPU and its concurrency ID, and is told of its restartable sequences.
//!
//! The C library registers one for every thread (glibc from 2.35). Where it does not (older, another C library, the tunable `glibc.pthread.rseq=0`), each
//! thread registers one of its own, in a thread-local, when it first uses a restartable sequence, and unregisters it when it ends. A process has one area per thread, so
//! where somebody else has registered one that we know nothing of, the kernel refuses ours and the thread goes without.
//!
//! A thread whose first use of all this is in the last round of the C library's destructors registers an area of its own which nobody unregisters. The kernel writes to it until the thread is gone, and its memory must be there until then:
//! with glibc it is, and on the main thread; a C library that unmaps the stack of a detached thread before the thread has left it (musl) may let it fault. So: no first use so late.
//!
//! A thread without an area uses the part of a per-ID structure that all threads share. That is any thread whose registration was refused, and, with areas of our
//! own, a thread so near to its end that the destructors of its `pthread` keys run.
//!
//! # The states of a thread
//!
//! | `AREA` | means | next |
//! | --- | --- | --- |
//! | null | not asked for yet | an address, or `NONE` |
//! | an address | registered, by the C library or by us | `NONE`, when the thread ends and the area is ours |
//! | `NONE` | refused, or unregistered again | |
//!
//! A signal handler that comes between two of these steps goes through them itself, with the same result: the kernel answers `EBUSY` to who registers the same area twice.
//!
//! # Invariants
//!
//! 1. An address in `AREA` is that of an area registered for the calling thread: of 32 bytes, aligned to 32, there for as long as the thread runs its own code.
//! 2. `OWN` is memory of the thread. It is registered only if a destructor is to unregister it: one that runs when the thread ends, on it, before that memory goes. The exception is a first use in the last round of destructors; see above.
//! 3. The system call `rseq` is given the address of `OWN` of the calling thread, and touches nothing else.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::thread;
use kinlock_core::rseq;

/// Offsets in the area, as the kernel defines them.
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
pub(super) mod at {
    /// The CPU on which the thread runs; a negative number: not registered.
    pub(in super::super) const CPU_ID: usize = 4;
    /// The address of the descriptor of the sequence that the thread is in.
    pub(in super::super) const SEQUENCE: usize = 8;
    /// The concurrency ID.
    pub(in super::super) const MM_CID: usize = 24;
}

/// How many bytes of the area the kernel must maintain for there to be a concurrency ID.
const WITH_MM_CID: usize = at::MM_CID + 4;

/// What the kernel compares with the four bytes before the address at which it lets a thread go on after an abort.
#[cfg(target_arch = "x86_64")]
pub(super) const SIGNATURE: u32 = 0x5305_3053;
/// As above: the encoding of `brk #0x45e0`.
#[cfg(target_arch = "aarch64")]
pub(super) const SIGNATURE: u32 = 0xd428_bc00;

/// An area of the size that the first kernels with restartable sequences knew, which all accept.
#[repr(C, align(32))]
struct Own(Cell<[u32; 8]>);

/// `cpu_id_start` 0, `cpu_id` "not registered" (-1), and the rest 0, as the kernel wants to find it.
const UNREGISTERED: [u32; 8] = [0, u32::MAX, 0, 0, 0, 0, 0, 0];

/// `AREA` of a thread that has none. Never a valid address of an area, since it is not aligned.
const NONE: *mut u8 = ptr::without_provenance_mut(1);

thread_local! {
    // No destructors: plain memory of the thread, accessible for as long as it runs.
    static AREA: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
    static OWN: Own = const { Own(Cell::new(UNREGISTERED)) };
}

/// The calling thread's area; `None` if it has none. The kernel keeps a concurrency ID in it if [`available`] has said so.
#[inline]
pub(super) fn current() -> Option<NonNull<u8>> {
    let area = AREA.with(Cell::get);
    // One comparison for both: the address of an area is greater.
    if area.addr() > NONE.addr() {
        return NonNull::new(area);
    }
    if area.is_null() { first_use() } else { None }
}

/// The CPU on which the calling thread ran a moment ago.
#[inline]
pub(super) fn cpu() -> Option<u32> {
    let cpu = current().and_then(|area| {
        // SAFETY: invariant 1. The kernel writes it only while this thread does not run.
        let cpu = unsafe { area.as_ptr().add(at::CPU_ID).cast::<i32>().read_volatile() };
        u32::try_from(cpu).ok()
    });
    cpu.or_else(rseq::current_cpu)
}

/// Why there are no restartable sequences with a concurrency ID here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel refuses to register threads, does not know how to, or somebody else has registered them.
    Registration,
    /// The kernel keeps no concurrency IDs (Linux before 6.3).
    ConcurrencyId,
    /// The kernel refuses the kind of `membarrier` that restarts sequences (Linux before 5.10, some sandboxes).
    Membarrier,
    /// There are no sequences for this architecture: neither x86-64 nor aarch64.
    Architecture,
}

impl core::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Unavailable::Registration => {
                "restartable sequences are not available: the kernel does not register this thread for them"
            }
            Unavailable::ConcurrencyId => {
                "restartable sequences have no concurrency ID: the kernel is older than Linux 6.3"
            }
            Unavailable::Membarrier => {
                "restartable sequences cannot be restarted from outside: the kernel refuses membarrier"
            }
            Unavailable::Architecture => {
                "restartable sequences are written for x86-64 and aarch64 only"
            }
        })
    }
}

impl core::error::Error for Unavailable {}

/// Whether the calling thread can use restartable sequences with a concurrency ID; registers it if need be.
pub(super) fn available() -> Result<(), Unavailable> {
    if !super::sequence::WRITTEN {
        return Err(Unavailable::Architecture);
    }
    thread::prepare();
    let area = current().ok_or(Unavailable::Registration)?;
    // Not by the size that the C library says: glibc registers 32 bytes, says 20, and the kernel maintains what it knows.
    if rseq::feature_size() < WITH_MM_CID {
        return Err(Unavailable::ConcurrencyId);
    }
    // SAFETY: invariant 1.
    let cpu = unsafe { area.as_ptr().add(at::CPU_ID).cast::<i32>().read_volatile() };
    if cpu < 0 {
        return Err(Unavailable::Registration);
    }
    if !kinlock_core::native::futex::prepare_to_restart_sequences() {
        return Err(Unavailable::Membarrier);
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn first_use() -> Option<NonNull<u8>> {
    let area = rseq::registered_area().or_else(register_own);
    AREA.with(|own| own.set(area.map_or(NONE, NonNull::as_ptr)));
    area
}

fn register_own() -> Option<NonNull<u8>> {
    OWN.with(|own| {
        let address = ptr::from_ref(own).cast_mut().cast::<u8>();
        // First the promise to unregister, then the registration.
        let registered =
            thread::will_end() && matches!(rseq_call(address, 0), Ok(()) | Err(libc::EBUSY));
        registered.then(|| NonNull::new(address)).flatten()
    })
}

/// Unregisters the calling thread's area, if it is of our own: the thread ends.
pub(super) fn unregister_own() {
    const UNREGISTER: i32 = 1;
    let own = OWN.with(|own| ptr::from_ref(own).cast_mut().cast::<u8>());
    if AREA.with(Cell::get) == own {
        // First: a signal handler must not start a sequence with what is about to go.
        AREA.with(|area| area.set(NONE));
        let _ = rseq_call(own, UNREGISTER);
    }
}

/// The system call, as an error number if it fails. `errno` stays as it was.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
fn rseq_call(area: *mut u8, flags: i32) -> Result<(), i32> {
    let _errno = kinlock_core::sys::KeepErrno::hold();
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
        Err(kinlock_core::sys::system_call_error())
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
fn rseq_call(_: *mut u8, _: i32) -> Result<(), i32> {
    Err(libc::ENOSYS)
}
