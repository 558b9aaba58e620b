//! Lock order: which lock a thread asked for while it held which other one.
//!
//! Each pair of two locks is an *order*. The command searches the orders for circles, each of which
//! is a deadlock that could happen, even if it never has. What is noted with an order is what tells
//! such circles from harmless ones:
//!
//! - An order of two locks is one of *these two*, not of their types or of the lines that take
//!   them. So threads that take locks of one type in the order of their addresses make no circle.
//! - A call that does not wait forever (`trylock`, a time limit) makes no order *to* its lock,
//!   since no thread stays there; but what is taken afterwards is ordered after it.
//! - Which threads made the order: around a circle that deadlocks, each order is another thread's.
//!
//! And for each of these threads:
//!
//! - Which other locks it held each time (*gates*): two threads that hold one lock cannot be in a
//!   circle at the same time.
//! - Whether it took the locks for reading.
//!
//! An order is noted before the thread waits, so that a deadlock which does happen is there, too.
//!
//! # Stacks
//!
//! The callers that ask for the second lock are looked up when an order is new. The callers that
//! took the first lock have to be known by then, and looking them up for each acquisition would be
//! slow. So the first lock of a new order is marked: its next acquisitions look up their callers,
//! until the order has them.

use super::entries::{Array, add, scattered};
use super::held::{self, Handed};
use super::locks::{lock_at, lock_of_holder};
use super::misuses::taken_by;
use super::object::Object;
use super::tally;
use super::threads::thread;
use super::unwind;
use super::uses::stack_of;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering::*};
use kinlock_report::{GATES, HELD, Held, Lock, MAKERS, OUTER, Order, Owner, READS, RWLOCK, Table};

static IS_ON: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Whether the environment asks for lock order.
pub fn is_wanted() -> bool {
    super::environment::variable(b"KINLOCK_ORDER") == Some(b"1")
}

/// Called before the table is used.
pub(super) fn begin(table: &Table) {
    // The child of a fork may have another environment.
    let is_on = is_wanted() || is_on();
    table.header.is_ordered.store(is_on.into(), Relaxed);
    IS_ON.store(is_on, Relaxed);
}

/// Notes that the calling thread has taken a mutex or spinlock. `asked`: it asked for the lock
/// without a limit. That may have been noted when it began to wait, but was not if the lock had no
/// entry yet.
pub(super) fn taken(table: &Table, object: Object<'_>, asked: bool) {
    let Some(lock) = lock_at(table, object.address) else {
        return;
    };
    if asked {
        wants(table, object.address, lock, 0);
    }
    let serial = lock.serial.load(Relaxed);
    held::push(
        table,
        object.address,
        serial,
        stack_of_first(table, object, lock),
        0,
    );
}

/// The stack of an acquisition that orders of `lock` may need; 0: no order needs it.
fn stack_of_first(table: &Table, object: Object<'_>, lock: &Lock) -> u32 {
    if lock.kind.load(Relaxed) & OUTER != 0 {
        lock.kind.fetch_and(!OUTER, Relaxed);
        return stack_of(table, &unwind::capture());
    }
    // For a reader-writer lock, this is the tally of the side.
    let tally = tally::of_caller(table, object);
    let measured = tally.filter(|(_, tally)| tally.since.load(Relaxed) > HELD);
    measured.map_or(0, |(_, tally)| taken_by(table, tally))
}

/// Notes that the calling thread is going to wait for a mutex or spinlock.
pub(super) fn waits(table: &Table, object: Object<'_>) {
    let serial = object.marks.map(|marks| marks.serial.load(Relaxed));
    // If the numbers differ, the entry belongs to a lock that was there before.
    let is_its = |lock: &Lock| serial.is_none_or(|serial| serial == lock.serial.load(Relaxed));
    let known = lock_at(table, object.address);
    if let Some(lock) = known.filter(|lock| is_its(lock)) {
        wants(table, object.address, lock, 0);
    }
}

/// Notes that the calling thread asks for a reader-writer lock, and may wait forever.
pub(super) fn asks_rwlock(table: &Table, address: u64, mode: u32) {
    if let Some(lock) = rwlock(table, address) {
        wants(table, address, lock, mode);
    }
}

/// Notes that the calling thread has taken this side of a reader-writer lock. Returns the lock's
/// serial number, and the stack if orders may need it.
pub(super) fn taken_rwlock(table: &Table, side: Object<'_>) -> [u32; 2] {
    let Some(lock) = rwlock(table, side.lock_and_mode().0) else {
        return [0, 0];
    };
    let stack = stack_of_first(table, side, lock);
    if lock.first.load(Relaxed) == 0 {
        lock.first.store(stack, Relaxed);
    }
    [lock.serial.load(Relaxed), stack]
}

/// The entry of a reader-writer lock. If several threads want to add it at the same time, the place
/// in the index decides which one does.
fn rwlock(table: &Table, address: u64) -> Option<&Lock> {
    lock_of_holder(table, Object::new(address, RWLOCK))
}

