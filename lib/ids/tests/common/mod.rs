//! What the tests of several structures share.

use kinlock_ids::{Backend, Domain};

pub const THREADS: usize = 8;

/// A domain of each kind that this machine supports.
pub fn domains() -> Vec<Domain> {
    let restartable = Backend::Restartable.available().ok().map(|()| {
        let builder = Domain::builder().backend(Backend::Restartable);
        builder.build().unwrap()
    });
    restartable.into_iter().chain([leases(64)]).collect()
}

// Not all tests that share this need all of it.
#[allow(dead_code)]
pub fn leases(max_ids: u32) -> Domain {
    Domain::builder().max_ids(max_ids).build().unwrap()
}

pub fn crew(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(me));
        }
    });
}
