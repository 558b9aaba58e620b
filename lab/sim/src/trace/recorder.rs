//! The recorder of a traced run, to which the simulation reports what happens.

use super::path::{Piece, Request, Timeline, Wake, What, chain};
use super::{
    AtDistance, Cause, Distance, Handoff, Holder, LineName, Moved, Part, Reach, Share, Stage, Step,
    Trace,
};
use crate::coherence::{How, LINE, Service};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Where a thread runs: its last-level cache and its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whereabouts {
    pub(crate) cache: usize,
    pub(crate) socket: usize,
}

/// A finished access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) how: How,
    pub(crate) service: Service,
    /// When its request was sent.
    pub(crate) sent: u64,
    /// When the request arrived.
    pub(crate) arrived: u64,
    /// The time until which the line was then busy.
    pub(crate) busy: u64,
    pub(crate) answered: u64,
    /// For a store, when others see it.
    pub(crate) visible: u64,
}

/// Values that were placed together.
#[derive(Clone, Copy, Debug)]
struct Placed {
    part: Part,
    start: usize,
    end: usize,
    /// Bytes of one value: a node, or a line.
    stride: usize,
    /// The number of the first one.
    first: usize,
}

/// The holder of the lock, and its pieces, up to the release.
#[derive(Clone, Debug)]
struct Release {
    from: (usize, Whereabouts),
    acquired: u64,
    at: u64,
    held: Vec<Piece>,
}

/// One cycle of the lock. Times are in cycles of the clock.
struct Cycle {
    release: Release,
    to: (usize, Whereabouts),
    asked: u64,
    handed_at: u64,
    handed: Vec<Piece>,
}

/// The recorder of a run, if its hand-offs are traced.
pub(crate) struct Recording(pub(crate) Option<Box<Recorder>>);

impl Recording {
    #[inline]
    pub(crate) fn tell(&mut self, what: impl FnOnce(&mut Recorder)) {
        if let Some(recorder) = &mut self.0 {
            what(recorder);
        }
    }
}

/// A run's recorder.
pub(crate) struct Recorder {
    /// The time that counts, from the end of the warm-up to the end, in cycles.
    counted: Range<u64>,
    /// The part to which the next placement belongs.
    pub(crate) placing: Part,
    placed: Vec<Placed>,
    timelines: Vec<Timeline>,
    /// Spans that ended before this time are not needed any more.
    horizon: u64,
    /// The last write.
    write: Option<Wake>,
    holder: Option<(usize, u64)>,
    release: Option<Release>,
    cycles: u64,
    shares: BTreeMap<(Stage, Cause), u64>,
    distances: [(u64, u64); Distance::ALL.len()],
    /// For each kind of access.
    moved: BTreeMap<LineName, [[u64; Reach::ALL.len()]; 2]>,
    kept: VecDeque<(Distance, Cycle)>,
}

impl Recorder {
    pub(crate) fn new(threads: usize, counted: Range<u64>) -> Self {
        Recorder {
            counted,
            placing: Part::Node,
            placed: Vec::new(),
            timelines: (0..threads).map(|_| Timeline::default()).collect(),
            horizon: 0,
            write: None,
            holder: None,
            release: None,
            cycles: 0,
            shares: BTreeMap::new(),
            distances: Default::default(),
            moved: BTreeMap::new(),
            kept: VecDeque::new(),
        }
    }

    /// Notes that `n` values of `size` bytes, or a single one, were placed at `address`.
    pub(crate) fn placed(&mut self, address: usize, size: usize, n: Option<usize>) {
        let (part, stride) = match (self.placing, n) {
            (Part::Word | Part::Node, Some(_)) => (Part::Node, size.max(1)),
            (part, _) => (part, LINE),
        };
        let bytes = size * n.unwrap_or(1);
        // The numbers of nodes begin at 0 in each table: a lock uses only one table.
        let is_line = |placed: &&Placed| placed.part == part && part != Part::Node;
        let before = self.placed.iter().filter(is_line);
        let count = |p: &Placed| (p.end - p.start).div_ceil(p.stride);
        self.placed.push(Placed {
            part,
            start: address,
            end: address + bytes,
            stride,
            first: before.map(count).sum(),
        });
    }

