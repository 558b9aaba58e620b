//! The first violation in a schedule. Later ones often follow from it, so they are not kept.

use crate::report::Property;
use kinlock_sim::schedule::say;
use std::cell::OnceCell;

/// A property, and how it is violated.
pub type Failure = (Property, String);

/// The first violation, if there is one.
#[derive(Default)]
pub(super) struct Violation(OnceCell<Failure>);

impl Violation {
    /// Notes a violation unless the property `holds`.
    pub(super) fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.0.set((property, what())).is_ok() {
            say("is where a check fails");
        }
    }

    /// As [`demand`](Self::demand), but after the end of the schedule, when its trace is complete.
    pub(super) fn demand_at_end(
        &self,
        property: Property,
        holds: bool,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            let _ = self.0.set((property, what()));
        }
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn get(&self) -> Option<Failure> {
        self.0.get().cloned()
    }
}
