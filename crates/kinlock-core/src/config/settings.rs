//! The knobs that the environment sets.

use super::Word;
#[cfg(feature = "std")]
use crate::environment::{Variable, read_from_str, read_on_off};
use crate::tuning::{LocalLimit, Numa, Quantum, Scan};

/// The knobs that the environment sets.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    numa: Option<Numa>,
    scan: Option<Scan>,
    limit: Option<LocalLimit>,
    stealing: Option<bool>,
    quantum: Option<Quantum>,
}

impl Settings {
    /// Reads the variables. A bad value is reported once and counts as unset.
    #[cfg(feature = "std")]
    pub(super) fn from_environment() -> Self {
        Settings {
            numa: read_from_str(Variable::Numa),
            scan: read_from_str(Variable::Scan),
            limit: read_from_str(Variable::LocalLimit),
            stealing: read_on_off(Variable::Stealing),
            quantum: read_from_str(Variable::Quantum),
        }
    }

    /// Nothing: there is no environment.
    #[cfg(not(feature = "std"))]
    pub(super) fn from_environment() -> Self {
        Settings::default()
    }

    /// Sets the knobs that no function has set, and decides what `auto` means.
    pub(super) fn complete(self, mut word: Word) -> Word {
        if let Some(numa) = self.numa.filter(|_| !word.has(Word::NUMA_SET)) {
            word = word.with_numa(numa);
        }
        if let Some(scan) = self.scan.filter(|_| !word.has(Word::SCAN_SET)) {
            word = word.with_scan(scan);
        }
        if let Some(limit) = self.limit.filter(|_| !word.has(Word::LIMIT_SET)) {
            word = word.with_limit(limit);
        }
        if let Some(on) = self.stealing.filter(|_| !word.has(Word::STEALING_SET)) {
            word = word.with_stealing(on);
        }
        if let Some(quantum) = self.quantum.filter(|_| !word.has(Word::QUANTUM_SET)) {
            word = word.with_quantum(quantum);
        }
        match word.numa() {
            Numa::On => word.with_reorder(true).with(Word::RESOLVED),
            Numa::Off => word.with_reorder(false).with(Word::RESOLVED),
            // `None` while another thread determines the domains: the next use asks again.
            Numa::Auto => match super::automatic_decision() {
                Some(choice) => word.with_reorder(choice.reorder).with(Word::RESOLVED),
                None => word.with_reorder(false),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;

    #[test]
    fn functions_win_over_the_environment() {
        let environment = Settings {
            numa: Some(Numa::On),
            scan: Some(Scan::Incremental),
            limit: LocalLimit::count(3).ok(),
            stealing: Some(false),
            quantum: Some(Quantum::FAIR),
        };
        let untouched = Word::new(Tuning::DEFAULT);
        let expected = Tuning {
            reorder: true,
            scan: Scan::Incremental,
            limit: LocalLimit::Count { log2: 3 },
            stealing: false,
            quantum: Quantum::FAIR,
        };
        assert_eq!(environment.complete(untouched).tuning(), expected);

        let set = untouched
            .with_numa(Numa::Off)
            .with(Word::NUMA_SET)
            .with(Word::SCAN_SET)
            .with(Word::LIMIT_SET)
            .with(Word::QUANTUM_SET)
            .with(Word::STEALING_SET);
        let completed = environment.complete(set);
        assert_eq!(completed.tuning(), Tuning::DEFAULT);
        assert!(completed.has(Word::RESOLVED));
    }
}
