//! The kinds of subjects of the suite `ids`.

use kinlock_ids::{Backend, Domain};

use crate::harness::slice::Slice;

/// The C library's allocator, the baseline of the workloads with objects.
pub const MALLOC: &str = "malloc";

pub struct Subject {
    pub name: String,
    pub kind: Kind,
}

pub enum Kind {
    /// An operation that is repeated. Each call makes a new object and the work on it.
    Repeated(Box<dyn Fn() -> Work>),
    /// For `intermittent`: areas are chosen by the IDs of this domain, or by CPU number.
    Areas(Option<Domain>),
}

/// What each member of a team does in a slice, called with its index.
pub type Work = Box<dyn Fn(&Slice, usize) + Sync>;

impl Subject {
    pub fn repeated(name: &str, make: impl Fn() -> Work + 'static) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::Repeated(Box::new(make)),
        }
    }
}

pub fn domain(backend: Backend) -> Domain {
    let built = Domain::builder().backend(backend).build();
    built.expect("the backend was found to be available, and there is address space")
}
