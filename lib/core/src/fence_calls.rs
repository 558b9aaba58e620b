//! For platforms whose heavy fence is a system call: decides which store a call covers, and limits
//! how many calls a process makes.
//!
//! Such a call, `membarrier` on Linux, interrupts all CPUs that run the process. So a process makes
//! one call at a time, and at most one per [`INTERVAL_NS`]. A call covers stores of other threads,
//! too. Calls are numbered as they begin, and a thread that asks for a fence notes how many have
//! begun. Any call with a higher number begins after the thread's store, and covers the store once
//! the call has ended.

use core::sync::atomic::{AtomicU64, Ordering::*, fence};

/// The time from the end of a call to the next call, in nanoseconds.
///
/// A waiter that was refused a fence sleeps for the same time. A shorter interval would not save it
/// a sleep, since it only asks again after that sleep.
pub const INTERVAL_NS: u64 = 1_000_000;

/// For how long a call that has begun keeps other calls from being made, in nanoseconds. A forked
/// child may wait for this long because of a call that a thread of its parent has begun.
const LONGEST_CALL_NS: u64 = 10 * INTERVAL_NS;

/// Names the store that a thread wants covered, by the number of calls that had begun when the
/// thread first asked. `Ticket::default()` is a ticket for a new store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket(Option<u64>);

/// The calls of one process.
#[derive(Debug)]
pub struct FenceCalls {
    begun: AtomicU64,
    /// The highest number of a call that has succeeded. The first call has the number 1.
    done: AtomicU64,
    /// When the next call may begin.
    next: AtomicU64,
}

impl FenceCalls {
    /// No calls so far.
    pub const NONE: Self = FenceCalls {
        begun: AtomicU64::new(0),
        done: AtomicU64::new(0),
        next: AtomicU64::new(0),
    };

    /// Whether a call has covered the store that preceded the first use of this ticket.
    ///
    /// The first answer is `false`. When asked again, this makes the system call itself, by `call`,
    /// if one is due. `call` returns whether it has succeeded. `now` reads the time in nanoseconds.
    pub fn cover(
        &self,
        ticket: &mut Ticket,
        now: impl Fn() -> u64,
        call: impl FnOnce() -> bool,
    ) -> bool {
        let Some(begun) = ticket.0 else {
            // Pairs with `fetch_add` below: a call whose number this load does not see begins after
            // the store.
            fence(SeqCst);
            ticket.0 = Some(self.begun.load(Relaxed));
            return false;
        };
        // Acquire pairs with the Release below: the caller now sees what others stored before that
        // call began.
        if self.done.load(Acquire) > begun {
            return true;
        }
        if !self.is_due(&now) {
            return false;
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let succeeds = call();
        if succeeds {
            self.done.fetch_max(number, Release);
        }
        self.next.store(now().saturating_add(INTERVAL_NS), Relaxed);
        succeeds
    }

    /// Whether a call may begin now. If several threads ask, one gets the answer `true`, and the
    /// others have to wait until its call has ended.
    fn is_due(&self, now: impl Fn() -> u64) -> bool {
        let due = self.next.load(Relaxed);
        // Read after `due`, which is later than `now` by the longest call at most. If it is later
        // than that, it comes from another clock: the process was moved from another machine.
        let now = now();
        let later = now.saturating_add(LONGEST_CALL_NS);
        let waits = now < due && due <= later;
        !waits
            && self
                .next
                .compare_exchange(due, later, Relaxed, Relaxed)
                .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    const START: u64 = 5 * INTERVAL_NS;

    /// Asks at the time `now`. A call takes no time.
    fn ask(calls: &FenceCalls, ticket: &mut Ticket, now: u64) -> bool {
        calls.cover(ticket, || now, || true)
    }

    /// A ticket for a store that the thread has just made.
    fn ticket(calls: &FenceCalls) -> Ticket {
        let mut ticket = Ticket::default();
        assert!(!ask(calls, &mut ticket, START), "the first answer");
        ticket
    }

    #[test]
    fn a_call_covers_all_stores_that_came_before_it_began() {
        let calls = FenceCalls::NONE;
        let (mut first, mut second) = (ticket(&calls), ticket(&calls));
        let mut during = Ticket::default();
        let call = || {
            during = ticket(&calls);
            true
        };
        assert!(calls.cover(&mut first, || START, call));
        let mut after = ticket(&calls);
        let soon = START + INTERVAL_NS - 1;
        assert!(ask(&calls, &mut second, soon));
        assert!(!ask(&calls, &mut during, soon));
        assert!(!ask(&calls, &mut after, soon));
        assert!(ask(&calls, &mut after, soon + 1));
        assert!(ask(&calls, &mut during, soon + 1), "the same call");
    }

    #[test]
    fn a_call_that_fails_covers_nobody_and_counts() {
        let calls = FenceCalls::NONE;
        let (mut first, mut second) = (ticket(&calls), ticket(&calls));
        assert!(!calls.cover(&mut first, || START, || false));
        let tries = Cell::new(0);
        let mut try_at = |now| {
            let call = || {
                tries.set(tries.get() + 1);
                false
            };
            calls.cover(&mut second, || now, call)
        };
        assert!(!try_at(START + INTERVAL_NS - 1));
        assert_eq!(tries.get(), 0);
        assert!(!try_at(START + INTERVAL_NS));
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn one_call_is_made_at_a_time_and_the_interval_begins_at_its_end() {
        let calls = FenceCalls::NONE;
        let (mut first, mut second) = (ticket(&calls), ticket(&calls));
        let time = Cell::new(START);
        let call = || {
            time.set(START + LONGEST_CALL_NS);
            assert!(!ask(&calls, &mut second, time.get() - 1));
            true
        };
        assert!(calls.cover(&mut first, || time.get(), call));
        let mut third = ticket(&calls);
        assert!(!ask(&calls, &mut third, time.get() + INTERVAL_NS - 1));
        assert!(ask(&calls, &mut third, time.get() + INTERVAL_NS));
    }

    #[test]
    fn a_call_that_never_ends_and_another_clock_stop_nobody_for_long() {
        let calls = FenceCalls::NONE;
        assert!(calls.is_due(|| START));
        assert!(!calls.is_due(|| START + LONGEST_CALL_NS - 1));
        assert!(calls.is_due(|| START + LONGEST_CALL_NS));
        assert!(calls.is_due(|| 1), "another clock");
        assert!(!calls.is_due(|| 2));
    }
}
