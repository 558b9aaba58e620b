//! Something to be measured under concurrency IDs.

use std::sync::Arc;

use kinlock_ids::{Backend, Domain};

use crate::harness::slice::Slice;

/// The name of the C library's allocator, which is the baseline of objects.
pub const MALLOC: &str = "malloc";

/// Something to be measured.
pub struct Subject {
    pub name: String,
    /// The domain, for the workload `intermittent`; none: by CPU number.
    pub domain: Option<Domain>,
    /// Makes a fresh one.
    pub make: Box<dyn Fn() -> Arc<dyn Run>>,
}

/// Does an operation until a slice is over.
pub trait Run: Send + Sync {
    /// Keeps count of the operations of a member.
    fn run(&self, slice: &Slice, member: usize);
}

pub fn domain(backend: Backend) -> Domain {
    let built = Domain::builder().backend(backend).build();
    built.expect("the backend was found to be available, and there is address space")
}
