//! Threads that wait for each other, in rounds that nobody leaves before everybody has got what it is owed.
//!
//! ```text
//!   leader: next round, broadcast -> members play -> each arrives -> the last one notifies the leader
//! ```
//!
//! A round hands numbered items through a bounded queue: some members give, some take, some wait for an item until their time is up and give back what they have got, and
//! some just use the lock. As many items are given as are needed. So a wake-up that is lost leaves somebody asleep for good: there is no later round to mend it. The
//! leader does not wait for time to pass, so that most of a run is waiting and notifying.

mod board;
mod nudges;

use super::{Context, Events, Findings, Scenario, blocking};
use crate::affinity::allowed_cpus;
use crate::crew::{self, Orders, Worker};
use crate::injector::Injector;
use crate::monitors::Monitor;
use crate::pretend;
use crate::report::Property;
use crate::test_lock::TestLock;
use board::{Board, Patience, Player};
use kinlock_core::events::Event;
use nudges::Nudges;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// As users have it.
pub(super) const PLAIN: Scenario = Scenario {
    name: "condvar",
    about: "waiters, notifications and time limits around a bounded queue, while signals interrupt",
    weight: 4,
    needs_condvar: true,
    run: |context| run(context, false),
};

/// The same source on the pretended machine, whose calls are the points inside the algorithm where a thread can be held up.
pub(super) const DELAYED: Scenario = Scenario {
    name: "condvar-delays",
    about: "the same, and threads are held up within waits and notifications",
    weight: 4,
    needs_condvar: true,
    run: |context| run(context, true),
};

/// So many threads at least, so that the leader's broadcast finds more asleep than it wakes at once; and more than CPUs.
const CROWD: usize = 32;

/// So many threads where they are held up inside: enough for a broadcast to move some, where it wakes few at once. In a crowd whoever comes next often mends what was lost.
const FEW: usize = 8;
/// Rounds of those after which a defect that one round in a hundred shows has shown.
const ENOUGH: u64 = 200;

/// What members wait for: the next round.
const NEXT: usize = 0;
/// What the leader waits for: everybody has arrived.
const ARRIVED: usize = 1;
/// What takers wait for.
const ITEM: usize = 2;
/// What givers wait for.
const ROOM: usize = 3;

/// One in so many takers is a thread that lives no longer than its wait.
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
            let crowd = context.orders.threads.max(CROWD);
            crowd.max(allowed_cpus().len() + 1)
        },
        ..context.orders.clone()
    };
    let mut nudges = Nudges::start(orders.seed);
    let reached = |nudges: &Nudges| {
        let [timely, timeouts] = [&board.timely, &board.timeouts].map(|n| n.load(Relaxed));
        let moved = events.get(Event::Notified) > 0 && events.get(Event::Requeue) > 0;
        // On a busy machine few rounds fit into the time.
        let enough = !delayed || board.rounds.load(Relaxed) >= ENOUGH;
        (
            moved && timely > 0 && timeouts > 0 && nudges.handled() > 0,
            enough,
        )
    };
    let outcome = {
        let (board, level, threads) = (Arc::clone(&board), context.preemption, orders.threads);
        let play = move |worker: &mut Worker| {
            let mut me = Player {
                name: worker.name(),
                random: worker.random.branch(),
                injector: Injector::new(level, worker.random.branch()),
            };
            if delayed {
                pretend::hold_up(Injector::inside(level, worker.random.branch()));
            }
            match worker.index() {
                0 => board.lead(worker, &mut me, threads as u64 - 1),
                index => board.follow(worker, &mut me, index as u64 - 1, threads as u64 - 1),
            }
        };
        // A signal makes a sleeper look again, and mends what was lost: later nobody is interrupted.
        let quiet_from = Instant::now() + orders.duration / INTERRUPTED;
        crew::run(&orders, play, |crew| {
            if nudges.handled() == 0 || Instant::now() < quiet_from {
                nudges.send(crew, orders.threads);
            }
            let (reached, enough) = reached(&nudges);
            reached && enough
        })
    };
    let detail = format!(
        "{} rounds, {} timed waits that were notified, {} timeouts, {} short-lived waiters, {} of {} signals, {}",
        board.rounds.load(Relaxed),
        board.timely.load(Relaxed),
        board.timeouts.load(Relaxed),
        board.children.load(Relaxed),
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
    Findings::new(outcome, &board.state, extra)
        .with(Property::Contract, board.contract())
        .with_reach(reached, detail)
}

