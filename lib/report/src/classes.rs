//! The classes of times in histograms and recorded distributions, and how often waits are measured.

use crate::{BUCKETS, CLASSES};

/// Histograms: the second class begins above 2 to this power, in ns. All shorter times are in the
/// first.
const SHORTEST: u32 = 5;

/// The weight of a measured wait of a thread for a lock, after `waits` earlier ones; one wait in
/// that number is measured.
///
/// The first 64 waits are all measured, then one in 2, in 4, and so on, up to one in 64 from 1,056
/// waits on. So at first the number of measured waits grows about as the logarithm of all waits.
pub fn waits_per_sample(waits: u64) -> u32 {
    (waits / 32).next_power_of_two().min(64) as u32
}

/// The class of a time in a histogram: two per power of two, from 32 ns on.
pub fn bucket(ns: u64) -> usize {
    let ns = ns.max(1 << SHORTEST);
    let power = ns.ilog2();
    let half = (ns >> (power - 1)) & 1;
    let class = 2 * (power - SHORTEST) as usize + half as usize;
    class.min(BUCKETS - 1)
}

/// The end of a histogram's class in ns: all its times are shorter.
pub fn end_of(bucket: usize) -> u64 {
    let power = bucket / 2 + SHORTEST as usize;
    match bucket % 2 {
        0 => 3 << (power - 1),
        _ => 1 << (power + 1),
    }
}

/// How many classes a recorded distribution has per power of two.
const PARTS: u64 = 8;

/// The class of a time in a recorded distribution: eight per power of two. Below 16 ns each
/// nanosecond is a class of its own. The last class has all times from about 16 s on.
///
/// ```
/// use kinlock_report::{class, class_range};
/// assert_eq!(class(1000), 63);
/// assert_eq!(class_range(63), (960, 1024));
/// ```
pub fn class(ns: u64) -> usize {
    if ns < 2 * PARTS {
        return ns as usize;
    }
    let power = u64::from(ns.ilog2() - PARTS.ilog2());
    let class = PARTS * power + (ns >> power);
    (class as usize).min(CLASSES - 1)
}

/// The first time of a recorded distribution's class, in ns, and the one after its last.
///
/// # Panics
///
/// If there is no such class.
pub fn class_range(class: usize) -> (u64, u64) {
    assert!(class < CLASSES);
    let class = class as u64;
    if class < 2 * PARTS {
        return (class, class + 1);
    }
    let power = class / PARTS - 1;
    let part = class - PARTS * power;
    (part << power, (part + 1) << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_half_powers_of_two() {
        assert_eq!([0, 31, 47, 48, 63, 64].map(bucket), [0, 0, 0, 1, 1, 2]);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for class in 0..BUCKETS - 1 {
            assert_eq!(bucket(end_of(class) - 1), class);
            assert_eq!(bucket(end_of(class)), class + 1);
        }
    }

    #[test]
    fn recorded_classes_are_an_eighth_of_a_power_of_two() {
        for class_before in 0..CLASSES - 1 {
            let (from, to) = class_range(class_before);
            assert_eq!(
                [from, to - 1, to].map(class),
                [class_before, class_before, class_before + 1]
            );
            assert!(to - from <= (from / 8).max(1));
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
        assert!(class_range(CLASSES - 1).0 > 10_000_000_000);
    }

    #[test]
    fn all_waits_are_measured_at_first_then_ever_fewer() {
        assert_eq!([0, 63, 96, 128].map(waits_per_sample), [1, 1, 4, 4]);
        assert_eq!([1 << 20, u64::MAX].map(waits_per_sample), [64, 64]);
    }
}
