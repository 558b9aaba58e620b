//! The shape of a machine, and how its CPUs are numbered.

use super::Distance;

/// A hardware thread: `core * threads_per_core + sibling`; cores are numbered cache by cache,
/// socket by socket.
pub type CpuId = usize;

/// Sockets, last-level caches, cores, hardware threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sockets; each is one NUMA node.
    pub sockets: usize,
    pub caches_per_socket: usize,
    pub cores_per_cache: usize,
    pub threads_per_core: usize,
    /// Hops between sockets, row by row: 0 on the diagonal, else 1 or 2.
    pub hops: Vec<u8>,
}

impl Shape {
    pub const MAX_CORES: usize = 256;
    pub const MAX_CACHES: usize = 64;

    pub fn caches(&self) -> usize {
        self.sockets * self.caches_per_socket
    }

    pub fn cores(&self) -> usize {
        self.caches() * self.cores_per_cache
    }

    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    pub fn core(&self, cpu: CpuId) -> usize {
        cpu / self.threads_per_core
    }

    pub fn cache(&self, core: usize) -> usize {
        core / self.cores_per_cache
    }

    pub fn socket(&self, cache: usize) -> usize {
        cache / self.caches_per_socket
    }

    /// How far two last-level caches are apart.
    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let (s, t) = (self.socket(a), self.socket(b));
        match (a == b, s == t) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 1 + self.hops[s * self.sockets + t] as usize,
        }
    }
}
