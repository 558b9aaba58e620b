//! Finding and adding entries of the table, and merging those of locks that end.

use super::memory::{Errno, is_present, provide};
use super::uses::use_of;
use super::{Object, merge, modules, tally};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_report::{ENDED, FREED, LOCKS, Lock, THREADS, Table, Thread};

// ---- numbers --------------------------------------------

/// Adds to a number to which other threads may add at the same time.
pub(super) fn add(number: &AtomicU64, n: u64) {
    number.fetch_add(n, Relaxed);
}

/// Adds to a number that no other thread changes at the same time.
#[inline]
pub(super) fn bump(number: &AtomicU64, n: u64) {
    number.store(number.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Makes a number at least `n`. No other thread changes it at the same time.
pub(super) fn raise(number: &AtomicU64, n: u64) {
    if number.load(Relaxed) < n {
        number.store(n, Relaxed);
    }
}

// ---- finding entries ------------------------------------

/// How many places of an index to search, from the one that the hash chooses.
const REACH: usize = 64;

/// A hash of a key.
pub(super) fn scattered(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The entry to which a place of an index refers, if any.
#[inline]
fn number_at(table: &Table, place: &AtomicU32) -> Option<usize> {
    // Acquire pairs with the release in `Array::place` that published the entry.
    let number = is_present(table, place).then(|| place.load(Acquire));
    (number.unwrap_or(0) as usize).checked_sub(1)
}

/// The places of an index where an entry with this hash may be.
fn places(index: &[AtomicU32], hash: u64) -> impl Iterator<Item = &AtomicU32> {
    let first = hash as usize;
    (0..REACH).map(move |step| &index[(first + step) % index.len()])
}

/// The entry of a lock, and its index plus 1.
#[inline]
pub(super) fn lock_at(table: &Table, address: u64) -> Option<(u32, &Lock)> {
    for place in places(&table.lock_index, scattered(address)) {
        let at = number_at(table, place)?;
        let lock = &table.locks[at];
        if lock.address.load(Relaxed) == address {
            return Some((at as u32 + 1, lock));
        }
    }
    None
}

/// The same, called by the lock's holder: an entry is added if there is none. `None`: there is no
/// room.
#[inline]
pub(super) fn lock_of_holder<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    lock_at(table, object.address).or_else(|| new_lock(table, object))
}

/// The next serial number: 1, 2, ... A few locks that are used together are likely to have numbers
/// close to each other, and so different places among a thread's tallies.
fn new_serial() -> u32 {
    static SERIALS: AtomicU32 = AtomicU32::new(0);
    loop {
        let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1);
        if serial != 0 {
            return serial;
        }
    }
}

#[cold]
#[inline(never)]
fn new_lock<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    let locks = Array {
        index: &table.lock_index,
        used: &table.header.locks_used,
        freed: &table.header.locks_freed,
        size: LOCKS,
        hash_of: |key| scattered(key & !ENDED),
        key_at: |at: usize| &table.locks[at].address,
        provide: |at: usize| provide(table, &table.locks[at]),
    };
    let fill = |at: usize| {
        table.locks[at].kind.store(object.kind, Relaxed);
        table.locks[at].serial.store(new_serial(), Relaxed);
    };
    let (at, _) = locks.place(table, object.address, fill)?;
    // So that a lock that is a static variable of a shared object can be named.
    modules::note(table, object.address);
    Some((at as u32 + 1, &table.locks[at]))
}

/// An array of entries, and the index by which they are found: a hash table with open addressing.
///
/// A freed entry may be used again for another key, from another place of the index. The former
/// place then still refers to it. That is harmless, since the key is compared.
pub(super) struct Array<'a, K, P> {
    pub(super) index: &'a [AtomicU32],
    pub(super) used: &'a AtomicU32,
    pub(super) freed: &'a AtomicU32,
    pub(super) size: usize,
    pub(super) hash_of: fn(u64) -> u64,
    pub(super) key_at: K,
    /// Asks for memory for an entry. Returns whether there is.
    pub(super) provide: P,
}

