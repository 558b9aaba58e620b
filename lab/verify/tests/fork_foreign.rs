//! Fork in a program whose allocator has a lock and fork handlers, and whose oldest fork handler
//! waits until threads have ended. The library must hold no lock while such code runs.
//!
//! # Invariants
//!
//! 1. Handlers of forks are `extern "C"`, do not unwind, and live as long as the program. A lock
//!    that they take is released on the same thread.
//! 2. The allocator is the system's, under a lock.
#![cfg(not(any(loom, miri)))]

mod support;

use kinlock_ids::{Backend, Counter, Domain, Lease, Pool, Stack};
use kinlock_invalidation::Tag;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Mutex, OnceLock};
use std::thread::{JoinHandle, sleep, yield_now};
use support::{PAUSE, holds_in_a_fork, on_its_own};

/// Makes one of each structure, uses it, and drops it.
fn use_all() -> bool {
    let leases = Domain::builder().backend(Backend::Lease).max_ids(32);
    let domain = leases.build().expect("memory");
    let counter = Counter::new(&domain).expect("memory");
    let lease = domain.enter();
    counter.add(2);
    let stack = Stack::new(&domain).expect("memory");
    stack.push(1);
    let pool = Pool::growing(&domain).expect("memory");
    let objects: Vec<_> = (0..200).filter_map(|n| pool.insert(n).ok()).collect();
    let many = objects.len();
    drop(objects);
    let sections = kinlock_invalidation::Domain::new();
    let tag = Tag::new();
    sections.begin().tag(&tag);
    drop(lease);
    counter.sum() == 2 && stack.pop() == Some(1) && many == 200 && sections.passed(&tag)
}

// ---- an allocator with a lock -----------------------------------------------------------------

struct Lock(UnsafeCell<libc::pthread_mutex_t>);
// SAFETY: it is a mutex.
unsafe impl Sync for Lock {}

/// The lock of the allocator.
static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: it is initialised.
    unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: invariant 1, and `Locking` calls it after `lock`.
    unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
}

thread_local! {
    /// What the thread does first in each of its calls of the allocator, except in calls that come
    /// from this function itself.
    static NOTES: Cell<Option<fn()>> = const { Cell::new(None) };
    /// The thread waits for a fork in its `STOPS_AT`th call of the allocator from now on; 0: in
    /// none.
    static STOPS_AT: Cell<u32> = const { Cell::new(0) };
}
/// Whether a thread waits in its `STOPS_AT`th call.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Whether the fork handler has locked the allocator.
static FORKING: AtomicBool = AtomicBool::new(false);

/// What a thread does at the beginning of each call of the allocator.
fn enter() {
    if let Some(note) = NOTES.replace(None) {
        note();
        NOTES.set(Some(note));
    }
    let left = STOPS_AT.get();
    if left > 0 {
        STOPS_AT.set(left - 1);
        if left == 1 {
            STOPPED.store(true, Relaxed);
            while !FORKING.load(Acquire) {
                yield_now();
            }
        }
    }
    lock();
}

struct Locking;

// SAFETY: invariant 2.
unsafe impl GlobalAlloc for Locking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        enter();
        // SAFETY: by the caller.
        let memory = unsafe { System.alloc(layout) };
        unlock();
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        enter();
        // SAFETY: by the caller.
        unsafe { System.dealloc(memory, layout) };
        unlock();
    }
}

#[global_allocator]
static ALLOCATOR: Locking = Locking;

extern "C" fn lock_before_fork() {
    lock();
    FORKING.store(true, Release);
}

/// While this thread forks, another thread waits for the allocator, in each of its calls in turn.
#[test]
fn an_allocator_is_locked_across_a_fork() {
    on_its_own("an_allocator_is_locked_across_a_fork", || {
        // Registered after the library's handlers, so it is called before them.
        // SAFETY: invariant 1.
        let refused =
            unsafe { libc::pthread_atfork(Some(lock_before_fork), Some(unlock), Some(unlock)) };
        assert_eq!(refused, 0);
        assert!(use_all());
        for call in 1.. {
            STOPPED.store(false, Relaxed);
            FORKING.store(false, Relaxed);
            let other = std::thread::spawn(move || {
                STOPS_AT.set(call);
                let fine = use_all();
                let calls = call - STOPS_AT.replace(0);
                (fine, calls)
            });
            while !STOPPED.load(Relaxed) && !other.is_finished() {
                yield_now();
            }
            let fine = holds_in_a_fork(use_all);
            // Lets a thread go on that has come to its call only now.
            FORKING.store(true, Release);
            let (other, calls) = other.join().expect("the other thread goes on");
            assert!(fine && other, "call {call}");
            if calls < call {
                assert!(call > 20, "the allocator is used");
                return;
            }
        }
    });
}

