//! IDs of a domain of our own: who has one, which threads are members, which CPUs they may run on.
//!
//! The allocation policy is in [`raw::ids`](crate::raw). Here is what it must be told by a real process: CPU numbers as indices, threads that come and go, affinities that change, forks.
//!
//! # Members
//!
//! A thread becomes a member when it first enters, and leaves when it ends. It remembers the domains it is a member of in a table of its own, [`MEMBERSHIPS`] at most; further domains work,
//! but do not count it. There is a list of all domains with leases, for threads that end and for forks.
//!
//! # Seats
//!
//! Each ID has a seat: who holds it, and what [`IdAllocator::release`] wants to have back. So a thread that ends gives back also what it has forgotten ([when](super::thread)), and in the child of a fork all IDs are free but those of the
//! forking thread.
//!
//! # Invariants
//!
//! 1. The seat of an ID is written by who holds the ID: after it was acquired and before it is released. In the child of a fork the forking thread, which is the only one, clears the seats of all others before it goes on.
//!    A seat whose token is not 0 has a [`Held`].
//! 2. A domain is in [`LIST`] from when it is complete until it is dropped, and the list is accessed under its lock only. In the child of a fork the forking thread has the lock, from before the fork.
//! 3. A token in a seat is that of a live thread, or, in the child of a fork, that of a thread which the child does not have, or of a thread that has ended without cleaning up.
//! 4. `fork` calls the functions of [`PART`] on one thread, which has locked the list and the tables with
//!    the first of them; in the child it is the only thread.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use super::arena::{self, Arena, NoMemory};
use super::domain::{BuildError, EnterError};
use super::sequence::Slots;
use super::{area, thread};
use crate::raw::{BLOCK, Block, Held, IdAllocator, NO_MEMBER, Policy, Record, Storage};
use kinlock_core::fork::Part;
use kinlock_core::topology::CpuSet;
use {kinlock::SpinLock, kinlock_core::Native};

/// How many domains a thread can be a member of.
const MEMBERSHIPS: usize = 8;

/// The IDs of a domain.
#[derive(Debug)]
pub(super) struct Leased {
    /// Names the domain in threads' tables; never 0, never used again.
    serial: u32,
    ids: IdAllocator<Native, Owned>,
    cpus: Cpus,
    /// Bits of member indices in use.
    members: Box<[AtomicU64]>,
    /// A [`Seat`] per ID.
    seats: Slots,
}

/// Who holds an ID.
#[repr(C)]
struct Seat {
    /// The holder's [`thread::token`]; 0 = nobody.
    token: AtomicUsize,
    held: UnsafeCell<MaybeUninit<Held>>,
}

#[derive(Debug)]
struct Owned {
    records: Box<[Record<Native>]>,
    blocks: Box<[Block<Native>]>,
}

impl Storage<Native> for Owned {
    #[inline]
    fn records(&self) -> &[Record<Native>] {
        &self.records
    }
    #[inline]
    fn blocks(&self) -> &[Block<Native>] {
        &self.blocks
    }
}

impl Leased {
    /// IDs below `max_ids` rounded up, as [`capacity`] does, which is how many `arena` is for.
    pub(super) fn new(policy: Policy, arena: &Arena) -> Result<Self, BuildError> {
        thread::prepare();
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let max_ids = arena.ids();
        let cpus = Cpus::possible();
        let members = if policy == Policy::TaskOwned {
            max_ids
        } else {
            0
        };
        let records = cpus.count + members;
        let storage = Owned {
            records: boxed(records, Record::new)?,
            blocks: boxed(max_ids / BLOCK, Block::new)?,
        };
        let seats = arena.allocate(size_of::<Seat>())?;
        let ids = IdAllocator::new(storage, cpus.count, policy).map_err(|_| NoMemory)?;
        let members = boxed(max_ids.div_ceil(64), || AtomicU64::new(0))?;
        let leased = Leased {
            serial: next_serial(&SERIAL)?,
            ids,
            cpus,
            members,
            seats,
        };
        leased.refresh();
        Ok(leased)
    }

