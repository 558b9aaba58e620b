//! The IDs of a domain with leases: their holders, the member threads, and the allowed CPUs.
//!
//! The allocation policy is in [`raw`](crate::raw). This file supplies what a real process has:
//! threads that start and end; affinities that change; forks.
//!
//! # Members
//!
//! A thread becomes a member at its first acquisition, and leaves when it ends. It remembers its
//! domains in tables of its own, of eight domains each. A global list of all domains with leases
//! serves ending threads and forks ([why it is not locked across a fork](kinlock_linux::fork)).
//!
//! # Holdings
//!
//! Each ID has a [`Holding`]: the holder's token, and the value that [`IdAllocator::release`]
//! takes. With it an ending thread releases its forgotten leases ([when](super::thread)), and the
//! child of a fork frees all IDs but those of the forking thread.
//!
//! # Invariants
//!
//! 1. The holding of an ID is written by the ID's holder only, between acquisition and release. In
//!    the child of a fork the forking thread, which is the only one, first clears the holdings of
//!    all others. A holding whose token is not 0 contains a [`Held`].
//! 2. A domain is in [`LIST`] from when it is complete until it is dropped.
//! 3. A token in a holding is that of a live thread. Exceptions: a thread that ended without
//!    cleaning up, and, in the child of a fork, a thread that the child does not have.
//! 4. `fork` calls the function of [`PART`] in the child, on its only thread.

mod membership;

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

use super::arena::Arena;
use super::error::{BuildError, EnterError};
use super::sequence::Slots;
use super::{area, thread};
use crate::raw::{BLOCK, Block, Held, IdAllocator, Policy, Record};
use kinlock_linux::list::{Link, Linked, List};
use kinlock_linux::topology::{CpuList, CpuSet, MAX_CPUS};
use kinlock_linux::{Native, fork::Part};

/// The IDs of a domain.
#[derive(Debug)]
pub(super) struct Leased {
    /// Names the domain in the threads' tables. Never 0, and never reused: a thread that remembers
    /// an old one would count as a member of the new domain. The upper half is [`copy`].
    serial: u64,
    pub(super) ids: IdAllocator<Native, Owned>,
    /// For each CPU number, whether threads of the process are known to be allowed on that CPU.
    allowed: Box<[AtomicBool]>,
    /// A [`Holding`] for each ID.
    holdings: Slots,
    listed: Link<Leased>,
}

type Owned = (Box<[Record<Native>]>, Box<[Block<Native>]>);

impl Linked for Leased {
    fn link(&self) -> &Link<Self> {
        &self.listed
    }
}

/// The holder of an ID.
#[repr(C)]
struct Holding {
    /// The holder's [`thread::token`]; 0 = none.
    token: AtomicUsize,
    held: UnsafeCell<MaybeUninit<Held>>,
}

impl Leased {
    /// Allocates the IDs that `arena` has memory for, a multiple of [`BLOCK`].
    pub(super) fn new(arena: &Arena) -> Result<Self, BuildError> {
        let cpus = cpu_numbers();
        let storage = (
            boxed(cpus, Record::new)?,
            boxed(arena.ids() / BLOCK, Block::new)?,
        );
        let holdings = arena
            .allocate(size_of::<Holding>())
            .ok_or(BuildError::Memory)?;
        let leased = Leased {
            serial: next_serial().ok_or(BuildError::TooManyDomains)?,
            ids: IdAllocator::new(storage, cpus, Policy::default()).aging(),
            allowed: boxed(cpus, AtomicBool::default)?,
            holdings,
            listed: Link::new(),
        };
        leased.refresh();
        Ok(leased)
    }

    /// Whether this copy of the library has made the domain. Another copy would not tell the domain
    /// when a thread ends or forks.
    fn is_of_this_copy(&self) -> bool {
        (self.serial >> 32) as u32 == copy()
    }

    /// Makes the domain known to forks and ending threads. From now on it must not move, and
    /// [`retire`](Self::retire) must be called before it is dropped.
    pub(super) fn enlist(&self) {
        // SAFETY: invariant 2.
        unsafe { LIST.add(self) };
    }

    /// The opposite of [`enlist`](Self::enlist).
    pub(super) fn retire(&self) {
        LIST.remove(self);
    }

    /// Acquires an ID. Async-signal-safe, with the exception that [`thread::will_end`] states.
    #[inline]
    pub(super) fn acquire(&self) -> Result<u32, EnterError> {
        if !membership::enter(self) {
            return Err(EnterError::ThreadEnded);
        }
        let held = match self.ids.acquire(self.cpu()) {
            Ok(held) => held,
            Err(_) => return Err(EnterError::Exhausted),
        };
        let id = held.id();
        let holding = self.holding(id);
        // SAFETY: invariant 1: the ID has just become ours.
        unsafe { (*holding.held.get()).write(held) };
        // Release: a fork copies this memory. A copy that has the token also has the `Held`.
        holding.token.store(thread::token(), Release);
        Ok(id)
    }