/// Notes that the calling thread asks for a lock: an order for each lock that it holds.
fn wants(table: &Table, address: u64, lock: &Lock, mode: u32) {
    let Some(owner) = tally::owner(table) else {
        return;
    };
    let serial = lock.serial.load(Relaxed);
    forget_released(owner);
    let list = held::list(owner);
    // The thread holds the lock already: that is misuse, or a second read lock, which does not wait
    // for threads that wait for what this thread has taken since.
    if list.iter().any(|held| held.serial.load(Relaxed) == serial) {
        return;
    }
    let stack = Cell::new(0);
    let [written, read, mutex] =
        [Handed::Written, Handed::Read, Handed::Mutex].map(held::are_handed_over);
    let (skips_rwlocks, skips_mutexes) = (written || read, mutex);
    for first in list {
        // 0: the lock had no entry.
        if first.serial.load(Relaxed) == 0 || serial == 0 {
            continue;
        }
        let skips = match is_rwlock(table, first) {
            true => skips_rwlocks,
            false => skips_mutexes,
        };
        if skips {
            continue;
        }
        let then = Then {
            address,
            serial,
            mode,
            lock,
            stack: &stack,
        };
        note(table, owner, first, &then);
    }
}

fn is_rwlock(table: &Table, held: &Held) -> bool {
    let known = lock_at(table, held.address.load(Relaxed));
    known.is_some_and(|lock| lock.kind.load(Relaxed) & RWLOCK != 0)
}

/// Takes those locks out of the list that another thread has released, as their tallies say.
fn forget_released(owner: &Owner) {
    let mut at = 0;
    while let Some(held) = held::list(owner).get(at) {
        let (address, serial) = (held.address.load(Relaxed), held.serial.load(Relaxed));
        let tally = tally::own_of(address, serial);
        match tally.is_some_and(|tally| tally.since.load(Relaxed) == 0) {
            true => held::remove_at(owner, at),
            false => at += 1,
        }
    }
}

/// The second lock of an order.
struct Then<'a> {
    address: u64,
    serial: u32,
    mode: u32,
    lock: &'a Lock,
    /// Looked up once for all orders of a call; 0: not yet.
    stack: &'a Cell<u32>,
}

/// Notes one order: what is held, and what is asked for then.
fn note(table: &Table, owner: &Owner, first: &Held, then: &Then<'_>) {
    let key = u64::from(first.serial.load(Relaxed)) << 32 | u64::from(then.serial);
    let (held_mode, token) = (first.mode.load(Relaxed), owner.token.load(Relaxed));
    let modes = 1 << (2 * (held_mode & READS) + (then.mode & READS));
    let gates = gates(owner, first);
    let fill = |new: &Order| {
        if then.stack.get() == 0 {
            then.stack.set(stack_of(table, &unwind::capture()));
        }
        new.to_stack.store(then.stack.get(), Relaxed);
        new.from_address.store(first.address.load(Relaxed), Relaxed);
        new.to_address.store(then.address, Relaxed);
        new.to_kind.store(then.lock.kind.load(Relaxed), Relaxed);
        if let Some(from) = lock_at(table, first.address.load(Relaxed)) {
            new.from_kind.store(from.kind.load(Relaxed), Relaxed);
            new.from_first.store(from.first.load(Relaxed), Relaxed);
        }
        let id = thread(table).map_or(0, |thread| thread.id.load(Relaxed));
        new.id.store(id, Relaxed);
        for maker in &new.makers {
            maker.modes.store(0, Relaxed);
            maker.thread.store(0, Relaxed);
        }
    };
    let orders = Array {
        entries: &table.orders,
        index: &table.order_index,
        used: &table.header.orders_used,
        freed: &table.header.orders_freed,
        key_of: |order: &Order| &order.key,
        hash_of: scattered,
    };
    let Some((order, _)) = orders.place(table, key, fill) else {
        return add(&table.header.dropped_orders, 1);
    };
    made(order, token, modes, gates);
    let stack = first.stack.load(Relaxed);
    if order.from_stack.load(Relaxed) == 0 {
        order.from_stack.store(stack, Relaxed);
        let from = lock_at(table, first.address.load(Relaxed)).filter(|_| stack == 0);
        if let Some(from) = from {
            from.kind.fetch_or(OUTER, Relaxed);
        }
    }
}

/// Notes how the thread of this number has made an order.
fn made(order: &Order, token: u32, modes: u32, gates: [u32; GATES]) {
    let place = order.makers.iter().find(|maker| {
        let known = maker.thread.load(Relaxed);
        let takes = || {
            maker
                .thread
                .compare_exchange(0, token, Relaxed, Relaxed)
                .is_ok()
        };
        known == token || known == 0 && takes()
    });
    let maker = place.unwrap_or(&order.makers[MAKERS - 1]);
    let known = maker.modes.load(Relaxed);
    if known == 0 {
        for (to, from) in maker.gates.iter().zip(gates) {
            to.store(from, Relaxed);
        }
    }
    for gate in maker.gates.iter().filter(|_| known != 0) {
        let known = gate.load(Relaxed);
        if known != 0 && !gates.contains(&known) {
            gate.store(0, Relaxed);
        }
    }
    if known & modes == 0 {
        maker.modes.fetch_or(modes, Relaxed);
    }
}

/// Other locks that the thread holds, and not for reading only.
fn gates(owner: &Owner, first: &Held) -> [u32; GATES] {
    let others = held::list(owner)
        .iter()
        .filter(|other| !core::ptr::eq(*other, first) && other.mode.load(Relaxed) & READS == 0);
    let mut gates = [0; GATES];
    for (to, from) in gates.iter_mut().zip(others) {
        *to = from.serial.load(Relaxed);
    }
    gates
}
