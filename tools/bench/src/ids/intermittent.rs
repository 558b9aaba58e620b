//! Threads that wake rarely, one at a time, and work on the data of the ID that they then have.
//!
//! Whether that data is in the cache of the CPU depends on which thread gets which ID: "lowest
//! free" gives all of them the same one, so that its data travels from CPU to CPU.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use kinlock_ids::Domain;
use kinlock_measure::interrupt::pause;
use kinlock_measure::random::Random;

use super::Ids;
use crate::harness::slice::{Sample, process_cpu_time};
use crate::harness::suite::Due;
use crate::harness::team::Job;

/// Bursts in a slice, by all threads together; the first ones, a round of all threads, are not
/// counted.
pub const BURSTS: usize = 20;
/// Bytes that belong to an ID.
const AREA: usize = 16 * 1024;

struct Arena {
    areas: Vec<Area>,
    /// The thread that is to burst; [`NONE`] in between.
    next: AtomicUsize,
    nanos: AtomicU64,
    /// Sleepers, by index.
    threads: Mutex<Vec<Option<Thread>>>,
    start: Barrier,
}

#[repr(align(4096))]
struct Area([AtomicU8; AREA]);

const NONE: usize = usize::MAX;
const THE_END: usize = usize::MAX - 1;

pub fn slice(due: &Due<Ids>, delay: f64) -> Sample<()> {
    let (team, domain) = (due.team, due.subject.domain.clone());
    let of_domain = domain.as_ref().map(|domain| domain.max_ids() as usize);
    let ids = of_domain.unwrap_or(team.size());
    let area = |_| Area([const { AtomicU8::new(0) }; AREA]);
    let arena = Arc::new(Arena {
        areas: (0..ids).map(area).collect(),
        next: AtomicUsize::new(NONE),
        nanos: AtomicU64::new(0),
        threads: Mutex::new(vec![None; team.size()]),
        start: Barrier::new(team.size() + 1),
    });
    let members = Arc::clone(&arena);
    let job: Job = Arc::new(move |index| members.wait_and_burst(index, domain.as_ref()));
    team.begin(&job);
    drop(job);
    arena.start.wait();
    let sample = arena.wake_one_by_one(team.size(), delay, due.seed);
    team.wait();
    sample
}

impl Arena {
    /// What the members of the team do.
    fn wait_and_burst(&self, index: usize, domain: Option<&Domain>) {
        self.threads.lock().expect("no member panics")[index] = Some(std::thread::current());
        self.start.wait();
        loop {
            match self.next.load(Acquire) {
                THE_END => return,
                next if next == index => {
                    let begin = Instant::now();
                    match domain.map(|domain| (domain.enter(), domain.momentary_id())) {
                        None => self.burst(index),
                        Some((Ok(lease), _)) => self.burst(lease.id() as usize),
                        // One thread at a time runs here, so that the ID of this moment is as good.
                        Some((Err(_), id)) => self.burst(id.unwrap_or(0) as usize),
                    }
                    let nanos = begin.elapsed().as_nanos() as u64;
                    self.nanos.fetch_add(nanos, Relaxed);
                    self.next.store(NONE, Release);
                }
                // Asleep, so that the CPU is free and the thread has to be woken.
                _ => std::thread::park(),
            }
        }
    }

    /// What the thread does that times them.
    fn wake_one_by_one(&self, size: usize, delay: f64, seed: u64) -> Sample<()> {
        let threads = std::mem::take(&mut *self.threads.lock().expect("no member panics"));
        let wake = |thread: usize| threads[thread].iter().for_each(Thread::unpark);
        let mut random = Random::stream(seed, 0);
        let mut order: Vec<usize> = (0..size).collect();
        let mut ops = vec![0; size];
        let (mut before, mut cpu) = (Duration::ZERO, Duration::ZERO);
        let mut bursts = 0;
        while bursts < BURSTS + size {
            random.shuffle(&mut order);
            for &thread in &order {
                if bursts == size {
                    self.nanos.store(0, Relaxed);
                    before = process_cpu_time();
                }
                self.next.store(thread, Release);
                wake(thread);
                while self.next.load(Acquire) != NONE {
                    std::thread::sleep(Duration::from_micros(50));
                }
                if bursts >= size {
                    ops[thread] += 1;
                    cpu = process_cpu_time() - before;
                }
                bursts += 1;
                pause(Duration::from_secs_f64(delay));
            }
        }
        self.next.store(THE_END, Release);
        (0..size).for_each(wake);
        Sample {
            ops,
            elapsed: Duration::from_nanos(self.nanos.load(Relaxed).max(1)),
            cpu,
            extra: (),
        }
    }

    fn burst(&self, id: usize) {
        let Some(area) = self.areas.get(id) else {
            return;
        };
        for byte in &area.0 {
            byte.store(byte.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}
