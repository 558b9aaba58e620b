//! A slot per thread and a ticket: no list. Who waits looks at all slots.
//!
//! | who | does |
//! | --- | --- |
//! | begins | slot := ticket + 1, a lower bound; generation := ticket + 1, by a fetch-and-add; slot := generation |
//! | ends | slot := 0 |
//! | waits | reads the ticket, then all slots: what is below the least of them has passed |
//!
//! # Why it is right
//!
//! 1. *The lower bound is published before the ticket is taken.* Tickets are taken by read-modify-writes that acquire and release, so whoever knows a generation, from a tag or from the ticket, also
//!    sees what was published before all older ones were taken. So it finds an open section with an older generation: in the slot is its generation, or something lower.
//! 2. *What has passed stays passed*: a bound may be lower than what has passed since its thread read the ticket. So what has passed is remembered, and only grows.
//! 3. *A section that begins keeps nobody waiting for long*: a waiter that has seen a bound, and sleeps because of it, is woken when the generation itself is higher.

use super::{Backend, Begun, Config, Counts, NearWrap, Place};
use core::marker::PhantomData;
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// So far from the end of numbers nobody takes a ticket any more: more threads than there are may have looked before.
const RESERVE: u64 = 1 << 32;

/// See the top of this file.
#[repr(C)]
#[derive(Debug)]
pub struct Slots<P: Platform, C: Config> {
    /// Generations up to this one have surely passed.
    done: P::AtomicU64,
    /// The newest generation given out.
    ticket: P::AtomicU64,
    /// The highest place in use so far.
    highest: P::AtomicU32,
    config: PhantomData<C>,
}

impl<P: Platform, C: Config> Slots<P, C> {
    /// No open section, and this generation and all before have passed.
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

    /// The places that were ever used.
    fn used<'a>(&self, places: &'a [Place<P, P::AtomicU64>]) -> &'a [Place<P, P::AtomicU64>] {
        let highest = self.highest.load(Relaxed) as usize;
        &places[..highest.min(places.len())]
    }

    #[cold]
    #[inline(never)]
    fn look_at_all(&self, places: &[Place<P, P::AtomicU64>], generation: u64) -> bool {
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
        // AcqRel: who sees it passed by this word alone acquires what those released whose slots were looked at.
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
        // Relaxed: any ticket of the past will do.
        let bound = self.ticket.load(Relaxed);
        if bound >= u64::MAX - RESERVE {
            return Err(NearWrap);
        }
        // Relaxed: taking the ticket releases it.
        // Release, here and below: who reads this in place of the 0 with which our last section ended sees what that one did.
        slot.store(bound + 1, Release);
        let generation = self.ticket.fetch_add(1, AcqRel) + 1;
        slot.store(generation, Release);
        Ok(Begun {
            generation,
            // A waiter that saw the bound may wait for a generation between.
            lets_pass: generation != bound + 1,
        })
    }

    #[inline]
    fn end(&self, places: &[Place<P, P::AtomicU64>], _: &Counts<P>, me: u16) -> bool {
        places[me as usize - 1].link.store(0, Release);
        // Who knows: it may be that somebody waits for this one.
        true
    }

    #[inline]
    fn passed(&self, places: &[Place<P, P::AtomicU64>], generation: u64) -> bool {
        // Acquire pairs with the exchange in `look_at_all`.
        generation <= self.done.load(Acquire) || self.look_at_all(places, generation)
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
