//! Locks that come with a condition variable: a mutex around a value and two condition variables.

use std::sync::PoisonError;

/// A value under a mutex, with condition variables numbered 0 and 1.
pub trait Monitor<T>: Send + Sync + Sized + 'static {
    /// With nobody inside.
    fn new(value: T) -> Self;
    /// Takes the lock, sleeps on the condition variable until `ready`, runs `section`, frees the lock.
    fn when<R>(
        &self,
        condvar: usize,
        ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R;
    /// Wakes one of the sleepers.
    fn notify_one(&self, condvar: usize);
    /// Wakes all sleepers.
    fn notify_all(&self, condvar: usize);
}

/// The type constructor of one lock with its condition variable.
pub trait CondvarFamily: 'static {
    /// The monitor around a `T`.
    type Of<T: Send + 'static>: Monitor<T>;
}

/// The standard library's.
pub struct Std;

/// The mutex and condition variables of the standard library.
pub struct StdMonitor<T>(std::sync::Mutex<T>, [std::sync::Condvar; 2]);

impl CondvarFamily for Std {
    type Of<T: Send + 'static> = StdMonitor<T>;
}

impl<T: Send + 'static> Monitor<T> for StdMonitor<T> {
    fn new(value: T) -> Self {
        StdMonitor(std::sync::Mutex::new(value), Default::default())
    }

    fn when<R>(
        &self,
        condvar: usize,
        mut ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready(&mut guard) {
            let woken = self.1[condvar].wait(guard);
            guard = woken.unwrap_or_else(PoisonError::into_inner);
        }
        section(&mut guard)
    }

    fn notify_one(&self, condvar: usize) {
        self.1[condvar].notify_one();
    }

    fn notify_all(&self, condvar: usize) {
        self.1[condvar].notify_all();
    }
}

/// The crate `parking_lot`'s.
pub struct ParkingLot;

/// The mutex and condition variables of the crate `parking_lot`.
pub struct ParkingLotMonitor<T>(parking_lot::Mutex<T>, [parking_lot::Condvar; 2]);

impl CondvarFamily for ParkingLot {
    type Of<T: Send + 'static> = ParkingLotMonitor<T>;
}

impl<T: Send + 'static> Monitor<T> for ParkingLotMonitor<T> {
    fn new(value: T) -> Self {
        ParkingLotMonitor(parking_lot::Mutex::new(value), Default::default())
    }

    fn when<R>(
        &self,
        condvar: usize,
        mut ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut guard = self.0.lock();
        while !ready(&mut guard) {
            self.1[condvar].wait(&mut guard);
        }
        section(&mut guard)
    }

    fn notify_one(&self, condvar: usize) {
        self.1[condvar].notify_one();
    }

    fn notify_all(&self, condvar: usize) {
        self.1[condvar].notify_all();
    }
}

/// Ours.
pub struct Kinlock;

/// The mutex and condition variables of this project.
pub struct KinlockMonitor<T>(kinlock::Mutex<T>, [kinlock::Condvar; 2]);

impl CondvarFamily for Kinlock {
    type Of<T: Send + 'static> = KinlockMonitor<T>;
}

impl<T: Send + 'static> Monitor<T> for KinlockMonitor<T> {
    fn new(value: T) -> Self {
        KinlockMonitor(kinlock::Mutex::new(value), Default::default())
    }

    fn when<R>(
        &self,
        condvar: usize,
        mut ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut guard = self.0.lock();
        while !ready(&mut guard) {
            self.1[condvar].wait(&mut guard);
        }
        section(&mut guard)
    }

    fn notify_one(&self, condvar: usize) {
        self.1[condvar].notify_one();
    }

    fn notify_all(&self, condvar: usize) {
        self.1[condvar].notify_all();
    }
}
