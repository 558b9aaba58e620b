//! Epochs and RCU in the place of sections: giving pages back is a read section, and reusing them
//! waits for a grace period.
//!
//! None of them has a tag that could be waited for. So grace periods are numbered, and a mark is
//! the number of the next one: it has passed once a grace period that began after it has ended. A
//! thread that waits runs a grace period.
//!
//! Invariants:
//! 1. A retired object was just allocated, is retired once, and is reachable from nowhere else.
//! 2. A thread is registered with the C library before it calls anything else there, and until it
//!    ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use kinlock_measure::workloads::pages::Protection;

use super::contenders::Contender;

/// A scheme with read sections and grace periods.
pub trait Epochs: Send + Sync + 'static {
    /// A read section.
    type Guard<'a>;
    fn new() -> Self;
    /// Begins a read section; dropping it ends it.
    fn enter(&self) -> Self::Guard<'_>;
    /// Returns when all read sections that were open have ended.
    fn synchronize(&self);
}

/// [`Epochs`] as a protection.
pub struct Numbered<E> {
    epochs: E,
    /// The number of grace periods begun, and the number of the newest one that has ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl<E: Epochs> Numbered<E> {
    pub fn new() -> Self {
        Numbered {
            epochs: E::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }
}

impl<E: Epochs> Protection for Numbered<E> {
    type Mark = AtomicU64;
    type Section<'a> = E::Guard<'a>;

    #[inline(always)]
    fn begin(&self) -> E::Guard<'_> {
        self.epochs.enter()
    }

    fn mark(&self, _: &E::Guard<'_>, mark: &AtomicU64) {
        mark.store(self.begun.load(SeqCst) + 1, Relaxed);
    }

    #[inline(always)]
    fn end<'a>(&self, guard: E::Guard<'_>, _: impl Iterator<Item = &'a AtomicU64>) {
        drop(guard);
    }

    fn wait(&self, mark: &AtomicU64) {
        while !self.passed(mark) {
            let number = self.begun.fetch_add(1, SeqCst) + 1;
            self.epochs.synchronize();
            self.ended.fetch_max(number, AcqRel);
        }
    }
}

impl<E: Epochs> Contender for Numbered<E> {
    #[inline(always)]
    fn passed(&self, mark: &AtomicU64) -> bool {
        mark.load(Relaxed) <= self.ended.load(Acquire)
    }
}

/// Waits for a flag that reclamation sets. `help` advances reclamation.
fn wait_for(flag: &AtomicBool, help: impl Fn()) {
    let mut tries = 0;
    while !flag.load(Acquire) {
        help();
        tries += 1;
        if tries > 16 {
            std::thread::yield_now();
        }
    }
}

pub struct Crossbeam;

impl Epochs for Crossbeam {
    type Guard<'a> = crossbeam_epoch::Guard;

    fn new() -> Self {
        Crossbeam
    }

    #[inline(always)]
    fn enter(&self) -> crossbeam_epoch::Guard {
        crossbeam_epoch::pin()
    }

    fn synchronize(&self) {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        let guard = crossbeam_epoch::pin();
        guard.defer(move || set.store(true, Release));
        guard.flush();
        drop(guard);
        wait_for(&flag, || crossbeam_epoch::pin().flush());
    }
}

pub struct Seize(seize::Collector);

/// An object that sets a flag when it is reclaimed.
struct Reclaimed(Arc<AtomicBool>);

impl Drop for Reclaimed {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

impl Epochs for Seize {
    type Guard<'a> = seize::LocalGuard<'a>;

    fn new() -> Self {
        Seize(seize::Collector::new().batch_size(1))
    }

    #[inline(always)]
    fn enter(&self) -> seize::LocalGuard<'_> {
        self.0.enter()
    }