/// A monitor of the specimen's.
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
    /// What the leader does, of `members` besides itself.
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
                board.wait_in_turns(me, ARRIVED, |b| b.arrived.load(Relaxed) == members);
                board.section(me);
                board.expect_rest();
                None
            });
        }
        self.visit(worker, me, |board, me| {
            board.section(me);
            board.over.store(true, Relaxed);
            board.begin(me, members)
        });
    }

    /// Begins a round; the lock is held. Returns what to call once it is not.
    fn begin(&self, me: &mut Player, members: u64) -> Option<board::Call> {
        self.arrived.store(0, Relaxed);
        self.rounds.fetch_add(1, Relaxed);
        if me.random.one_in(4) {
            // Each call has a taker of its own, since nobody can come back before the lock is free.
            (0..members).for_each(|_| self.monitor.notify_one(NEXT));
            return None;
        }
        self.notify_all_now_or_later(me, NEXT)
    }

    /// What the member with this number does.
    fn follow(&self, worker: &mut Worker, me: &mut Player, number: u64, members: u64) {
        let mut round = 0;
        loop {
            self.visit(worker, me, |board, me| {
                board.wait_in_turns(me, NEXT, |b| b.rounds.load(Relaxed) != round);
                board.section(me);
                None
            });
            round += 1;
            if self.over.load(Relaxed) {
                return;
            }
            // Everybody gets every part in turn.
            self.play(worker, me, (number + round) % members, members);
            self.visit(worker, me, |board, me| {
                board.section(me);
                let arrived = board.arrived.load(Relaxed) + 1;
                board.arrived.store(arrived, Relaxed);
                let notify = arrived == members || me.random.one_in(8);
                notify.then(|| board.notify(me, ARRIVED)).flatten()
            });
        }
    }

    /// One round, from a place at the table: every fourth place gives, the next one takes, and so on.
    fn play(&self, worker: &mut Worker, me: &mut Player, place: u64, members: u64) {
        let each = self.each.load(Relaxed);
        me.injector.point();
        match place % 4 {
            0 => {
                // The needs of all takers are dealt out to the givers.
                let (givers, takers) = (members.div_ceil(4), (members + 2) / 4);
                if me.random.one_in(4) {
                    std::thread::sleep(FALL_ASLEEP);
                }
                for _ in 0..(takers * each + givers - 1 - place / 4) / givers {
                    self.visit(worker, me, Board::give);
                }
            }
            1 => (0..each).for_each(|_| {
                if me.random.one_in(CHILDREN) {
                    self.send_child(worker, me);
                } else {
                    self.visit(worker, me, |board, me| board.take(me, Patience::Endless).1);
                }
            }),
            2 => (0..each).for_each(|_| {
                let mut taken = false;
                self.visit(worker, me, |board, me| {
                    let patience = Patience::limited(&mut me.random);
                    let (got, call) = board.take(me, patience);
                    taken = got;
                    call
                });
                if taken {
                    self.visit(worker, me, Board::give);
                }
            }),
            _ => (0..each).for_each(|_| {
                let patience = Duration::from_nanos(1 << me.random.below(20));
                let timed = me.random.one_in(2);
                let acquire = |lock: &dyn TestLock| match timed {
                    true => lock.try_lock_for(patience),
                    false => blocking(lock),
                };
                worker.with_lock(self.monitor.lock(), acquire, |_| self.section(me));
            }),
        }
    }

    /// A taker that is born for it.
    fn send_child(&self, worker: &mut Worker, me: &mut Player) {
        let mut child = self.new_child(me);
        let live = || self.visit_alone(&mut child, |b, me| b.take(me, Patience::Endless).1);
        // The parent waits for as long as the child does, and does not get the lock.
        let wait = |_: &dyn TestLock| {
            std::thread::scope(|s| {
                s.spawn(live);
            });
            false
        };
        worker.with_lock(self.monitor.lock(), wait, |_| ());
    }
}
