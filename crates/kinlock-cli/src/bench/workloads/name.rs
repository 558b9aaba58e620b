//! Names of workloads.

use std::fmt;
use std::str::FromStr;

use super::{broadcast, pingpong};

/// A workload of the suite `locks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkloadName {
    /// Lock and unlock.
    Empty,
    /// A short section, a short think time.
    Counter,
    /// A section of about a microsecond.
    Long,
    /// The same section, no think time.
    Saturated,
    /// An ordered map.
    Kv,
    /// A least-recently-used cache.
    Lru,
    /// A database on disk.
    ReadRandom,
    /// Two threads that take turns.
    PingPong,
    /// One thread that calls sixteen.
    Broadcast,
}

impl WorkloadName {
    /// All workloads, in the order in which they run.
    pub const ALL: &'static [Self] = &[
        Self::Empty,
        Self::Counter,
        Self::Long,
        Self::Saturated,
        Self::Kv,
        Self::Lru,
        Self::ReadRandom,
        Self::PingPong,
        Self::Broadcast,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Counter => "counter",
            Self::Long => "long",
            Self::Saturated => "saturated",
            Self::Kv => "kv",
            Self::Lru => "lru",
            Self::ReadRandom => "readrandom",
            Self::PingPong => "pingpong",
            Self::Broadcast => "broadcast",
        }
    }

    /// How many threads it takes, if that is not for the user to choose. Such a workload needs a condition variable.
    pub fn own_threads(self) -> Option<usize> {
        match self {
            Self::PingPong => Some(pingpong::THREADS),
            Self::Broadcast => Some(broadcast::THREADS),
            _ => None,
        }
    }

    /// What one operation is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Empty => "lock and unlock, nothing else",
            Self::Counter => "add to four words under the lock, then about 100 ns of private work",
            Self::Long => "about 1 us of work under the lock, then about 100 ns of private work",
            Self::Saturated => "about 1 us of work under the lock, nothing else",
            Self::Kv => {
                "an ordered map of 1 M keys: 80 % reads, 10 % insertions, 10 % removals, keys by Zipf's law"
            }
            Self::Lru => {
                "an LRU cache of 50,000 entries asked for 1 M keys by Zipf's law; a miss inserts"
            }
            Self::ReadRandom => {
                "read random keys of an on-disk LevelDB-format database (100,000 entries of 100 bytes, or --db)"
            }
            Self::PingPong => {
                "two threads take turns through a mutex and a condition variable; an operation is a round trip"
            }
            Self::Broadcast => {
                "one thread publishes to 16 that wait on a condition variable, and waits until all have reported back"
            }
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .iter()
            .copied()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|workload| workload.name()).collect();
                format!("no such workload; known: {}", known.join(", "))
            })
    }
}
