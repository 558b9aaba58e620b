//! A slot per thread and a ticket; no list. A waiter scans all slots.
//!
//! | thread | does |
//! | --- | --- |
//! | begins | slot := {ticket + 1, *bound*}; takes a ticket; exchanges the slot for that |
//! | ends | slot := 0 |
//! | waits | reads the ticket, then all slots; generations below the least slot have passed |
//! | meets a bound that is in its way | exchanges it for {ticket + 1, *bound*} |
//!
//! A new ticket is taken by a fetch-and-add. A bound is a lower bound of a generation that its
//! thread has not got yet.
//!
//! # Correctness
//!
//! 1. *The bound is published before the ticket is taken.* Tickets are taken by read-modify-writes
//!    that acquire and release. So a thread that knows a generation, from a tag or from the ticket,
//!    also sees what was published before all older tickets were taken. For every open section with
//!    an older generation it therefore finds that generation in the slot, or a bound of it.
//! 2. *No wait is for a section that begins later.* A thread that is preempted between bound and
//!    generation might hold waiters up. A waiter therefore raises a bound that is not above what it
//!    waits for. The begin then fails to exchange its slot, gives its ticket up and takes a new
//!    one, above the raised bound. The two exchanges decide which of the two happens. Each waiter
//!    raises the bound of a begin once at most, since the new bound is above what it waits for.
//! 3. *A bound does not come back.* The next bound of the same thread is above its last ticket.
//! 4. *What has passed stays passed.* A bound may be lower than what has passed since its thread
//!    read the ticket. So the newest passed generation is stored, and only grows.
//! 5. *One of several ends hears that a generation has passed.* With waiters, ends count themselves
//!    in `ends`, which puts them in an order; the last one sees all slots that the others left.

use super::{Backend, Counts, NearWrap, Places};
use kinlock_core::platform::{Atomic, Ordering::*, Platform};

/// In a slot: it holds a bound.
pub const BOUND: u64 = 1 << 63;

/// Tickets stop this far below the maximum. So the ticket does not grow into [`BOUND`], even if all
/// threads pass the check at the same time.
const RESERVE: u64 = 1 << 32;

/// The backend without a list; see the top of this file.
#[repr(C)]
#[derive(Debug)]
pub struct Slots<P: Platform> {
    /// All generations up to this one have passed.
    pub done: P::AtomicU64,
    /// The newest generation given out.
    pub ticket: P::AtomicU64,
    /// Ends that met waiters; wraps.
    pub ends: P::AtomicU32,
}

/// The places with a slot each.
type Slotted<'a, P> = Places<'a, P, <P as kinlock_core::platform::Atomics>::AtomicU64>;

impl<P: Platform> Slots<P> {
    /// No open section; this generation and all older ones have passed.
    pub fn new(generation: u64) -> Self {
        Slots {
            done: Atomic::new(generation),
            ticket: Atomic::new(generation),
            ends: Atomic::new(0),
        }
    }

    /// The generation or bound in a slot, or `None`. Raises a bound up to `awaited`.
    fn least_of(&self, slot: &P::AtomicU64, awaited: u64) -> Option<u64> {
        // Acquire pairs with the Release in `end`.
        let mut seen = slot.load(Acquire);
        while seen & BOUND != 0 && seen & !BOUND <= awaited {
            // The ticket is not below `awaited`, unless `awaited` is a generation of another
            // domain.
            let raised = self.ticket.load(Relaxed) + 1;
            // Release: a thread may read this value instead of the 0 before the bound. See `begin`.
            match slot.compare_exchange(seen, raised | BOUND, AcqRel, Acquire) {
                Ok(_) => return Some(raised),
                Err(now) => seen = now,
            }
        }
        (seen != 0).then_some(seen & !BOUND)
    }

    #[cold]
    #[inline(never)]
    fn scan(&self, places: Slotted<'_, P>, generation: u64) -> bool {
        // Acquire pairs with taking a ticket: see 1.
        let ticket = self.ticket.load(Acquire);
        let slots = places.used().iter();
        let least = slots.filter_map(|place| self.least_of(&place.link, generation));
        self.advance(ticket, least.min()) >= generation
    }

    /// Stores the newest generation that has passed, given the newest ticket and the least
    /// generation in a slot. Returns it.
    pub fn advance(&self, ticket: u64, least: Option<u64>) -> u64 {
        let done = least.map_or(ticket, |least| ticket.min(least - 1));
        // AcqRel: a thread that sees the generation passed by this word alone also acquires what
        // the ends have released whose slots were read here.
        let raise = |seen| (seen < done).then_some(done);
        let _ = self.done.fetch_update(AcqRel, raise);
        done
    }
}

impl<P: Platform> Backend<P> for Slots<P> {
    const NAME: &'static str = "slots";
    /// The slot: 0, or a generation, or a bound.
    type Link = P::AtomicU64;

    #[inline]
    fn begin(&self, places: Slotted<'_, P>, _: &Counts<P>, me: u16) -> Result<u64, NearWrap> {
        let slot = places.link(me);
        // Relaxed: any old value of the ticket will do.
        let bound = self.ticket.load(Relaxed);
        let mut seen = (bound + 1) | BOUND;
        if bound >= BOUND - RESERVE {
            return Err(NearWrap);
        }
        // Release, here and below: a thread may read this instead of the 0 with which our last
        // section ended. It must see what that section did. Order with the ticket: taking it
        // releases this store.
        slot.store(seen, Release);
        loop {
            let generation = self.ticket.fetch_add(1, AcqRel) + 1;
            match slot.compare_exchange(seen, generation, Release, Relaxed) {
                Ok(_) => return Ok(generation),
                // A waiter has raised the bound.
                Err(raised) => seen = raised,
            }
        }
    }

    #[inline]
    fn end(&self, places: Slotted<'_, P>, me: u16) -> Option<u64> {
        let slot = places.link(me);
        let generation = slot.load(Relaxed);
        slot.store(0, Release);
        Some(generation)
    }

    #[cold]
    fn lets_pass(&self, places: Slotted<'_, P>, ended: u64, awaited: u64) -> bool {
        // AcqRel: see 5.
        ended <= awaited && {
            self.ends.fetch_add(1, AcqRel);
            self.scan(places, awaited)
        }
    }

    #[inline]
    fn passed(&self, places: Slotted<'_, P>, generation: u64) -> bool {
        // Acquire pairs with the exchange in `scan`.
        generation <= self.done.load(Acquire) || self.scan(places, generation)
    }

    fn count_open(&self, places: Slotted<'_, P>) -> u64 {
        let slots = places.used().iter();
        slots.filter(|place| place.link.load(Relaxed) != 0).count() as u64
    }

    fn newest(&self) -> u64 {
        self.ticket.load(Acquire)
    }

    fn look(&self, slot: &P::AtomicU64) -> u64 {
        slot.load(Relaxed) & !BOUND
    }

    fn keep_only(&self, places: Slotted<'_, P>, survivor: Option<(u16, u64)>) {
        for (i, place) in places.used().iter().enumerate() {
            if survivor.is_none_or(|(kept, _)| kept as usize != i + 1)
                && place.link.load(Relaxed) != 0
            {
                place.link.store(0, Relaxed);
            }
        }
    }
}