    fn synchronize(&self) {
        use seize::Guard;
        let flag = Arc::new(AtomicBool::new(false));
        // A batch is only reclaimed if it has an object for each thread in a section. So each try
        // adds one. Otherwise it would wait for a moment at which hardly any section is open.
        wait_for(&flag, || {
            let object = Box::into_raw(Box::new(Reclaimed(Arc::clone(&flag))));
            let guard = self.0.enter();
            // SAFETY: invariant 1.
            unsafe { guard.defer_retire(object, seize::reclaim::boxed) };
            guard.flush();
        });
    }
}

/// A library in C with one domain per process; `$name` is in the names of the shim's functions.
macro_rules! c_library {
    ($type:ident, $module:ident, $name:literal) => {
        pub use $module::$type;

        mod $module {
            use super::Epochs;
            use std::marker::PhantomData;

            unsafe extern "C" {
                #[link_name = concat!("kinlock_", $name, "_register")]
                fn register();
                #[link_name = concat!("kinlock_", $name, "_unregister")]
                fn unregister();
                #[link_name = concat!("kinlock_", $name, "_begin")]
                fn begin();
                #[link_name = concat!("kinlock_", $name, "_end")]
                fn end();
                #[link_name = concat!("kinlock_", $name, "_synchronize")]
                fn synchronize();
            }

            struct Registered;

            impl Drop for Registered {
                fn drop(&mut self) {
                    // SAFETY: invariant 2.
                    unsafe { unregister() };
                }
            }

            thread_local! {
                static REGISTERED: Registered = {
                    // SAFETY: invariant 2.
                    unsafe { register() };
                    Registered
                };
            }

            pub struct $type;

            /// A section, which must stay on its thread.
            pub struct Section(PhantomData<*const ()>);

            impl Drop for Section {
                #[inline(always)]
                fn drop(&mut self) {
                    // SAFETY: invariant 2; entered before.
                    unsafe { end() };
                }
            }

            impl Epochs for $type {
                type Guard<'a> = Section;

                fn new() -> Self {
                    $type
                }

                #[inline(always)]
                fn enter(&self) -> Section {
                    REGISTERED.with(|_| ());
                    // SAFETY: invariant 2.
                    unsafe { begin() };
                    Section(PhantomData)
                }

                fn synchronize(&self) {
                    REGISTERED.with(|_| ());
                    // SAFETY: invariant 2; the thread is in no section.
                    unsafe { synchronize() };
                }
            }
        }
    };
}

#[cfg(have_ck_epoch)]
c_library!(CkEpoch, ck, "ck_epoch");
#[cfg(have_urcu)]
c_library!(Urcu, urcu, "urcu");

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{scope, sleep};
    use std::time::Duration;

    use super::*;

    /// A grace period ends although several sections are open at any moment.
    fn ends_while_others_begin<E: Epochs>() {
        const THREADS: u32 = 4;
        const SECTION: Duration = Duration::from_millis(4);
        let (epochs, over) = (E::new(), AtomicBool::new(false));
        scope(|scope| {
            for thread in 0..THREADS {
                let (epochs, over) = (&epochs, &over);
                scope.spawn(move || {
                    sleep(SECTION * thread / THREADS);
                    while !over.load(Relaxed) {
                        let guard = epochs.enter();
                        sleep(SECTION);
                        drop(guard);
                    }
                });
            }
            let (tell, told) = mpsc::channel();
            let waiter = &epochs;
            scope.spawn(move || {
                (0..8).for_each(|_| waiter.synchronize());
                tell.send(()).unwrap();
            });
            let ended = told.recv_timeout(Duration::from_secs(300));
            // The threads leave their sections, so that the waiter ends in any case.
            over.store(true, Relaxed);
            ended.expect("grace periods end while sections are open");
        });
    }

    #[test]
    fn grace_periods_end_while_others_begin() {
        ends_while_others_begin::<Crossbeam>();
        ends_while_others_begin::<Seize>();
        #[cfg(have_ck_epoch)]
        ends_while_others_begin::<CkEpoch>();
        #[cfg(have_urcu)]
        ends_while_others_begin::<Urcu>();
    }
}
