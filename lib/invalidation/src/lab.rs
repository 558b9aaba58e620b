//! The laboratory's door: domains whose generations run out soon. Not part of the public API.

/// A domain in which this generation and all older ones have passed, as if it had been used for
/// long.
pub fn domain_from(backend: crate::Backend, generation: u64) -> crate::Domain {
    crate::Domain::from(backend, generation)
}
