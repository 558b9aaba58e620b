//! The threads' coroutines: how a thread is made, suspended, and unwound.
//!
//! # Invariants
//!
//! 1. `Thread::yielder` is set by the coroutine itself before its first suspension, and the yielder
//!    outlives the coroutine's body, the only place from which it is used.

use super::{World, with};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::RefCell;

/// Enough for the deepest lock and workload. A coroutine's stack costs only the pages it touches.
const STACK: usize = 64 << 10;

type Body = Coroutine<(), (), (), DefaultStack>;

thread_local! {
    /// Stacks of finished coroutines, for the next ones.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The coroutines of a run. If it ends in a failure, the suspended ones are unwound, which drops
/// their values. Locks that still wait then must not suspend again.
pub(super) struct Bodies(Vec<Body>);

impl Bodies {
    /// Makes a coroutine for each thread.
    pub(super) fn spawn<S: Clone + 'static>(
        threads: usize,
        shared: &S,
        body: impl Fn(&S, usize) + Copy + 'static,
    ) -> Self {
        let spawn = |thread: usize| {
            let stack = STACKS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| DefaultStack::new(STACK).expect("there is memory for a stack"));
            let shared = shared.clone();
            Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
                with(|w| w.threads[thread].yielder = yielder);
                body(&shared, thread);
            })
        };
        Bodies((0..threads).map(spawn).collect())
    }

    /// Lets a thread go on until it is suspended again. Returns whether it has returned instead.
    pub(super) fn resume(&mut self, thread: usize) -> bool {
        matches!(self.0[thread].resume(()), CoroutineResult::Return(()))
    }
}

impl Drop for Bodies {
    fn drop(&mut self) {
        with(|w| w.over = true);
        for mut body in self.0.drain(..) {
            body.force_unwind();
            STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
        }
    }
}

/// Lets all threads with an earlier clock go first.
#[inline]
pub(crate) fn wait_for_turn() {
    while with(World::must_yield) {
        suspend();
    }
}

/// Suspends the current thread, whose next event is planned.
#[inline(always)]
pub(super) fn suspend() {
    let yielder = with(|w| {
        assert!(!w.over, "nobody may wait after a run");
        assert!(!w.in_one_step, "nobody may wait while others may not run");
        w.threads[w.current].yielder
    });
    suspend_with(yielder);
}

/// The same, given the thread's `Thread::yielder`.
#[inline(always)]
pub(super) fn suspend_with(yielder: *const Yielder<(), ()>) {
    // SAFETY: invariant 1; no reference into the world is alive (invariant 1 of `world`).
    unsafe { (*yielder).suspend(()) };
}
