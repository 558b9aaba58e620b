//! The MCS queue lock over any [`Platform`]: the smallest algorithm that needs what the library's own need.

use kinlock::platform::{Atomic, Ordering::*, Platform};

/// A lock with one queue node per CPU; node `i` is named `i + 1`, 0 is nobody.
pub struct Mcs<P: Platform> {
    tail: P::AtomicU16,
    nodes: Vec<Node<P>>,
}

#[repr(align(64))]
struct Node<P: Platform> {
    go: P::AtomicU32,
    next: P::AtomicU16,
}

impl<P: Platform> Mcs<P> {
    pub fn new(cpus: usize) -> Self {
        let node = |_| Node {
            go: Atomic::new(0),
            next: Atomic::new(0),
        };
        Mcs {
            tail: Atomic::new(0),
            nodes: (0..cpus).map(node).collect(),
        }
    }

    pub fn lock(&self, cpu: usize) {
        let node = &self.nodes[cpu];
        node.go.store(0, Relaxed);
        node.next.store(0, Relaxed);
        let previous = self.tail.swap(cpu as u16 + 1, AcqRel);
        if previous != 0 {
            self.nodes[previous as usize - 1]
                .next
                .store(cpu as u16 + 1, Release);
            P::wait(&node.go, Acquire, |go| go != 0);
        }
    }

    pub fn unlock(&self, cpu: usize) {
        let node = &self.nodes[cpu];
        if node.next.load(Acquire) == 0 {
            if self
                .tail
                .compare_exchange(cpu as u16 + 1, 0, Release, Relaxed)
                .is_ok()
            {
                return;
            }
            P::wait(&node.next, Acquire, |next| next != 0);
        }
        let next = node.next.load(Acquire) as usize;
        self.nodes[next - 1].go.store(1, Release);
    }
}
