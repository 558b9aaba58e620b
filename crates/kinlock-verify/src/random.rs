//! Repeatable randomness.

/// A small, fast generator (xorshift64*): good enough to stir threads, not for anything that needs secrecy.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of one `stream` of a `seed`: different streams are unrelated.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = (seed ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Random((mixed ^ (mixed >> 29) ^ stream) | 1);
        // Similar seeds give similar first numbers.
        for _ in 0..8 {
            random.next();
        }
        random
    }

    /// An unrelated generator, for another purpose of the same thread.
    pub fn branch(&mut self) -> Self {
        Random::new(self.next(), 0)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    /// True once in `n` times.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
