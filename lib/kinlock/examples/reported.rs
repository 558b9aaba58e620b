//! Takes locks in every way, in numbers that are known: what `kinlock run --report` says of them is
//! checked by `ci/rust-report.sh`. Each use is legal, and two locks are taken in both orders.

use kinlock::{Condvar, FairMutex, Mutex, ReentrantMutex, RwLock};
use kinlock::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard as Writer};
use std::time::Duration;

static MUTEX: Mutex<()> = Mutex::new(());
static FAIR: FairMutex<()> = FairMutex::new(());
static REENTRANT: ReentrantMutex<()> = ReentrantMutex::new(());
static RWLOCK: RwLock<()> = RwLock::new(());
static CONDVAR: Condvar = Condvar::new();
static AWAITED: Mutex<()> = Mutex::new(());
static ONE: Mutex<()> = Mutex::new(());
static OTHER: Mutex<()> = Mutex::new(());

const SOON: Duration = Duration::from_millis(1);

fn main() {
    for _ in 0..10 {
        drop(MUTEX.lock());
        drop(FAIR.lock());
        let outer = REENTRANT.lock();
        drop(REENTRANT.lock());
        drop(outer);
    }
    drop(MUTEX.try_lock());
    let held = MUTEX.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(MUTEX.try_lock().is_none());
            assert!(MUTEX.try_lock_for(SOON).is_none());
        });
    });
    drop(held);

    for _ in 0..7 {
        drop(RWLOCK.read());
        drop(RWLOCK.write());
    }
    // A writer that becomes a reader, and an upgradable reader that becomes a writer and one again.
    drop(Writer::downgrade(RWLOCK.write()));
    let writer = Upgradable::upgrade(RWLOCK.upgradable_read());
    drop(Writer::downgrade_to_upgradable(writer));
    // An upgrade that fails does not end the reader.
    let upgradable = RWLOCK.upgradable_read();
    let reader = RWLOCK.read_recursive();
    let Err(upgradable) = Upgradable::try_upgrade(upgradable) else {
        unreachable!("a reader is there")
    };
    drop(reader);
    drop(upgradable);
    // Two reads by one thread, the second ahead of any writer.
    let _outer = RWLOCK.read();
    drop(RWLOCK.read_recursive());

    let mut awaited = AWAITED.lock();
    assert!(CONDVAR.wait_for(&mut awaited, SOON).timed_out());
    drop(awaited);

    // Two threads take the locks one after the other: only at the same time would they wait for
    // each other.
    for [first, second] in [[&ONE, &OTHER], [&OTHER, &ONE]] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _first = first.lock();
                drop(second.lock());
            });
        });
    }
}