impl<'a, K: Fn(usize) -> &'a AtomicU64, P: Fn(usize) -> bool> Array<'a, K, P> {
    /// Finds the entry with a key, or adds one and calls `fill` for it. Returns its index, and
    /// whether it is new. `None`: there is no room.
    pub(super) fn place(
        &self,
        table: &Table,
        key: u64,
        fill: impl Fn(usize),
    ) -> Option<(usize, bool)> {
        // Another thread may take the place first. Then this one searches again.
        for _ in 0..8 {
            let (mut freed, mut free, mut left) = (None, None, None);
            for place in places(self.index, (self.hash_of)(key)) {
                let Some(at) = number_at(table, place) else {
                    free = Some((place, 0));
                    break;
                };
                match (self.key_at)(at).load(Relaxed) {
                    known if known == key => return Some((at, false)),
                    FREED => freed = freed.or(Some(at)),
                    other if !self.is_place_of(place, other) => {
                        left = left.or(Some((place, at as u32 + 1)));
                    }
                    _ => {}
                }
            }
            if let Some(at) = freed {
                if self.takes_freed(at, key) {
                    fill(at);
                    return Some((at, true));
                }
                continue;
            }
            let (place, seen) = free.or(left)?;
            if !provide(table, place) {
                return None;
            }
            let at = self.new_entry(key).or_else(|| self.any_freed(key))?;
            fill(at);
            let taken = place.compare_exchange(seen, at as u32 + 1, Release, Relaxed);
            if taken.is_ok() {
                return Some((at, true));
            }
            (self.key_at)(at).store(FREED, Relaxed);
            self.freed.fetch_add(1, Relaxed);
        }
        None
    }

    /// Whether a search for this key looks at this place of the index.
    fn is_place_of(&self, place: &AtomicU32, key: u64) -> bool {
        let begin = self.index.as_ptr().addr();
        let at = (ptr::from_ref(place).addr() - begin) / size_of::<AtomicU32>();
        let length = self.index.len();
        (at + length - (self.hash_of)(key) as usize % length) % length < REACH
    }

    /// The next entry that has never been used.
    fn new_entry(&self, key: u64) -> Option<usize> {
        let next = self.used.load(Relaxed) as usize;
        // Tested before the count grows, so that the count cannot wrap, and an entry that gets no
        // memory is not lost.
        if next >= self.size || !(self.provide)(next) {
            return None;
        }
        let at = self.used.fetch_add(1, Relaxed) as usize;
        if at >= self.size || !(self.provide)(at) {
            return None;
        }
        (self.key_at)(at).store(key, Relaxed);
        Some(at)
    }

    /// An entry that has become free, anywhere in the array.
    fn any_freed(&self, key: u64) -> Option<usize> {
        if self.freed.load(Relaxed) == 0 {
            return None;
        }
        let used = (self.used.load(Relaxed) as usize).min(self.size);
        let first = (self.hash_of)(key) as usize;
        let all = (0..used).map(|step| (first + step) % used);
        let mut free = all.filter(|&at| (self.key_at)(at).load(Relaxed) == FREED);
        free.find(|&at| self.takes_freed(at, key))
    }

    /// Takes an entry that has become free, unless another thread does.
    fn takes_freed(&self, at: usize, key: u64) -> bool {
        let taken = (self.key_at)(at).compare_exchange(FREED, key, Acquire, Relaxed);
        if taken.is_ok() {
            self.freed.fetch_sub(1, Relaxed);
        }
        taken.is_ok()
    }
}

// ---- threads --------------------------------------------

/// How many entries to search for a thread's, from the one that its token chooses.
const THREAD_REACH: usize = 8;

fn places_of_thread(table: &Table, token: u32) -> impl Iterator<Item = &Thread> {
    (0..THREAD_REACH).map(move |step| &table.threads[(token as usize + step) % THREADS])
}

/// The entry of a thread, if it has one.
pub(super) fn thread_of(table: &Table, token: u32) -> Option<&Thread> {
    let mut places = places_of_thread(table, token).take_while(|thread| is_present(table, *thread));
    places.find(|thread| thread.token.load(Relaxed) == token)
}

/// Gives the calling thread an entry: a free one, or one of a thread that has ended.
#[cold]
#[inline(never)]
pub(super) fn new_thread(table: &Table, token: u32) -> Option<&Thread> {
    let takes = |thread: &&Thread, before: u32| {
        let taken = &thread.token;
        taken
            .compare_exchange(before, token, Relaxed, Relaxed)
            .is_ok()
    };
    let mut places = places_of_thread(table, token);
    let free = places.find(|thread| provide(table, *thread) && takes(thread, 0));
    let thread = free.or_else(|| {
        let mut places = places_of_thread(table, token).filter(|thread| is_present(table, *thread));
        places.find(|thread| {
            let before = thread.token.load(Relaxed);
            thread.end.load(Relaxed) != 0 && takes(thread, before)
        })
    })?;
    if thread.end.swap(0, Relaxed) != 0 {
        forget_ended(table, thread);
    }
    tally::await_end();
    table.header.threads.fetch_add(1, Relaxed);
    thread.begin.store(Native::now(), Relaxed);
    let mut name = [0_u8; 16];
    let kept = Errno::keep();
    // SAFETY: invariant 4; a name has at most 16 bytes.
    unsafe {
        thread
            .id
            .store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr());
    }
    kept.restore();
    for (to, from) in thread.name.iter().zip(name) {
        to.store(from, Relaxed);
    }
    Some(thread)
}

