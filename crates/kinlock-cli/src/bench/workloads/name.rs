//! Names of workloads.

use std::fmt;
use std::str::FromStr;

/// A workload of the suite `locks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkloadName {
    /// Lock and unlock.
    Empty,
    /// A short section, a short think time.
    Counter,
    /// A section of about a microsecond.
    Long,
    /// An ordered map.
    Kv,
    /// A least-recently-used cache.
    Lru,
    /// A database on disk.
    ReadRandom,
}

impl WorkloadName {
    /// All workloads, in the order in which they run.
    pub const ALL: &'static [Self] = &[
        Self::Empty,
        Self::Counter,
        Self::Long,
        Self::Kv,
        Self::Lru,
        Self::ReadRandom,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Counter => "counter",
            Self::Long => "long",
            Self::Kv => "kv",
            Self::Lru => "lru",
            Self::ReadRandom => "readrandom",
        }
    }

    /// What one operation is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Empty => "lock and unlock, nothing else",
            Self::Counter => "add to four words under the lock, then about 100 ns of private work",
            Self::Long => "about 1 us of work under the lock, then about 100 ns of private work",
            Self::Kv => {
                "an ordered map of 1 M keys: 80 % reads, 10 % insertions, 10 % removals, keys by Zipf's law"
            }
            Self::Lru => {
                "an LRU cache of 50,000 entries asked for 1 M keys by Zipf's law; a miss inserts"
            }
            Self::ReadRandom => {
                "read random keys of an on-disk LevelDB-format database (100,000 entries of 100 bytes, or --db)"
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
