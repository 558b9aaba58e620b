//! The list of open sections under a mutex.
//!
//! A thread that is preempted while it holds the mutex delays the others, which sleep.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. The mutex is released once, by the thread that acquired it.
//! 2. `keep_only` is called in the child of a fork, on its only thread. The list consists of
//!    atomics, so that no memory is at risk if it is called elsewhere.

use super::{Backend, Counts, NEWEST, NearWrap, Places};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueuedMutex;

/// The list of open sections under a mutex with the configuration `C`.
// `repr(C)`: the word that is read most comes first.
#[repr(C)]
#[derive(Debug)]
pub struct Locked<P: Platform, C: LockConfig> {
    /// The newest generation that has passed. Written under the mutex, read by any thread.
    done: P::AtomicU64,
    /// The newest generation given out. Written under the mutex, read by any thread.
    newest: P::AtomicU64,
    mutex: QueuedMutex<P, C>,
    /// The list. It belongs to the holder of the mutex.
    first: P::AtomicU16,
    last: P::AtomicU16,
    open: P::AtomicU32,
}

/// An element of the list. Belongs to the holder of the mutex.
#[derive(Debug)]
pub struct Member<P: Platform> {
    generation: P::AtomicU64,
    previous: P::AtomicU16,
    next: P::AtomicU16,
}

impl<P: Platform> Member<P> {
    /// An element that was never used.
    pub fn new() -> Self {
        Member {
            generation: Atomic::new(0),
            previous: Atomic::new(0),
            next: Atomic::new(0),
        }
    }
}

impl<P: Platform> Default for Member<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform, C: LockConfig> Locked<P, C> {
    /// An empty list in which this generation and all before have passed.
    pub fn new(generation: u64) -> Self {
        Locked {
            done: Atomic::new(generation),
            newest: Atomic::new(generation),
            mutex: QueuedMutex::default(),
            first: Atomic::new(0),
            last: Atomic::new(0),
            open: Atomic::new(0),
        }
    }

    /// Runs `critical` under the mutex, which orders the relaxed accesses in it.
    #[inline]
    fn locked<R>(&self, critical: impl FnOnce() -> R) -> R {
        self.mutex.lock();
        let result = critical();
        // SAFETY: invariant 1: acquired above, by this thread.
        unsafe { self.mutex.unlock() };
        result
    }
}

impl<P: Platform, C: LockConfig> Backend<P> for Locked<P, C> {
    const NAME: &'static str = "locked";
    type Link = Member<P>;

    #[inline]
    fn begin(
        &self,
        places: Places<'_, P, Member<P>>,
        counts: &Counts<P>,
        me: u16,
    ) -> Result<u64, NearWrap> {
        let own = places.link(me);
        self.locked(|| {
            let newest = self.newest.load(Relaxed);
            if newest >= NEWEST {
                return Err(NearWrap);
            }
            let last = self.last.load(Relaxed);
            self.newest.store(newest + 1, Relaxed);
            own.generation.store(newest + 1, Relaxed);
            own.previous.store(last, Relaxed);
            own.next.store(0, Relaxed);
            match last {
                0 => self.first.store(me, Relaxed),
                last => places.link(last).next.store(me, Relaxed),
            }
            self.last.store(me, Relaxed);
            let open = self.open.load(Relaxed) + 1;
            self.open.store(open, Relaxed);
            counts.saw_queue(open as u64);
            Ok(newest + 1)
        })
    }

    #[inline]
    fn end(&self, places: Places<'_, P, Member<P>>, me: u16) -> Option<u64> {
        let own = places.link(me);
        self.locked(|| {
            let generation = own.generation.load(Relaxed);
            let (previous, next) = (own.previous.load(Relaxed), own.next.load(Relaxed));
            match previous {
                // Release pairs with the Acquire in `passed`: it publishes what the sections that
                // pass by this store did. Sections that ended before have donated under the mutex.
                0 => {
                    self.first.store(next, Relaxed);
                    self.done.store(generation, Release);
                }
                previous => {
                    let previous = places.link(previous);
                    previous.generation.store(generation, Relaxed);
                    previous.next.store(next, Relaxed);
                }
            }
            match next {
                0 => self.last.store(previous, Relaxed),
                next => places.link(next).previous.store(previous, Relaxed),
            }
            self.open.store(self.open.load(Relaxed) - 1, Relaxed);
            (previous == 0).then_some(generation)
        })
    }

    #[inline]
    fn passed(&self, _: Places<'_, P, Member<P>>, generation: u64) -> bool {
        generation <= self.done.load(Acquire)
    }

    fn newest(&self) -> u64 {
        // Relaxed: a begin that happens before this call has stored its generation, and what its
        // section does is acquired when its generation has passed.
        self.newest.load(Relaxed)
    }

    fn look(&self, link: &Member<P>) -> u64 {
        link.generation.load(Relaxed)
    }

    fn keep_only(&self, places: Places<'_, P, Member<P>>, survivor: Option<(u16, u64)>) {
        // SAFETY: invariant 2.
        unsafe { self.mutex.reset_in_child() };
        let newest = self.newest.load(Relaxed);
        let place = survivor.map_or(0, |(place, _)| place);
        self.first.store(place, Relaxed);
        self.last.store(place, Relaxed);
        self.open.store(survivor.is_some() as u32, Relaxed);
        match survivor {
            None => self.done.store(newest, Relaxed),
            Some((place, begun)) => {
                let own = places.link(place);
                own.generation.store(newest, Relaxed);
                own.previous.store(0, Relaxed);
                own.next.store(0, Relaxed);
                self.done.store(begun - 1, Relaxed);
            }
        }
    }
}
