//! Peers with an interface of their own: the standard library's mutex and the crate `mcslock`.

use std::sync::PoisonError;

use super::{Family, Lock};

/// The family of `std::sync::Mutex`.
pub struct StdMutex;

impl Family for StdMutex {
    type Of<T: Send + 'static> = std::sync::Mutex<T>;
}

impl<T: Send + 'static> Lock<T> for std::sync::Mutex<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn into_inner(self) -> T {
        self.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The family of `mcslock`'s spinning lock, with the queue node on the stack: its fastest interface.
pub struct Mcslock;

impl Family for Mcslock {
    type Of<T: Send + 'static> = mcslock::raw::spins::Mutex<T>;
}

impl<T: Send + 'static> Lock<T> for mcslock::raw::spins::Mutex<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        self.lock_then(section)
    }

    fn into_inner(self) -> T {
        self.into_inner()
    }
}