    fn name(&self, address: usize) -> LineName {
        let at = self.placed.partition_point(|placed| placed.end <= address);
        match self.placed.get(at) {
            Some(placed) if placed.start <= address => LineName {
                part: placed.part,
                number: placed.first + (address - placed.start) / placed.stride,
            },
            _ => LineName {
                // The address is on a thread's stack.
                part: Part::Other,
                number: 0,
            },
        }
    }

    pub(crate) fn access(&mut self, thread: usize, address: usize, served: Served) {
        let line = self.name(address);
        let reach = Reach::of(served.service);
        if let Some(reach) = reach
            && self.counted.contains(&served.answered)
        {
            self.moved.entry(line).or_default()[served.how.kind() as usize][reach as usize] += 1;
        }
        let mut request = Request {
            line,
            reach,
            sent: served.sent,
            arrived: served.arrived,
            served: served.arrived.max(served.busy).min(served.answered),
            answered: served.answered,
        };
        match served.how {
            How::Prefetch => return,
            How::Store | How::Ahead => {
                let timeline = &mut self.timelines[thread];
                if let Some(earlier) = timeline.draining
                    && earlier.answered > request.answered
                {
                    request = earlier;
                }
                timeline.draining = Some(request);
                if served.how == How::Ahead {
                    return;
                }
            }
            How::Load | How::Glance | How::Locked => {
                if reach.is_some() {
                    self.span(
                        thread,
                        request.sent,
                        request.answered,
                        What::Requests(request),
                    );
                }
            }
        }
        self.write = Some(Wake {
            thread,
            visible: served.visible,
            request,
        });
    }

    /// Notes that a locked operation waits until the thread's stores are visible.
    #[cold]
    #[inline(never)]
    pub(crate) fn drains(&mut self, thread: usize, from: u64, to: u64) {
        if let Some(request) = self.timelines[thread].draining {
            self.span(thread, from, to, What::Requests(request));
        }
    }

    /// Notes that the thread begins to spin, or leaves its CPU.
    #[cold]
    #[inline(never)]
    pub(crate) fn stops(&mut self, thread: usize, at: u64) {
        self.timelines[thread].since = at;
    }

    /// Notes that the last write makes a spinning thread look again at time `to`.
    #[cold]
    #[inline(never)]
    pub(crate) fn looks_again(&mut self, thread: usize, to: u64) {
        self.span(
            thread,
            self.timelines[thread].since,
            to,
            What::Spins(self.write),
        );
    }

    /// Notes that the thread stops spinning for another reason.
    pub(crate) fn gives_up(&mut self, thread: usize, to: u64) {
        self.span(thread, self.timelines[thread].since, to, What::Spins(None));
    }

    pub(crate) fn leaves_spin(&mut self, thread: usize, from: u64, to: u64) {
        self.span(thread, from, to, What::Leaves);
    }

    pub(crate) fn wakes(&mut self, waker: usize, sleeper: usize, at: u64) {
        self.timelines[sleeper].woken = Some((waker, at));
    }

    /// Notes that the thread has got a CPU of this socket.
    pub(crate) fn is_back(&mut self, thread: usize, to: u64, socket: usize) {
        let timeline = &mut self.timelines[thread];
        timeline.socket = socket;
        let (since, woken) = (timeline.since, timeline.woken.take());
        self.span(thread, since, to, What::IsOff(woken));
    }

    fn span(&mut self, thread: usize, from: u64, to: u64, what: What) {
        self.timelines[thread].push(from, to, what, self.horizon);
    }

