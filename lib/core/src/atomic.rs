//! The atomics of a platform, as traits. Algorithms use them in place of `core::sync::atomic`.

pub use core::sync::atomic::Ordering;

/// An atomic integer of one platform.
///
/// The orderings have the meaning of `core::sync::atomic`. A simulated platform may be stronger
/// (sequentially consistent), never weaker.
pub trait Atomic: Sized + Send + Sync + core::fmt::Debug + 'static {
    /// The plain integer inside.
    type Value: Copy + Eq + core::fmt::Debug;

    /// An atomic that holds zero, as a constant: an unlocked lock consists of these. The model
    /// checker has no such constant, because it registers each atomic at run time.
    #[cfg(not(loom))]
    const ZERO: Self;

    /// A new atomic.
    fn new(value: Self::Value) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> Self::Value;
    /// Like [`load`](Self::load), for a value on which only a well-predicted branch depends.
    ///
    /// A processor speculates past such a load. A simulator, which otherwise waits for each load,
    /// may do so, too.
    #[inline]
    fn glance(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// Like [`load`](Self::load), for a step of a walk: only well-predicted branches and the
    /// addresses of later steps depend on the value.
    ///
    /// A processor executes what follows before the value has come. Only later stores wait, since
    /// they become visible after earlier loads are done. A simulator may do so, too.
    #[inline]
    fn load_ahead(&self, order: Ordering) -> Self::Value {
        self.load(order)
    }
    /// Writes the value. On hardware this is a plain store, not a read-modify-write.
    fn store(&self, value: Self::Value, order: Ordering);
    /// Like [`store`](Self::store), for a store that may race with another thread's
    /// read-modify-write.
    ///
    /// Hardware uses a plain store here, too. A model checker may need another operation: unlike
    /// the language, loom lets such a store fall into the middle of a read-modify-write.
    #[inline]
    fn overwrite(&self, value: Self::Value, order: Ordering) {
        self.store(value, order);
    }
    /// Writes the value and returns the previous value. Never a compare-and-swap loop, which may
    /// starve.
    fn swap(&self, value: Self::Value, order: Ordering) -> Self::Value;
    /// Replaces `current` with `new`. Returns the value found, as `Err` if it was not `current`.
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
    /// Replaces the value with the result of `f`, unless that is `None`. Returns the previous
    /// value, as `Err` if nothing was changed.
    ///
    /// A compare-and-swap loop: it ends as soon as no other thread changes the value during one
    /// iteration.
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

/// Defines a constructor as a `const fn`, so that locks can live in a `static`. Under the model
/// checker it is a plain function.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $($rest)*
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $($rest)*
    };
}

/// An atomic that holds zero, or an array of such atomics, in a [`const_fn`].
#[cfg(not(loom))]
macro_rules! zero {
    () => {
        $crate::atomic::Atomic::ZERO
    };
    ($count:expr) => {
        [const { $crate::atomic::Atomic::ZERO }; $count]
    };
}
#[cfg(loom)]
macro_rules! zero {
    () => {
        $crate::atomic::Atomic::new(0)
    };
    ($count:expr) => {
        core::array::from_fn::<_, $count, _>(|_| $crate::atomic::Atomic::new(0))
    };
}

pub(crate) use {const_fn, zero};
