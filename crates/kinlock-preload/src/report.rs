//! The contention report: what each lock did, in a [table](table) that the command reads.
//!
//! Nothing here allocates, takes a lock or waits. An entry is added, and most of its numbers are
//! changed, by the thread that holds the lock: the program's own lock guards them. So plain loads
//! and stores suffice, and no two threads add the same lock.
//!
//! Each acquisition is counted. The clock is read, and the callers are looked up, only for those
//! that waited, for the first ones of each lock, and from then on for about one in 256.

mod frames;
mod modules;
mod rules;
pub(crate) mod table;

use self::frames::Frames;
use self::table::{add, bump, raise};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::*};
use kinlock_core::Native;
use kinlock_core::platform::Platform;
use kinlock_report::{Lock, STACKS, Stack, Table, Thread, USES, Use, bucket};

unsafe extern "C" {
    safe fn kinlock_token() -> u32;
}

/// A lock of the program.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) address: u64,
    /// The C library's, or [`kinlock_report::SPIN`].
    pub(crate) kind: u32,
    /// The calling thread holds it already, as a recursive one.
    pub(crate) is_nested: bool,
}

/// How an acquisition went.
#[derive(Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) is_try: bool,
    pub(crate) waited: Option<Wait>,
    pub(crate) result: c_int,
}

/// A wait for a lock.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    since: u64,
    until: u64,
    /// By which callers.
    stack: u32,
}

impl Wait {
    /// The calling thread begins to wait. It looks up its callers now, while it would wait anyway,
    /// and not when it holds the lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(object: Object) -> Self {
        let since = Native::now();
        let mut stack = 0;
        if let Some(table) = table::table() {
            if let Some(thread) = thread(table) {
                thread.waits_since.store(since, Relaxed);
                thread.waits_for.store(object.address, Relaxed);
            }
            stack = stack_of(table, &frames::capture());
        }
        Wait {
            since,
            until: 0,
            stack,
        }
    }

    pub(crate) fn end(self) -> Self {
        let until = Native::now();
        Wait { until, ..self }
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.until.saturating_sub(self.since)
    }
}

/// The calling thread is about to take a lock: its entry will be needed.
#[inline]
pub(crate) fn prepare(address: u64) {
    if let Some(table) = table::table() {
        table::prefetch(table, address);
    }
}

/// The calling thread has found that it must not wait.
pub(crate) fn waits_no_more() {
    if let Some(thread) = table::table().and_then(thread) {
        thread.waits_for.store(0, Relaxed);
    }
}

/// An acquisition has ended. If it succeeded, the lock is held.
pub(crate) fn acquisition(object: Object, outcome: Outcome) {
    let Some(table) = table::table() else { return };
    let thread = thread(table);
    let is_taken = matches!(outcome.result, 0 | libc::EOWNERDEAD);
    if let (Some(thread), Some(wait)) = (thread, outcome.waited) {
        thread.waits_for.store(0, Relaxed);
        bump(&thread.contended, 1);
        bump(&thread.wait_ns, wait.nanos());
        raise(&thread.wait_max, wait.nanos());
    }
    if !is_taken {
        return in_vain(table, object, outcome);
    }
    match thread {
        Some(thread) => bump(&thread.locked, 1),
        None => add(&table.header.dropped_threads, 1),
    }
    let Some((index, lock)) = table::lock_of_holder(table, object) else {
        return add(&table.header.dropped_locks, 1);
    };
    if outcome.is_try {
        add(&lock.tries, 1);
    }
    if object.is_nested {
        return bump(&lock.nested, 1);
    }
    bump(&lock.locked, 1);
    let token = kinlock_token();
    lock.holder.store(token, Relaxed);
    if lock.last.load(Relaxed) != token {
        hand_off(lock, token);
    }
    match outcome.waited {
        Some(wait) => {
            let taken_by = waited(table, index, lock, wait);
            measure(lock, wait.until, 1, taken_by);
        }
        None => sample(table, index, lock),
    }
}