    /// Releases an ID.
    ///
    /// # Safety
    ///
    /// [`acquire`](Self::acquire) has returned it to the calling thread, which has not released it
    /// since.
    #[inline]
    pub(super) unsafe fn release(&self, id: u32) {
        let holding = self.holding(id);
        // A very late destructor may release an ID that `leave_all` has already released. The
        // thread has got no ID since then (see `thread`), so the token there is not its own.
        if holding.token.load(Relaxed) == thread::token() {
            // SAFETY: invariant 1: the holding is ours.
            unsafe { self.release_held(holding) };
        }
    }

    /// Releases the ID of a holding.
    ///
    /// # Safety
    ///
    /// The calling thread holds that ID.
    #[inline]
    unsafe fn release_held(&self, holding: &Holding) {
        holding.token.store(0, Relaxed);
        // SAFETY: invariant 1: the ID is ours until the next line, and `acquire` has written this.
        // The value is read once per acquisition, to be released.
        let held = unsafe { (*holding.held.get()).assume_init_read() };
        self.ids.release(self.cpu(), held);
    }

    /// The holdings of the calling thread.
    fn own_holdings(&self) -> impl Iterator<Item = &Holding> {
        let token = thread::token();
        let holdings = self.ids.ids_in_use().map(|id| self.holding(id));
        holdings.filter(move |holding| holding.token.load(Relaxed) == token)
    }

    /// Releases the leases that the calling thread, which is ending, has forgotten.
    fn release_forgotten(&self) {
        for holding in self.own_holdings() {
            // SAFETY: invariants 1 and 3.
            unsafe { self.release_held(holding) };
        }
    }

    /// In the child of a fork: releases all IDs but those of the calling thread.
    fn reset_in_child(&self) {
        let token = thread::token();
        for id in self.ids.ids_in_use() {
            let holding = self.holding(id);
            if holding.token.load(Relaxed) != token {
                holding.token.store(0, Relaxed);
            }
        }
        self.ids.reset(|id| {
            let holding = self.holding(id);
            let mine = holding.token.load(Relaxed) == token;
            // SAFETY: invariant 1: it is there, and no other thread exists.
            mine.then(|| unsafe { (*holding.held.get()).assume_init_ref() })
        });
    }

    /// Asks the kernel again which CPUs the threads of the process may run on.
    pub(super) fn refresh(&self) {
        let allowed = CpuSet::of_process();
        for (cpu, known) in self.allowed.iter().enumerate() {
            known.store(allowed.contains(cpu), Relaxed);
        }
        self.count_allowed();
    }

    fn count_allowed(&self) {
        let count = || {
            let allowed = self.allowed.iter().filter(|known| known.load(Relaxed));
            (allowed.count() as u32).max(1)
        };
        // Several threads may count at the same time. Publishing acquires what earlier publishers
        // saw. So the second count of the last publisher covers everything, and a difference makes
        // it publish again.
        loop {
            let allowed = count();
            self.ids.set_cpus_allowed(allowed);
            if count() == allowed {
                break;
            }
        }
    }

    /// The current CPU.
    #[inline]
    fn cpu(&self) -> u32 {
        let cpu = area::cpu().unwrap_or(u32::MAX);
        match self.allowed.get(cpu as usize) {
            Some(known) if !known.load(Relaxed) => self.saw(known),
            _ => {}
        }
        cpu
    }

    /// Records that the current CPU is allowed. It was not allowed when the kernel was last asked.
    #[cold]
    #[inline(never)]
    fn saw(&self, known: &AtomicBool) {
        known.store(true, Relaxed);
        self.count_allowed();
    }

    #[inline]
    fn holding(&self, id: u32) -> &Holding {
        // SAFETY: the arena has reserved a zeroed holding for each ID below its count, and all IDs
        // are below it. All zeros is a holding without holder.
        unsafe { self.holdings.of(id).cast::<Holding>().as_ref() }
    }

    /// Ends the calling thread's membership, if it is a member.
    fn leave(&self) {
        if membership::forget(self.serial) {
            self.ids.leave();
        }
    }
}

/// All domains with leases.
static LIST: List<Leased> = List::EMPTY;

// SAFETY: holdings are accessed by the holders of their IDs (invariant 1); all else is atomic.
unsafe impl Send for Leased {}
// SAFETY: as above.
unsafe impl Sync for Leased {}

