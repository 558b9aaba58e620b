//! Locks that come as `lock_api` raw mutexes: ours and most peers.

use std::marker::PhantomData;

use super::{Family, Lock};

/// The family of `lock_api::Mutex<R, _>`.
pub struct Api<R>(PhantomData<R>);

impl<R: lock_api::RawMutex + Send + Sync + 'static> Family for Api<R> {
    type Of<T: Send + 'static> = lock_api::Mutex<R, T>;
}

impl<R: lock_api::RawMutex + Send + Sync + 'static, T: Send + 'static> Lock<T>
    for lock_api::Mutex<R, T>
{
    #[inline(always)]
    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline(always)]
    fn with<U>(&self, section: impl FnOnce(&mut T) -> U) -> U {
        section(&mut self.lock())
    }

    fn into_inner(self) -> T {
        self.into_inner()
    }
}
