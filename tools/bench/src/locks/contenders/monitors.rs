//! Locks that come with a condition variable: a mutex around a value and two condition variables.

use std::sync::PoisonError;

use super::installed::{NsyncCondvar, RawNsync};

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

/// `$mutex` guards a `T`; `$guard` takes the mutex, and `$wait` waits with the guard.
macro_rules! monitor {
    ($mutex:ty, $condvar:ty, |$lock:ident| $guard:expr, |$waits:ident, $held:ident| $wait:expr) => {
        impl<T: Send + 'static> Monitor<T> for ($mutex, [$condvar; 2]) {
            fn new(value: T) -> Self {
                (<$mutex>::new(value), Default::default())
            }

            fn when<R>(
                &self,
                condvar: usize,
                mut ready: impl FnMut(&mut T) -> bool,
                section: impl FnOnce(&mut T) -> R,
            ) -> R {
                let ($lock, $waits) = (&self.0, &self.1[condvar]);
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
    std::sync::Mutex<T>,
    std::sync::Condvar,
    |lock| lock.lock().unwrap_or_else(PoisonError::into_inner),
    |condvar, guard| guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
);
monitor!(
    parking_lot::Mutex<T>,
    parking_lot::Condvar,
    |lock| lock.lock(),
    |condvar, guard| condvar.wait(&mut guard)
);
monitor!(
    kinlock::Mutex<T>,
    kinlock::Condvar,
    |lock| lock.lock(),
    |condvar, guard| condvar.wait(&mut guard)
);
monitor!(
    lock_api::Mutex<RawNsync, T>, NsyncCondvar,
    |lock| lock.lock(),
    |condvar, guard| condvar.wait(&mut guard)
);
