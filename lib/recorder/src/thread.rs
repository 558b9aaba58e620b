//! What belongs to the calling thread.
//!
//! With the feature `initial-exec` the thread-locals are written in C (`thread.c`), since only a C
//! compiler can be told to access each by one instruction. In a shared library the thread-locals of
//! Rust are found by a function of the C library that may allocate.

use super::memory::system_call;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The last token that was given out.
static TOKENS: AtomicU32 = AtomicU32::new(0);

/// How many threads have a token, those of parent processes included.
pub fn tokens() -> u32 {
    TOKENS.load(Relaxed)
}

/// The kernel's number of the calling thread. It is not kept here, so that no child inherits it.
pub fn number() -> u32 {
    // SAFETY: invariant 9.
    unsafe { system_call!(libc::SYS_gettid) }.unwrap_or(0) as u32
}

/// Like [`number`], but asks the kernel once, in a process that calls [`forget_number`] after a
/// fork.
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

/// A number for the calling thread that no other thread of this process has had: 1, 2, ... in the
/// order in which threads first ask. A thread that forks keeps its number in the child.
#[inline]
pub fn token() -> u32 {
    let known = imp::token();
    // SAFETY: invariant 6.
    unsafe {
        if *known == 0 {
            *known = new_token();
        }
        *known
    }
}

/// The next token. After 2^32 threads the numbers repeat.
#[cold]
#[inline(never)]
fn new_token() -> u32 {
    loop {
        let token = TOKENS.fetch_add(1, Relaxed).wrapping_add(1);
        // 0 stands for a thread that has not asked.
        if token != 0 {
            return token;
        }
    }
}

/// Where the address of the calling thread's tallies is kept.
#[inline]
pub(super) fn tallies() -> *mut usize {
    imp::tallies()
}

/// The address that is kept there. Each acquisition reads it, and a call would take as long as what
/// follows.
#[inline]
pub(super) fn kept() -> usize {
    #[cfg(all(feature = "initial-exec", target_arch = "x86_64"))]
    {
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
    #[cfg(not(all(feature = "initial-exec", target_arch = "x86_64")))]
    // SAFETY: invariant 6.
    unsafe {
        *tallies()
    }
}

/// Forgets the calling thread's tallies: it has none in the child's table.
pub fn forget_parent() {
    // SAFETY: invariant 6.
    unsafe { *tallies() = 0 };
}

/// The stack pointer where the thread entered the recorder; 0: it was not noted.
pub(super) fn entered() -> u64 {
    // SAFETY: invariant 6.
    unsafe { *imp::entered() }
}

pub(super) fn enter(stack: u64) {
    // SAFETY: invariant 6.
    unsafe { *imp::entered() = stack };
}

/// Where each thread-local of the calling thread is. 0 stands for what is not known yet.
#[cfg(feature = "initial-exec")]
mod imp {
    unsafe extern "C" {
        #[link_name = "kinlock_token"]
        pub(super) safe fn token() -> *mut u32;
        #[link_name = "kinlock_tallies"]
        pub(super) safe fn tallies() -> *mut usize;
        #[link_name = "kinlock_entered"]
        pub(super) safe fn entered() -> *mut u64;
        #[link_name = "kinlock_number"]
        pub(super) safe fn number() -> *mut u32;
    }
}

#[cfg(not(feature = "initial-exec"))]
mod imp {
    use core::cell::Cell;

    macro_rules! thread_locals {
        ($($name:ident: $type:ty = $place:ident;)*) => {
            std::thread_local! {
                // Without destructors, so that they are accessible for as long as the thread runs.
                $(static $place: Cell<$type> = const { Cell::new(0) };)*
            }
            $(
                #[inline]
                pub(super) fn $name() -> *mut $type {
                    $place.with(Cell::as_ptr)
                }
            )*
        };
    }

    thread_locals! {
        token: u32 = TOKEN;
        tallies: usize = TALLIES;
        entered: u64 = ENTERED;
        number: u32 = NUMBER;
    }
}
