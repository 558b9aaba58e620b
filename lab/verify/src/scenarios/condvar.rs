//! Threads that wait for each other, in rounds that end only when every thread has got its items.
//!
//! ```text
//!   leader: next round, broadcast -> members play -> each arrives -> the last notifies the leader
//! ```
//!
//! A round hands numbered items through a bounded queue. Some members give, some take, some take
//! with a time limit and give back what they got, and some just use the lock. As many items are
//! given as are needed. So a lost wake-up leaves a thread asleep for good: no later round mends it.
//! The leader does not wait for time to pass, so that most of a run is waiting and notifying.

mod board;
mod nudges;

use super::patience::Patience;
use super::{Context, Events, blocking};
use crate::affinity::allowed_cpus;
use crate::crew::{self, Orders, Worker};
use crate::injector::Injector;
use crate::monitors::Monitor;
use crate::pretend;
use crate::report::{Findings, Property};
use crate::test_lock::TestLock;
use board::{Board, Player};
use kinlock_core::events::Event;
use nudges::Nudges;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// With the public types.
pub(super) fn plain(context: &Context) -> Findings {
    run(context, false)
}

/// The same source on the pretended machine, which holds threads up inside the algorithm.
pub(super) fn delayed(context: &Context) -> Findings {
    run(context, true)
}

/// The number of threads is at least this, so that the leader's broadcast finds more asleep than it
/// wakes at once; and it is above the number of CPUs.
const MANY: usize = 32;

/// The number of threads where they are held up inside the algorithm: enough for a broadcast to
/// move some. With more threads the next broadcast often mends what was lost.
const FEW: usize = 8;
/// Rounds with [`FEW`] threads after which a defect has shown that shows in one round of a hundred.
const ENOUGH: u64 = 200;

/// The condition variable on which members wait for the next round.
const NEXT: usize = 0;
/// The condition variable on which the leader waits until all have arrived.
const ARRIVED: usize = 1;
/// The condition variable of the takers.
const ITEM: usize = 2;
/// The condition variable of the givers.
const ROOM: usize = 3;

/// One in `CHILDREN` takers is a thread that lives no longer than its wait.
const CHILDREN: u64 = 16;
/// The share of the time in which signals interrupt.
const INTERRUPTED: u32 = 3;
/// Time for others to fall asleep.
const FALL_ASLEEP: Duration = Duration::from_micros(200);

fn run(context: &Context, delayed: bool) -> Findings {
    let events = Events::start();
    let monitor = monitor(context, delayed);
    let board = Arc::new(Board::new(monitor));
    let orders = Orders {
        threads: if delayed {
            FEW
        } else {
            let many = context.orders.threads.max(MANY);
            many.max(allowed_cpus().len() + 1)
        },
        ..context.orders.clone()
    };
    let mut nudges = Nudges::start(orders.seed);
    let reached = |nudges: &Nudges| {
        let [timely, timeouts] =
            [&board.counts.timely, &board.counts.timeouts].map(|n| n.load(Relaxed));
        let moved = events.get(Event::Notified) > 0 && has_requeued(&events, delayed);
        // On a busy machine few rounds fit into the time.
        let enough = !delayed || board.counts.rounds.load(Relaxed) >= ENOUGH;
        (
            moved && timely > 0 && timeouts > 0 && nudges.handled() > 0,
            enough,
        )
    };
    let (of_crew, level, members) = (
        Arc::clone(&board),
        context.preemption,
        orders.threads as u64 - 1,
    );
    let play = move |worker: &mut Worker| {
        let mut me = Player {
            name: worker.name(),
            random: worker.random.branch(),
            injector: Injector::new(level, worker.random.branch()),
        };
        if delayed {
            pretend::hold_up(Injector::inside(level, worker.random.branch()));
        }
        match worker.index() as u64 {
            0 => of_crew.lead(worker, &mut me, members),
            index => of_crew.follow(worker, &mut me, index - 1, members),
        }
    };
    // A signal makes a sleeper look again, which mends a lost wake-up. So later there are none.
    let quiet_from = Instant::now() + orders.duration / INTERRUPTED;
    let outcome = crew::run(&orders, play, |crew| {
        if nudges.handled() == 0 || Instant::now() < quiet_from {
            nudges.send(crew, orders.threads);
        }
        let (reached, enough) = reached(&nudges);
        reached && enough
    });
    let detail = format!(
        "{} rounds, {} timed waits that were notified, {} timeouts, {} short-lived waiters, \
         {} of {} signals, {}",
        board.counts.rounds.load(Relaxed),
        board.counts.timely.load(Relaxed),
        board.counts.timeouts.load(Relaxed),
        board.counts.children.load(Relaxed),
        nudges.handled(),
        nudges.sent(),
        events.list(&[
            Event::Notified,
            Event::NotifiedSpinning,
            Event::Requeue,
            Event::Park
        ]),
    );
    let (reached, _) = reached(&nudges);
    if outcome.completed {
        nudges.stop();
    }
    let extra = board.sections().saturating_sub(outcome.total());
    outcome
        .findings(&board.state, extra)
        .with(Property::Contract, board.contract())
        .with_reach(reached, detail)
}

