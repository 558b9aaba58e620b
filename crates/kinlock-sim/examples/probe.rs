//! Probe.
use kinlock_sim::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&a[1]).unwrap();
    let secs: f64 = a[3].parse().unwrap();
    for l in a[5].split(',') {
        for n in a[4].split(',') {
            let n: usize = n.parse().unwrap();
            let seed: u64 = std::env::var("SEED")
                .ok()
                .and_then(|v| v.parse().ok())
                .unwrap_or(1);
            let o = Run {
                seconds: secs,
                seed,
                ..Run::new(
                    machine.clone(),
                    workloads::by_name(&a[2]).unwrap(),
                    locks::by_name(l).unwrap(),
                    n,
                )
            }
            .execute()
            .unwrap();
            let c: Vec<_> = o
                .counted
                .iter()
                .filter(|c| c.1 > 0)
                .map(|c| format!("{}={}", c.0.name(), c.1))
                .collect();
            println!(
                "{l} {n}: {:.4} ops/us p50 {} p99 {} ev {} host {:.2}s ret {} loc {} rem {} min {} {}",
                o.ops_per_us(),
                o.waits.value_at_quantile(0.5),
                o.waits.value_at_quantile(0.99),
                o.events,
                o.host_seconds,
                o.handoffs.retaken,
                o.handoffs.local,
                o.handoffs.remote,
                o.per_thread.iter().min().unwrap(),
                c.join(" ")
            );
        }
    }
}
