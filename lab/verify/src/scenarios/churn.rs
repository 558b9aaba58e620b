//! Threads that come and go all the time, and lock until their very last moment.
//!
//! # Invariants
//!
//! 1. The key's value is null or comes from `Arc::into_raw` of an `Arc<Nursery>`; the destructor
//!    takes it back once.
//! 2. The key is written to a live local, is never deleted, and its destructor is a function of
//!    this program.
//! 3. A `Nursery`'s lock is released only by the thread that has just taken it.

use super::{Context, Stage, blocking};
use crate::crew::{self, Worker};
use crate::report::Findings;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Threads that each member of the crew keeps alive at a time.
const CHILDREN: usize = 3;

/// The stage, and counts of threads besides the crew.
struct Nursery {
    stage: Stage,
    threads: AtomicU32,
    sections: AtomicU64,
    in_destructors: AtomicU64,
}

pub(super) fn run(context: &Context) -> Findings {
    let nursery = Arc::new(Nursery {
        stage: Stage::new(context.specimen.new),
        threads: AtomicU32::new(0),
        sections: AtomicU64::new(0),
        in_destructors: AtomicU64::new(0),
    });
    let parents = Arc::clone(&nursery);
    let body = move |worker: &mut Worker| {
        while worker.running() {
            let children: Vec<_> = (0..CHILDREN).map(|_| spawn_child(&parents)).collect();
            parents.stage.visit_by(worker, blocking);
            for child in children {
                child.join().expect("no child panics");
            }
        }
    };
    let findings = crew::run(&context.orders, body, |_| nursery.threads.load(Relaxed) > 0);
    let threads = nursery.threads.load(Relaxed);
    let in_destructors = nursery.in_destructors.load(Relaxed);
    let sections = findings.total() + nursery.sections.load(Relaxed);
    let detail =
        format!("{threads} threads came and went, {in_destructors} sections in destructors");
    let reached = in_destructors >= 3 * u64::from(threads) && threads > 0;
    findings
        .after(sections, &nursery.stage.state)
        .with_reach(reached, detail)
}

fn spawn_child(nursery: &Arc<Nursery>) -> std::thread::JoinHandle<()> {
    let nursery = Arc::clone(nursery);
    let child = std::thread::Builder::new().stack_size(64 * 1024);
    child
        .spawn(move || nursery.live())
        .expect("a thread can be started")
}

impl Nursery {
    /// The short life of a thread. Three destructors run after it, before and after the lock's own
    /// destructor: one is set before the first wait, one after it, and the destructor of a pthread
    /// key runs last of all.
    fn live(self: Arc<Self>) {
        self.threads.fetch_add(1, Relaxed);
        BEFORE.with(|last_words| last_words.0.replace(Some(Arc::clone(&self))));
        self.visit();
        AFTER.with(|last_words| last_words.0.replace(Some(Arc::clone(&self))));
        set_key(Arc::clone(&self));
        self.visit();
    }

    fn visit(&self) {
        self.stage.lock().lock();
        let me = 1_000_000 + self.sections.fetch_add(1, Relaxed) as u32;
        self.stage.state.section(me, std::thread::yield_now);
        // SAFETY: invariant 3.
        unsafe { self.stage.lock().unlock() };
    }

    fn visit_in_destructor(&self) {
        self.visit();
        self.in_destructors.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static BEFORE: LastWords = const { LastWords(RefCell::new(None)) };
    static AFTER: LastWords = const { LastWords(RefCell::new(None)) };
}

/// Visits the stage when the thread ends.
struct LastWords(RefCell<Option<Arc<Nursery>>>);

impl Drop for LastWords {
    fn drop(&mut self) {
        if let Some(nursery) = self.0.take() {
            nursery.visit_in_destructor();
        }
    }
}

fn set_key(nursery: Arc<Nursery>) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: invariant 2.
        let failed = unsafe { libc::pthread_key_create(&mut key, Some(visit_last)) };
        assert_eq!(failed, 0, "a pthread key is free");
        key
    });
    // SAFETY: invariants 1 and 2.
    let failed = unsafe { libc::pthread_setspecific(key, Arc::into_raw(nursery).cast()) };
    assert_eq!(failed, 0, "a pthread key can be set");
}

unsafe extern "C" fn visit_last(nursery: *mut c_void) {
    // SAFETY: invariant 1; the C library calls this once, with a value that is not null.
    let nursery = unsafe { Arc::from_raw(nursery.cast_const().cast::<Nursery>()) };
    nursery.visit_in_destructor();
}
