//! Every lock the command knows, ours and the peers, behind one closure-style interface.
//!
//! A measured loop is generic over the lock: [`LockName::dispatch`] turns a name into a type once
//! per run, and nothing inside the loop is called through a pointer.

#[cfg(have_ck)]
mod ck_mcs;
mod monitors;
mod name;
mod peers;
mod posix;
mod readers;

pub use monitors::{CondvarFamily, Monitor};
pub use name::{LockName, Visit, VisitCondvar, VisitReadWrite};
pub use readers::{ReadWrite, ReadWriteFamily};

/// A lock around a value.
pub trait Lock<T>: Send + Sync + Sized + 'static {
    /// An unlocked lock around `value`. It may be moved until it is first taken, not afterwards.
    fn new(value: T) -> Self;
    /// Takes the lock, runs `section` on the value, frees the lock.
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R;
    /// The value, once no thread uses the lock any more.
    fn into_inner(self) -> T;
}

/// The type constructor of one lock: gives the lock around any value.
pub trait Family: 'static {
    type Of<T: Send + 'static>: Lock<T>;
}
