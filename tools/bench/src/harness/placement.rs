//! Which thread runs on which CPU.

use std::thread;

use kinlock_linux::topology::{self, Topology};
use kinlock_measure::cpus::pin_to;

/// A CPU that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    number: usize,
    domain: u16,
    /// The number of the hardware thread in its core.
    thread: usize,
}

/// The CPU of each of `threads` threads, if each can have one of its own. Empty if the threads are
/// not bound: because the kernel refuses, or because there are more threads than CPUs, which the
/// kernel could then not balance.
pub fn assign(threads: usize) -> Vec<usize> {
    let mut order = spread(usable_cpus());
    if threads > order.len() {
        return Vec::new();
    }
    order.truncate(threads);
    // Tried in a separate thread, since the thread stays bound.
    let is_bound = thread::scope(|scope| {
        let tried = || order.iter().all(|&cpu| pin_to(cpu));
        let tried = thread::Builder::new().spawn_scoped(scope, tried);
        tried.is_ok_and(|tried| tried.join().unwrap_or(false))
    });
    if !is_bound {
        order.clear();
    }
    order
}

fn usable_cpus() -> Vec<Cpu> {
    let topology = Topology::current();
    let allowed = kinlock_measure::cpus::allowed_cpus();
    topology
        .cpus()
        .iter()
        .filter(|cpu| allowed.binary_search(&cpu.number).is_ok())
        .map(|cpu| Cpu {
            number: cpu.number,
            domain: topology::domain_of_cpu(cpu.number),
            thread: cpu.thread.unwrap_or(0),
        })
        .collect()
}

/// Orders CPUs round-robin by locality domain. In each domain every core comes before the second
/// hardware thread of any core.
fn spread(mut cpus: Vec<Cpu>) -> Vec<usize> {
    cpus.sort_by_key(|cpu| (cpu.domain, cpu.thread, cpu.number));
    // The first of every domain, then the second of every domain, and so on.
    let domains = cpus.chunk_by(|a, b| a.domain == b.domain);
    let mut ranked: Vec<_> = domains.flat_map(|cpus| (0..).zip(cpus.to_vec())).collect();
    ranked.sort_by_key(|&(rank, cpu): &(usize, Cpu)| (rank, cpu.domain));
    ranked.into_iter().map(|(_, cpu)| cpu.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_alternate_and_whole_cores_come_first() {
        // Two domains of two cores of two hardware threads, numbered as Linux usually does: second
        // threads last.
        let machine = (0..8).map(|number| Cpu {
            number,
            domain: (number % 4 / 2) as u16,
            thread: number / 4,
        });
        assert_eq!(spread(machine.collect()), [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
