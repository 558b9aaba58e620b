//! All domains of the process, for ending threads and forked children.

use super::backend::Backend;
use super::inner::Inner;
use kinlock::Mutex;
use std::sync::Weak;

pub(super) static DOMAINS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A section that is open in some domain.
pub(super) struct Open {
    pub(super) generation: u64,
    pub(super) backend: Backend,
}

/// Adds a domain. Forgets dropped ones.
pub(super) fn add(domain: Weak<Inner>) {
    let mut domains = DOMAINS.lock();
    domains.retain(|known| known.strong_count() != 0);
    domains.push(domain);
}

/// A section that is open in this place, in any domain.
pub(super) fn open_in(place: u16) -> Option<Open> {
    let domains = DOMAINS.lock();
    let mut alive = domains.iter().filter_map(Weak::upgrade);
    alive.find_map(|domain| {
        (domain.depth(place) != 0).then(|| Open {
            generation: domain.begun_in(place),
            backend: domain.backend(),
        })
    })
}