/// The library's own condition variable wakes up to 256 sleepers and requeues the others. More than
/// 256 sleepers do not fit here, so the delayed condition variable, which wakes four, has to
/// requeue some.
fn has_requeued(events: &Events, delayed: bool) -> bool {
    !delayed || events.get(Event::Requeue) > 0
}

/// One of the specimen's monitors.
pub(super) fn monitor(context: &Context, pretended: bool) -> Box<dyn Monitor> {
    let meets = context.specimen.meets;
    let meets = meets.expect("the plan leaves out locks without a condition variable");
    if pretended {
        (meets.new_pretended)()
    } else {
        (meets.new)()
    }
}

impl Board {
    /// The leader of `members` besides itself.
    fn lead(&self, worker: &mut Worker, me: &mut Player, members: u64) {
        while worker.running() {
            if me.random.one_in(4) {
                std::thread::sleep(FALL_ASLEEP);
            }
            self.visit(worker, me, |board, me| {
                board.section(me);
                board.prepare(me);
                board.begin(me, members)
            });
            self.visit(worker, me, |board, me| {
                board.wait_patiently(me, ARRIVED, |b| b.counts.arrived.load(Relaxed) == members);
                board.section(me);
                board.expect_rest();
                None
            });
        }
        self.visit(worker, me, |board, me| {
            board.section(me);
            board.counts.over.store(true, Relaxed);
            board.begin(me, members)
        });
    }

    /// Begins a round; the lock is held. Returns the notification for later.
    fn begin(&self, me: &mut Player, members: u64) -> Option<board::Call> {
        self.counts.arrived.store(0, Relaxed);
        self.counts.rounds.fetch_add(1, Relaxed);
        if me.random.one_in(4) {
            // Each call has a taker of its own: no thread comes back before the lock is free.
            (0..members).for_each(|_| self.monitor.notify_one(NEXT));
            return None;
        }
        self.notify_all_now_or_later(me, NEXT)
    }

    /// The member with this number.
    fn follow(&self, worker: &mut Worker, me: &mut Player, number: u64, members: u64) {
        let mut round = 0;
        loop {
            self.visit(worker, me, |board, me| {
                board.wait_patiently(me, NEXT, |b| b.counts.rounds.load(Relaxed) != round);
                board.section(me);
                None
            });
            round += 1;
            if self.counts.over.load(Relaxed) {
                return;
            }
            // In the next round each member plays another part.
            self.play(worker, me, (number + round) % members, members);
            self.visit(worker, me, |board, me| {
                board.section(me);
                let arrived = board.counts.arrived.load(Relaxed) + 1;
                board.counts.arrived.store(arrived, Relaxed);
                let notify = arrived == members || me.random.one_in(8);
                notify.then(|| board.notify(me, ARRIVED)).flatten()
            });
        }
    }

    /// One round. The place decides the part: every fourth place gives, the next one takes, and so
    /// on.
    fn play(&self, worker: &mut Worker, me: &mut Player, place: u64, members: u64) {
        let each = self.counts.each.load(Relaxed);
        me.injector.point();
        let part = match place % 4 {
            0 => {
                // The needs of all takers are dealt out to the givers.
                let (givers, takers) = (members.div_ceil(4), (members + 2) / 4);
                if me.random.one_in(4) {
                    std::thread::sleep(FALL_ASLEEP);
                }
                for _ in 0..(takers * each + givers - 1 - place / 4) / givers {
                    self.visit(worker, me, Board::give);
                }
                return;
            }
            1 => Self::take_one,
            2 => Self::borrow_one,
            _ => Self::use_lock,
        };
        (0..each).for_each(|_| part(self, worker, me));
    }

    fn take_one(&self, worker: &mut Worker, me: &mut Player) {
        if me.random.one_in(CHILDREN) {
            self.send_child(worker, me);
        } else {
            self.visit(worker, me, |board, me| board.take(me, Patience::Endless).1);
        }
    }

    /// Takes with a time limit, and gives back.
    fn borrow_one(&self, worker: &mut Worker, me: &mut Player) {
        let mut taken = false;
        self.visit(worker, me, |board, me| {
            let patience = me.limited_patience();
            let (got, call) = board.take(me, patience);
            taken = got;
            call
        });
        if taken {
            self.visit(worker, me, Board::give);
        }
    }

    fn use_lock(&self, worker: &mut Worker, me: &mut Player) {
        let patience = Duration::from_nanos(1 << me.random.below(20));
        let timed = me.random.one_in(2);
        let acquire = |lock: &dyn TestLock| match timed {
            true => lock.try_lock_for(patience),
            false => blocking(lock),
        };
        worker.with_lock(self.monitor.lock(), acquire, |_| self.section(me));
    }

    /// A taker that lives no longer than its wait.
    fn send_child(&self, worker: &mut Worker, me: &mut Player) {
        let mut child = self.new_child(me);
        let live = || self.visit_alone(&mut child, |b, me| b.take(me, Patience::Endless).1);
        // The parent waits for as long as the child does, and does not get the lock.
        let wait = |_: &dyn TestLock| {
            std::thread::scope(|s| drop(s.spawn(live)));
            false
        };
        worker.with_lock(self.monitor.lock(), wait, |_| ());
    }
}
