//! The threads' coroutines: how a thread is made, suspended, and unwound.
//!
//! # Invariants
//!
//! 1. `Thread::yielder` is set by the coroutine itself before its first suspension, and the yielder outlives the
//!    coroutine's body, the only place from which it is used.
//! 2. A `Coloured` stack owns a `DefaultStack` with its guard page, of at least `STACK` bytes, and leaves out a multiple of
//!    128 bytes at its top, less than 4096.

use super::{World, with};
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::RefCell;

/// Enough for the deepest lock and workload; a coroutine's stack costs only the pages it touches.
const STACK: usize = 64 << 10;

/// The stacks' hot ends lie in so many different sets of the host's first-level cache.
const COLOURS: usize = 32;

type Body = Coroutine<(), (), (), Coloured>;

thread_local! {
    /// Stacks of finished coroutines, for the next ones.
    static STACKS: RefCell<Vec<Coloured>> = const { RefCell::new(Vec::new()) };
}

/// The coroutines of a run. Those that are suspended when it ends, after a failure, are unwound: what they hold is
/// dropped, also by locks that still wait, which must not suspend again.
pub(super) struct Bodies(Vec<Body>);

impl Bodies {
    /// One for each of so many threads.
    pub(super) fn spawn<S: Clone + 'static>(
        threads: usize,
        shared: &S,
        body: impl Fn(&S, usize) + Copy + 'static,
    ) -> Self {
        Bodies(
            (0..threads)
                .map(|thread| spawn(thread, shared.clone(), body))
                .collect(),
        )
    }

    /// Lets a thread go on until it is suspended again. Whether it has returned instead.
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

fn spawn<S: 'static>(thread: usize, shared: S, body: impl Fn(&S, usize) + 'static) -> Body {
    let stack = STACKS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| Coloured::new(thread));
    Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        with(|w| w.threads[thread].yielder = yielder);
        body(&shared, thread);
        let slot = with(|w| w.threads[thread].slot);
        if slot != 0 {
            crate::platform::release_slot(slot);
        }
    })
}

/// Lets everybody go first whose clock is earlier.
#[inline]
pub(super) fn wait_for_turn() {
    while with(World::must_yield) {
        suspend();
    }
}

/// Suspends the current thread, which has planned how it goes on.
pub(super) fn suspend() {
    let yielder = with(|w| {
        assert!(!w.over, "nobody may wait after a run");
        w.threads[w.current].yielder
    });
    suspend_with(yielder);
}

/// The same, with its `Thread::yielder`.
#[inline]
pub(super) fn suspend_with(yielder: *const Yielder<(), ()>) {
    // SAFETY: invariant 1; no reference into the world is alive (invariant 1 of `world`).
    unsafe { (*yielder).suspend(()) };
}

/// A stack that begins a little below the top of its memory, each at another place.
///
/// Stacks begin where pages do: without this the few lines that every suspended thread has on its stack would all compete
/// for the same few sets of the host's first-level cache.
struct Coloured {
    memory: DefaultStack,
    base: StackPointer,
}

impl Coloured {
    fn new(number: usize) -> Self {
        let memory = DefaultStack::new(STACK).expect("there is memory for a stack");
        let skipped = number % COLOURS * 128;
        let base = memory.base().get() - skipped;
        let base = StackPointer::new(base).expect("a stack is not at the start of memory");
        Coloured { memory, base }
    }
}

// SAFETY: invariant 2.
unsafe impl Stack for Coloured {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