    /// Notes that a thread that asked for the lock at time `asked` has it. `far` says how far it is
    /// from the previous holder.
    pub(crate) fn acquired(
        &mut self,
        to: (usize, Whereabouts),
        asked: u64,
        now: u64,
        far: impl FnOnce(Whereabouts) -> usize,
    ) {
        if let Some(release) = self.release.take() {
            let asked = asked.max(release.at).min(now);
            let handed = chain(&self.timelines, to.0, asked, now);
            if self.counted.contains(&release.acquired) && self.counted.contains(&now) {
                self.count(
                    far(release.from.1),
                    Cycle {
                        release,
                        to,
                        asked,
                        handed_at: now,
                        handed,
                    },
                );
            }
        }
        self.holder = Some((to.0, now));
        self.horizon = now;
    }

    /// Notes that the holder releases the lock.
    pub(crate) fn released(&mut self, from: (usize, Whereabouts), now: u64) {
        if let Some((holder, acquired)) = self.holder.take() {
            self.release = Some(Release {
                from,
                acquired,
                at: now,
                held: chain(&self.timelines, holder, acquired, now),
            });
            self.horizon = now;
        }
    }

    fn count(&mut self, far: usize, cycle: Cycle) {
        let distance = match far {
            _ if cycle.release.from.0 == cycle.to.0 => Distance::Retaken,
            0 => Distance::SameCache,
            1 => Distance::SameSocket,
            _ => Distance::OtherSocket,
        };
        let held = cycle.release.held.iter().map(|piece| (Stage::Held, piece));
        let handed = cycle.handed.iter().map(|piece| (Stage::Handed, piece));
        for (stage, piece) in held.chain(handed) {
            *self.shares.entry((stage, piece.cause)).or_default() += piece.to - piece.from;
        }
        let free = cycle.asked - cycle.release.at;
        *self.shares.entry((Stage::Free, Cause::Own)).or_default() += free;
        let sum = &mut self.distances[distance as usize];
        *sum = (sum.0 + 1, sum.1 + cycle.handed_at - cycle.asked);
        self.cycles += 1;
        if self.kept.len() == Trace::KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((distance, cycle));
    }

    /// The trace. `ns` converts its times to nanoseconds.
    pub(crate) fn finish(&self, ns: impl Fn(u64) -> f64) -> Trace {
        let shares = self.shares.iter();
        let shares = shares.map(|(&(stage, cause), &cycles)| Share {
            stage,
            cause,
            ns: ns(cycles),
        });
        let distances = Distance::ALL.into_iter().map(|distance| {
            let (count, cycles) = self.distances[distance as usize];
            AtDistance {
                distance,
                count,
                ns: ns(cycles),
            }
        });
        let lines = self.moved.iter();
        Trace {
            cycles: self.cycles,
            ns: ns(self.shares.values().sum()),
            shares: shares.collect(),
            distances: distances.filter(|those| those.count > 0).collect(),
            lines: lines
                .map(|(&line, &[read, written])| Moved {
                    line,
                    read,
                    written,
                })
                .collect(),
            handoffs: self
                .kept
                .iter()
                .map(|kept| self.handoff(kept, &ns))
                .collect(),
        }
    }

    fn handoff(&self, (distance, cycle): &(Distance, Cycle), ns: impl Fn(u64) -> f64) -> Handoff {
        let steps = |pieces: &[Piece]| {
            let step = |piece: &Piece| Step {
                thread: piece.thread,
                socket: self.timelines[piece.thread].socket,
                cause: piece.cause,
                line: piece.line,
                from_ns: ns(piece.from),
                to_ns: ns(piece.to),
            };
            pieces.iter().map(step).collect()
        };
        let release = &cycle.release;
        let named = |(thread, at): (usize, Whereabouts)| Holder {
            thread,
            socket: at.socket,
        };
        Handoff {
            from: named(release.from),
            to: named(cycle.to),
            distance: *distance,
            acquired_ns: ns(release.acquired),
            released_ns: ns(release.at),
            asked_ns: ns(cycle.asked),
            handed_ns: ns(cycle.handed_at),
            held: steps(&release.held),
            handed: steps(&cycle.handed),
        }
    }
}
