//! Concurrency IDs in every interleaving (with a bounded number of preemptions) of small scenarios.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release -p kinlock-ids --test loom_ids -- --nocapture
//! ```
//!
//! Each model prints how many executions it explored.
//!
//! | property | how it is checked |
//! | --- | --- |
//! | unique holders, and visibility between them | a cell per ID: loom reports data races |
//! | nothing lost | at the end all IDs can be reclaimed |
//! | the bound | IDs are below max(limit, peak of active threads + IDs moved in an acquisition) |
#![cfg(loom)]

#[path = "../../core/tests/model/mod.rs"]
mod model;

use kinlock_core::loom::Loom;
use kinlock_core::platform::Platform;
use kinlock_ids::raw::{AGE, Block, Exhausted, Held, IdAllocator, Policy, Record};
use loom::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Runs `body` in `threads` threads (one of them the model's first) through all interleavings with
/// at most `preemptions` preemptions. Then checks that no ID is lost.
fn explore<P: Platform>(
    name: &str,
    preemptions: usize,
    threads: usize,
    make: fn() -> Model<P>,
    body: fn(&Model<P>, usize),
) {
    let check = |shared: &Model<P>, _| shared.check();
    model::explore(name, preemptions, threads, make, body, check);
}

type Storage<P> = (Vec<Record<P>>, Vec<Block<P>>);

struct Model<P: Platform> {
    ids: IdAllocator<P, Storage<P>>,
    /// The data of each ID's holder.
    data: Vec<UnsafeCell<u32>>,
    /// The current and the peak number of active threads; not modelled.
    now: AtomicUsize,
    most: AtomicUsize,
    /// The number of IDs taken or moved so far, and what it was when each active acquisition began.
    moved: Mutex<(usize, Vec<usize>)>,
    /// The largest number of IDs that were moved during one acquisition.
    meanwhile: AtomicUsize,
    /// The largest limit so far.
    limit: AtomicUsize,
    /// The number of IDs that the first thread holds all the time.
    held: usize,
}

const CAPACITY: usize = 32;

impl<P: Platform> Model<P> {
    fn new(cpus: u32, members: u32) -> Self {
        let records = (0..cpus).map(|_| Record::new()).collect();
        let storage = (records, vec![Block::new()]);
        let ids = IdAllocator::new(storage, cpus, Policy::RecentFirst);
        ids.set_members(members);
        Model {
            data: (0..CAPACITY).map(|_| UnsafeCell::new(0)).collect(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            moved: Mutex::default(),
            meanwhile: AtomicUsize::new(0),
            limit: AtomicUsize::new(ids.limit() as usize),
            held: 0,
            ids,
        }
    }

    fn enters(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
    }

    fn acquire(&self, cpu: u32) -> Result<Held, Exhausted> {
        self.enters();
        let began = {
            let (moved, began) = &mut *self.moved.lock().unwrap();
            began.push(*moved);
            *moved
        };
        let held = self.ids.acquire(cpu)?;
        {
            let (moved, all) = &mut *self.moved.lock().unwrap();
            let earliest = *all.iter().min().unwrap();
            self.meanwhile.fetch_max(*moved - earliest, Relaxed);
            *moved += 1;
            let own = all.iter().position(|&one| one == began).unwrap();
            all.remove(own);
        }
        let meanwhile = self.meanwhile.load(Relaxed);
        let bound = self
            .limit
            .load(Relaxed)
            .max(self.held + self.most.load(Relaxed) + meanwhile);
        assert!((held.id() as usize) < bound, "ID above the bound");
        self.touch(&held);
        Ok(held)
    }

    fn touch(&self, held: &Held) {
        // SAFETY: the ID has one holder; if not, loom reports the access before it happens.
        self.data[held.id() as usize].with_mut(|data| unsafe { *data += 1 });
    }

    fn release(&self, cpu: u32, held: Held) {
        self.touch(&held);
        self.ids.release(cpu, held);
        self.now.fetch_sub(1, Relaxed);
    }

    fn visit(&self, cpu: u32) {
        let held = self.acquire(cpu).unwrap();
        loom::thread::yield_now();
        self.release(cpu, held);
    }

    /// Marks the idle IDs, then frees them.
    fn reclaim(&self) {
        self.enters();
        self.moved.lock().unwrap().0 += self.ids.in_use() as usize;
        self.ids.reclaim(0);
        self.ids.reclaim(AGE);
        self.now.fetch_sub(1, Relaxed);
    }

    fn check(&self) {
        self.ids.reclaim(1 << 50);
        self.ids.reclaim(1 << 51);
        assert_eq!(self.ids.in_use() as usize, self.held, "an ID is lost");
    }
}

/// Thread i runs on CPU i; there are as many members as threads.
fn a_cpu_each<P: Platform>() -> Model<P> {
    Model::new(3, 3)
}

fn one_cpu<P: Platform>() -> Model<P> {
    Model::new(1, 3)
}

/// Locality asks for one ID only; all others are bounded by the number of holders.
fn one_member<P: Platform>() -> Model<P> {
    Model::new(3, 1)
}

fn once<P: Platform>(model: &Model<P>, i: usize) {
    model.visit(i as u32);
}

fn twice<P: Platform>(model: &Model<P>, i: usize) {
    model.visit(i as u32);
    model.visit(i as u32);
}

/// Without a yield: the threads may run one after the other, so that few are active at any instant.
fn briefly<P: Platform>(model: &Model<P>, i: usize) {
    let held = model.acquire(i as u32).unwrap();
    model.release(i as u32, held);
}

fn same_cpu<P: Platform>(model: &Model<P>, _: usize) {
    model.visit(0);
}

/// The first thread's CPU keeps an ID and takes it back, while the second thread ages that ID and
/// needs one.
fn take_back<P: Platform>(model: &Model<P>, i: usize) {
    if i == 0 {
        twice(model, 0);
    } else {
        model.reclaim();
        model.visit(1);
    }
}

/// Threads migrate while they hold an ID.
fn moving<P: Platform>(model: &Model<P>, i: usize) {
    let held = model.acquire(i as u32).unwrap();
    model.release((i as u32 + 1) % 3, held);
}

#[test]
fn unique_holders() {
    explore::<Loom>("ids, 2 threads twice", 4, 2, a_cpu_each, twice);
    explore::<Loom>("ids, 3 threads", 2, 3, a_cpu_each, once);
    explore::<Loom>("ids, 3 threads on one CPU", 2, 3, one_cpu, same_cpu);
    explore::<Loom>("ids, 2 threads, moving", 4, 2, a_cpu_each, moving);
}

#[test]
fn bound() {
    explore::<Loom>("ids, 2 threads twice, one member", 2, 2, one_member, twice);
    explore::<Loom>("ids, 3 threads, one member", 2, 3, one_member, briefly);
}

#[test]
fn aging() {
    explore::<Loom>("ids, take-back against aging", 3, 2, one_member, take_back);
    explore::<Loom>("ids, take-back, spreading", 3, 2, a_cpu_each, take_back);
}

/// The limit comes down to one after CPU 1 has had ID 1.
fn shrinking<P: Platform>() -> Model<P> {
    let model = Model::new(2, 2);
    model.visit(0);
    model.visit(1);
    model.reclaim();
    model.ids.set_members(1);
    model.limit.store(1, Relaxed);
    model.most.store(0, Relaxed);
    model
}

fn second_cpu<P: Platform>(model: &Model<P>, i: usize) {
    if i == 1 {
        model.visit(1);
    }
}

/// The limit comes down during both visits. A late thread may exceed it, but nothing may be lost.
fn shrink_meanwhile<P: Platform>(model: &Model<P>, i: usize) {
    model.visit(i as u32);
    if i == 0 {
        model.ids.set_members(1);
    }
}

/// Two IDs are handed out, and the limit is three.
fn with_room<P: Platform>() -> Model<P> {
    let model = a_cpu_each();
    model.visit(0);
    model.visit(1);
    model.most.store(0, Relaxed);
    model
}

/// The limit comes down to two while a thread is about to acquire a third ID.
fn shrink_under_one<P: Platform>(model: &Model<P>, i: usize) {
    if i == 0 {
        model.ids.set_members(2);
    } else {
        model.visit(2);
    }
}

#[test]
fn limits() {
    explore::<Loom>("ids, limit has shrunk", 3, 2, shrinking, second_cpu);
    explore::<Loom>("ids, limit shrinks", 3, 2, a_cpu_each, shrink_meanwhile);
    explore::<Loom>("ids, no more room", 3, 2, with_room, shrink_under_one);
}

/// All but one of the IDs are held all the time.
fn nearly_exhausted<P: Platform>() -> Model<P> {
    let mut model = Model::new(1, 1);
    model.held = CAPACITY - 1;
    for _ in 0..model.held {
        // Dropped without a release: it stays held.
        let _held = model.ids.acquire(7).unwrap();
    }
    model
}

fn last_one<P: Platform>(model: &Model<P>, _: usize) {
    match model.acquire(0) {
        Ok(held) => model.release(0, held),
        Err(Exhausted) => {
            assert!(model.most.load(Relaxed) > 1, "one was free all the time");
            model.now.fetch_sub(1, Relaxed);
        }
    }
}

#[test]
fn exhaustion() {
    explore::<Loom>("ids, the last one", 3, 2, nearly_exhausted, last_one);
}
