//! The queued spinlock on a custom platform without `std`: a kernel with two CPUs.
//!
//! `cargo build -p kinlock-core --example bare_metal --target x86_64-unknown-none`
//!
//! A platform needs four atomic types and a table of waiter slots, whose size it chooses. Here
//! there are two CPUs, and each may be interrupted while it waits. Everything else has defaults.
//! This platform also says which NUMA node a CPU belongs to, so that the lock can prefer local
//! waiters.
//!
//! On an operating system this file is a small program that checks itself.

#![cfg_attr(target_os = "none", no_std, no_main)]

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use kinlock_core::atomic::Atomics;
use kinlock_core::bare::Bare;
use kinlock_core::platform::{Place, Platform};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::qspinlock::QueuedSpinLock;
use kinlock_core::slots::{Table, Waiters};
use kinlock_core::tuning::Tuning;

/// The machine.
#[derive(Clone, Copy, Debug)]
struct Kernel;

impl Atomics for Kernel {
    type AtomicU8 = AtomicU8;
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
}

/// Four slots of 384 bytes. A CPU that waits for two locks at a time, one of them in an interrupt,
/// needs two slots.
static TABLE: Table<Kernel, 4, 1> = Table::new();
static WAITERS: Waiters<Kernel> = TABLE.waiters();

impl Place for Kernel {
    fn domain() -> u16 {
        // A kernel reads this from its per-CPU data.
        0
    }
}

impl Platform for Kernel {
    type Clock = Bare;
    type Spinning = Bare;
    type Parking = Bare;
    type Fences = Bare;
    type Place = Self;

    fn waiters() -> &'static Waiters<Self> {
        &WAITERS
    }
}

/// The lock's knobs, fixed at compile time.
#[derive(Clone, Copy, Debug)]
struct NumaAware;

impl LockConfig for NumaAware {
    fn tuning() -> Tuning {
        let mut tuning = Tuning::DEFAULT;
        tuning.reorder = true;
        tuning
    }
}

static LOCK: QueuedSpinLock<Kernel, NumaAware> = QueuedSpinLock::new();
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The work of each CPU.
fn work() {
    use core::sync::atomic::Ordering::Relaxed;
    for _ in 0..1000 {
        LOCK.lock();
        COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
        // SAFETY: this CPU has taken the lock just above.
        unsafe { LOCK.unlock() };
    }
}

#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    work();
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    use core::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    assert_eq!(COUNT.load(Relaxed), 2000);
    println!("two CPUs took the lock {} times", COUNT.load(Relaxed));
}
