//! The kernel's number of the calling thread.

unsafe extern "C" {
    safe fn kinlock_thread_id() -> u32;
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
