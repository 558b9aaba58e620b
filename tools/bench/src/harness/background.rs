//! Background load while subjects are measured.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `setpriority` takes numbers; 0 is the calling thread.
//! 2. The system call `sched_setscheduler` reads a live local; 0 is the calling thread.
//! 3. The C library writes only through the pointer it is given, which points to a live local, and
//!    the calling thread is alive.

use std::time::Duration;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Background {
    /// Another busy process, as with --hogs 1
    Busy,
    /// One more thread takes the lock in the same loop, at nice 19
    Nice,
    /// The same under SCHED_IDLE: it runs when nobody else wants the CPU
    Idle,
}

/// The lowest priority of an ordinary thread.
const NICEST: i32 = 19;

impl Background {
    /// Whether the load is a thread that takes the lock.
    pub fn is_thread(self) -> bool {
        self != Self::Busy
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Nice => "nice",
            Self::Idle => "idle",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::Busy => "a busy process",
            Self::Nice => "one more thread takes the lock, at nice 19",
            Self::Idle => "one more thread takes the lock, under SCHED_IDLE",
        }
    }

    /// Gives the calling thread the priority of such a thread. `false` if the kernel refuses.
    pub fn lower(self) -> bool {
        match self {
            Self::Busy => true,
            // SAFETY: invariant 1.
            Self::Nice => unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) == 0 },
            Self::Idle => {
                // The kernel's parameter is a single number. musl's structure has more fields, and
                // musl's function fails.
                let (call, none) = (libc::SYS_sched_setscheduler, 0_i32);
                // SAFETY: invariant 2.
                unsafe { libc::syscall(call, 0, libc::SCHED_IDLE, &raw const none) == 0 }
            }
        }
    }
}

/// The clock of the calling thread's CPU time. Other threads may read it while the thread lives.
pub fn own_clock() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: invariant 3.
    let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
    (failed == 0).then_some(clock)
}

/// Reads a clock of CPU time.
pub fn read_clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: invariant 3.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_lowers_itself_and_no_other() {
        for background in [Background::Nice, Background::Idle] {
            let nice = std::thread::spawn(move || {
                assert!(background.lower());
                // SAFETY: invariants 1 and 2, with no pointer.
                unsafe {
                    (
                        libc::getpriority(libc::PRIO_PROCESS, 0),
                        libc::sched_getscheduler(0),
                    )
                }
            });
            let (nice, class) = nice.join().unwrap();
            match background {
                Background::Idle => assert_eq!(class, libc::SCHED_IDLE),
                _ => assert_eq!(nice, NICEST),
            }
        }
        // SAFETY: invariant 2, with no pointer.
        assert_ne!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
    }
}