/// First step of a thread's end: it leaves the domains in which it holds nothing. Returns whether
/// it holds nothing anywhere.
pub(super) fn leave_where_nothing_is_held() -> bool {
    let mut nothing = true;
    LIST.any(|leased| {
        if leased.own_holdings().next().is_some() {
            nothing = false;
        } else {
            leased.leave();
        }
        false
    });
    if nothing {
        membership::forget_all();
    }
    nothing
}

/// Last step of a thread's end: it releases what it still holds, and leaves all domains.
pub(super) fn leave_all() {
    LIST.any(|leased| {
        // The membership goes first. Members are not asked whether they have ended, so a signal
        // handler that comes later would otherwise get one of the released IDs.
        let was_member = membership::forget(leased.serial);
        leased.release_forgotten();
        if was_member {
            leased.ids.leave();
        }
        false
    });
    membership::forget_all();
}

/// The domains, as a part of the fork protocol. Rank 1.
pub(super) static PART: Part = Part { reset_in_child };

/// In the child of a fork: keeps the calling thread's memberships and leases, and drops all others.
/// The calling thread is the only one. No signal handler may run during this: an ID that it
/// acquired or released would end up both free and kept.
fn reset_in_child() {
    let reset = |leased: &Leased| {
        leased.reset_in_child();
        let is_member = membership::is_remembered(leased.serial);
        leased.ids.set_members(u32::from(is_member));
        // Another thread may have noted a CPU and not published the count.
        leased.count_allowed();
    };
    // SAFETY: invariant 4.
    unsafe { LIST.for_each_in_child(reset) };
}

/// `count` values made by `new`, if there is memory.
fn boxed<T>(count: u32, new: impl FnMut() -> T) -> Result<Box<[T]>, BuildError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count as usize)
        .map_err(|_| BuildError::Memory)?;
    all.resize_with(count as usize, new);
    Ok(all.into_boxed_slice())
}

/// A number that tells this copy of the library from others in the process, made from the address
/// of a static, which is a multiple of 8. Two copies would have the same number only if they lay a
/// multiple of 32 GiB apart.
fn copy() -> u32 {
    (core::ptr::from_ref(&LIST).addr() >> 3) as u32
}

/// See [`Leased::serial`].
fn next_serial() -> Option<u64> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let more = |given| (given < u32::MAX >> 1).then_some(given + 1);
    let given = GIVEN.fetch_update(Relaxed, Relaxed, more).ok()?;
    Some(u64::from(copy()) << 32 | u64::from(given + 1))
}

/// One more than the highest number of a CPU that this kernel can ever have.
pub(super) fn cpu_numbers() -> u32 {
    possible_cpus().last().map_or(0, |last| last + 1) as u32
}

/// The numbers of all CPUs that this kernel can ever have, in ascending order.
pub(super) fn possible_cpus() -> Vec<usize> {
    let text = std::fs::read("/sys/devices/system/cpu/possible").unwrap_or_default();
    let ranges: Result<Vec<_>, _> = CpuList::new(text).collect();
    let mut cpus: Vec<usize> = ranges.unwrap_or_default().into_iter().flatten().collect();
    if cpus.is_empty() {
        // No sysfs: assume the configured CPUs, and those that the process may run on.
        let configured = std::thread::available_parallelism().map_or(1, |n| n.get());
        cpus = (0..configured).chain(CpuSet::of_process().iter()).collect();
    }
    cpus.retain(|&cpu| cpu < MAX_CPUS);
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A signal handler makes the thread a member just before the thread does so itself.
    #[test]
    fn a_thread_is_a_member_once() {
        let domain = crate::Domain::builder().max_ids(32).build().unwrap();
        let leased = domain.leased().unwrap();
        let handlers = membership::join(leased);
        assert_eq!(membership::join(leased), handlers);
        assert_eq!(leased.ids.members(), 1);
    }

    #[test]
    fn a_thread_is_a_member_of_as_many_domains_as_it_enters() {
        let make = |_| crate::Domain::builder().max_ids(32).build().unwrap();
        let domains: Vec<_> = (0..20).map(make).collect();
        for _ in 0..2 {
            for domain in &domains {
                drop(domain.enter().unwrap());
                assert_eq!(domain.members(), Some(1));
                let serial = domain.leased().unwrap().serial;
                assert!(membership::is_remembered(serial));
            }
        }
        // Places of dropped domains are used again.
        drop(domains);
        let domains: Vec<_> = (0..20).map(make).collect();
        domains
            .iter()
            .for_each(|domain| drop(domain.enter().unwrap()));
        assert!(domains.iter().all(|domain| domain.members() == Some(1)));
    }

    #[test]
    fn a_domain_of_another_copy_is_noticed() {
        let mut leased = Leased::new(&Arena::new(BLOCK)).unwrap();
        assert!(leased.is_of_this_copy());
        leased.serial ^= 1 << 32;
        assert!(!leased.is_of_this_copy());
    }
}
