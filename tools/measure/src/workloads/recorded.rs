//! What `kinlock record` writes about a program's locks, for a simulation to replay.

use serde::{Deserialize, Serialize};

/// What `kinlock record` writes. Field names are a contract: add, don't rename.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// `recorded`.
    pub kind: String,
    /// The version of the command that wrote the recording.
    pub version: String,
    pub command: Vec<String>,
    pub cpu: String,
    /// How many CPUs the program was allowed to use.
    pub cpus: usize,
    /// How long the process with these locks ran.
    pub seconds: f64,
    pub lock: String,
    /// The time of one clock reading, which each recorded time includes.
    pub clock_ns: f64,
    /// Threads that took locks.
    pub threads: u32,
    /// When each thread took its first lock and when it ended: the thread's number modulo 32, and
    /// both times in seconds since the process began.
    #[serde(default)]
    pub lives: Vec<(u64, f64, f64)>,
    /// The locks that waited most first.
    pub locks: Vec<RecordedLock>,
    /// Locks without distributions: rarely taken, or beyond the table's room.
    pub left_out: usize,
    /// Acquisitions of the locks that are left out.
    pub left_out_locked: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedLock {
    pub name: String,
    /// How often it was taken.
    pub locked: u64,
    /// How often it was found taken.
    pub contended: u64,
    /// How long threads waited for it.
    pub wait_ns: u64,
    /// Hold times.
    pub hold: Distribution,
    /// Times from a thread's release to its next request, without its waits for other locks.
    pub think: Distribution,
    /// How often one thread held the lock right after another: the earlier thread, the later
    /// thread, and the count. The threads' numbers are modulo 32; the counts are estimates.
    pub follows: Vec<[u64; 3]>,
    /// Each thread's number modulo 32, and its acquisitions per second of its life.
    pub rates: Vec<(u64, f64)>,
}

/// Times in nanoseconds, in classes: the first of a class, the one after its last, and the count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distribution(pub Vec<(u64, u64, u64)>);

impl Distribution {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|class| class.2).sum()
    }

    /// The mean in nanoseconds, as if each time were in the middle of its class.
    pub fn mean(&self) -> f64 {
        let middle = |&(from, to, n): &(u64, u64, u64)| 0.5 * (from + to) as f64 * n as f64;
        self.0.iter().map(middle).sum::<f64>() / (self.count() as f64).max(1.0)
    }
}
