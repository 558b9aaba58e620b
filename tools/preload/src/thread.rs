//! What belongs to the calling thread.
//!
//! The thread-locals are written in C (`thread.c`), since only there can the compiler be told to
//! access each by one instruction. Rust's would be found by a function of the C library that may
//! allocate (decision 0102).

use core::ffi::c_uint;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

unsafe extern "C" {
    safe fn kinlock_thread_id() -> u32;
    safe fn kinlock_token() -> u32;
    safe fn kinlock_read_locks() -> *mut c_uint;
    safe fn kinlock_known_stack() -> *mut [u64; 2];
    safe fn kinlock_tallies() -> *mut usize;
    safe fn kinlock_forked();
}

/// The kernel's number of the calling thread.
#[inline]
pub(crate) fn thread_id() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let id: u32;
        // SAFETY: invariant 10.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + kinlock_id@GOTTPOFF]",
                "mov {id:e}, dword ptr fs:[{at}]",
                at = out(reg) _,
                id = lateout(reg) id,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        if id != 0 {
            return id;
        }
    }
    kinlock_thread_id()
}

/// A number for the calling thread that no other thread of this process has had: 1, 2, ... in the
/// order in which threads first ask. A thread that forks keeps its number in the child.
#[inline]
pub(crate) fn token() -> u32 {
    kinlock_token()
}

/// How many threads have a token.
static TOKENS: AtomicU32 = AtomicU32::new(0);

/// How many threads have a token, those of parent processes included.
pub(crate) fn tokens() -> u32 {
    TOKENS.load(Relaxed)
}

/// The next token, for [`token`]. After 2^32 threads the numbers repeat.
#[unsafe(no_mangle)]
extern "C" fn kinlock_new_token() -> u32 {
    loop {
        let token = TOKENS.fetch_add(1, Relaxed).wrapping_add(1);
        // 0 stands for a thread that has not asked.
        if token != 0 {
            return token;
        }
    }
}

/// How many read locks the calling thread holds.
#[inline]
pub(crate) fn read_locks() -> *mut c_uint {
    kinlock_read_locks()
}

/// The part of the calling thread's stack that is known to be readable: its first address, and the
/// one after its last. Two zeros at first.
pub(crate) fn known_stack() -> *mut [u64; 2] {
    kinlock_known_stack()
}

/// Where the report keeps the address of the calling thread's tallies; see
/// [`tally`](crate::traced::report).
#[inline]
pub(crate) fn tallies() -> *mut usize {
    kinlock_tallies()
}

/// Forgets what the calling thread knew before the fork: its kernel number, and the parent's
/// tallies.
pub(crate) fn forget_parent() {
    kinlock_forked();
}
