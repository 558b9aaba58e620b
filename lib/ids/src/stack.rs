//! A stack without a contended head: one per ID, with stealing.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::domain::Domain;
use super::error::BuildError;
use super::lists::Lists;
use super::sequence::{Node, Pushed};
use crate::probe::{Probe, Sound};

/// A stack without a contended head: every CPU pushes and pops on its own. Last in, first out per
/// ID.
///
/// There is a list per ID. A thread pops what was pushed last under its ID. If that list is empty
/// it tries the shared list, then the lists of other IDs, and takes over the first that is not
/// empty, *as a whole* (stealing). So the order is that of a stack only while nothing is stolen.
///
/// | backend | `push`, `pop` | stealing |
/// | --- | --- | --- |
/// | restartable | one restartable sequence | one `membarrier` |
/// | lease | enter, a swap, a store on a line of the ID's own, leave | a swap and a store |
///
/// The `membarrier` costs some microseconds, and an interrupt for every CPU that runs the process.
/// There is no ABA problem, and no memory reclamation to wait for: no other thread reads a list
/// while it is changed.
///
/// # Guarantees
///
/// * A pushed value is popped once, or dropped with the stack. The popping thread sees what the
///   pushing thread did before.
/// * [`pop`](Self::pop) returns `None` only if its own list, the shared one and every other ID's
///   were each, at some moment of the call, empty or in use by a thief. These moments may differ.
/// * Not for signal handlers: stealing takes a lock, and `push` allocates.
/// * Not for the child of a fork if another thread was using the stack at that moment; the child
///   must not even drop it. A list may be half changed, and the shared list's lock may be held by a
///   thread that the child does not have.
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
pub struct Stack<T>(Probed<T, Sound>);

impl<T> Stack<T> {
    /// An empty stack.
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`] if there is no address space.
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Probed::new(domain).map(Stack)
    }

    /// Pushes a value on the list of the calling thread's ID, or on the shared list if the thread
    /// has no ID. Allocates a node. O(1).
    #[inline]
    pub fn push(&self, value: T) {
        self.0.push(value);
    }

    /// Pops a value; see the [guarantees](Self#guarantees). O(1), but for stealing, which is
    /// O([`Domain::max_ids`]).
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    /// How many lists were stolen so far. O(1).
    pub fn steals(&self) -> usize {
        self.0.steals()
    }

    /// The domain that the stack was made for.
    pub fn domain(&self) -> &Domain {
        self.0.lists.domain()
    }
}

impl<T> fmt::Debug for Stack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("domain", self.domain())
            .finish_non_exhaustive()
    }
}

/// A [`Stack`] with the sequences of any [`Probe`].
///
/// # Invariants
///
/// 1. Every node in `lists` is the first field of an `Item<T>` that came from a `Box` and has its
///    value. The popping thread owns it.
#[derive(Debug)]
pub struct Probed<T, P: Probe> {
    lists: Lists<P>,
    items: PhantomData<T>,
}

#[repr(C)]
struct Item<T> {
    node: Node,
    value: T,
}

// SAFETY: values are moved in by one thread and out by another.
unsafe impl<T: Send, P: Probe> Send for Probed<T, P> {}
// SAFETY: as above: a shared stack gives no references to values.
unsafe impl<T: Send, P: Probe> Sync for Probed<T, P> {}

impl<T, P: Probe> Probed<T, P> {
    /// Like [`Stack::new`].
    ///
    /// # Errors
    ///
    /// [`BuildError::Memory`].
    pub fn new(domain: &Domain) -> Result<Self, BuildError> {
        Ok(Probed {
            lists: Lists::new(domain)?,
            items: PhantomData,
        })
    }

    /// Like [`Stack::push`].
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

    /// Like [`Stack::pop`].
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let rest = || self.lists.pop_shared().or_else(|| self.lists.steal());
        let node = self.lists.pop().or_else(rest)?;
        // SAFETY: invariant 1.
        let item = unsafe { Box::from_raw(node.cast::<Item<T>>().as_ptr()) };
        Some(item.value)
    }

    /// Like [`Stack::steals`].
    pub fn steals(&self) -> usize {
        self.lists.steals()
    }
}

impl<T, P: Probe> Drop for Probed<T, P> {
    fn drop(&mut self) {
        self.lists.drain(|node| {
            // SAFETY: invariant 1.
            drop(unsafe { Box::from_raw(node.cast::<Item<T>>().as_ptr()) });
        });
    }
}
