//! Atomics of a platform: what `core::sync::atomic` is to a program, by trait.

pub use core::sync::atomic::Ordering;

/// An atomic integer of one platform.
///
/// The orderings mean what they mean in `core::sync::atomic`. A simulated platform may be stronger (sequentially
/// consistent), never weaker.
pub trait Atomic: Sized + Send + Sync + core::fmt::Debug + 'static {
    /// The plain integer inside.
    type Value: Copy + Eq + core::fmt::Debug;

    /// A new atomic. Not `const`, because a model checker registers each one; see [`ConstAtomic`].
    fn new(value: Self::Value) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// As [`load`](Self::load), where nothing but a branch that nearly always goes the same way depends on the value. A processor
    /// goes on before the value is there; a simulator, which waits for each load, may do so too.
    #[inline]
    fn glance(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// Writes the value. On hardware this is a plain store: no read-modify-write.
    fn store(&self, value: Self::Value, order: Ordering);
    /// As [`store`](Self::store), where another thread may be about to exchange the value: a plain store all the same. Apart from
    /// `store` because a model checker may know no order between such a store and an exchange, of which the language has one.
    #[inline]
    fn overwrite(&self, value: Self::Value, order: Ordering) {
        self.store(value, order);
    }
    /// Writes the value and returns the one it replaced. Never emulated by a compare-and-swap loop, which may starve.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Replaces `current` by `new`; returns the value seen, as `Err` if it was another.
    fn compare_exchange(
        &self,
        current: Self::Value,
        new: Self::Value,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self::Value, Self::Value>;
    /// Adds, wrapping; returns the previous value.
    fn fetch_add(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Sets bits; returns the previous value.
    fn fetch_or(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Keeps only the bits of `value`; returns the previous value.
    fn fetch_and(&self, value: Self::Value, order: Ordering) -> Self::Value;

    /// Pauses for a moment, or until hardware notices that the word no longer holds `seen`.
    #[inline]
    fn pause_while(&self, seen: Self::Value) {
        let _ = seen;
        core::hint::spin_loop();
    }
}

/// An atomic that can be built in a constant: hardware's can, a model checker's cannot.
///
/// Zero is the only constant needed: zeroed memory is an unlocked lock.
pub trait ConstAtomic: Atomic {
    /// The atomic holding zero.
    const ZERO: Self;
}

/// The atomics that a platform has, by width.
pub trait Atomics: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// One byte.
    type AtomicU8: Atomic<Value = u8>;
    /// Two bytes.
    type AtomicU16: Atomic<Value = u16>;
    /// Four bytes; the width that can be slept on.
    type AtomicU32: Atomic<Value = u32>;
    /// Eight bytes.
    type AtomicU64: Atomic<Value = u64>;
}

/// [`Atomics`] that are all [`ConstAtomic`], so that locks can live in a `static`.
pub trait ConstAtomics:
    Atomics<
        AtomicU8: ConstAtomic,
        AtomicU16: ConstAtomic,
        AtomicU32: ConstAtomic,
        AtomicU64: ConstAtomic,
    >
{
}

impl<P> ConstAtomics for P where
    P: Atomics<
            AtomicU8: ConstAtomic,
            AtomicU16: ConstAtomic,
            AtomicU32: ConstAtomic,
            AtomicU64: ConstAtomic,
        >
{
}
