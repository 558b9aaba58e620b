//! Threads that wake rarely, one at a time, and work on the data of the ID that they then have.
//!
//! Whether that data is in the cache of the CPU depends on which thread gets which ID: "lowest
//! free" gives all of them the same one, so that its data travels from CPU to CPU.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::{Thread, park, scope, sleep};
use std::time::{Duration, Instant};

use kinlock_ids::Domain;
use kinlock_measure::interrupt::pause;
use kinlock_measure::random::Random;

use super::Ids;
use crate::harness::slice::{Sample, process_cpu_time};
use crate::harness::suite::Due;

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
}

#[repr(align(4096))]
struct Area([AtomicU8; AREA]);

const NONE: usize = usize::MAX;
const THE_END: usize = usize::MAX - 1;

pub fn slice(due: &Due<Ids>, domain: Option<&Domain>, delay: f64) -> anyhow::Result<Sample<()>> {
    let team = due.team;
    let ids = domain.map_or(team.size(), |domain| domain.max_ids() as usize);
    let area = |_| Area([const { AtomicU8::new(0) }; AREA]);
    let arena = &Arena {
        areas: (0..ids).map(area).collect(),
        next: AtomicUsize::new(NONE),
        nanos: AtomicU64::new(0),
    };
    scope(|scope| {
        let mut sleepers = Vec::new();
        let started = (0..team.size()).try_for_each(|index| {
            let member = team.start(scope, index, move || arena.wait_and_burst(index, domain))?;
            sleepers.push(member.thread().clone());
            Ok(())
        });
        let sample = started.map(|()| arena.wake_one_by_one(&sleepers, delay, due.seed));
        arena.next.store(THE_END, Release);
        sleepers.iter().for_each(Thread::unpark);
        sample
    })
}

impl Arena {
    /// What the members of the team do.
    fn wait_and_burst(&self, index: usize, domain: Option<&Domain>) {
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
                _ => park(),
            }
        }
    }

    /// What the thread does that times them.
    fn wake_one_by_one(&self, sleepers: &[Thread], delay: f64, seed: u64) -> Sample<()> {
        let size = sleepers.len();
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
                sleepers[thread].unpark();
                while self.next.load(Acquire) != NONE {
                    sleep(Duration::from_micros(50));
                }
                if bursts >= size {
                    ops[thread] += 1;
                    cpu = process_cpu_time() - before;
                }
                bursts += 1;
                pause(Duration::from_secs_f64(delay));
            }
        }
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
