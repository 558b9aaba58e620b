//! Which thread runs on which CPU.

use kinlock_linux::topology::{self, Topology};

/// How threads are bound to CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pin {
    /// The kernel places and moves threads as it likes
    None,
    /// Fill one locality domain after the other, and in it one core after the other
    Compact,
    /// Go round the locality domains, and in each use every core before a second thread of a core
    Spread,
}

impl Pin {
    /// The usual choice: spread while every thread has a CPU of its own, else none. Binding more
    /// threads than CPUs would keep the kernel from balancing them.
    pub fn usual(threads: usize, cpus: usize) -> Self {
        if threads <= cpus {
            Self::Spread
        } else {
            Self::None
        }
    }
}

/// A CPU that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    number: usize,
    domain: u16,
    core: usize,
    /// Which hardware thread of its core.
    thread: usize,
}

/// The CPU of each of `threads` threads; empty if they are not bound. More threads than CPUs begin
/// again from the first.
pub fn assign(pin: Pin, threads: usize) -> Vec<usize> {
    let order = order(pin, usable_cpus());
    order.into_iter().cycle().take(threads).collect()
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
            core: cpu.core.unwrap_or(cpu.number),
            thread: cpu.thread.unwrap_or(0),
        })
        .collect()
}

fn order(pin: Pin, mut cpus: Vec<Cpu>) -> Vec<usize> {
    match pin {
        Pin::None => return Vec::new(),
        Pin::Compact => cpus.sort_by_key(|cpu| (cpu.domain, cpu.core, cpu.number)),
        Pin::Spread => {
            cpus.sort_by_key(|cpu| (cpu.domain, cpu.thread, cpu.number));
            // The first of every domain, then the second of every domain, and so on.
            let domains = cpus.chunk_by(|a, b| a.domain == b.domain);
            let mut ranked: Vec<_> = domains.flat_map(|cpus| (0..).zip(cpus.to_vec())).collect();
            ranked.sort_by_key(|&(rank, cpu): &(usize, Cpu)| (rank, cpu.domain));
            cpus = ranked.into_iter().map(|(_, cpu)| cpu).collect();
        }
    }
    cpus.into_iter().map(|cpu| cpu.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two domains of two cores of two hardware threads, numbered as Linux usually does: second
    /// threads last.
    fn machine() -> Vec<Cpu> {
        (0..8)
            .map(|number| Cpu {
                number,
                domain: (number % 4 / 2) as u16,
                core: number % 4,
                thread: number / 4,
            })
            .collect()
    }

    #[test]
    fn compact_fills_cores_then_domains() {
        assert_eq!(order(Pin::Compact, machine()), [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn spread_alternates_domains_and_uses_whole_cores_first() {
        assert_eq!(order(Pin::Spread, machine()), [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn unbound() {
        assert!(assign(Pin::None, 4).is_empty());
        assert_eq!(Pin::usual(2, 2), Pin::Spread);
        assert_eq!(Pin::usual(3, 2), Pin::None);
    }

    #[test]
    fn more_threads_than_cpus_begin_again() {
        let cpus = assign(Pin::Spread, 100);
        assert_eq!(cpus.len(), 100);
        assert!(
            cpus.iter()
                .all(|cpu| kinlock_measure::cpus::allowed_cpus().contains(cpu))
        );
    }
}
