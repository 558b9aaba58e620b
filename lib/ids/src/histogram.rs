//! A histogram that every CPU adds to on its own.

use super::counter::CounterArray;
use super::domain::Domain;
use super::error::BuildError;

/// How many recorded values lie in each of some ranges, and their sum. A [`CounterArray`] with two
/// additions for each value.
///
/// ```
/// use kinlock_ids::{Domain, Histogram};
///
/// // Up to 10 microseconds, up to a millisecond, longer.
/// let latencies = Histogram::new(&Domain::auto(), &[10_000, 1_000_000])?;
/// for nanoseconds in [700, 10_000, 2_000_000] {
///     latencies.record(nanoseconds);
/// }
/// assert_eq!(latencies.counts(), [2, 0, 1]);
/// assert_eq!(latencies.sum(), 2_010_700);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Histogram {
    /// Inclusive, ascending.
    bounds: Box<[u64]>,
    /// The counts, and last the sum.
    counters: CounterArray,
}

impl Histogram {
    /// A histogram whose ranges end at these bounds, each of which belongs to its range. One more
    /// range is above the last. The bounds are sorted, and equal ones are one.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space.
    pub fn new(domain: &Domain, bounds: &[u64]) -> Result<Self, BuildError> {
        let mut bounds = bounds.to_vec();
        bounds.sort_unstable();
        bounds.dedup();
        Ok(Histogram {
            counters: CounterArray::new(domain, bounds.len() + 2)?,
            bounds: bounds.into(),
        })
    }

    /// Counts a value. O(log of the number of bounds). The two additions are not one: a reader may
    /// see the count and not yet the sum.
    #[inline]
    pub fn record(&self, value: u64) {
        let range = self.bounds.partition_point(|&bound| bound < value);
        self.counters.add(range, 1);
        self.counters.add(self.bounds.len() + 1, value);
    }

    /// How many values lie in each range; the last one has no end. O([`Domain::max_ids`] * ranges).
    pub fn counts(&self) -> Vec<u64> {
        (0..=self.bounds.len())
            .map(|range| self.counters.sum(range))
            .collect()
    }

    /// The sum of the values, wrapping. O([`Domain::max_ids`]).
    pub fn sum(&self) -> u64 {
        self.counters.sum(self.bounds.len() + 1)
    }

    /// The ends of all ranges but the last.
    pub fn bounds(&self) -> &[u64] {
        &self.bounds
    }
}
