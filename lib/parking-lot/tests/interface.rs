//! Every public item of parking_lot 0.12, used as its users use it. That this compiles is the test;
//! it also runs.
//!
//! # Invariant cited by `SAFETY` comments
//!
//! 1. The lock was taken just before, by this thread, in the way in which it is released.

use parking_lot::lock_api::{
    GetThreadId, RawMutexTimed, RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive,
    RawRwLockRecursiveTimed, RawRwLockTimed, RawRwLockUpgrade, RawRwLockUpgradeDowngrade,
    RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};
use parking_lot::*;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(1);

static MUTEX: Mutex<u32> = const_mutex(1);
static FAIR: FairMutex<u32> = const_fair_mutex(1);
static REENTRANT: ReentrantMutex<u32> = const_reentrant_mutex(1);
static RWLOCK: RwLock<u32> = const_rwlock(1);
static CONDVAR: Condvar = Condvar::new();
static ONCE: Once = Once::new();

/// What programs rely on: all types can be shared, those with data if the data can be sent.
#[test]
fn types_are_shared_sent_and_shown() {
    fn shared<T: Send + Sync + std::fmt::Debug + Default>() {}
    shared::<Mutex<u32>>();
    shared::<FairMutex<u32>>();
    shared::<ReentrantMutex<u32>>();
    shared::<RwLock<u32>>();
    shared::<Condvar>();
    shared::<Once>();
    fn lock<T: Send + Sync>() {}
    lock::<RawMutex>();
    lock::<RawFairMutex>();
    lock::<RawRwLock>();
    lock::<RawThreadId>();
    assert_eq!(format!("{:?}", Mutex::new(7)), "Mutex { data: 7 }");
    assert_eq!(format!("{:?}", RwLock::new(7)), "RwLock { data: 7 }");
    assert_eq!(format!("{CONDVAR:?}"), "Condvar { .. }");
    assert_eq!(format!("{:?}", Once::new()), "Once { state: New }");
}

#[test]
fn mutex() {
    let mut guard: MutexGuard<'_, u32> = MUTEX.lock();
    assert!(MUTEX.is_locked() && MUTEX.try_lock().is_none());
    assert!(MUTEX.try_lock_for(SOON).is_none());
    assert!(MUTEX.try_lock_until(Instant::now()).is_none());
    MutexGuard::bump(&mut guard);
    MutexGuard::unlocked(&mut guard, || assert!(!MUTEX.is_locked()));
    MutexGuard::unlocked_fair(&mut guard, || assert!(!MUTEX.is_locked()));
    let mapped: MappedMutexGuard<'_, u32> = MutexGuard::map(guard, |value| value);
    MappedMutexGuard::unlock_fair(mapped);
    assert!(MutexGuard::try_map(MUTEX.lock(), |_| None::<&mut u32>).is_err());
    MutexGuard::unlock_fair(MUTEX.lock());
    std::mem::forget(MUTEX.lock());
    // SAFETY: invariant 1.
    unsafe { MUTEX.force_unlock() };
    std::mem::forget(MUTEX.lock());
    // SAFETY: invariant 1.
    unsafe { MUTEX.force_unlock_fair() };
    let mut own = Mutex::from(3);
    *own.get_mut() += 1;
    assert_eq!(
        (own.into_inner(), Mutex::<u32>::default().into_inner()),
        (4, 0)
    );
}

#[test]
fn fair_mutex() {
    let guard: FairMutexGuard<'_, u32> = FAIR.lock();
    assert!(FAIR.try_lock_for(SOON).is_none());
    let mapped: MappedFairMutexGuard<'_, u32> = FairMutexGuard::map(guard, |value| value);
    assert_eq!(*mapped, 1);
}

