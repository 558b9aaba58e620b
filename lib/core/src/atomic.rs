//! The atomics of a platform, as traits. Algorithms use them in place of `core::sync::atomic`.

pub use core::sync::atomic::Ordering;

/// An atomic integer of one platform.
///
/// The orderings have the meaning of `core::sync::atomic`. A simulated platform may be stronger
/// (sequentially consistent), never weaker.
pub trait Atomic: Sized + Send + Sync + core::fmt::Debug + 'static {
    /// The plain integer inside.
    type Value: Copy + Eq + core::fmt::Debug;

    /// A new atomic. Not `const`, because a model checker registers each one; see [`ConstAtomic`].
    fn new(value: Self::Value) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// As [`load`](Self::load), for a value on which only a well-predicted branch depends.
    ///
    /// A processor speculates past such a load. A simulator, which waits for each load, may do so
    /// too.
    #[inline]
    fn glance(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// As [`load`](Self::load), for a step of a walk: nothing depends on the value but branches
    /// that are predicted well and the addresses of further steps.
    ///
    /// A processor goes on with what follows before the value has come. Only later stores wait, as
    /// they become visible after earlier loads are done. A simulator may do so too.
    #[inline]
    fn load_ahead(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// Writes the value. On hardware this is a plain store, not a read-modify-write.
    fn store(&self, value: Self::Value, order: Ordering);
    /// As [`store`](Self::store), where it may race with another thread's read-modify-write.
    ///
    /// Hardware uses a plain store here too. A model checker may need another operation: loom does
    /// not keep such a store out of the middle of a read-modify-write, as the language does.
    #[inline]
    fn overwrite(&self, value: Self::Value, order: Ordering) {
        self.store(value, order);
    }
    /// Writes the value and returns the one it replaced. Never a compare-and-swap loop, which may
    /// starve.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Replaces `current` by `new`. Returns the value found, as `Err` if it was not `current`.
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
    /// Replaces the value by what `f` makes of it, unless that is `None`. The result is the value
    /// before, as `Err` if nothing was changed.
    ///
    /// A compare-and-swap loop: it ends as soon as no other thread changes the value within a turn.
    fn fetch_update(
        &self,
        order: Ordering,
        f: impl Fn(Self::Value) -> Option<Self::Value>,
    ) -> Result<Self::Value, Self::Value> {
        let mut seen = self.load(Ordering::Relaxed);
        while let Some(new) = f(seen) {
            match self.compare_exchange(seen, new, order, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => seen = now,
            }
        }
        Err(seen)
    }

    /// Pauses for a moment, or until the hardware notices that the word no longer holds `seen`.
    #[inline]
    fn pause_while(&self, seen: Self::Value) {
        let _ = seen;
        core::hint::spin_loop();
    }
}

/// An atomic that a constant can hold. The atomics of hardware are such, a model checker's are not.
///
/// Zero is the only constant needed, because zeroed memory is an unlocked lock.
pub trait ConstAtomic: Atomic {
    /// The atomic holding zero.
    const ZERO: Self;
}

/// The atomics of a platform, by width.
pub trait Atomics: Copy + core::fmt::Debug + Send + Sync + 'static {
    /// One byte.
    type AtomicU8: Atomic<Value = u8>;
    /// Two bytes.
    type AtomicU16: Atomic<Value = u16>;
    /// Four bytes: the width that threads can sleep on.
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