    /// From now on forks and ending threads know of it. It must not move any more, and [`retire`](Self::retire) must be called before it goes.
    pub(super) fn enlist(&self) {
        LIST.lock().push(Listed(self));
    }

    /// The opposite of [`enlist`](Self::enlist).
    pub(super) fn retire(&self) {
        LIST.lock().retain(|listed| !core::ptr::eq(listed.0, self));
    }

    pub(super) fn policy(&self) -> Policy {
        self.ids.policy()
    }

    pub(super) fn limit(&self) -> u32 {
        self.ids.limit()
    }

    pub(super) fn members(&self) -> u32 {
        self.ids.members()
    }

    pub(super) fn cpus_allowed(&self) -> u32 {
        self.ids.cpus_allowed()
    }

    /// Takes an ID. Async-signal-safe, but see [`thread::will_end`].
    #[inline]
    pub(super) fn acquire(&self) -> Result<u32, EnterError> {
        let member = membership::of(self).ok_or(EnterError::ThreadEnded)?;
        let held = match self.ids.acquire_as(self.cpu(), member) {
            Ok(held) => held,
            Err(_) => return Err(EnterError::Exhausted),
        };
        let id = held.id();
        let seat = self.seat(id);
        // SAFETY: invariant 1: the ID has just become ours.
        unsafe { (*seat.held.get()).write(held) };
        // Release: a copy of this memory made by a fork has the one if it has the other.
        seat.token.store(thread::token(), Release);
        Ok(id)
    }

    /// Gives back an ID.
    ///
    /// # Safety
    ///
    /// [`acquire`](Self::acquire) has returned it to the calling thread, which has not released it since.
    #[inline]
    pub(super) unsafe fn release(&self, id: u32) {
        let seat = self.seat(id);
        // A destructor that runs very late releases what `leave_all` has taken away. Since then the thread has got no ID (see `thread`), so the seat is not its own.
        if seat.token.load(Relaxed) == thread::token() {
            // SAFETY: invariant 1: the seat is ours.
            unsafe { self.vacate(seat) };
        }
    }

    /// # Safety
    ///
    /// The seat is that of an ID which the calling thread holds.
    #[inline]
    unsafe fn vacate(&self, seat: &Seat) {
        seat.token.store(0, Relaxed);
        // SAFETY: invariant 1: the ID is ours until the next line, and `acquire` has written this. Whoever reads it gives it back.
        let held = unsafe { (*seat.held.get()).assume_init_read() };
        self.ids.release(self.cpu(), held);
    }

    /// The seats of the IDs that the calling thread holds.
    fn own_seats(&self) -> impl Iterator<Item = &Seat> {
        let token = thread::token();
        let seats = self.ids.ids_in_use().map(|id| self.seat(id));
        seats.filter(move |seat| seat.token.load(Relaxed) == token)
    }

    /// Gives back what the calling thread, which has ended, has forgotten.
    fn release_forgotten(&self) {
        for seat in self.own_seats() {
            // SAFETY: invariants 1 and 3.
            unsafe { self.vacate(seat) };
        }
    }

    /// In the child of a fork: nobody has anything but what the calling thread held.
    fn reset_in_child(&self) {
        let token = thread::token();
        for id in self.ids.ids_in_use() {
            let seat = self.seat(id);
            if seat.token.load(Relaxed) != token {
                seat.token.store(0, Relaxed);
            }
        }
        self.ids.reset(|id| {
            let seat = self.seat(id);
            let mine = seat.token.load(Relaxed) == token;
            // SAFETY: invariant 1: it is there, and nobody but this thread is.
            mine.then(|| unsafe { (*seat.held.get()).assume_init_ref() })
        });
    }

    /// Asks the kernel again which CPUs the threads of the process may run on.
    pub(super) fn refresh(&self) {
        let allowed = CpuSet::of_process();
        for (cpu, entry) in self.cpus.entries.iter().enumerate() {
            if allowed.contains(cpu) {
                entry.fetch_and(!UNSEEN, Relaxed);
            } else {
                entry.fetch_or(UNSEEN, Relaxed);
            }
        }
        self.count_allowed();
    }