/// The structures that the allocator's hook uses, and their domain.
struct Noted(Domain, Counter, Pool<[u64; 64]>, Stack<u32>);
static NOTED: OnceLock<Noted> = OnceLock::new();

fn note() {
    let Noted(_, counter, pool, stack) = NOTED.get().expect("made before");
    counter.add(1);
    drop(pool.insert([1; 64]));
    stack.push(1);
    stack.pop();
}

/// The hook of an allocator uses structures that call the allocator themselves.
#[test]
fn an_allocator_uses_the_structures_that_allocate() {
    on_its_own("an_allocator_uses_the_structures_that_allocate", || {
        for backend in [Backend::Lease, Domain::auto().backend()] {
            // In a child, because `NOTED` holds one domain only: each child finds it empty.
            assert!(holds_in_a_fork(|| {
                let domain = match backend {
                    Backend::Lease => {
                        let leases = Domain::builder().backend(backend).max_ids(32);
                        leases.build().expect("memory")
                    }
                    _ => Domain::auto(),
                };
                let pool = Pool::growing(&domain).expect("memory");
                let stack = Stack::new(&domain).expect("memory");
                let counter = Counter::new(&domain).expect("memory");
                let noted = NOTED.get_or_init(|| Noted(domain, counter, pool, stack));
                let Noted(domain, counter, pool, stack) = noted;
                NOTES.set(Some(note));
                for all_are_held in [false, true] {
                    // If all IDs are held, threads use what they share.
                    let leases: Vec<_> = (0..if all_are_held { 64 } else { 0 })
                        .map_while(|_| domain.enter().ok())
                        .collect();
                    for round in 0..20 {
                        let objects: Vec<_> = (0..50 * round)
                            .filter_map(|_| pool.insert([2; 64]).ok())
                            .collect();
                        drop(objects);
                        (0..100).for_each(|_| stack.push(2));
                    }
                    drop(leases);
                }
                NOTES.set(None);
                counter.sum() > 100
            }));
        }
    });
}

// ---- a handler that ends threads --------------------------------------------------------------

/// The domain, its counter, and the domain of sections that the workers use.
type Used = (Domain, Counter, kinlock_invalidation::Domain);
static USED: OnceLock<Used> = OnceLock::new();
static WORKERS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
static AT_WORK: AtomicU32 = AtomicU32::new(0);
static QUIT: AtomicBool = AtomicBool::new(false);

const THREADS: u32 = 4;

fn work() {
    let (domain, counter, sections) = USED.get().expect("made before");
    counter.add(1);
    drop(sections.begin());
    drop(domain.enter());
    // A forgotten lease is given back when the thread ends.
    std::mem::forget::<Option<Lease<'_>>>(domain.enter().ok());
    AT_WORK.fetch_add(1, Relaxed);
    while !QUIT.load(Relaxed) {
        sleep(PAUSE);
    }
}

fn start_workers() {
    QUIT.store(false, Relaxed);
    AT_WORK.store(0, Relaxed);
    let mut workers = WORKERS.lock().expect("no panic");
    workers.extend((0..THREADS).map(|_| std::thread::spawn(work)));
    while AT_WORK.load(Relaxed) < THREADS {
        yield_now();
    }
}

extern "C" fn end_workers() {
    if USED.get().is_some() {
        QUIT.store(true, Relaxed);
        let ended = WORKERS.lock().map(|mut workers| {
            let mut workers = workers.drain(..);
            workers.all(|worker| worker.join().is_ok())
        });
        // A handler must not unwind.
        if ended.ok() != Some(true) {
            std::process::abort();
        }
    }
}

extern "C" fn register_early() {
    // SAFETY: invariant 1.
    unsafe { libc::pthread_atfork(Some(end_workers), None, None) };
}

/// Runs before the library's constructor, so that the handler is called after the library's
/// handlers.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static EARLY: extern "C" fn() = register_early;

#[test]
fn a_handler_waits_for_threads_that_end() {
    on_its_own("a_handler_waits_for_threads_that_end", || {
        let leases = Domain::builder().backend(Backend::Lease).max_ids(32);
        let domain = leases.build().expect("memory");
        let counter = Counter::new(&domain).expect("memory");
        let used = (domain, counter, kinlock_invalidation::Domain::new());
        let (domain, counter, _) = USED.get_or_init(|| used);
        for round in 1..=20 {
            start_workers();
            assert_eq!(domain.members(), Some(THREADS));
            let fine = holds_in_a_fork(|| {
                counter.add(1);
                let sum = counter.sum() == u64::from(round * THREADS + 1);
                sum && domain.members() == Some(1) && use_all()
            });
            assert!(fine, "fork {round}");
            assert_eq!(counter.sum(), u64::from(round * THREADS));
            assert_eq!(domain.members(), Some(0));
        }
    });
}
