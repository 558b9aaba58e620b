//! All knobs in one word.

use crate::tuning::{LocalLimit, Numa, Quantum, Tuning};

/// The knobs packed into 32 bits.
///
/// | bits | hold |
/// | --- | --- |
/// | 0..2 | [`Numa`]: 0 auto, 1 on, 2 off |
/// | 3..10 | the number in [`LocalLimit`] |
/// | 10 | the limit is a count |
/// | 12 | reorder, if resolved |
/// | 13 | stealing |
/// | 11 | only mutexes reorder |
/// | 14 | a function has set the quantum |
/// | 15 | ask for slice extensions |
/// | 16, 18, 20, 19 | a function has set numa, limit, stealing, slice extensions |
/// | 21..31 | the quantum in microseconds |
/// | 31 | resolved: the environment has been read and `auto` decided |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

impl Word {
    const NUMA: u32 = 3;
    const LIMIT_SHIFT: u32 = 3;
    const LIMIT: u32 = 0x7F << Self::LIMIT_SHIFT;
    const LIMIT_IS_COUNT: u32 = 1 << 10;
    pub(super) const MUTEXES_ONLY: u32 = 1 << 11;
    const REORDER: u32 = 1 << 12;
    const STEALING: u32 = 1 << 13;
    const QUANTUM_SHIFT: u32 = 21;
    const QUANTUM: u32 = 0x3FF << Self::QUANTUM_SHIFT;
    pub(super) const QUANTUM_SET: u32 = 1 << 14;
    const SLICE_EXTENSION: u32 = 1 << 15;
    pub(super) const NUMA_SET: u32 = 1 << 16;
    pub(super) const LIMIT_SET: u32 = 1 << 18;
    pub(super) const SLICE_EXTENSION_SET: u32 = 1 << 19;
    pub(super) const STEALING_SET: u32 = 1 << 20;
    pub(super) const RESOLVED: u32 = 1 << 31;

    pub(super) const fn new(tuning: Tuning) -> Self {
        Word(0)
            .with_limit(tuning.limit)
            .with_reorder(tuning.reorder)
            .with_stealing(tuning.stealing)
            .with_quantum(tuning.quantum)
            .with_slice_extension(tuning.slice_extension)
    }

    #[inline]
    pub(super) const fn tuning(self) -> Tuning {
        let number = ((self.0 & Self::LIMIT) >> Self::LIMIT_SHIFT) as u8;
        Tuning {
            reorder: self.has(Self::REORDER),
            limit: if self.has(Self::LIMIT_IS_COUNT) {
                LocalLimit::Count { log2: number }
            } else {
                LocalLimit::Time { ms: number }
            },
            stealing: self.has(Self::STEALING),
            quantum: Quantum::packed(((self.0 & Self::QUANTUM) >> Self::QUANTUM_SHIFT) as u16),
            slice_extension: self.has(Self::SLICE_EXTENSION),
        }
    }

    #[inline]
    pub(super) const fn tuning_of_spinlock(self) -> Tuning {
        let mut tuning = self.tuning();
        tuning.reorder &= !self.has(Self::MUTEXES_ONLY);
        tuning
    }

    pub(super) const fn numa(self) -> Numa {
        match self.0 & Self::NUMA {
            1 => Numa::On,
            2 => Numa::Off,
            _ => Numa::Auto,
        }
    }

    pub(super) const fn with_numa(self, numa: Numa) -> Self {
        let bits = match numa {
            Numa::Auto => 0,
            Numa::On => 1,
            Numa::Off => 2,
        };
        self.without(Self::NUMA).with(bits)
    }

    pub(super) const fn with_limit(self, limit: LocalLimit) -> Self {
        let (number, is_count) = match limit {
            LocalLimit::Time { ms } => (ms, false),
            LocalLimit::Count { log2 } => (log2, true),
        };
        let bits = (number as u32) << Self::LIMIT_SHIFT & Self::LIMIT;
        self.without(Self::LIMIT)
            .with(bits)
            .switch(Self::LIMIT_IS_COUNT, is_count)
    }

    pub(super) const fn with_reorder(self, on: bool) -> Self {
        self.switch(Self::REORDER, on)
    }

    pub(super) const fn with_stealing(self, on: bool) -> Self {
        self.switch(Self::STEALING, on)
    }

    pub(super) const fn with_slice_extension(self, on: bool) -> Self {
        self.switch(Self::SLICE_EXTENSION, on)
    }

    pub(super) const fn with_quantum(self, quantum: Quantum) -> Self {
        let bits = (quantum.micros() as u32) << Self::QUANTUM_SHIFT & Self::QUANTUM;
        self.without(Self::QUANTUM).with(bits)
    }

    pub(super) const fn switch(self, bit: u32, on: bool) -> Self {
        if on {
            self.with(bit)
        } else {
            self.without(bit)
        }
    }

    #[inline]
    pub(super) const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    pub(super) const fn with(self, bits: u32) -> Self {
        Word(self.0 | bits)
    }

    pub(super) const fn without(self, bits: u32) -> Self {
        Word(self.0 & !bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_limits() -> impl Iterator<Item = LocalLimit> {
        let times = (1..=100).map(|ms| LocalLimit::time(ms).unwrap());
        times.chain((0..=31).map(|log2| LocalLimit::count(log2).unwrap()))
    }

    /// A field survives whatever the other fields hold.
    #[test]
    fn every_tuning_survives_packing() {
        for limit in all_limits() {
            for bits in 0..8 {
                let tuning = Tuning {
                    reorder: bits & 1 != 0,
                    limit,
                    stealing: bits & 2 != 0,
                    quantum: Quantum::from_micros(bits as u16 * 142).unwrap(),
                    slice_extension: bits & 4 != 0,
                };
                assert_eq!(Word::new(tuning).tuning(), tuning);
                for numa in [Numa::On, Numa::Off, Numa::Auto] {
                    let word = Word(u32::MAX)
                        .with_limit(limit)
                        .with_numa(numa)
                        .with_reorder(tuning.reorder)
                        .with_quantum(tuning.quantum)
                        .with_stealing(tuning.stealing)
                        .with_slice_extension(tuning.slice_extension);
                    assert_eq!((word.numa(), word.tuning()), (numa, tuning));
                    assert!(word.has(Word::RESOLVED) && word.has(Word::STEALING_SET));
                }
            }
        }
    }
}
