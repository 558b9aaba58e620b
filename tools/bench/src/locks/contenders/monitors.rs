//! Locks that come with a condition variable: a mutex around a value and two condition variables.

use std::sync::PoisonError;

/// A value under a mutex, with condition variables numbered 0 and 1.
pub trait Monitor<T>: Send + Sync + Sized + 'static {
    fn new(value: T) -> Self;
    /// Takes the lock, sleeps on the condition variable until `ready`, runs `section`, frees the
    /// lock.
    fn when<R>(
        &self,
        condvar: usize,
        ready: impl FnMut(&mut T) -> bool,
        section: impl FnOnce(&mut T) -> R,
    ) -> R;
    fn notify_one(&self, condvar: usize);
    fn notify_all(&self, condvar: usize);
}

/// The type constructor of one lock with its condition variable.
pub trait CondvarFamily: 'static {
    type Of<T: Send + 'static>: Monitor<T>;
}

/// A family whose mutex has the module's `Mutex<T>` and `Condvar`; `$guard` and `$wait` are how a
/// guard is had, and how it is slept with.
macro_rules! monitor {
    ($(#[$doc:meta])* $family:ident, $monitor:ident, $module:ident::$($path:ident)?,
     |$lock:ident| $guard:expr, |$condvar:ident, $held:ident| $wait:expr) => {
        $(#[$doc])*
        pub struct $family;

        pub struct $monitor<T>($module::$($path::)?Mutex<T>, [$module::$($path::)?Condvar; 2]);

        impl CondvarFamily for $family {
            type Of<T: Send + 'static> = $monitor<T>;
        }

        impl<T: Send + 'static> Monitor<T> for $monitor<T> {
            fn new(value: T) -> Self {
                Self($module::$($path::)?Mutex::new(value), Default::default())
            }

            fn when<R>(
                &self,
                condvar: usize,
                mut ready: impl FnMut(&mut T) -> bool,
                section: impl FnOnce(&mut T) -> R,
            ) -> R {
                let ($lock, $condvar) = (&self.0, &self.1[condvar]);
                let mut $held = $guard;
                while !ready(&mut $held) {
                    $wait;
                }
                section(&mut $held)
            }

            fn notify_one(&self, condvar: usize) {
                self.1[condvar].notify_one();
            }

            fn notify_all(&self, condvar: usize) {
                self.1[condvar].notify_all();
            }
        }
    };
}

monitor!(
    /// The standard library's.
    Std, StdMonitor, std::sync,
    |lock| lock.lock().unwrap_or_else(PoisonError::into_inner),
    |condvar, guard| guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
);
monitor!(
    /// The crate `parking_lot`'s.
    ParkingLot, ParkingLotMonitor, parking_lot::,
    |lock| lock.lock(),
    |condvar, guard| condvar.wait(&mut guard)
);
monitor!(
    /// Ours.
    Kinlock, KinlockMonitor, kinlock::,
    |lock| lock.lock(),
    |condvar, guard| condvar.wait(&mut guard)
);