    fn count_allowed(&self) {
        let count = || {
            let entries = self.cpus.entries.iter();
            let allowed = entries.filter(|entry| entry.load(Relaxed) & UNSEEN == 0);
            (allowed.count() as u32).max(1)
        };
        // Of several who count at a time the last one to say so has acquired, by that, what the others had seen before they said so: it counts the same as they, or again.
        loop {
            let allowed = count();
            self.ids.set_cpus_allowed(allowed);
            if count() == allowed {
                break;
            }
        }
    }

    /// The index of the CPU on which the thread runs.
    #[inline]
    fn cpu(&self) -> u32 {
        let cpu = area::cpu().unwrap_or(u32::MAX);
        let Some(entry) = self.cpus.entries.get(cpu as usize) else {
            return u32::MAX;
        };
        match entry.load(Relaxed) {
            index if index & UNSEEN == 0 => index,
            _ => self.saw(entry),
        }
    }

    /// A thread runs on a CPU that none was allowed on when we last asked.
    #[cold]
    #[inline(never)]
    fn saw(&self, entry: &AtomicU32) -> u32 {
        let index = entry.fetch_and(!UNSEEN, Relaxed) & !UNSEEN;
        if index == NO_INDEX {
            entry.store(u32::MAX, Relaxed);
            return u32::MAX;
        }
        self.count_allowed();
        index
    }

    #[inline]
    fn seat(&self, id: u32) -> &Seat {
        // SAFETY: the arena has reserved a zeroed seat for each ID below its count, and all IDs are; zero is a free seat.
        unsafe { self.seats.of(id).cast::<Seat>().as_ref() }
    }

    fn claim_member(&self) -> u32 {
        for (index, word) in self.members.iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let bit = (!seen).trailing_zeros();
                match word.compare_exchange(seen, seen | 1 << bit, Relaxed, Relaxed) {
                    Ok(_) => return index as u32 * 64 + bit,
                    Err(now) => seen = now,
                }
            }
        }
        NO_MEMBER
    }

    /// The calling thread is a member no more. It was `member`, as [`membership::take`] has said.
    fn leave(&self, member: Option<u32>) {
        let Some(member) = member else {
            return;
        };
        if let Some(word) = self.members.get(member as usize / 64) {
            self.ids.leave_as(member);
            word.fetch_and(!(1 << (member % 64)), Relaxed);
        } else {
            self.ids.leave();
        }
    }
}

/// `max_ids` as the allocator can have it.
pub(super) fn capacity(policy: Policy, max_ids: u32) -> u32 {
    let least = if policy == Policy::PerCpu {
        Cpus::possible().count
    } else {
        1
    };
    max_ids.max(least).next_multiple_of(BLOCK)
}

/// CPU numbers, which may be large and have gaps, to indices.
#[derive(Debug)]
struct Cpus {
    /// By number: the index, with [`UNSEEN`] if no thread may run there as far as we know.
    entries: Box<[AtomicU32]>,
    count: u32,
}

const UNSEEN: u32 = 1 << 31;
/// Entry of a number that no possible CPU has.
const NO_INDEX: u32 = UNSEEN - 1;

impl Cpus {
    fn possible() -> Self {
        let possible = possible_cpus();
        let numbers = possible.last().map_or(0, |last| last + 1);
        let entries: Box<[_]> = (0..numbers)
            .map(|_| AtomicU32::new(UNSEEN | NO_INDEX))
            .collect();
        for (index, &cpu) in possible.iter().enumerate() {
            entries[cpu].store(UNSEEN | index as u32, Relaxed);
        }
        Cpus {
            entries,
            count: possible.len() as u32,
        }
    }
}

