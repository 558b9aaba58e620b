//! The things that are checked: they have names, and some are broken on purpose.

use crate::report::Property;

/// The name that stands for all specimens that are broken on purpose.
pub const BUSTED: &str = "busted";

/// A kind of things that are checked.
pub trait Named: Copy + 'static {
    /// What a thing of this kind is called.
    const KIND: &'static str;
    /// All things of this kind. The list is a `static`, so that a crate that names it does not
    /// compile them again.
    fn all() -> &'static [Self];

    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// What its defect violates, if it is broken on purpose.
    fn defect(&self) -> Option<Property>;
}

/// The specimens that `name` stands for: one, or all that are broken on purpose. Empty if there is
/// none.
pub fn by_name<S: Named>(name: &str) -> Vec<S> {
    let wanted = |one: &&S| one.name() == name || name == BUSTED && one.defect().is_some();
    S::all().iter().filter(wanted).copied().collect()
}

/// Implements [`Named`] for a type with the fields `name` and `defect`.
macro_rules! named {
    ($specimen:ty, $kind:literal, $all:expr) => {
        impl $crate::specimen::Named for $specimen {
            const KIND: &'static str = $kind;
            fn all() -> &'static [Self] {
                $all
            }

            fn name(&self) -> &'static str {
                self.name
            }

            fn defect(&self) -> Option<Property> {
                self.defect
            }
        }
    };
}
pub(crate) use named;