/// Moves the numbers of a thread that has ended to the sums over such threads.
fn forget_ended(table: &Table, thread: &Thread) {
    let ended = &table.header.ended_threads;
    add(&ended.count, 1);
    merge(&[
        (&thread.locked, &ended.locked),
        (&thread.contended, &ended.contended),
        (&thread.wait_ns, &ended.wait_ns),
    ]);
    let longest = thread.wait_max.swap(0, Relaxed);
    ended.wait_max.fetch_max(longest, Relaxed);
    thread.waits_for.store(0, Relaxed);
}

// ---- locks that end -------------------------------------

/// How many ended locks that were first taken by the same callers keep entries of their own.
const KEPT_PER_STACK: u32 = 64;
/// How many ended locks keep entries of their own in all.
const KEPT_IN_ALL: u32 = LOCKS as u32 / 4;

/// A lock has ended. Either its entry stays, marked as ended, or its numbers are added to an ended
/// lock that was first taken by the same callers, and its entry becomes free. So a program may use
/// any number of locks one after the other.
#[cold]
pub(super) fn end(table: &Table, index: u32, lock: &Lock) {
    let first = lock.first.load(Relaxed) as usize;
    let stack = first.checked_sub(1).and_then(|at| table.stacks.get(at));
    let in_all = table.header.ended.fetch_add(1, Relaxed);
    let others = stack.and_then(|stack| {
        let count = stack.ended_count.fetch_add(1, Relaxed);
        if count < KEPT_PER_STACK && in_all < KEPT_IN_ALL {
            return None;
        }
        let joined = stack.ended.compare_exchange(0, index, AcqRel, Acquire);
        let index = joined.err()?;
        Some((index, table.locks.get(index as usize - 1)?))
    });
    match others {
        Some((index, others)) => {
            add(&others.ended, 1);
            join(table, lock, others, index);
            lock.address.store(FREED, Release);
            table.header.locks_freed.fetch_add(1, Relaxed);
        }
        None => {
            add(&lock.ended, 1);
            let address = lock.address.load(Relaxed);
            lock.address.store(address | ENDED, Relaxed);
        }
    }
}

/// Moves all numbers of an ended lock to another ended lock, `others`, and clears its entry.
fn join(table: &Table, lock: &Lock, others: &Lock, index: u32) {
    let mut at = lock.uses.swap(0, Acquire);
    while let Some(from) = at.checked_sub(1).and_then(|at| table.uses.get(at as usize)) {
        let stack = from.key.load(Relaxed) as u32;
        if let (_, Some(to)) = use_of(table, index, others, stack) {
            to.wait_max.fetch_max(from.wait_max.load(Relaxed), Relaxed);
            merge(&[
                (&from.contended, &to.contended),
                (&from.wait_ns, &to.wait_ns),
                (&from.held, &to.held),
                (&from.hold_ns, &to.hold_ns),
            ]);
        }
        at = from.before.swap(0, Relaxed);
        for number in [
            &from.contended,
            &from.wait_ns,
            &from.wait_max,
            &from.held,
            &from.hold_ns,
        ] {
            number.store(0, Relaxed);
        }
        from.key.store(FREED, Release);
        table.header.uses_freed.fetch_add(1, Relaxed);
    }
    for (from, to) in [
        (&lock.wait_max, &others.wait_max),
        (&lock.hold_max, &others.hold_max),
    ] {
        to.fetch_max(from.swap(0, Relaxed), Relaxed);
    }
    merge(&[
        (&lock.locked, &others.locked),
        (&lock.changed, &others.changed),
        (&lock.remote, &others.remote),
        (&lock.held, &others.held),
        (&lock.hold_ns, &others.hold_ns),
        (&lock.samples, &others.samples),
        (&lock.nested, &others.nested),
        (&lock.contended, &others.contended),
        (&lock.wait_ns, &others.wait_ns),
        (&lock.timeouts, &others.timeouts),
        (&lock.tries, &others.tries),
        (&lock.failed, &others.failed),
    ]);
    for (from, to) in lock.threads.iter().zip(&others.threads) {
        to.fetch_or(from.swap(0, Relaxed), Relaxed);
    }
    let classes = lock.waits.iter().zip(&others.waits);
    for (from, to) in classes.chain(lock.holds.iter().zip(&others.holds)) {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            to.fetch_add(n, Relaxed);
        }
    }
    for number in [
        &lock.record,
        &lock.serial,
        &lock.last,
        &lock.domain,
        &lock.gap,
        &lock.first,
    ] {
        number.store(0, Relaxed);
    }
}
