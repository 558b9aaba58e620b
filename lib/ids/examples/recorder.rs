//! A recorder of metrics: replies by status and a histogram of latencies, by each of several
//! threads. How long does one record take in per-ID counters, in plain atomics, and in the metrics
//! of the crate `prometheus`?
//!
//! ```text
//! cargo run --release -p kinlock-ids --example recorder
//! ```

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use kinlock_ids::{CounterArray, Domain, Histogram};

/// The ends of the ranges, in microseconds.
const BOUNDS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];
const STATUSES: usize = 4;
const SLICE: Duration = Duration::from_millis(200);
const ROUNDS: usize = 5;

trait Recorder: Sync {
    fn record(&self, status: usize, micros: u64);
    /// How many were recorded, by status and by latency.
    fn totals(&self) -> [u64; 2];
}

struct PerId {
    replies: CounterArray,
    latencies: Histogram,
}

impl Recorder for PerId {
    fn record(&self, status: usize, micros: u64) {
        self.replies.add(status, 1);
        self.latencies.record(micros);
    }

    fn totals(&self) -> [u64; 2] {
        let counts = [self.replies.sums(), self.latencies.counts()];
        counts.map(|counts| counts.iter().sum())
    }
}

#[derive(Default)]
struct Atomics {
    replies: [AtomicU64; STATUSES],
    latencies: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Recorder for Atomics {
    fn record(&self, status: usize, micros: u64) {
        self.replies[status].fetch_add(1, Relaxed);
        let range = BOUNDS.partition_point(|&bound| bound < micros);
        self.latencies[range].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    fn totals(&self) -> [u64; 2] {
        let total = |counts: &[AtomicU64]| counts.iter().map(|count| count.load(Relaxed)).sum();
        [total(&self.replies), total(&self.latencies)]
    }
}

struct Prometheus {
    replies: Vec<prometheus::IntCounter>,
    latencies: prometheus::Histogram,
}

impl Prometheus {
    fn new() -> Self {
        let name = prometheus::Opts::new("replies", "by status");
        let replies = prometheus::IntCounterVec::new(name, &["status"]).expect("a valid name");
        let buckets = BOUNDS.map(|bound| bound as f64).to_vec();
        let options = prometheus::HistogramOpts::new("latency", "in microseconds").buckets(buckets);
        let child = |status: usize| replies.with_label_values(&[status.to_string().as_str()]);
        Prometheus {
            // Looked up once, as its documentation advises.
            replies: (0..STATUSES).map(child).collect(),
            latencies: prometheus::Histogram::with_opts(options).expect("ascending buckets"),
        }
    }
}

impl Recorder for Prometheus {
    fn record(&self, status: usize, micros: u64) {
        self.replies[status].inc();
        self.latencies.observe(micros as f64);
    }

    fn totals(&self) -> [u64; 2] {
        let replies = self.replies.iter().map(|counter| counter.get()).sum();
        [replies, self.latencies.get_sample_count()]
    }
}

/// Nanoseconds of a thread for one record.
fn measure(recorder: &dyn Recorder, threads: usize) -> f64 {
    let start = Barrier::new(threads);
    let before = recorder.totals();
    let work = |me: usize| {
        // Latencies that are mostly short.
        let mut random = me as u64 * 2 + 1;
        start.wait();
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < SLICE {
            for _ in 0..256 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let micros = (random >> 40) >> (random >> 60);
                recorder.record(black_box(random >> 62) as usize, black_box(micros));
            }
            count += 256;
        }
        (count, begin.elapsed().as_nanos() as f64)
    };
    let results: Vec<(u64, f64)> = std::thread::scope(|scope| {
        let crew: Vec<_> = (0..threads)
            .map(|me| {
                scope.spawn({
                    let work = &work;
                    move || work(me)
                })
            })
            .collect();
        crew.into_iter()
            .map(|member| member.join().expect("no panic"))
            .collect()
    });
    let count: u64 = results.iter().map(|(count, _)| count).sum();
    for (now, before) in recorder.totals().iter().zip(before) {
        assert_eq!(now - before, count, "records were lost");
    }
    results.iter().map(|(_, time)| time).sum::<f64>() / count as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::auto();
    let per_id = PerId {
        replies: CounterArray::new(&domain, STATUSES)?,
        latencies: Histogram::new(&domain, &BOUNDS)?,
    };
    let (atomics, prometheus) = (Atomics::default(), Prometheus::new());
    let recorders: [(&str, &dyn Recorder); 3] = [
        ("per ID", &per_id),
        ("atomics", &atomics),
        ("prometheus", &prometheus),
    ];
    println!(
        "backend: {}; nanoseconds of a thread for a record, median of {ROUNDS} rounds",
        domain.backend()
    );
    println!(
        "{:>8}{:>12}{:>12}{:>12}",
        "threads", "per ID", "atomics", "prometheus"
    );
    for threads in [1, 2, 4, 8] {
        let mut times = [(); 3].map(|()| Vec::new());
        for _ in 0..ROUNDS {
            for ((_, recorder), times) in recorders.iter().zip(&mut times) {
                times.push(measure(*recorder, threads));
            }
        }
        let [a, b, c] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        println!("{threads:>8}{a:>12.1}{b:>12.1}{c:>12.1}");
    }
    Ok(())
}
