//! Reader-writer locks, each under the name of its library's mutex.

use std::sync::PoisonError;

use lock_api::RawRwLock;

/// A value behind a reader-writer lock.
pub trait ReadWrite<T>: Send + Sync + Sized + 'static {
    fn new(value: T) -> Self;
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R;
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R;
}

impl<L, T> ReadWrite<T> for lock_api::RwLock<L, T>
where
    L: RawRwLock + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        section(&self.read())
    }

    #[inline(always)]
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.write())
    }
}

impl<T: Send + Sync + 'static> ReadWrite<T> for std::sync::RwLock<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn read<R>(&self, section: impl FnOnce(&T) -> R) -> R {
        section(&self.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline(always)]
    fn write<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        section(&mut self.write().unwrap_or_else(PoisonError::into_inner))
    }
}
