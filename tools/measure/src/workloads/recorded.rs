//! What `kinlock record` writes of a program's locks, for a simulation to replay.

use serde::{Deserialize, Serialize};

/// What `kinlock record` writes. Field names are a contract: add, don't rename.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// `recorded`.
    pub kind: String,
    /// Of the command that wrote it.
    pub version: String,
    pub command: Vec<String>,
    pub cpu: String,
    /// How many CPUs it might use.
    pub cpus: usize,
    /// How long the process with these locks ran.
    pub seconds: f64,
    pub lock: String,
    /// What reading the clock took. Each time has one reading in it.
    pub clock_ns: f64,
    /// Threads that took locks.
    pub threads: u32,
    /// When threads took their first lock and ended, in seconds of the process: the number modulo
    /// 32, from, to.
    #[serde(default)]
    pub lives: Vec<(u64, f64, f64)>,
    /// The locks that waited most first.
    pub locks: Vec<RecordedLock>,
    /// Locks without distributions: rarely taken, or beyond the table's room.
    pub left_out: usize,
    /// Acquisitions of those.
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
    /// From having it to releasing it.
    pub hold: Distribution,
    /// From a thread's release to its next request, without its waits for other locks.
    pub think: Distribution,
    /// How often which thread held it after which one: first, then, how often. The numbers of the
    /// threads are modulo 32; the counts are estimates.
    pub follows: Vec<[u64; 3]>,
    /// Acquisitions per second of a thread's life, by thread: its number modulo 32, its rate.
    pub rates: Vec<(u64, f64)>,
}

/// Times in nanoseconds: the first of a class, the one after its last, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distribution(pub Vec<(u64, u64, u64)>);

impl Distribution {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|class| class.2).sum()
    }

    /// The mean, in nanoseconds, each time taken to be in the middle of its class.
    pub fn mean(&self) -> f64 {
        let middle = |&(from, to, n): &(u64, u64, u64)| 0.5 * (from + to) as f64 * n as f64;
        self.0.iter().map(middle).sum::<f64>() / (self.count() as f64).max(1.0)
    }
}