/// The numbers of all CPUs that this kernel will ever have, in ascending order.
pub(super) fn possible_cpus() -> Vec<usize> {
    let text = std::fs::read("/sys/devices/system/cpu/possible").unwrap_or_default();
    let ranges: Result<Vec<_>, _> = kinlock_core::topology::CpuList::new(text).collect();
    let mut cpus: Vec<usize> = ranges.unwrap_or_default().into_iter().flatten().collect();
    if cpus.is_empty() {
        // No sysfs: as many as are configured, and those that we may run on.
        let configured = std::thread::available_parallelism().map_or(1, |n| n.get());
        cpus = (0..configured).chain(CpuSet::of_process().iter()).collect();
    }
    cpus.retain(|&cpu| cpu < kinlock_core::topology::MAX_CPUS);
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The domains that threads may be members of.
static LIST: SpinLock<Vec<Listed>> = SpinLock::new(Vec::new());

struct Listed(*const Leased);

// SAFETY: a shared reference as a pointer, to something that can be shared.
unsafe impl Send for Listed {}

// SAFETY: seats are accessed by holders of their IDs, atomics by anybody.
unsafe impl Send for Leased {}
// SAFETY: as above.
unsafe impl Sync for Leased {}

/// The calling thread ends: it is no member any more where it holds nothing. Whether it holds nothing anywhere.
pub(super) fn leave_where_nothing_is_held() -> bool {
    let mut nothing = true;
    for listed in LIST.lock().iter() {
        // SAFETY: invariant 2.
        let leased = unsafe { &*listed.0 };
        if leased.own_seats().next().is_some() {
            nothing = false;
        } else {
            leased.leave(membership::take(leased.serial));
        }
    }
    nothing
}

/// The calling thread has ended: what it still holds is given back.
pub(super) fn leave_all() {
    for listed in LIST.lock().iter() {
        // SAFETY: invariant 2.
        let leased = unsafe { &*listed.0 };
        // First it forgets that it is a member: a signal handler in between would get an ID that was just taken away, since members are not asked whether they have ended.
        let member = membership::take(leased.serial);
        leased.release_forgotten();
        leased.leave(member);
    }
}

/// The list of domains and the tables of memory, as far as a fork is concerned. Rank 1.
pub(super) static PART: Part = Part {
    lock: lock_before_fork,
    unlock: unlock_after_fork,
    reset_in_child,
};

/// Until one of the next two functions is called on this thread, no other thread has the list and the tables.
fn lock_before_fork() {
    // Nobody has both otherwise.
    core::mem::forget(LIST.lock());
    core::mem::forget(arena::TABLES.lock());
}

/// Called by the thread that has called [`lock_before_fork`].
fn unlock_after_fork() {
    // SAFETY: invariant 4.
    unsafe {
        arena::TABLES.force_unlock();
        LIST.force_unlock();
    }
}

/// In the child of a fork. No signal handler may run meanwhile: one that took or gave back an ID in the midst of this would leave it free and kept.
/// Called by the thread that has called [`lock_before_fork`]; it is the only one.
fn reset_in_child() {
    // SAFETY: invariant 4.
    for listed in unsafe { &*LIST.data_ptr() } {
        // SAFETY: invariant 2.
        let leased = unsafe { &*listed.0 };
        leased.reset_in_child();
        let mine = membership::remembered(leased.serial);
        leased.ids.set_members(u32::from(mine.is_some()));
        // Somebody may just have seen a CPU, and not said so yet.
        leased.count_allowed();
        for word in &leased.members {
            word.store(0, Relaxed);
        }
        if let Some(word) =
            mine.and_then(|mine| leased.members.get(mine as usize / 64).zip(Some(mine)))
        {
            word.0.store(1 << (word.1 % 64), Relaxed);
        }
    }
    // Not unlocked only: there may be waiters in its word who do not exist here.
    // SAFETY: invariant 4.
    unsafe {
        arena::TABLES.raw().reset_in_child();
        LIST.raw().reset_in_child();
    }
}

/// So many of them, if there is memory.
fn boxed<T>(count: u32, new: impl FnMut() -> T) -> Result<Box<[T]>, NoMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(count as usize)
        .map_err(|_| NoMemory)?;
    all.resize_with(count as usize, new);
    Ok(all.into_boxed_slice())
}