#[test]
fn reentrant_mutex() {
    let outer: ReentrantMutexGuard<'_, u32> = REENTRANT.lock();
    let inner = REENTRANT.try_lock().expect("it is this thread's");
    assert!(REENTRANT.is_owned_by_current_thread());
    let mut third = REENTRANT.try_lock_for(SOON).expect("it is this thread's");
    ReentrantMutexGuard::bump(&mut third);
    let mapped: MappedReentrantMutexGuard<'_, u32> = ReentrantMutexGuard::map(inner, |value| value);
    assert_eq!(*outer + *mapped + *third, 3);
    assert_eq!(
        RawThreadId.nonzero_thread_id(),
        RawThreadId::INIT.nonzero_thread_id()
    );
}

#[test]
fn rwlock() {
    let mut read: RwLockReadGuard<'_, u32> = RWLOCK.read();
    assert!(RWLOCK.try_read().is_some() && RWLOCK.try_write().is_none());
    assert_eq!(
        (*RWLOCK.read_recursive(), RWLOCK.is_locked_exclusive()),
        (1, false)
    );
    assert!(RWLOCK.try_read_recursive_for(SOON).is_some());
    assert!(RWLOCK.try_write_for(SOON).is_none());
    RwLockReadGuard::bump(&mut read);
    let mapped: MappedRwLockReadGuard<'_, u32> = RwLockReadGuard::map(read, |value| value);
    MappedRwLockReadGuard::unlock_fair(mapped);

    let mut upgradable: RwLockUpgradableReadGuard<'_, u32> = RWLOCK.upgradable_read();
    assert!(RWLOCK.try_upgradable_read().is_none());
    assert!(RWLOCK.try_upgradable_read_for(SOON).is_none());
    upgradable.with_upgraded(|value| *value += 1);
    let write: RwLockWriteGuard<'_, u32> = RwLockUpgradableReadGuard::upgrade(upgradable);
    let upgradable = RwLockWriteGuard::downgrade_to_upgradable(write);
    let write = RwLockUpgradableReadGuard::try_upgrade(upgradable).expect("nobody reads");
    let upgradable = RwLockWriteGuard::downgrade_to_upgradable(write);
    let write = RwLockUpgradableReadGuard::try_upgrade_for(upgradable, SOON).expect("nobody reads");
    let read = RwLockWriteGuard::downgrade(write);
    assert_eq!(*read, 2);
    drop(read);
    drop(RwLockUpgradableReadGuard::downgrade(
        RWLOCK.upgradable_read(),
    ));
    RwLockUpgradableReadGuard::unlock_fair(RWLOCK.upgradable_read());
    RwLockReadGuard::unlock_fair(RWLOCK.read());

    let mut write = RWLOCK.write();
    assert!(RWLOCK.is_locked_exclusive() && RWLOCK.try_read_until(Instant::now()).is_none());
    RwLockWriteGuard::bump(&mut write);
    let mapped: MappedRwLockWriteGuard<'_, u32> = RwLockWriteGuard::map(write, |value| value);
    MappedRwLockWriteGuard::unlock_fair(mapped);
    RwLockWriteGuard::unlock_fair(RWLOCK.write());
    assert!(!RWLOCK.is_locked());
}

#[test]
fn condvar() {
    let mutex = Mutex::new(0);
    let mut guard = mutex.lock();
    let timed_out: WaitTimeoutResult = CONDVAR.wait_for(&mut guard, SOON);
    assert!(timed_out.timed_out());
    assert!(CONDVAR.wait_until(&mut guard, Instant::now()).timed_out());
    let mut evaluated = 0;
    let mut never = |_: &mut i32| {
        evaluated += 1;
        true
    };
    let result = CONDVAR.wait_while_for(&mut guard, &mut never, Duration::ZERO);
    assert_eq!(
        (result.timed_out(), evaluated),
        (true, 1),
        "not once more at the end"
    );
    let until = Instant::now() + SOON;
    assert!(
        CONDVAR
            .wait_while_until(&mut guard, |_| true, until)
            .timed_out()
    );
    CONDVAR.wait_while(&mut guard, |value| *value != 0);
    let (one, all): (bool, usize) = (CONDVAR.notify_one(), CONDVAR.notify_all());
    assert_eq!((one, all), (false, 0));
    std::thread::scope(|s| {
        s.spawn(|| {
            *mutex.lock() = 1;
            CONDVAR.notify_all();
        });
        while *guard == 0 {
            CONDVAR.wait(&mut guard);
        }
    });
}

