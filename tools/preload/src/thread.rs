//! What belongs to the calling thread.
//!
//! The thread-locals are written in C (`thread.c`), since only there can the compiler be told to
//! access each by one instruction. Rust's would be found by a function of the C library that may
//! allocate.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kinlock_recorder::thread::number;
pub(crate) use kinlock_recorder::thread::{token, tokens};

unsafe extern "C" {
    safe fn kinlock_choosing() -> *mut c_uint;
    safe fn kinlock_read_locks() -> *mut c_uint;
}

/// Whether the calling thread is choosing the mode of the process.
pub(crate) fn is_choosing() -> bool {
    // SAFETY: invariant 5.
    unsafe { *kinlock_choosing() != 0 }
}

pub(crate) fn set_choosing(is_choosing: bool) {
    // SAFETY: invariant 5.
    unsafe { *kinlock_choosing() = is_choosing.into() };
}

/// How many read locks the calling thread holds.
#[inline]
pub(crate) fn read_locks() -> *mut c_uint {
    kinlock_read_locks()
}

/// The distance from the address that `pthread_self` returns to the word in which the C library
/// keeps the kernel's number of the thread. 0: not known.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// That distance, for the command.
pub(crate) fn number_at() -> usize {
    NUMBER.load(Relaxed)
}

/// How far from that address the number is searched. The C library's block is larger.
const REACH: usize = 768;

/// The kernel's number of the calling thread, as the C library knows it.
///
/// It is read where the C library keeps it each time, and never copied: in a child of a plain
/// `clone` the C library's number is the parent's until the program stores another. The owner of a
/// mutex has to be the number that the program expects, and lock and unlock have to agree.
#[inline]
pub(crate) fn thread_id() -> u32 {
    known_thread_id().unwrap_or_else(asked_number)
}

/// The same without a call, for functions that are short only if they call nothing. `None`: the
/// place of the number is not known.
#[inline]
pub(crate) fn known_thread_id() -> Option<u32> {
    match NUMBER.load(Relaxed) {
        0 => None,
        // SAFETY: invariant 8.
        place => Some(unsafe { word_of_thread(place) }),
    }
}

/// Asks the kernel each time, since the place of the C library's number is not known.
#[cold]
#[inline(never)]
fn asked_number() -> u32 {
    number()
}

/// The word at this distance from the beginning of the calling thread's block.
///
/// # Safety
///
/// Invariant 8.
#[inline]
unsafe fn word_of_thread(place: usize) -> u32 {
    // SAFETY: invariant 8.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        // The block begins at the thread pointer.
        let word: u32;
        core::arch::asm!(
            "mov {word:e}, dword ptr fs:[{place}]",
            word = lateout(reg) word,
            place = in(reg) place,
            options(readonly, nostack, preserves_flags),
        );
        word
    }
    // SAFETY: invariants 6 and 8.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        let block = core::ptr::with_exposed_provenance::<u32>(libc::pthread_self() as usize);
        core::ptr::read_volatile(block.byte_add(place))
    }
}

/// Finds the place of the C library's number. `number` is the calling thread's, as the C library
/// knows it. If several words have this value, the place stays unknown.
pub(crate) fn find_number(number: u32) {
    // SAFETY: invariant 8.
    let is_same = |&place: &usize| unsafe { word_of_thread(place) } == number;
    let mut places = (0..REACH).step_by(4).filter(is_same);
    if let (Some(place), None) = (places.next(), places.next()) {
        NUMBER.store(place, Relaxed);
    }
}
