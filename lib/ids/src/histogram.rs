//! A histogram that every CPU adds to on its own.

use super::counter::CounterArray;
use super::domain::Domain;
use super::error::BuildError;

/// Counts recorded values by range, and adds them up. A [`CounterArray`] with two additions for
/// each value, and the same [guarantees](super::Counter#guarantees). Takes eight bytes of each ID
/// for each range and for the sum. Values have the unit that the caller gives them.
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
    /// A histogram with a range for each bound: the values up to and including the bound, and above
    /// the next lower one. One more range has the values above the highest bound. The bounds may
    /// come in any order; equal ones count once.
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

    /// Counts a value. O(log of the number of bounds). A reader may see the value in the counts and
    /// not yet in the sum, or the other way round.
    #[inline]
    pub fn record(&self, value: u64) {
        let range = self.bounds.partition_point(|&bound| bound < value);
        self.counters.add(range, 1);
        self.counters.add(self.bounds.len() + 1, value);
    }

    /// How many values lie in each range; the last range has no upper bound.
    /// O([`Domain::max_ids`] * ranges).
    pub fn counts(&self) -> Vec<u64> {
        (0..=self.bounds.len())
            .map(|range| self.counters.sum(range))
            .collect()
    }

    /// The sum of the values, wrapping. O([`Domain::max_ids`]).
    pub fn sum(&self) -> u64 {
        self.counters.sum(self.bounds.len() + 1)
    }

    /// The upper bounds of all ranges but the last, in ascending order.
    pub fn bounds(&self) -> &[u64] {
        &self.bounds
    }
}
