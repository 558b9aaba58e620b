//! Threads that use a lock, and a watchdog over them.
//!
//! ```text
//!   start -> all run until the time is up, or a wait lasts too long -> stop -> drain -> Findings
//! ```
//!
//! A thread that waits for a lock cannot be told to stop waiting. So the watchdog joins the threads
//! only after all have said that they are finished. If some hang, it reports them and leaves all
//! threads behind.

mod member;

pub use member::{Crew, Worker};

use crate::oracle::SharedState;
use crate::report::{Findings, PerThread, Property};
use kinlock_measure::cpus::{allowed_cpus, pin_to};
use kinlock_measure::random::Random;
use member::Phase;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The watchdog's period.
const TICK: Duration = Duration::from_millis(5);
/// A report describes at most this many of the threads that hang.
const MOST_DESCRIBED: usize = 8;

#[derive(Clone, Debug)]
pub struct Orders {
    pub threads: usize,
    pub duration: Duration,
    /// A wait that lasts longer than this counts as endless.
    pub hang: Duration,
    /// The longest wait for the lock that is still fair.
    pub longest_wait: Duration,
    /// Whether each thread is pinned to one of the CPUs that the process may use. If there are more
    /// threads than CPUs, threads share CPUs.
    pub pinned: bool,
    pub seed: u64,
}

impl Findings {
    /// How often all threads together acquired the lock.
    pub(crate) fn total(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// Adds the oracle's verdict on `state`: each acquisition was a critical section.
    pub(crate) fn on(self, state: &SharedState) -> Self {
        let sections = self.total();
        self.after(sections, state)
    }

    /// As [`on`](Self::on), for scenarios in which the number of critical sections is not the
    /// number of acquisitions.
    pub(crate) fn after(mut self, sections: u64, state: &SharedState) -> Self {
        let exclusion = match self.left_threads {
            false => state.verdict(sections),
            true => state
                .no_violation()
                .map(|()| "no violation before the hang".into()),
        };
        (self.verdicts).insert(0, (Property::Exclusion, exclusion));
        self
    }
}

/// Runs `body` on each thread of a crew, and `meanwhile` on the calling thread every few
/// milliseconds.
///
/// `body` should return soon after [`Worker::running`] has become false. `meanwhile` returns
/// whether the scenario has reached the situations that it was written to reach. If it has not by
/// the end of [`Orders::duration`], the run goes on for at most [`Orders::hang`].
pub fn run(
    orders: &Orders,
    body: impl Fn(&mut Worker) + Send + Sync + 'static,
    mut meanwhile: impl FnMut(&Crew) -> bool,
) -> Findings {
    let crew = Arc::new(Crew::new(orders.threads));
    let threads = start(orders, &crew, Arc::new(body));
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
    let operations = crew.acquisitions();
    let completion = match completed {
        true => Ok(format!("all {} threads got out", orders.threads)),
        false => Err(describe_stuck(&crew)),
    };
    let (wait, limit) = (crew.longest_wait(), orders.longest_wait);
    let detail = format!("{}, longest wait {wait:.1?}", PerThread::of(&operations));
    let progress = match wait <= limit {
        true => Ok(detail),
        false => Err(format!("{detail}, limit {limit:.1?}")),
    };
    Findings {
        verdicts: vec![
            (Property::Completion, completion),
            (Property::Progress, progress),
        ],
        operations,
        left_threads: !completed,
    }
}

fn start(
    orders: &Orders,
    crew: &Arc<Crew>,
    body: Arc<impl Fn(&mut Worker) + Send + Sync + 'static>,
) -> Vec<JoinHandle<()>> {
    let cpus = if orders.pinned {
        allowed_cpus()
    } else {
        Vec::new()
    };
    let start_one = |me: usize| {
        let (crew, body) = (Arc::clone(crew), Arc::clone(&body));
        let random = Random::stream(orders.seed, me as u64);
        let cpu = (!cpus.is_empty()).then(|| cpus[me % cpus.len()]);
        let thread = std::thread::Builder::new()
            .name(format!("crew-{me}"))
            .stack_size(256 * 1024);
        let run = move || {
            if let Some(cpu) = cpu {
                pin_to(cpu);
            }
            let mut worker = Worker::new(crew, me, random);
            body(&mut worker);
            worker.finish();
        };
        thread.spawn(run).expect("a thread can be started")
    };
    (0..orders.threads).map(start_one).collect()
}

fn describe_stuck(crew: &Crew) -> String {
    let stuck: Vec<_> = crew
        .members()
        .filter(|m| m.phase() != Phase::Finished)
        .collect();
    let described = stuck.iter().take(MOST_DESCRIBED).map(ToString::to_string);
    let more = (stuck.len() > MOST_DESCRIBED).then(|| "...".to_owned());
    let described: Vec<_> = described.chain(more).collect();
    let all = crew.members().count();
    format!(
        "{} of {all} threads hang: {}",
        stuck.len(),
        described.join("; ")
    )
}
