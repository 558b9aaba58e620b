//! Repeatable random numbers, for everything outside the lock library: simulation, benchmarks,
//! torture.
//!
//! They are not fit for secrets.

/// A small, fast generator (xorshift64*). The same seed gives the same numbers on every host.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose state is `seed`. Similar seeds give similar first numbers; use
    /// [`stream`](Self::stream) for them.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The generator of one `stream` of a `seed`. Different streams and different seeds are
    /// unrelated.
    pub const fn stream(seed: u64, stream: u64) -> Self {
        Random(mix(seed ^ mix(stream)))
    }

    /// The next number, of 48 bits.
    // Not `Iterator::next`: the numbers never end, and callers want a number, not an `Option`.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.step().wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `n`, which is at most 2^32 if all numbers are to be equally likely.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number from 0 up to but not including 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 48) as f64
    }

    /// A number of the exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        exponential(|| self.unit())
    }

    /// Makes all later numbers depend on `x`, too.
    #[inline]
    pub fn stir(&mut self, x: u64) {
        self.0 ^= x;
    }

    /// An unrelated generator, for another purpose.
    pub fn branch(&mut self) -> Self {
        Random::stream(self.next(), 0)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// The state after one step of xorshift64, without the multiplication that scrambles it.
    #[inline]
    pub fn step(&mut self) -> u64 {
        // A state of 0 would stay 0.
        self.0 |= (self.0 == 0) as u64;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A number of the exponential distribution with mean 1, from some numbers that `unit` draws from 0
/// up to but not including 1.
///
/// This is von Neumann's method. It compares numbers and takes no logarithm, since the last bit of
/// a logarithm depends on the processor, and simulations must give the same results everywhere.
pub fn exponential(mut unit: impl FnMut() -> f64) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = unit();
        let mut last = first;
        // A run of falling numbers that begins with x has n or more with probability
        // x^(n-1) / (n-1)!. So its length is odd with probability e^-x.
        let mut is_odd = true;
        loop {
            let next = unit();
            if next >= last {
                break;
            }
            last = next;
            is_odd = !is_odd;
        }
        if is_odd {
            return whole + first;
        }
        whole += 1.0;
    }
}

/// Scrambles a number: each bit of the result depends on all bits of `x` (the finaliser of
/// SplitMix64).
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_range_and_evenly_spread() {
        for mut random in [Random::new(0), Random::new(1), Random::stream(1, 0)] {
            let mut seen = [0u32; 10];
            for _ in 0..10_000 {
                seen[random.below(10) as usize] += 1;
                assert!((0.0..1.0).contains(&random.unit()));
            }
            assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        }
    }

    #[test]
    fn exponential_numbers_have_their_mean_and_their_tail() {
        let mut random = Random::stream(1, 1);
        let all: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        for above in [0.5, 1.0, 2.5, 5.0_f64] {
            let share = all.iter().filter(|&&x| x > above).count() as f64 / all.len() as f64;
            let expected = (-above).exp();
            assert!((share / expected - 1.0).abs() < 0.15, "{above}: {share}");
        }
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, stream| Random::stream(seed, stream).next();
        assert_eq!(first(7, 3), first(7, 3));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(3).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..50));
    }
}