#[test]
fn once() {
    ONCE.call_once(|| assert_eq!(ONCE.state(), OnceState::InProgress));
    ONCE.call_once_force(|state| panic!("it has been called: {}", state.poisoned()));
    assert!(ONCE.state().done());
    assert_ne!(OnceState::New, OnceState::Poisoned);
}

/// The raw locks have the traits of `lock_api` that parking_lot's have.
#[test]
fn raw_locks() {
    fn mutex<R: lock_api::RawMutexFair + RawMutexTimed<Duration = Duration, Instant = Instant>>() {
        let lock = R::INIT;
        lock.lock();
        assert!(lock.is_locked() && !lock.try_lock() && !lock.try_lock_for(SOON));
        // SAFETY: invariant 1.
        unsafe { lock.bump() };
        // SAFETY: invariant 1.
        unsafe { lock.unlock_fair() };
        assert!(lock.try_lock_until(Instant::now()));
        // SAFETY: invariant 1.
        unsafe { lock.unlock() };
    }
    mutex::<RawMutex>();
    mutex::<RawFairMutex>();

    fn rwlock<R>()
    where
        R: RawRwLockDowngrade + RawRwLockFair + RawRwLockRecursive + RawRwLockUpgrade,
        R: RawRwLockTimed<Duration = Duration, Instant = Instant> + RawRwLockRecursiveTimed,
        R: RawRwLockUpgradeDowngrade + RawRwLockUpgradeFair + RawRwLockUpgradeTimed,
    {
        let lock = R::INIT;
        assert!(lock.try_lock_shared_recursive() && lock.is_locked());
        // SAFETY: invariant 1.
        unsafe { lock.unlock_shared_fair() };
    }
    rwlock::<RawRwLock>();
}

#[cfg(feature = "arc_lock")]
#[test]
fn guards_that_own_their_lock() {
    use std::sync::Arc;

    let mutex: ArcMutexGuard<RawMutex, u32> = Arc::new(Mutex::new(1)).lock_arc();
    let reentrant: ArcReentrantMutexGuard<RawMutex, RawThreadId, u32> =
        Arc::new(ReentrantMutex::new(1)).lock_arc();
    let lock = Arc::new(RwLock::new(1));
    let read: ArcRwLockReadGuard<RawRwLock, u32> = lock.read_arc();
    let upgradable: ArcRwLockUpgradableReadGuard<RawRwLock, u32> = lock.upgradable_read_arc();
    assert_eq!(*mutex + *reentrant + *read + *upgradable, 4);
    drop((read, upgradable));
    let write: ArcRwLockWriteGuard<RawRwLock, u32> = lock.write_arc();
    assert_eq!(*write, 1);
}

#[cfg(feature = "send_guard")]
#[test]
fn guards_are_sent() {
    let (mutex, rwlock) = (Mutex::new(1), RwLock::new(1));
    let guards = (mutex.lock(), rwlock.read());
    std::thread::scope(|s| _ = s.spawn(move || drop(guards)));
    assert!(!mutex.is_locked() && !rwlock.is_locked());
}

#[cfg(feature = "deadlock_detection")]
#[test]
fn deadlocks() {
    let circles: Vec<Vec<deadlock::DeadlockedThread>> = deadlock::check_deadlock();
    for thread in circles.iter().flatten() {
        let _: (std::thread::ThreadId, &_) = (thread.thread_id(), thread.backtrace());
    }
}
