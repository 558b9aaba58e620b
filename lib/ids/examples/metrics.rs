//! Metrics of a program with other work to do: threads analyse an access log and count requests,
//! bytes and latencies. Once with shared atomics, once with a counter per ID.
//!
//! ```sh
//! cargo run --release -p kinlock --example metrics -- 4
//! ```
//!
//! The argument is the number of threads [default: four for each CPU].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kinlock_ids::{BuildError, Counter, Domain};

const LINES: usize = 20_000;
const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(300);
/// Latencies are counted by their power of two, in microseconds.
const BUCKETS: usize = 16;

/// A counter of either kind.
trait Count: Sync {
    fn add(&self, n: u64);
    fn sum(&self) -> u64;
}

impl Count for AtomicU64 {
    fn add(&self, n: u64) {
        self.fetch_add(n, Relaxed);
    }
    fn sum(&self) -> u64 {
        self.load(Relaxed)
    }
}

impl Count for Counter {
    fn add(&self, n: u64) {
        Counter::add(self, n);
    }
    fn sum(&self) -> u64 {
        Counter::sum(self)
    }
}

/// The metrics of the program.
struct Metrics<C> {
    requests: C,
    failed: C,
    bytes: C,
    latency: Vec<C>,
}

impl<C: Count> Metrics<C> {
    fn new(counter: impl Fn() -> C) -> Self {
        Metrics {
            requests: counter(),
            failed: counter(),
            bytes: counter(),
            latency: (0..BUCKETS).map(|_| counter()).collect(),
        }
    }

    /// A line is `METHOD PATH STATUS BYTES MICROSECONDS`.
    fn observe(&self, line: &str) {
        let mut fields = line.split(' ').skip(2);
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
        let (Some(status), Some(bytes), Some(micros)) = (number(), number(), number()) else {
            return;
        };
        self.requests.add(1);
        if status >= 500 {
            self.failed.add(1);
        }
        self.bytes.add(bytes);
        let bucket = (micros.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.latency[bucket].add(1);
    }

    /// Runs `threads` threads for a while. Returns the lines per second.
    fn run(&self, threads: usize, log: &[String]) -> f64 {
        let before = self.requests.sum();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for me in 0..threads {
                scope.spawn(move || {
                    let mine = log.iter().cycle().skip(me * 997);
                    for (number, line) in mine.enumerate() {
                        if number % 256 == 0 && begin.elapsed() >= SLICE {
                            break;
                        }
                        self.observe(line);
                    }
                });
            }
        });
        (self.requests.sum() - before) as f64 / begin.elapsed().as_secs_f64()
    }

    fn print(&self) {
        let latency: u64 = self.latency.iter().map(Count::sum).sum();
        assert_eq!(latency, self.requests.sum(), "every request has a latency");
        println!(
            "  {} requests, {} failed, {} MB",
            self.requests.sum(),
            self.failed.sum(),
            self.bytes.sum() / 1_000_000
        );
    }
}

fn main() -> Result<(), BuildError> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(4 * cpus);
    let log: Vec<String> = (0..LINES)
        .map(|i| {
            let status = if i % 97 == 0 { 503 } else { 200 };
            format!(
                "GET /item/{i} {status} {} {}",
                100 + i % 5000,
                20 + i * 7 % 3000
            )
        })
        .collect();

    let domain = Domain::auto();
    // An early check that there is memory for counters.
    drop(Counter::new(&domain)?);
    let shared = Metrics::new(|| AtomicU64::new(0));
    let per_id = Metrics::new(|| Counter::new(&domain).expect("memory for a counter"));
    println!(
        "{threads} threads on {cpus} CPUs, backend {}",
        domain.backend()
    );
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let (atomic, own) = (shared.run(threads, &log), per_id.run(threads, &log));
        println!(
            "round {round}: shared atomics {:.1} M lines/s, counters {:.1} M lines/s: x {:.2}",
            atomic / 1e6,
            own / 1e6,
            own / atomic
        );
        ratios.push(own / atomic);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median x {:.2}", ratios[ROUNDS / 2]);
    shared.print();
    per_id.print();
    Ok(())
}
