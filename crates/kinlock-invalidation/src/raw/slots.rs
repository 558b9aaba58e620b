//! A slot per thread and a ticket; no list. A waiter scans all slots.
//!
//! | thread | does |
//! | --- | --- |
//! | begins | slot := ticket + 1, a lower bound; generation := a new ticket; slot := generation |
//! | ends | slot := 0 |
//! | waits | reads the ticket, then all slots; generations below the least slot have passed |
//!
//! A new ticket is taken by a fetch-and-add.
//!
//! # Correctness
//!
//! 1. *The lower bound is published before the ticket is taken.* Tickets are taken by
//!    read-modify-writes that acquire and release. So a thread that knows a generation, from a tag
//!    or from the ticket, also sees what was published before all older tickets were taken. For
//!    every open section with an older generation it therefore finds that generation in the slot,
//!    or a lower value.
//! 2. *What has passed stays passed.* A bound may be lower than what has passed since its thread
//!    read the ticket. So the newest passed generation is stored, and only grows.
//! 3. *A begin does not delay waiters for long.* If the generation turns out higher than the bound,
//!    the begin wakes waiters, which may have seen the bound and gone to sleep.

use super::{Backend, Begun, Config, Counts, NearWrap, Place};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// Tickets stop this far below the maximum. So the ticket does not wrap, even if all threads pass
/// the check at the same time.
const RESERVE: u64 = 1 << 32;

/// The backend without a list; see the top of this file.
#[repr(C)]
#[derive(Debug)]
pub struct Slots<P: Platform, C: Config> {
    /// All generations up to this one have passed.
    done: P::AtomicU64,
    /// The newest generation given out.
    ticket: P::AtomicU64,
    /// The highest place in use so far.
    highest: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: Platform, C: Config> Slots<P, C> {
    /// No open section; this generation and all older ones have passed.
    pub fn new(generation: u64) -> Self {
        Slots {
            done: Atomic::new(generation),
            ticket: Atomic::new(generation),
            highest: Atomic::new(0),
            config: PhantomData,
        }
    }

    #[cold]
    fn raise_highest(&self, me: u16) {
        let mut seen = self.highest.load(Relaxed);
        while seen < me as u32 {
            // Relaxed: taking the ticket releases it.
            match self
                .highest
                .compare_exchange(seen, me as u32, Relaxed, Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// The places up to the highest that was ever used.
    fn used<'a>(&self, places: &'a [Place<P, P::AtomicU64>]) -> &'a [Place<P, P::AtomicU64>] {
        let highest = self.highest.load(Relaxed) as usize;
        &places[..highest.min(places.len())]
    }

    #[cold]
    #[inline(never)]
    fn scan(&self, places: &[Place<P, P::AtomicU64>], generation: u64) -> bool {
        // Acquire pairs with taking a ticket: see 1.
        let ticket = self.ticket.load(Acquire);
        let least = self
            .used(places)
            .iter()
            // Acquire pairs with the Release in `end`.
            .map(|place| place.link.load(Acquire))
            .filter(|&slot| slot != 0)
            .min();
        let done = least.map_or(ticket, |least| ticket.min(least - 1));
        // AcqRel: a thread that sees the generation passed by this word alone also acquires what
        // the ends have released whose slots were read here.
        let mut seen = self.done.load(Relaxed);
        while seen < done {
            match self.done.compare_exchange(seen, done, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        generation <= done
    }
}

impl<P: Platform, C: Config> Backend<P> for Slots<P, C> {
    const NAME: &'static str = "slots";
    /// The slot: 0, or a lower bound of the generation, or the generation.
    type Link = P::AtomicU64;

    #[inline]
    fn begin(
        &self,
        places: &[Place<P, P::AtomicU64>],
        _: &Counts<P>,
        me: u16,
    ) -> Result<Begun, NearWrap> {
        let slot = &places[me as usize - 1].link;
        if (self.highest.load(Relaxed) as usize) < me as usize {
            self.raise_highest(me);
        }
        // Relaxed: any old value of the ticket will do.
        let bound = self.ticket.load(Relaxed);
        if bound >= u64::MAX - RESERVE {
            return Err(NearWrap);
        }
        // Release, here and below: a thread may read this instead of the 0 with which our last
        // section ended. It must see what that section did. Order with the ticket: taking it
        // releases this store.
        slot.store(bound + 1, Release);
        let generation = self.ticket.fetch_add(1, AcqRel) + 1;
        slot.store(generation, Release);
        Ok(Begun {
            generation,
            // A waiter that saw the bound may wait for a generation in between.
            lets_pass: generation != bound + 1,
        })
    }

    #[inline]
    fn end(&self, places: &[Place<P, P::AtomicU64>], _: &Counts<P>, me: u16) -> bool {
        places[me as usize - 1].link.store(0, Release);
        // There may be a waiter for this section; the slots cannot tell.
        true
    }

    #[inline]
    fn passed(&self, places: &[Place<P, P::AtomicU64>], generation: u64) -> bool {
        // Acquire pairs with the exchange in `scan`.
        generation <= self.done.load(Acquire) || self.scan(places, generation)
    }

    fn count_open(&self, places: &[Place<P, P::AtomicU64>]) -> u64 {
        let slots = self.used(places).iter();
        slots.filter(|place| place.link.load(Relaxed) != 0).count() as u64
    }

    fn newest(&self, _: &[Place<P, P::AtomicU64>]) -> u64 {
        self.ticket.load(Acquire)
    }

    fn keep_only(&self, places: &[Place<P, P::AtomicU64>], survivor: Option<(u16, u64)>) {
        for (i, place) in places.iter().enumerate() {
            if survivor.is_none_or(|(kept, _)| kept as usize != i + 1)
                && place.link.load(Relaxed) != 0
            {
                place.link.store(0, Relaxed);
            }
        }
    }
}
