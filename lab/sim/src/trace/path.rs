//! Threads' timelines, and the chain of waits that leads to a moment of one of them.

use super::{Cause, LineName, Reach};
use std::collections::VecDeque;

/// A request for a line: when it was sent, when it arrived at the line, when its turn came, and
/// when it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) line: LineName,
    /// `None`: the core had the line.
    pub(super) reach: Option<Reach>,
    pub(super) sent: u64,
    pub(super) arrived: u64,
    pub(super) served: u64,
    pub(super) answered: u64,
}

/// A write that ended a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) thread: usize,
    /// When other cores saw it.
    pub(super) visible: u64,
    /// The request that the store waited for until then: for its own line, or for that of an
    /// earlier store.
    pub(super) request: Request,
}

/// A piece of a thread's time that it did not spend executing instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The thread waited for a line, for its current access or for a store in its buffer.
    Requests(Request),
    /// The thread spun until a write, or until its time limit or the end of its time slice.
    Spins(Option<Wake>),
    /// The thread left a spin loop.
    Leaves,
    /// The thread was on no CPU; the thread that woke it, and when.
    IsOff(Option<(usize, u64)>),
}

/// What is known about a thread.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Ordered by time, without overlaps. The time between them is the thread's own.
    spans: VecDeque<Span>,
    pub(super) socket: usize,
    /// When it began to spin, or left its CPU.
    pub(super) since: u64,
    /// Which thread woke it, and when.
    pub(super) woken: Option<(usize, u64)>,
    /// The request that the thread's last store waits for to become visible.
    pub(super) draining: Option<Request>,
}

impl Timeline {
    /// Adds a span, and forgets those that ended by `horizon`.
    pub(super) fn push(&mut self, from: u64, to: u64, what: What, horizon: u64) {
        while self.spans.front().is_some_and(|span| span.to <= horizon) {
            self.spans.pop_front();
        }
        if from < to {
            self.spans.push_back(Span { from, to, what });
        }
    }
}

/// A piece of a chain. Times are in cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) thread: usize,
    pub(super) cause: Cause,
    pub(super) line: Option<LineName>,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A chain under construction, from its end.
struct Chain {
    start: u64,
    /// The thread at which the chain has arrived, and the time.
    thread: usize,
    at: u64,
    pieces: Vec<Piece>,
}

/// The chain from `start` to the moment `end` of `thread`: pieces without a gap, in order.
pub(super) fn chain(timelines: &[Timeline], thread: usize, start: u64, end: u64) -> Vec<Piece> {
    let mut chain = Chain {
        start,
        thread,
        at: end,
        pieces: Vec::new(),
    };
    while chain.at > start {
        let spans = timelines[chain.thread].spans.iter();
        match spans.rev().find(|span| span.from < chain.at) {
            None => chain.back_to(start, Cause::Own, None),
            Some(span) => {
                chain.back_to(span.to, Cause::Own, None);
                chain.before(span);
            }
        }
    }
    chain.pieces.reverse();
    chain.pieces
}

impl Chain {
    /// Adds a piece: from `time` up to here the thread waited for `cause`.
    fn back_to(&mut self, time: u64, cause: Cause, line: Option<LineName>) {
        let time = time.max(self.start);
        if time < self.at {
            self.pieces.push(Piece {
                thread: self.thread,
                cause,
                line,
                from: time,
                to: self.at,
            });
            self.at = time;
        }
    }

    /// Continues before `span`, which the chain has reached.
    fn before(&mut self, span: &Span) {
        match span.what {
            What::Requests(request) => self.before_request(&request),
            What::Leaves => self.back_to(span.from, Cause::Spin, None),
            What::Spins(Some(wake)) if wake.visible > span.from => {
                self.back_to(wake.visible, Cause::Spin, None);
                self.thread = wake.thread;
                self.before_request(&wake.request);
            }
            // The write came before the spinning, or there was none.
            What::Spins(_) => self.back_to(span.from, Cause::Spin, None),
            What::IsOff(Some((thread, woken))) if woken > span.from => {
                self.back_to(woken, Cause::Sleep, None);
                self.thread = thread;
            }
            What::IsOff(_) => self.back_to(span.from, Cause::Sleep, None),
        }
    }

    fn before_request(&mut self, request: &Request) {
        let line = Some(request.line);
        let (transfer, queue) = match request.reach {
            None => (Cause::Own, Cause::Own),
            Some(reach) => {
                let part = request.line.part;
                (Cause::Line(part, reach), Cause::Queue(part))
            }
        };
        if request.served > request.arrived {
            self.back_to(request.served, transfer, line);
            self.back_to(request.arrived, queue, line);
        }
        self.back_to(request.sent, transfer, line);
    }
}
