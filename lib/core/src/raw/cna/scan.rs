//! Searching for a local waiter, and setting aside the remote waiters before it.

use super::limit::{Limit, clock};
use super::{Head, Search};
use crate::events::Event;
use crate::platform::Platform;
use crate::raw::waiter::{Id, Link};

/// How long a holder that knows no local waiter waits for one, in nanoseconds: one or two transfers
/// of a cache line between sockets. A change of domains costs several transfers, so an unsuccessful
/// wait does not double its cost.
const LINGER_NS: u64 = 200;
/// The same limit in pauses, for platforms whose clock stands still.
const LINGER_PAUSES: u32 = 64;
/// A holder waits for a local waiter only after this many hand-offs since the first waiter was set
/// aside. If local waiters are rare, the lock stays in a domain for fewer hand-offs, and no holder
/// waits.
pub(super) const LINGER_RUN: u32 = 4;

impl<P: Platform> Head<P> {
    /// The pre-scan: searches for a local waiter and reads the clock. Call it before waiting for
    /// the lock, when the head has nothing better to do.
    pub(crate) fn pre_scan(&mut self) {
        self.limit = self.limit_now();
        if self.limit == Limit::Reached {
            P::count(Event::FlushByLimit);
        } else if self.tuning.reorder {
            P::count(Event::Scan);
            self.search = Search::UpTo(self.place);
            self.scan();
        }
    }

    /// Waits a moment for a local waiter to queue, but only if none is known, several hand-offs
    /// were local, and a waiter of another domain would be next. Call it once, with the lock held.
    pub(crate) fn wait_for_local(&mut self) {
        if self.wants_local() {
            // The post-scan: local waiters may have queued since the pre-scan.
            self.scan();
            if self.wants_local() {
                self.linger();
            }
        }
    }

    pub(super) fn wants_local(&self) -> bool {
        matches!(self.search, Search::UpTo(_))
            && self.secondary.is_some()
            && self.limit == Limit::Distant
            && self.handoffs() >= LINGER_RUN
    }

    #[cold]
    fn linger(&mut self) {
        P::count(Event::WaitForLocal);
        let until = P::now() + LINGER_NS;
        let mut left = LINGER_PAUSES;
        self.scan_while(|| {
            P::relax();
            left -= 1;
            left != 0 && P::now() < until
        });
    }

    pub(super) fn scan_while(&mut self, mut go_on: impl FnMut() -> bool) {
        while self.search != Search::Found && go_on() {
            self.scan();
        }
    }

    /// Continues the search from where it stopped, and sets aside the waiters before the first
    /// match.
    pub(super) fn scan(&mut self) {
        let Search::UpTo(mut last) = self.search else {
            return;
        };
        while let Some(candidate) = self.next_of_walk(last) {
            P::count(Event::ScanStep);
            if self.is_local(candidate) {
                if last != self.place {
                    self.set_aside(last, candidate);
                }
                self.search = Search::Found;
                return;
            }
            last = candidate.id();
        }
        self.search = Search::UpTo(last);
    }

    /// Moves the head's successors up to `last` to the end of the secondary queue. Then `next`
    /// follows the head.
    fn set_aside(&mut self, last: Id, next: Link) {
        let Some(first) = self.next(self.place) else {
            return;
        };
        match self.secondary {
            Some(tail) => {
                let head = self.next(tail).unwrap_or(first);
                self.link(tail, first);
                self.link(last, head);
            }
            None => {
                self.link(last, first);
                self.since = clock::<P>();
                self.run = 0;
            }
        }
        self.link(self.place, next);
        self.secondary = Some(last);
        P::count(Event::SetAside);
    }
}
