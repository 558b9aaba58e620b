//! Who calls: return addresses on the calling thread's stack.

use super::{cfi, modules};
use crate::thread::known_stack;
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use kinlock_report::FRAMES;

/// What identifies a frame, and finds the one that called it.
#[derive(Clone, Copy)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) stack: u64,
    pub(super) frame: u64,
}

/// Return addresses, innermost first; the calls within this library are left out.
pub(super) struct Frames {
    list: [u64; FRAMES],
    count: usize,
}

/// How many frames are looked at, with those of this library.
const MOST: usize = FRAMES + 24;

#[inline(never)]
pub(super) fn capture() -> Frames {
    let mut frames = Frames {
        list: [0; FRAMES],
        count: 0,
    };
    let mut at = here();
    let mut stack = Readable::new(at.stack);
    for _ in 0..MOST {
        if !modules::is_own(at.pc) {
            frames.list[frames.count] = at.pc;
            frames.count += 1;
        }
        let Some(caller) = cfi::caller(&at, &mut stack) else {
            break;
        };
        if frames.count == FRAMES || caller.pc == 0 || caller.stack <= at.stack {
            break;
        }
        at = caller;
    }
    frames
}

impl Frames {
    pub(super) fn list(&self) -> &[u64] {
        &self.list[..self.count]
    }

    /// Never 0, nor the mark of a free entry.
    pub(super) fn hash(&self) -> u64 {
        let hash = self.list().iter().fold(0, |hash: u64, frame| {
            (hash.rotate_left(23) ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (hash ^ hash >> 32) | 4
    }
}

#[inline(always)]
fn here() -> Registers {
    let (pc, stack, frame): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it only reads registers.
    unsafe {
        core::arch::asm!(
            "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
            out(reg) pc, out(reg) stack, out(reg) frame,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it only reads registers.
    unsafe {
        core::arch::asm!(
            "adr {}, .", "mov {}, sp", "mov {}, x29",
            out(reg) pc, out(reg) stack, out(reg) frame,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        (pc, stack, frame) = (0, 0, 0);
    }
    Registers { pc, stack, frame }
}

/// The part of the stack that can be read without a fault. What a module says of its frames may be
/// wrong, so that an address need not lie on the stack.
pub(super) struct Readable {
    from: u64,
    to: u64,
}

const PAGE: u64 = 4096;
/// What lies farther away is no frame worth looking at.
const FARTHEST: u64 = 1 << 20;

impl Readable {
    fn new(stack: u64) -> Self {
        // SAFETY: it is this thread's own memory, which nothing else points to.
        let known = unsafe { *known_stack() };
        match known {
            [from, to] if (from..to).contains(&stack) => Readable { from, to },
            // Another stack, or a lower part of it.
            _ => {
                let from = stack & !(PAGE - 1);
                let to = from + PAGE;
                Readable { from, to }
            }
        }
    }

    pub(super) fn read(&mut self, address: u64) -> Option<u64> {
        if address % 8 != 0 || address < self.from || address >= self.from + FARTHEST {
            return None;
        }
        while address >= self.to {
            if !is_readable(self.to) {
                return None;
            }
            self.to += PAGE;
            // SAFETY: as above.
            unsafe { *known_stack() = [self.from, self.to] };
        }
        // SAFETY: invariant 6.
        Some(unsafe { ptr::read_volatile(address as *const u64) })
    }
}

/// Asks the kernel, by a call that threads may make in any sandbox: a wait that does not wait.
#[cold]
pub(super) fn is_readable(address: u64) -> bool {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel checks the address; the rest is as invariant 4 says.
    unsafe {
        let errno: *mut c_int = libc::__errno_location();
        let before = *errno;
        let result = libc::syscall(libc::SYS_futex, address, operation, 0, &none);
        let is_fault = result < 0 && *errno == libc::EFAULT;
        *errno = before;
        !is_fault
    }
}

/// Number of the first address of this library, and of the one after its last.
pub(super) static OWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Finds out where this library is.
pub(super) fn find_own() {
    if let Some(own) = modules::find(here().pc) {
        OWN[0].store(own.start, Relaxed);
        OWN[1].store(own.end, Relaxed);
    }
}
