//! Threads that use a lock, and a watchdog over them.
//!
//! ```text
//!   muster -> all run until the time is up, or somebody waits for too long -> stop -> drain -> Outcome
//! ```
//!
//! A thread that waits for a lock cannot be told to stop waiting. So the watchdog never joins a thread that has not
//! said that it is finished: threads that hang are reported and left behind.

mod member;

pub use member::{Crew, Worker};

use crate::affinity::{allowed_cpus, pin_to};
use crate::random::Random;
use crate::report::{PerThread, Property};
use member::Phase;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the watchdog looks.
const TICK: Duration = Duration::from_millis(5);
/// How many threads are described when some hang.
const MOST_DESCRIBED: usize = 8;

/// What a crew is to do.
#[derive(Clone, Debug)]
pub struct Orders {
    /// How many threads.
    pub threads: usize,
    /// For how long they run.
    pub duration: Duration,
    /// After this time a wait is taken to be endless.
    pub hang: Duration,
    /// The longest wait for the lock that is still fair.
    pub longest_wait: Duration,
    /// Spread the threads over the CPUs that the process may use, one each, in turn.
    pub pinned: bool,
    /// Determines what each thread does.
    pub seed: u64,
}

/// What became of a crew.
#[derive(Debug)]
pub struct Outcome {
    /// Acquisitions of each thread.
    pub acquisitions: Vec<u64>,
    /// Whether everybody got out. If not, threads are left behind and what they share must stay.
    pub completed: bool,
    /// By property; details in either case.
    pub verdicts: Vec<(Property, Result<String, String>)>,
}

impl Outcome {
    /// Acquisitions of all threads together.
    pub fn total(&self) -> u64 {
        self.acquisitions.iter().sum()
    }
}

/// Runs `body` on each thread of a crew, and `meanwhile` on the calling thread every few milliseconds.
///
/// `body` should return soon after [`Worker::running`] has become false. `meanwhile` says whether what the scenario is
/// for has happened by now: until it has, the run goes on, for at most [`Orders::hang`] beyond its time.
pub fn run(
    orders: &Orders,
    body: impl Fn(&mut Worker) + Send + Sync + 'static,
    mut meanwhile: impl FnMut(&Crew) -> bool,
) -> Outcome {
    let crew = Arc::new(Crew::new(orders.threads));
    let body = Arc::new(body);
    let cpus = if orders.pinned {
        allowed_cpus()
    } else {
        Vec::new()
    };
    let threads: Vec<_> = (0..orders.threads)
        .map(|me| {
            let (crew, body) = (Arc::clone(&crew), Arc::clone(&body));
            let random = Random::new(orders.seed, me as u64);
            let cpu = (!cpus.is_empty()).then(|| cpus[me % cpus.len()]);
            std::thread::Builder::new()
                .name(format!("crew-{me}"))
                .stack_size(256 * 1024)
                .spawn(move || {
                    if let Some(cpu) = cpu {
                        pin_to(cpu);
                    }
                    let mut worker = Worker::new(crew, me, random);
                    body(&mut worker);
                    worker.finish();
                })
                .expect("a thread can be started")
        })
        .collect();

    let end = Instant::now() + orders.duration;
    let mut reached = false;
    while crew.longest_current_wait() < orders.hang {
        let now = Instant::now();
        if now >= end && (reached || now >= end + orders.hang) {
            break;
        }
        reached = meanwhile(&crew);
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(if left.is_zero() { TICK } else { TICK.min(left) });
    }
    crew.stop();
    let give_up = Instant::now() + orders.hang;
    while !crew.all_finished() && Instant::now() < give_up {
        meanwhile(&crew);
        std::thread::sleep(TICK);
    }

    let completed = crew.all_finished();
    if completed {
        for thread in threads {
            // A panic in a worker is a defect of the scenario, not of the lock.
            thread.join().expect("no worker panics");
        }
    }
    let acquisitions = crew.acquisitions();
    Outcome {
        verdicts: verdicts(orders, &crew, completed, &acquisitions),
        completed,
        acquisitions,
    }
}

fn verdicts(
    orders: &Orders,
    crew: &Crew,
    completed: bool,
    acquisitions: &[u64],
) -> Vec<(Property, Result<String, String>)> {
    let per_thread = PerThread::of(acquisitions);
    let mut verdicts = vec![(
        Property::Completion,
        if completed {
            Ok(format!("all {} threads got out", orders.threads))
        } else {
            Err(describe_stuck(crew))
        },
    )];
    let (wait, limit) = (crew.longest_wait(), orders.longest_wait);
    let detail = format!("{per_thread}, longest wait {wait:.1?}");
    verdicts.push((
        Property::Progress,
        if wait <= limit {
            Ok(detail)
        } else {
            Err(format!("{detail}, limit {limit:.1?}"))
        },
    ));
    verdicts
}

fn describe_stuck(crew: &Crew) -> String {
    let stuck: Vec<_> = crew
        .members()
        .filter(|m| m.phase() != Phase::Finished)
        .collect();
    let mut text = format!(
        "{} of {} threads hang: ",
        stuck.len(),
        crew.members().count()
    );
    for member in stuck.iter().take(MOST_DESCRIBED) {
        text += &format!("{member}; ");
    }
    text.truncate(text.trim_end_matches("; ").len());
    if stuck.len() > MOST_DESCRIBED {
        text += "; ...";
    }
    text
}