/// The C library has taken the lock again for its holder.
pub(crate) fn taken_again(object: Object) {
    let outcome = Outcome {
        is_try: false,
        waited: None,
        result: 0,
    };
    let is_nested = false;
    acquisition(
        Object {
            is_nested,
            ..object
        },
        outcome,
    );
}

/// Its holder is another thread than the one before.
fn hand_off(lock: &Lock, token: u32) {
    let domain = u32::from(Native::domain());
    if lock.last.load(Relaxed) != 0 {
        bump(&lock.changed, 1);
        if lock.domain.load(Relaxed) == domain {
            bump(&lock.local, 1);
        }
    }
    if lock.domain.load(Relaxed) != domain {
        lock.domain.store(domain, Relaxed);
    }
    lock.last.store(token, Relaxed);
    let number = token as usize % kinlock_report::THREAD_BITS;
    let word = &lock.threads[number / 64];
    let bit = 1 << (number % 64);
    if word.load(Relaxed) & bit == 0 {
        word.store(word.load(Relaxed) | bit, Relaxed);
    }
}

/// Notes a wait that has ended. By which use it was.
#[cold]
#[inline(never)]
fn waited(table: &Table, index: u32, lock: &Lock, wait: Wait) -> u32 {
    let nanos = wait.nanos();
    add(&lock.contended, 1);
    add(&lock.wait_ns, nanos);
    lock.wait_max.fetch_max(nanos, Relaxed);
    lock.waits[bucket(nanos)].fetch_add(1, Relaxed);
    let (taken_by, entry) = used(table, index, lock, wait.stack);
    if let Some(entry) = entry {
        add(&entry.contended, 1);
        add(&entry.wait_ns, nanos);
        entry.wait_max.fetch_max(nanos, Relaxed);
    }
    taken_by
}

/// A lock that was not taken.
#[cold]
fn in_vain(table: &Table, object: Object, outcome: Outcome) {
    let Some((index, lock)) = table::lock_at(table, object.address) else {
        return;
    };
    if outcome.is_try {
        add(&lock.tries, 1);
        add(&lock.failed, 1);
    }
    if let Some(wait) = outcome.waited {
        add(&lock.timeouts, 1);
        waited(table, index, lock, wait);
    }
}

/// Counts an acquisition that did not wait; measures one of many.
fn sample(table: &Table, index: u32, lock: &Lock) {
    let left = lock.until_sample.load(Relaxed);
    if left > 1 {
        return lock.until_sample.store(left - 1, Relaxed);
    }
    measured(table, index, lock);
}

/// So many are measured at first.
const FIRST: u64 = 8;
/// From here on the gaps between measured acquisitions are random.
const RAMP: u32 = 128;

#[cold]
#[inline(never)]
fn measured(table: &Table, index: u32, lock: &Lock) {
    let gap = lock.gap.load(Relaxed).max(1);
    let next = match gap {
        _ if lock.samples.load(Relaxed) < FIRST => 1,
        gap if gap < RAMP => 2 * gap,
        // Of 256 on average, since what a program does may have a period.
        _ => RAMP + Native::random() % (256 + 1),
    };
    lock.gap.store(next, Relaxed);
    lock.until_sample.store(next, Relaxed);
    let stack = stack_of(table, &frames::capture());
    let (taken_by, _) = used(table, index, lock, stack);
    measure(lock, Native::now(), gap, taken_by);
}

/// The hold that begins now is measured.
fn measure(lock: &Lock, now: u64, weight: u32, taken_by: u32) {
    lock.weight.store(weight, Relaxed);
    lock.taken_by.store(taken_by, Relaxed);
    lock.since.store(now, Relaxed);
}

