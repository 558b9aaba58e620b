//! Threads that wake rarely, one at a time, and work on the data of the ID that they then have.
//!
//! Whether that data is in the cache of the CPU depends on which thread gets which ID: "lowest
//! free" gives all of them the same one, so that its data travels from CPU to CPU.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::{Thread, current, park, sleep};
use std::time::{Duration, Instant};

use kinlock_ids::Domain;
use kinlock_measure::interrupt::pause;
use kinlock_measure::random::Random;

use super::Ids;
use crate::harness::slice::{self, Part, Sample, Slice};
use crate::harness::suite::Due;

/// Bursts in a slice, by all threads together. A first burst of each thread is not counted.
pub const BURSTS: usize = 20;
/// Bytes that belong to an ID.
const AREA: usize = 16 * 1024;

struct Arena {
    areas: Vec<Area>,
    members: Vec<OnceLock<Thread>>,
    /// The thread that is due for a burst; [`NONE`] in between.
    next: AtomicUsize,
    nanos: AtomicU64,
}

#[repr(align(4096))]
struct Area([AtomicU8; AREA]);

const NONE: usize = usize::MAX;

pub fn slice(due: &Due<Ids>, domain: Option<&Domain>, delay: f64) -> anyhow::Result<Sample<()>> {
    let size = due.team.size();
    let ids = domain.map_or(size, |domain| domain.max_ids() as usize);
    let area = |_| Area([const { AtomicU8::new(0) }; AREA]);
    let arena = &Arena {
        areas: (0..ids).map(area).collect(),
        members: (0..size).map(|_| OnceLock::new()).collect(),
        next: AtomicUsize::new(NONE),
        nanos: AtomicU64::new(0),
    };
    let mut random = Random::stream(due.seed, 0);
    let mut order: Vec<usize> = (0..size).collect();
    let mut wake_one_by_one = |part, _| {
        if part == Part::Over {
            return (0..size).for_each(|member| arena.unpark(member));
        }
        arena.nanos.store(0, Relaxed);
        let mut bursts = 0;
        while bursts < BURSTS {
            random.shuffle(&mut order);
            for &member in &order {
                // The pause comes before the burst, since the CPU time of a part is read at the end
                // of the last burst.
                pause(Duration::from_secs_f64(delay));
                arena.wake(member);
            }
            bursts += size;
            // The warm-up is one burst of each thread.
            if part == Part::WarmUp {
                return;
            }
        }
    };
    let work = |slice: &Slice, index| arena.wait_and_burst(slice, index, domain);
    let sample = slice::run(due.team, [0.0; 2], &mut wake_one_by_one, &work)?;
    Ok(Sample {
        elapsed: Duration::from_nanos(arena.nanos.load(Relaxed).max(1)),
        ..sample
    })
}

impl Arena {
    fn unpark(&self, member: usize) {
        let member = self.members[member].get();
        member.expect("it was ready").unpark();
    }

    /// Makes a member do a burst, and waits for the end of the burst.
    fn wake(&self, member: usize) {
        self.next.store(member, Release);
        self.unpark(member);
        while self.next.load(Acquire) != NONE {
            sleep(Duration::from_micros(50));
        }
    }

    /// The loop of the members of the team.
    fn wait_and_burst(&self, slice: &Slice, index: usize, domain: Option<&Domain>) {
        let _ = self.members[index].set(current());
        slice.start(index);
        let mut done = 0;
        while !slice.is_in(Part::Over) {
            if self.next.load(Acquire) != index {
                // The thread sleeps, so that its CPU is free and it has to be woken.
                park();
                continue;
            }
            let begin = Instant::now();
            match domain.map(|domain| (domain.enter(), domain.momentary_id())) {
                None => self.burst(index),
                Some((Ok(lease), _)) => self.burst(lease.id() as usize),
                // Only one thread at a time runs here, so the current ID is good enough.
                Some((Err(_), id)) => self.burst(id.unwrap_or(0) as usize),
            }
            let nanos = begin.elapsed().as_nanos() as u64;
            self.nanos.fetch_add(nanos, Relaxed);
            done += 1;
            slice.count(index, done);
            self.next.store(NONE, Release);
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
