//! What belongs to the calling thread.
//!
//! With the feature `initial-exec` the thread-locals are written in C (`thread.c`), since only a C
//! compiler can be told to access each by one instruction. In a shared library the thread-locals of
//! Rust are found by a function of the C library that may allocate.

use super::memory::system_call;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many threads have a token.
static TOKENS: AtomicU32 = AtomicU32::new(0);

/// How many threads have a token, those of parent processes included.
pub fn tokens() -> u32 {
    TOKENS.load(Relaxed)
}

/// The kernel's number of the calling thread, which no process inherits: nothing here keeps it.
pub(super) fn number() -> u32 {
    // SAFETY: invariant 9.
    unsafe { system_call!(libc::SYS_gettid) as u32 }
}

/// The same of a thread in a process that calls [`forget_number`] after a fork: it is asked for
/// once.
pub fn known_number() -> u32 {
    let known = imp::number();
    // SAFETY: invariant 6.
    unsafe {
        if *known == 0 {
            *known = number();
        }
        *known
    }
}

/// In the child of a fork: the calling thread has another number than in the parent.
pub extern "C" fn forget_number() {
    // SAFETY: invariant 6.
    unsafe { *imp::number() = 0 };
}

pub(super) use imp::{enter, entered, kept, tallies};
pub use imp::{forget_parent, token};

#[cfg(feature = "initial-exec")]
mod imp {
    unsafe extern "C" {
        fn kinlock_token(tokens: *mut u32) -> u32;
        safe fn kinlock_tallies() -> *mut usize;
        safe fn kinlock_entered() -> *mut u64;
        safe fn kinlock_number() -> *mut u32;
    }

    /// Where the kernel's number of the calling thread is kept; 0: it was not asked for.
    pub(super) fn number() -> *mut u32 {
        kinlock_number()
    }

    /// A number for the calling thread that no other thread of this process has had: 1, 2, ... in
    /// the order in which threads first ask. A thread that forks keeps its number in the child.
    #[inline]
    pub fn token() -> u32 {
        // SAFETY: invariant 6: it accesses the count as an atomic.
        unsafe { kinlock_token(super::TOKENS.as_ptr()) }
    }

    /// Where the address of the calling thread's tallies is kept.
    #[inline]
    pub(in super::super) fn tallies() -> *mut usize {
        kinlock_tallies()
    }

    /// What is kept there. Each acquisition asks, and a call would take as long as what follows.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(in super::super) fn kept() -> usize {
        let kept: usize;
        // SAFETY: invariant 6: it reads that thread-local.
        unsafe {
            core::arch::asm!(
                "mov {kept}, qword ptr [rip + kinlock_kept@GOTTPOFF]",
                "mov {kept}, qword ptr fs:[{kept}]",
                kept = out(reg) kept,
                options(readonly, nostack, preserves_flags),
            );
        }
        kept
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub(in super::super) fn kept() -> usize {
        // SAFETY: invariant 6.
        unsafe { *tallies() }
    }

    /// The stack pointer where the thread entered the recorder; 0: it has not told.
    pub(in super::super) fn entered() -> u64 {
        // SAFETY: invariant 6.
        unsafe { *kinlock_entered() }
    }

    pub(in super::super) fn enter(stack: u64) {
        // SAFETY: invariant 6.
        unsafe { *kinlock_entered() = stack };
    }

    /// The calling thread has no tallies in the child's table.
    pub fn forget_parent() {
        // SAFETY: invariant 6.
        unsafe { *kinlock_tallies() = 0 };
    }
}

#[cfg(not(feature = "initial-exec"))]
mod imp {
    use core::cell::Cell;

    std::thread_local! {
        // Without destructors, so that they are accessible for as long as the thread runs.
        static TOKEN: Cell<u32> = const { Cell::new(0) };
        static TALLIES: Cell<usize> = const { Cell::new(0) };
        static ENTERED: Cell<u64> = const { Cell::new(0) };
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }

    /// Where the kernel's number of the calling thread is kept; 0: it was not asked for.
    pub(super) fn number() -> *mut u32 {
        NUMBER.with(Cell::as_ptr)
    }

    /// The next token, for [`token`]. After 2^32 threads the numbers repeat.
    fn new_token() -> u32 {
        loop {
            let token = super::TOKENS.fetch_add(1, super::Relaxed).wrapping_add(1);
            // 0 stands for a thread that has not asked.
            if token != 0 {
                return token;
            }
        }
    }

    /// A number for the calling thread that no other thread of this process has had: 1, 2, ... in
    /// the order in which threads first ask. A thread that forks keeps its number in the child.
    pub fn token() -> u32 {
        if TOKEN.get() == 0 {
            TOKEN.set(new_token());
        }
        TOKEN.get()
    }

    /// Where the address of the calling thread's tallies is kept.
    pub(in super::super) fn tallies() -> *mut usize {
        TALLIES.with(Cell::as_ptr)
    }

    /// What is kept there.
    #[inline]
    pub(in super::super) fn kept() -> usize {
        TALLIES.get()
    }

    /// The stack pointer where the thread entered the recorder; 0: it has not told.
    pub(in super::super) fn entered() -> u64 {
        ENTERED.get()
    }

    pub(in super::super) fn enter(stack: u64) {
        ENTERED.set(stack);
    }

    /// The calling thread has no tallies in the child's table.
    pub fn forget_parent() {
        TALLIES.set(0);
    }
}
