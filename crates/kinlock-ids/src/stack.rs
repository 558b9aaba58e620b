//! A stack without a contended head: one per ID, with stealing.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::domain::{BuildError, Domain};
use super::lists::Lists;
use super::sequence::{Node, Popped, Probe, Pushed, Sound};

/// A collection into which every CPU pushes and from which it pops on its own, last in, first out as far as one ID goes.
///
/// There is a list per ID. A thread pops what was pushed last under its ID; only if that list is empty it looks elsewhere: at the shared list, then at other IDs' lists, of which it takes
/// over the first that is not empty, *as a whole* (stealing). So the order is that of a stack only while nothing is stolen.
///
/// | backend | `push`, `pop` | stealing |
/// | --- | --- | --- |
/// | restartable | one restartable sequence | one `membarrier`: some microseconds, and an interrupt for every CPU that runs the process |
/// | lease | enter, a swap and a store on a line of the ID's own, leave | a swap and a store |
///
/// There is no ABA problem and no memory reclamation to wait for, since nobody else looks into a list meanwhile.
///
/// # Guarantees
///
/// * What is pushed is popped once, or dropped with the stack. A pop sees what the thread that pushed did before.
/// * [`pop`](Self::pop) returns `None` only if its own list, the shared one and every other ID's were each seen empty, or in use by a thief, at some moment of the call: not all at the same one.
/// * Not for signal handlers: stealing takes a lock, and `push` allocates. Not for the child of a fork, not even to be dropped, if another thread was using it then: a list may be half changed, and the lock of the shared one may be held by a thread that the child does not have.
///
/// ```
/// use kinlock_ids::{Domain, Stack};
///
/// let free_buffers = Stack::new(&Domain::auto())?;
/// free_buffers.push(vec![0u8; 4096]);
/// let buffer = free_buffers.pop().unwrap_or_else(|| vec![0; 4096]);
/// # assert_eq!(buffer.len(), 4096);
/// # Ok::<(), kinlock_ids::BuildError>(())
/// ```
///
/// # Invariants
///
/// 1. Every node in `lists` is the first field of an `Item<T>` that a `Box` was made into, whose value is there. Who pops it owns it.
#[derive(Debug)]
pub struct Stack<T, P: Probe = Sound> {
    lists: Lists<P>,
    items: PhantomData<T>,
}

#[repr(C)]
struct Item<T> {
    node: Node,
    value: T,
}

// SAFETY: values are moved in by one thread and out by another.
unsafe impl<T: Send, P: Probe> Send for Stack<T, P> {}
// SAFETY: as above: a shared stack gives no references to values.
unsafe impl<T: Send, P: Probe> Sync for Stack<T, P> {}

impl<T> Stack<T> {
    /// An empty stack.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Self::probed(domain)
    }
}

impl<T, P: Probe> Stack<T, P> {
    /// As [`new`](Stack::new), for tests.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn probed(domain: &Domain) -> Result<Self, BuildError> {
        Ok(Stack {
            lists: Lists::new(domain)?,
            items: PhantomData,
        })
    }

    /// Pushes a value. Allocates a node for it.
    #[inline]
    pub fn push(&self, value: T) {
        let empty = Node {
            next: core::ptr::null_mut(),
            depth: 0,
        };
        let item = Box::new(Item { node: empty, value });
        let node = NonNull::from(Box::leak(item)).cast::<Node>();
        // SAFETY: invariant 1; the node is ours.
        unsafe {
            if self.lists.push(node, usize::MAX) != Pushed::Done {
                self.lists.push_shared(node);
            }
        }
    }

    /// Pops a value; see the [guarantees](Self#guarantees).
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let node = match self.lists.pop() {
            Popped::Node(node) => node,
            _ => self.lists.pop_shared().or_else(|| self.lists.steal())?,
        };
        // SAFETY: invariant 1.
        let item = unsafe { Box::from_raw(node.cast::<Item<T>>().as_ptr()) };
        Some(item.value)
    }

    /// How many lists were taken over so far.
    pub fn steals(&self) -> usize {
        self.lists.steals()
    }

    /// The domain.
    pub fn domain(&self) -> &Domain {
        self.lists.domain()
    }
}

impl<T, P: Probe> Drop for Stack<T, P> {
    fn drop(&mut self) {
        self.lists.drain(|node| {
            // SAFETY: invariant 1.
            drop(unsafe { Box::from_raw(node.cast::<Item<T>>().as_ptr()) });
        });
    }
}
