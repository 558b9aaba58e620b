//! Threads that wake rarely, one at a time, and work on the data of the ID that they then have.
//!
//! Whether that data is in the cache of the CPU depends on which thread gets which ID: "lowest free"
//! gives all of them the same one, so that its data travels from CPU to CPU.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::subjects::Subject;
use crate::bench::harness::interrupt::pause;
use crate::bench::harness::rng::Rng;
use crate::bench::harness::slice::{Sample, process_cpu_time};
use crate::bench::harness::team::{Job, Team};

/// Bursts in a slice, by all threads together; the first ones, a round of all threads, are not counted.
pub const BURSTS: usize = 20;
/// Bytes that belong to an ID.
const AREA: usize = 16 * 1024;

struct Arena {
    areas: Vec<Area>,
    /// The thread that is to burst; [`NOBODY`] in between.
    next: AtomicUsize,
    nanos: AtomicU64,
    /// Sleepers, by index.
    threads: Mutex<Vec<Option<Thread>>>,
    start: Barrier,
}

#[repr(align(4096))]
struct Area([AtomicU8; AREA]);

const NOBODY: usize = usize::MAX;
const THE_END: usize = usize::MAX - 1;

/// Runs one slice.
pub fn slice(subject: &Subject, team: &Team, delay: f64, seed: u64) -> Sample<()> {
    let ids = subject
        .domain
        .as_ref()
        .map_or(team.size(), |domain| domain.max_ids() as usize);
    let arena = Arc::new(Arena {
        areas: (0..ids)
            .map(|_| Area([const { AtomicU8::new(0) }; AREA]))
            .collect(),
        next: AtomicUsize::new(NOBODY),
        nanos: AtomicU64::new(0),
        threads: Mutex::new(vec![None; team.size()]),
        start: Barrier::new(team.size() + 1),
    });
    let (members, domain) = (Arc::clone(&arena), subject.domain.clone());
    let job: Job = Arc::new(move |index| {
        members.threads.lock().expect("nobody panics")[index] = Some(std::thread::current());
        members.start.wait();
        loop {
            match members.next.load(Acquire) {
                THE_END => return,
                next if next == index => {
                    let begin = Instant::now();
                    match &domain {
                        None => members.burst(index),
                        Some(domain) => match (domain.enter(), domain.momentary_id()) {
                            (Ok(lease), _) => members.burst(lease.id() as usize),
                            // One thread at a time runs here, so that the ID of this moment is as good.
                            (Err(_), id) => members.burst(id.unwrap_or(0) as usize),
                        },
                    }
                    members
                        .nanos
                        .fetch_add(begin.elapsed().as_nanos() as u64, Relaxed);
                    members.next.store(NOBODY, Release);
                }
                // Asleep, so that the CPU is free and the thread has to be woken.
                _ => std::thread::park(),
            }
        }
    });
    team.begin(&job);
    drop(job);
    arena.start.wait();
    let threads = std::mem::take(&mut *arena.threads.lock().expect("nobody panics"));
    let wake = |thread: usize| threads[thread].iter().for_each(Thread::unpark);

    let mut random = Rng::new(seed, 0);
    let mut order: Vec<usize> = (0..team.size()).collect();
    let mut ops = vec![0; team.size()];
    let (mut counted, mut cpu) = (0, Duration::ZERO);
    let mut before = Duration::ZERO;
    let mut bursts = 0;
    while bursts < BURSTS + team.size() {
        random.shuffle(&mut order);
        for &thread in &order {
            if bursts == team.size() {
                arena.nanos.store(0, Relaxed);
                before = process_cpu_time();
            }
            arena.next.store(thread, Release);
            wake(thread);
            while arena.next.load(Acquire) != NOBODY {
                std::thread::sleep(Duration::from_micros(50));
            }
            if bursts >= team.size() {
                counted += 1;
                ops[thread] += 1;
                cpu = process_cpu_time() - before;
            }
            bursts += 1;
            pause(Duration::from_secs_f64(delay));
        }
    }
    arena.next.store(THE_END, Release);
    (0..team.size()).for_each(wake);
    team.wait();
    debug_assert_eq!(counted, ops.iter().sum::<u64>());
    Sample {
        ops,
        elapsed: Duration::from_nanos(arena.nanos.load(Relaxed).max(1)),
        cpu,
        extra: (),
    }
}

impl Arena {
    fn burst(&self, id: usize) {
        let Some(area) = self.areas.get(id) else {
            return;
        };
        for byte in &area.0 {
            byte.store(byte.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}
