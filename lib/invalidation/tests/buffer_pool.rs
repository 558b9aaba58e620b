//! The example `buffer_pool`, quickly: reads are right with each protection, and wrong without.
#![cfg(not(any(loom, miri)))]

#[path = "../examples/buffer_pool.rs"]
#[allow(dead_code)]
mod buffer_pool;

use buffer_pool::{Epochs, Nothing, Pool, Protection, file};
use kinlock_invalidation::{Backend, Domain};
use std::time::Duration;

/// Few pages, so that evicted ones are soon read again.
const SHARDS: usize = 8;
const MEMORY: usize = 64;

fn run<P: Protection>(protection: P, shards: usize) -> (u64, u64) {
    let pool = Pool::new(protection, &file(shards), shards, MEMORY);
    pool.run(8, Duration::from_millis(300))
}

#[test]
fn reads_are_right() {
    for backend in Backend::ALL {
        let (reads, wrong) = run(Domain::with_backend(backend), SHARDS);
        assert!(reads > 0 && wrong == 0, "{backend}: {wrong} of {reads}");
    }
    for (reads, wrong) in [
        run(Nothing::<true>, SHARDS + 1),
        run(Epochs::default(), SHARDS + 1),
    ] {
        assert!(reads > 0 && wrong == 0, "{wrong} of {reads}");
    }
}

#[test]
fn a_missing_wait_is_seen() {
    let caught = (0..60).any(|_| run(Nothing::<false>, SHARDS + 2).1 > 0);
    assert!(caught, "no checksum was wrong without waiting");
}