/// The calling thread is about to release a lock that it holds.
pub(crate) fn release(address: u64) {
    let Some(table) = table::table() else { return };
    let Some((_, lock)) = table::lock_at(table, address) else {
        return;
    };
    lock.holder.store(0, Relaxed);
    let since = lock.since.load(Relaxed);
    if since != 0 {
        end_of_hold(table, lock, since);
    }
}

#[cold]
#[inline(never)]
fn end_of_hold(table: &Table, lock: &Lock, since: u64) {
    let nanos = Native::now().saturating_sub(since);
    lock.since.store(0, Relaxed);
    let weight = lock.weight.load(Relaxed);
    let total = nanos.saturating_mul(u64::from(weight));
    bump(&lock.samples, 1);
    bump(&lock.held, u64::from(weight));
    bump(&lock.hold_ns, total);
    raise(&lock.hold_max, nanos);
    let class = &lock.holds[bucket(nanos)];
    class.store(class.load(Relaxed).wrapping_add(weight), Relaxed);
    let taken_by = lock.taken_by.load(Relaxed) as usize;
    if let Some(entry) = taken_by.checked_sub(1).and_then(|at| table.uses.get(at)) {
        add(&entry.held, u64::from(weight));
        add(&entry.hold_ns, total);
    }
}

/// The lock was destroyed, or its memory becomes another lock.
pub(crate) fn end(address: u64) {
    if let Some(table) = table::table() {
        if let Some((index, lock)) = table::lock_at(table, address) {
            table::end(table, index, lock);
        }
    }
}

/// The use of a lock by some callers: its index plus 1, or 0, and itself.
fn used<'a>(table: &'a Table, index: u32, lock: &Lock, stack: u32) -> (u32, Option<&'a Use>) {
    if lock.first.load(Relaxed) == 0 {
        lock.first.store(stack, Relaxed);
    }
    if stack == 0 {
        return (0, None);
    }
    use_of(table, index, lock, stack)
}

/// The use of a lock by a stack. Several threads may add the same one, so that there are two.
fn use_of<'a>(table: &'a Table, index: u32, lock: &Lock, stack: u32) -> (u32, Option<&'a Use>) {
    let key = Use::key_of(index, stack);
    let found = table::place(
        |at| &table.uses[at].key,
        key,
        table::scattered(key) as usize % USES,
        USES,
        |_| {},
    );
    let Some((at, is_new)) = found else {
        add(&table.header.dropped_uses, 1);
        return (0, None);
    };
    let number = at as u32 + 1;
    if is_new {
        let mut before = lock.uses.load(Relaxed);
        loop {
            table.uses[at].before.store(before, Relaxed);
            match lock.uses.compare_exchange(before, number, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
    }
    (number, Some(&table.uses[at]))
}

/// The entry of a call stack: its index plus 1, or 0.
fn stack_of(table: &Table, frames: &Frames) -> u32 {
    let hash = frames.hash();
    let fill = |at: usize| {
        let stack: &Stack = &table.stacks[at];
        for (to, from) in stack.frames.iter().zip(frames.list()) {
            to.store(*from, Relaxed);
        }
    };
    let found = table::place(
        |at| &table.stacks[at].hash,
        hash,
        hash as usize % STACKS,
        STACKS,
        fill,
    );
    match found {
        Some((at, _)) => at as u32 + 1,
        None => {
            add(&table.header.dropped_stacks, 1);
            0
        }
    }
}

/// Adds the numbers of one lock or use to those of another.
fn merge(pairs: &[(&AtomicU64, &AtomicU64)]) {
    for (from, to) in pairs {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            add(to, n);
        }
    }
}

/// The entry of the calling thread.
fn thread(table: &Table) -> Option<&Thread> {
    let token = kinlock_token();
    let thread = &table.threads[token as usize % kinlock_report::THREADS];
    match thread.token.load(Relaxed) {
        known if known == token => Some(thread),
        0 => table::new_thread(table, thread, token),
        _ => None,
    }
}
