//! Parks threads at addresses, with a table behind a mutex of `std`. For unit tests and for Miri:
//! its futexes cannot requeue, and it would report the kernel's read of a whole lock word as a
//! mixed-size access.

use crate::platform::{EVERY_SET, Parked};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use std::vec::Vec;

/// The threads that sleep. Its functions are like those of [`Parking`](crate::platform::Parking).
#[derive(Debug)]
pub struct Sleepers {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Debug)]
struct Table {
    /// The number of the sleeper that came last.
    last: u64,
    asleep: Vec<Sleeper>,
}

#[derive(Debug)]
struct Sleeper {
    key: usize,
    me: u64,
    sets: u32,
}

impl Table {
    fn wake(&mut self, key: *const u32, n: u32, sets: u32) -> u32 {
        let mut woken = 0;
        self.asleep.retain(|s| {
            let leave = s.key == key.addr() && s.sets & sets != 0 && woken < n;
            woken += u32::from(leave);
            !leave
        });
        woken
    }
}

impl Sleepers {
    /// No sleepers.
    pub const NONE: Self = Sleepers {
        table: Mutex::new(Table {
            last: 0,
            asleep: Vec::new(),
        }),
        changed: Condvar::new(),
    };

    /// Sleeps for at most `nanos` nanoseconds.
    pub fn park_for(
        &self,
        key: *const u32,
        expected: u32,
        nanos: u64,
        sets: u32,
        current: impl Fn() -> u32,
    ) -> Parked {
        let mut table = self.table.lock().unwrap();
        if current() != expected {
            return Parked::Differed;
        }
        table.last += 1;
        let me = table.last;
        let key = key.addr();
        table.asleep.push(Sleeper { key, me, sets });
        // With a longer limit the clock would overflow.
        let limit = Duration::from_nanos(nanos.min(u64::MAX / 4));
        let is_asleep = |table: &mut Table| table.asleep.iter().any(|s| s.me == me);
        let waited = self.changed.wait_timeout_while(table, limit, is_asleep);
        let (mut table, _) = waited.unwrap();
        let before = table.asleep.len();
        table.asleep.retain(|s| s.me != me);
        match table.asleep.len() == before {
            true => Parked::Woken,
            false => Parked::Unwoken,
        }
    }

    /// Wakes up to `n` threads that belong to any of `sets`. Returns how many it woke.
    pub fn unpark_in(&self, key: *const u32, n: u32, sets: u32) -> u32 {
        let woken = self.table.lock().unwrap().wake(key, n, sets);
        self.changed.notify_all();
        woken
    }

    /// Wakes up to `n` threads. Returns how many it woke, or `n + 1` if other threads still sleep.
    pub fn unpark_some(&self, key: *const u32, n: u32) -> u32 {
        let mut table = self.table.lock().unwrap();
        let woken = table.wake(key, n, EVERY_SET);
        self.changed.notify_all();
        woken + u32::from(table.asleep.iter().any(|s| s.key == key.addr()))
    }

    /// Wakes `woken` threads and moves the others, or wakes all if the bytes at `from` differ.
    /// Returns how many it woke and how many it moved.
    pub fn requeue_but(
        &self,
        woken: u32,
        from: *const u32,
        expected: u32,
        to: *const u32,
        current: impl Fn() -> u32,
    ) -> (u32, u32) {
        let mut table = self.table.lock().unwrap();
        let differs = current() != expected;
        let woken = table.wake(from, if differs { u32::MAX } else { woken }, EVERY_SET);
        self.changed.notify_all();
        let mut moved = 0;
        for sleeper in table.asleep.iter_mut().filter(|s| s.key == from.addr()) {
            sleeper.key = to.addr();
            moved += 1;
        }
        (woken, moved)
    }
}
