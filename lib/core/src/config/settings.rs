//! The knobs that the environment sets.

use super::{Domains, Word};
use crate::tuning::{LocalLimit, Numa, Quantum};

/// The knobs that the environment sets; `None`: the environment does not set this knob.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Whether queues are reordered by locality domain.
    pub numa: Option<Numa>,
    /// How long hand-offs may stay local.
    pub limit: Option<LocalLimit>,
    /// Whether a running thread may take a free lock ahead of a front waiter that does not run.
    pub stealing: Option<bool>,
    /// How long running threads may take a mutex again while a waiter is at its front.
    pub quantum: Option<Quantum>,
    /// Whether a thread that has waited for a lock asks the scheduler for more time to hold it.
    pub slice_extension: Option<bool>,
}

impl Settings {
    /// Sets the knobs that no function has set. `domains` says what `auto` means, if that is known.
    pub(super) fn complete(self, mut word: Word, domains: fn() -> Option<Domains>) -> Word {
        if let Some(numa) = self.numa.filter(|_| !word.has(Word::NUMA_SET)) {
            word = word.with_numa(numa);
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
        let asked = self.slice_extension;
        if let Some(on) = asked.filter(|_| !word.has(Word::SLICE_EXTENSION_SET)) {
            word = word.with_slice_extension(on);
        }
        let numa = word.numa();
        if numa == Numa::Off {
            return word.with_reorder(false).with(Word::RESOLVED);
        }
        // The domains are not known yet: the next use asks again.
        let Some(domains) = domains() else {
            return word.with_reorder(numa == Numa::On);
        };
        if domains.are_caches && self.limit.is_none() && !word.has(Word::LIMIT_SET) {
            word = word.with_limit(LocalLimit::BETWEEN_CACHES);
        }
        let on = numa == Numa::On;
        word.with_reorder(on || domains.automatic.reorder)
            .switch(Word::MUTEXES_ONLY, !on && domains.mutexes_only)
            .with(Word::RESOLVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::{Decision, Tuning};

    /// If `auto` treats caches as domains, the spinlock keeps the order of arrival, unless
    /// reordering is asked for.
    #[test]
    fn caches_shorten_the_limit_and_concern_mutexes() {
        let domains = || {
            Some(Domains {
                automatic: Decision {
                    reorder: true,
                    reason: "",
                },
                mutexes_only: true,
                are_caches: true,
            })
        };
        let mut settings = Settings::default();
        let automatic = settings.complete(Word::new(Tuning::DEFAULT), domains);
        assert_eq!(automatic.tuning().limit, LocalLimit::BETWEEN_CACHES);
        assert!(automatic.tuning().reorder && !automatic.tuning_of_spinlock().reorder);
        settings.numa = Some(Numa::On);
        settings.limit = Some(LocalLimit::default());
        let asked = settings.complete(automatic, domains);
        assert_eq!(asked.tuning_of_spinlock(), asked.tuning());
        assert_eq!(asked.tuning().limit, LocalLimit::default());
    }
}
