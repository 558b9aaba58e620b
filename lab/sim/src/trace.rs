//! What every hand-off of a lock cost, and which cache lines it waited for.
//!
//! A chain of waits without gaps leads from a release to the next acquisition. It is followed
//! backwards from the acquisition, across all threads on the way. The holder's time is divided in
//! the same way. `docs/guide/simulator.md` has examples. Tracing changes no result and takes no
//! simulated time.

mod path;
mod recorder;
#[cfg(test)]
mod tests;

pub(crate) use recorder::{Recorder, Recording, Served, Whereabouts};

use crate::coherence::Service;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Formatter};

with_names! {
    /// What a line belongs to.
    Part
    /// The lock itself: its word, and the data next to it.
    Word "lock word";
    /// A waiter's place in the queue.
    Node "queue node";
    /// What the workload touches.
    Data "data";
    /// Everything else, such as the table of free nodes.
    Other "other";
}

/// A cache line, by what it belongs to. For people and programs: `queue node 17`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LineName {
    /// What it belongs to.
    pub part: Part,
    /// For a node, its index in its table, or in a model of a lock the number of its thread.
    /// Otherwise, the number of the line in that part.
    pub number: usize,
}

impl Display for LineName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.part.name(), self.number)
    }
}

impl Serialize for LineName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

with_names! {
    /// Where a line came from, the nearest first.
    Reach
    /// A core of the same last-level cache, or that cache.
    SameCache "same cache";
    /// Another last-level cache of the socket.
    SameSocket "same socket";
    /// Another socket.
    OtherSocket "other socket";
    /// Memory.
    Memory "memory";
}

impl Reach {
    /// `None` for the core's own caches: no line moves.
    fn of(service: Service) -> Option<Reach> {
        match service {
            Service::OwnCache => None,
            Service::LastLevel | Service::Nearby => Some(Reach::SameCache),
            Service::Local => Some(Reach::SameSocket),
            Service::Remote => Some(Reach::OtherSocket),
            Service::Memory => Some(Reach::Memory),
        }
    }
}

/// What a thread waited for. For people and programs: `lock word from other socket`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// A line to arrive.
    Line(Part, Reach),
    /// A line that others got first.
    Queue(Part),
    /// A spinning thread to look again after its pause, and to leave the loop.
    Spin,
    /// Nothing: it executed instructions and hit its own caches.
    Own,
    /// A sleep to end, or a CPU.
    Sleep,
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Line(part, reach) => write!(f, "{} from {}", part.name(), reach.name()),
            Cause::Queue(part) => write!(f, "{} behind others", part.name()),
            Cause::Spin => f.write_str("pause and end of a spin loop"),
            Cause::Own => f.write_str("instructions and own caches"),
            Cause::Sleep => f.write_str("sleep or no CPU"),
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The part of a cycle of the lock that time belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// From having the lock to releasing it.
    Held,
    /// From the release, or from the next thread's request if that was later, until that thread has
    /// the lock.
    Handed,
    /// From the release until a thread asked for it.
    Free,
}

/// Part of a hand-off.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The thread that waited.
    pub thread: usize,
    /// The socket it ran on.
    pub socket: usize,
    /// What it waited for.
    pub cause: Cause,
    /// The line that it waited for, if it did.
    pub line: Option<LineName>,
    /// The begin, in nanoseconds from the start of the run.
    pub from_ns: f64,
    /// The end, likewise.
    pub to_ns: f64,
}

/// From one acquisition to the next. The steps of each stage follow each other without a gap.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Handoff {
    /// The thread that had the lock.
    pub from: Holder,
    /// The next thread that has it.
    pub to: Holder,
    /// How far apart their cores were.
    pub distance: Distance,
    /// When the first thread got the lock, in nanoseconds from the start of the run.
    pub acquired_ns: f64,
    /// When the first thread released it.
    pub released_ns: f64,
    /// When the next thread began to wait: at the release, if it waited by then.
    pub asked_ns: f64,
    /// When the next thread got it.
    pub handed_ns: f64,
    /// What the holder did.
    pub held: Vec<Step>,
    /// What the hand-off waited for.
    pub handed: Vec<Step>,
}

/// A thread that has the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Holder {
    /// The thread.
    pub thread: usize,
    /// The socket it runs on.
    pub socket: usize,
}

with_names! {
    /// How far apart two successive holders were, the nearest first.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    Distance
    /// The same thread took it again.
    Retaken "same thread";
    /// Under the same last-level cache.
    SameCache "same cache";
    /// In the same socket.
    SameSocket "same socket";
    /// In another socket.
    OtherSocket "other socket";
}

/// Hand-offs over one distance.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AtDistance {
    /// The distance.
    pub distance: Distance,
    /// How many there were.
    pub count: u64,
    /// The sum of their times, in nanoseconds, without the time in which no thread asked.
    pub ns: f64,
}

/// Time that one cause took in one stage, in all cycles together.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Share {
    /// The stage.
    pub stage: Stage,
    /// The cause.
    pub cause: Cause,
    /// How long, in nanoseconds.
    pub ns: f64,
}

/// How often a line moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Moved {
    /// The line.
    pub line: LineName,
    /// How often a core got the line from elsewhere than its own caches to read it, by [`Reach`].
    pub read: [u64; Reach::ALL.len()],
    /// How often a core got the line to write it, or had it and took it from other sharers.
    pub written: [u64; Reach::ALL.len()],
}

/// What a traced run found, after its warm-up.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trace {
    /// Cycles of the lock: from one acquisition to the next.
    pub cycles: u64,
    /// How long they took together, in nanoseconds: the sum of all shares.
    pub ns: f64,
    /// That time by stage and cause, sorted by these.
    pub shares: Vec<Share>,
    /// The hand-offs among them by distance.
    pub distances: Vec<AtDistance>,
    /// Lines that moved.
    pub lines: Vec<Moved>,
    /// The last hand-offs, at most [`KEPT`](Self::KEPT).
    pub handoffs: Vec<Handoff>,
}

impl Trace {
    /// How many hand-offs are kept.
    pub const KEPT: usize = 1000;

    /// Nanoseconds per cycle of all shares for which `which` holds.
    pub fn mean_ns(&self, which: impl Fn(&Share) -> bool) -> f64 {
        let those = self.shares.iter().filter(|share| which(share));
        those.map(|share| share.ns).sum::<f64>() / self.cycles.max(1) as f64
    }

    /// How often lines of a part moved over a distance, per cycle: to be read, and to be written.
    pub fn moves(&self, part: Part, reach: Reach) -> [f64; 2] {
        let those = || self.lines.iter().filter(|moved| moved.line.part == part);
        let read: u64 = those().map(|moved| moved.read[reach as usize]).sum();
        let written: u64 = those().map(|moved| moved.written[reach as usize]).sum();
        [read, written].map(|times| times as f64 / self.cycles.max(1) as f64)
    }
}