/// Serials are never used again: a thread that remembers one would be a member of another domain.
fn next_serial(serial: &AtomicU32) -> Result<u32, BuildError> {
    let next = serial.fetch_update(Relaxed, Relaxed, |serial| serial.checked_add(1));
    next.map_err(|_| BuildError::TooManyDomains)
}

/// What a thread is a member of.
mod membership {
    use super::*;

    thread_local! {
        // No destructor. Serial above, member index below; 0 = unused. Atomic because of signal handlers.
        static JOINED: [AtomicU64; MEMBERSHIPS] = const { [const { AtomicU64::new(0) }; MEMBERSHIPS] };
    }

    /// The calling thread's index as a member; makes it one if need be. `None`: it has ended.
    #[inline]
    pub(super) fn of(leased: &Leased) -> Option<u32> {
        let first = JOINED.with(|joined| joined[0].load(Relaxed));
        if (first >> 32) as u32 == leased.serial {
            return Some(first as u32);
        }
        others(leased)
    }

    #[inline(never)]
    fn others(leased: &Leased) -> Option<u32> {
        remembered(leased.serial).or_else(|| join(leased))
    }

    pub(super) fn remembered(serial: u32) -> Option<u32> {
        JOINED.with(|joined| {
            let words = joined.iter().map(|word| word.load(Relaxed));
            let mut ours = words.filter(|word| (word >> 32) as u32 == serial);
            ours.next().map(|word| word as u32)
        })
    }

    #[cold]
    pub(super) fn join(leased: &Leased) -> Option<u32> {
        if !thread::will_end() {
            thread::comes_again();
            return (!thread::has_ended()).then_some(NO_MEMBER);
        }
        let word = |member: u32| u64::from(leased.serial) << 32 | u64::from(member);
        JOINED.with(|joined| {
            // A signal handler that comes now finds the thread to be a member already.
            let free = joined.iter().find(|place| {
                place
                    .compare_exchange(0, word(NO_MEMBER), Relaxed, Relaxed)
                    .is_ok()
            });
            let Some(place) = free else {
                forget_gone(joined);
                return Some(NO_MEMBER);
            };
            // One that came just before may have made it one: not twice.
            let others = joined.iter().filter(|other| !core::ptr::eq(*other, place));
            let words = others.map(|other| other.load(Relaxed));
            if let Some(word) = { words }.find(|word| (word >> 32) as u32 == leased.serial) {
                place.store(0, Relaxed);
                return Some(word as u32);
            }
            let member = leased.claim_member();
            leased.ids.join();
            place.store(word(member), Relaxed);
            Some(member)
        })
    }

    /// Places of domains that are gone are free again, for the next time.
    fn forget_gone(joined: &[AtomicU64; MEMBERSHIPS]) {
        // A signal handler may have interrupted who has the list.
        let Some(list) = LIST.try_lock() else {
            return;
        };
        for place in joined {
            let seen = place.load(Relaxed);
            // SAFETY: invariant 2.
            let alive = list
                .iter()
                .any(|listed| unsafe { &*listed.0 }.serial == (seen >> 32) as u32);
            if !alive {
                let _ = place.compare_exchange(seen, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Forgets that the calling thread is a member; as which.
    pub(super) fn take(serial: u32) -> Option<u32> {
        JOINED.with(|joined| {
            let ours = |place: &&AtomicU64| (place.load(Relaxed) >> 32) as u32 == serial;
            let place = joined.iter().find(ours)?;
            Some(place.swap(0, Relaxed) as u32)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A handler makes the thread a member just before that does so itself.
    #[test]
    fn a_thread_is_a_member_once() {
        let domain = crate::Domain::builder().max_ids(32).build().unwrap();
        let leased = domain.leased().unwrap();
        let handlers = membership::join(leased);
        assert_eq!(membership::join(leased), handlers);
        assert_eq!(leased.members(), 1);
    }

    #[test]
    fn serials_are_not_used_again() {
        let serial = AtomicU32::new(u32::MAX - 1);
        assert_eq!(next_serial(&serial), Ok(u32::MAX - 1));
        for _ in 0..2 {
            assert_eq!(next_serial(&serial), Err(BuildError::TooManyDomains));
        }
    }
}
