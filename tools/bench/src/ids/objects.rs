//! Objects that are kept for a while: the use case of an object cache, and of an allocator.

use std::collections::VecDeque;
use std::hint::black_box;

use crossbeam_queue::ArrayQueue;
use kinlock_ids::{Backend, Domain, Pool, Pooled};

use super::subject::{MALLOC, Subject, domain};

pub type Object = [u64; 8];

/// The most objects that a thread keeps.
const KEPT: usize = 256;
/// The most objects that a thread takes, or gives back, at a time.
const BURST: u32 = 64;
/// The capacity of the queue.
const ROOM: usize = 1 << 14;

/// Where objects come from.
trait Source: Send + Sync {
    type Held<'a>
    where
        Self: 'a;
    fn take(&self) -> Self::Held<'_>;
    fn give(&self, object: Self::Held<'_>);
}

struct Malloc;

impl Source for Malloc {
    type Held<'a> = Box<Object>;
    fn take(&self) -> Box<Object> {
        Box::new([0; 8])
    }
    fn give(&self, object: Box<Object>) {
        drop(object);
    }
}

impl Source for ArrayQueue<Box<Object>> {
    type Held<'a> = Box<Object>;
    fn take(&self) -> Box<Object> {
        let mut object = self.pop().unwrap_or_default();
        *object = [0; 8];
        object
    }
    fn give(&self, object: Box<Object>) {
        // A full queue returns the object, which is then freed.
        drop(self.push(object));
    }
}

impl Source for Pool<Object> {
    type Held<'a> = Pooled<'a, Object>;
    fn take(&self) -> Pooled<'_, Object> {
        self.insert([0; 8]).expect("memory for an object")
    }
    fn give(&self, object: Pooled<'_, Object>) {
        drop(object);
    }
}

/// Takes a random number of objects, then gives back a random number of the oldest that it keeps,
/// and so on. An operation is a take and a give.
fn subject<S: Source + 'static>(name: &str, make: impl Fn() -> S + 'static) -> Subject {
    Subject::repeated(name, move || {
        let source = make();
        Box::new(move |slice, member| {
            let mut kept = VecDeque::with_capacity(KEPT);
            let mut random = (member as u32).wrapping_mul(0x9e37_79b9) | 1;
            let mut burst = || {
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                (random % BURST + 1) as usize
            };
            slice.repeat(member, || {
                for _ in 0..burst().min(KEPT - kept.len()) {
                    kept.push_back(black_box(source.take()));
                }
                let most = burst().min(kept.len());
                kept.drain(..most).for_each(|object| source.give(object));
                most as u64
            });
            kept.drain(..).for_each(|object| source.give(object));
        })
    })
}

pub fn of(backends: &[Backend]) -> Vec<Subject> {
    let mut all = vec![
        subject(MALLOC, || Malloc),
        subject("array-queue", || ArrayQueue::new(ROOM)),
    ];
    all.extend(backends.iter().map(|&backend| {
        let make = move || growing(&domain(backend));
        subject(&format!("kinlock-{backend}"), make)
    }));
    all
}

pub fn growing(domain: &Domain) -> Pool<Object> {
    Pool::growing(domain).expect("address space for a pool")
}
