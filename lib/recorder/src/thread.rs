//! What belongs to the calling thread.
//!
//! With the feature `initial-exec` the thread-locals are written in C (`thread.c`), since only a C
//! compiler can be told to access each by one instruction. In a shared library the thread-locals of
//! Rust are found by a function of the C library that may allocate.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many threads have a token.
static TOKENS: AtomicU32 = AtomicU32::new(0);

/// How many threads have a token, those of parent processes included.
pub fn tokens() -> u32 {
    TOKENS.load(Relaxed)
}

/// The next token, for [`token`]. After 2^32 threads the numbers repeat.
fn new_token() -> u32 {
    loop {
        let token = TOKENS.fetch_add(1, Relaxed).wrapping_add(1);
        // 0 stands for a thread that has not asked.
        if token != 0 {
            return token;
        }
    }
}

pub(super) use imp::{enter, entered, known_stack, tallies};
pub use imp::{forget_parent, thread_id, token};

#[cfg(feature = "initial-exec")]
mod imp {
    unsafe extern "C" {
        safe fn kinlock_thread_id() -> u32;
        safe fn kinlock_token() -> u32;
        safe fn kinlock_known_stack() -> *mut [u64; 2];
        safe fn kinlock_tallies() -> *mut usize;
        safe fn kinlock_entered() -> *mut u64;
        safe fn kinlock_forked();
    }

    /// The kernel's number of the calling thread.
    #[inline]
    pub fn thread_id() -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            let id: u32;
            // SAFETY: invariant 8.
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

    /// A number for the calling thread that no other thread of this process has had: 1, 2, ... in
    /// the order in which threads first ask. A thread that forks keeps its number in the child.
    #[inline]
    pub fn token() -> u32 {
        kinlock_token()
    }

    #[unsafe(no_mangle)]
    extern "C" fn kinlock_new_token() -> u32 {
        super::new_token()
    }

    /// The part of the calling thread's stack that is known to be readable: its first address, and
    /// the one after its last. Two zeros at first.
    pub(in super::super) fn known_stack() -> *mut [u64; 2] {
        kinlock_known_stack()
    }

    /// Where the address of the calling thread's tallies is kept.
    #[inline]
    pub(in super::super) fn tallies() -> *mut usize {
        kinlock_tallies()
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

    /// Forgets what the calling thread knew before the fork: its kernel number, and the parent's
    /// tallies.
    pub fn forget_parent() {
        kinlock_forked();
    }
}

#[cfg(not(feature = "initial-exec"))]
mod imp {
    use core::cell::Cell;

    std::thread_local! {
        // Without destructors, so that they are accessible for as long as the thread runs.
        static ID: Cell<u32> = const { Cell::new(0) };
        static TOKEN: Cell<u32> = const { Cell::new(0) };
        static KNOWN_STACK: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
        static TALLIES: Cell<usize> = const { Cell::new(0) };
        static ENTERED: Cell<u64> = const { Cell::new(0) };
    }

    /// The kernel's number of the calling thread.
    pub fn thread_id() -> u32 {
        if ID.get() == 0 {
            // SAFETY: invariant 9.
            ID.set(unsafe { libc::syscall(libc::SYS_gettid) } as u32);
        }
        ID.get()
    }

    /// A number for the calling thread that no other thread of this process has had: 1, 2, ... in
    /// the order in which threads first ask. A thread that forks keeps its number in the child.
    pub fn token() -> u32 {
        if TOKEN.get() == 0 {
            TOKEN.set(super::new_token());
        }
        TOKEN.get()
    }

    /// The part of the calling thread's stack that is known to be readable: its first address, and
    /// the one after its last. Two zeros at first.
    pub(in super::super) fn known_stack() -> *mut [u64; 2] {
        KNOWN_STACK.with(Cell::as_ptr)
    }

    /// Where the address of the calling thread's tallies is kept.
    pub(in super::super) fn tallies() -> *mut usize {
        TALLIES.with(Cell::as_ptr)
    }

    /// The stack pointer where the thread entered the recorder; 0: it has not told.
    pub(in super::super) fn entered() -> u64 {
        ENTERED.get()
    }

    pub(in super::super) fn enter(stack: u64) {
        ENTERED.set(stack);
    }

    /// Forgets what the calling thread knew before the fork: its kernel number, and the parent's
    /// tallies.
    pub fn forget_parent() {
        ID.set(0);
        TALLIES.set(0);
    }
}
