//! The [`Play`]s that the explorer has, too, on real threads: one after the other, each with a new
//! lock, so that no later play can wake a waiter that an earlier one has lost.
//!
//! ```text
//!   all play their parts -> barrier -> one judges, and begins the next play -> barrier
//! ```

use super::{Context, Events};
use crate::child::{self, FINE};
use crate::crew::{self, Worker};
use crate::injector::{self, Injector, Preemption};
use crate::nudges::Nudges;
use crate::oracle::SharedState;
use crate::play::{Count, Flood, Play, World};
use crate::pretend;
use crate::report::{Findings, Property, Verdict};
use crate::test_lock::{AnyTarget, ONCES};
use kinlock_core::events::Event;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_measure::cpus::allowed_cpus;
use kinlock_measure::random::Random;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How a scenario differs from others.
struct Script {
    new: fn() -> AnyTarget,
    sends: bool,
    flood: Option<Flood>,
    threads: usize,
    rounds: u32,
    /// The longest pause of any play, in spins, as a power of two.
    longest: u32,
    /// Whether all rounds of a play are played once it has begun, even if the time is over, because
    /// threads wait for each other.
    complete: bool,
    /// How often threads are held up inside algorithms, on the pretended machine.
    held_up: Preemption,
    /// Whether threads are told at random that the machine is oversubscribed.
    believes: bool,
    /// One part in `short_lived` is played by a thread that lives only for this play; 0 = none.
    short_lived: u64,
    /// The least number of plays: enough for a defect that shows in one of some hundred plays.
    enough: u64,
    /// The counts and the events that the scenario has to reach.
    reach: (&'static [Count], &'static [Event]),
}

impl Script {
    fn new(context: &Context, new: fn() -> AnyTarget) -> Self {
        Script {
            new,
            sends: false,
            flood: None,
            threads: context.orders.threads,
            rounds: 20,
            longest: 0,
            complete: false,
            held_up: context.preemption,
            believes: false,
            short_lived: 0,
            enough: 0,
            reach: (&[], &[]),
        }
    }
}

/// Waiters that give up: their time limits often run out, among tries and waits without limit.
pub(super) fn timed(context: &Context) -> Findings {
    let new = context.specimen.new;
    let script = Script {
        held_up: Preemption::Off,
        reach: (&[Count::Timely, Count::Timeout], &[]),
        ..Script::new(context, new)
    };
    run(context, script)
}

/// What a waiter does depends on two estimates: whether the machine is oversubscribed (spinlock),
/// and whether holders keep the lock. Both depend on the speed of the machine. So the first is
/// drawn at random, and trials for the second are more frequent than users have them.
pub(super) fn barging(context: &Context) -> Findings {
    let script = Script {
        rounds: 4,
        believes: true,
        reach: (&[], &[Event::SlowPath]),
        ..Script::new(context, context.specimen.new_pretended)
    };
    run(context, script)
}

/// Uses the algorithm and not the public lock: that one remembers in debug builds which thread
/// holds it, and reports it as a mistake if another thread releases it.
pub(super) fn sent(context: &Context) -> Findings {
    let new = context.specimen.new_pretended;
    let script = Script {
        sends: true,
        reach: (&[Count::Received], &[]),
        ..Script::new(context, new)
    };
    run(context, script)
}

pub(super) fn readers(context: &Context) -> Findings {
    run(context, reading(context, false))
}

pub(super) fn readers_sent(context: &Context) -> Findings {
    // Forks before this process has other threads: a child inherits the table of readers as it is.
    let in_a_child = match context.specimen.defect {
        None => in_a_child(context),
        Some(_) => Ok("a broken lock is not taken into a child".into()),
    };
    run(context, reading(context, true)).with(Property::Contract, in_a_child)
}

fn reading(context: &Context, sends: bool) -> Script {
    Script {
        sends,
        reach: (&[Count::Section, Count::Look], &[]),
        ..Script::new(context, context.specimen.new_pretended)
    }
}

pub(super) fn reader_flood(context: &Context) -> Findings {
    run(context, flood(context, Flood::OfReaders))
}

pub(super) fn writer_flood(context: &Context) -> Findings {
    run(context, flood(context, Flood::OfWriters))
}

/// A single play that goes on to the end, so that the flood leaves no gap.
fn flood(context: &Context, flood: Flood) -> Script {
    Script {
        flood: Some(flood),
        rounds: u32::MAX,
        ..reading(context, false)
    }
}

/// Three threads that are nearly always held up: a reader that a writer has let in does not run for
/// a while, and neither does the thread that releases another thread's guard.
pub(super) fn readers_overtaken(context: &Context) -> Findings {
    let script = Script {
        threads: 3,
        held_up: Preemption::Heavy,
        reach: (&[Count::Section, Count::Look, Count::Received], &[]),
        ..reading(context, true)
    };
    run(context, script)
}

/// Plays `readers-sent` in a forked child, for a part of the time.
fn in_a_child(context: &Context) -> Verdict {
    let mut context = context.clone();
    context.orders.duration /= 4;
    let patience = context.orders.duration + 3 * context.orders.hang;
    let work = || {
        let findings = run(&context, reading(&context, true));
        let failed = findings.verdicts.iter().filter_map(|(property, verdict)| {
            let what = verdict.as_ref().err()?;
            Some(format!("{} in a child: {what}", property.name()))
        });
        let failed: Vec<_> = failed.collect();
        failed.iter().for_each(|what| eprintln!("{what}"));
        if failed.is_empty() { FINE } else { FINE + 1 }
    };
    let Some(child) = child::fork(work) else {
        return Ok("no child could be forked".into());
    };
    match child.wait(patience, |_| std::thread::sleep(Duration::from_millis(1)))? {
        FINE => Ok("the same holds in a child".into()),
        _ => Err("a child found a defect".into()),
    }
}

pub(super) fn once(context: &Context) -> Findings {
    let script = Script {
        rounds: ONCES as u32,
        longest: 13,
        enough: 500,
        reach: (&[], &[Event::Park]),
        ..Script::new(context, context.specimen.new_pretended)
    };
    run(context, script)
}

/// The least number of threads, so that broadcasts find many of them asleep. There are also more
/// threads than CPUs.
const MANY: usize = 32;
/// The number of threads if they are held up inside the algorithm. With more threads the next
/// notification often wakes the waiter whose notification was lost.
const FEW: usize = 8;

/// Plays with the public types.
pub(super) fn condvar(context: &Context) -> Findings {
    let [new, _] = context.specimen.condvar.expect("it is for these");
    let many = context.orders.threads.max(MANY);
    let script = Script {
        threads: many.max(allowed_cpus().len() + 1),
        held_up: Preemption::Off,
        reach: (&[Count::Timely, Count::Timeout], &[Event::Notified]),
        ..meeting(context, new)
    };
    run_nudged(context, script)
}

/// Plays with the same source on the pretended machine, which holds threads up inside the
/// algorithm.
pub(super) fn condvar_delays(context: &Context) -> Findings {
    let [_, new_pretended] = context.specimen.condvar.expect("it is for these");
    let script = Script {
        threads: FEW,
        enough: 200,
        reach: (
            &[Count::Timely, Count::Timeout],
            &[Event::Notified, Event::Requeue],
        ),
        ..meeting(context, new_pretended)
    };
    run_nudged(context, script)
}

fn meeting(context: &Context, new: fn() -> AnyTarget) -> Script {
    Script {
        rounds: 3,
        longest: 10,
        complete: true,
        short_lived: 16,
        ..Script::new(context, new)
    }
}

/// Signals interrupt in the first of `INTERRUPTED` parts of the time.
const INTERRUPTED: u32 = 3;
/// For how long a signal holds a thread up.
const LINGER: u64 = 100;

/// At first signals interrupt sleeps. Later there are none, because a signal makes a sleeper look
/// again, which hides a lost wake-up.
fn run_nudged(context: &Context, script: Script) -> Findings {
    let mut nudges = Nudges::start(context.orders.seed, LINGER, 0);
    let quiet_from = Instant::now() + context.orders.duration / INTERRUPTED;
    let findings = run_while(context, script, |crew| {
        if nudges.handled() == 0 || Instant::now() < quiet_from {
            nudges.send(crew);
        }
        nudges.handled() > 0
    });
    let (handled, sent) = (nudges.handled(), nudges.sent);
    let detail = format!("{handled} of {sent} signals");
    findings.judge(Property::Reach, handled > 0, detail)
}

fn run(context: &Context, script: Script) -> Findings {
    run_while(context, script, |_| true)
}

/// Plays until the time is over and `meanwhile` says that enough has happened.
fn run_while(
    context: &Context,
    script: Script,
    mut meanwhile: impl FnMut(&crew::Crew) -> bool,
) -> Findings {
    let events = Events::start();
    let mut orders = context.orders.clone();
    orders.threads = script.threads;
    let stage = Arc::new(Stage {
        current: Mutex::new(Arc::new(Game::new(&script, 0))),
        barrier: Barrier::new(script.threads),
        over: AtomicBool::new(false),
        plays: AtomicU64::new(0),
        sections: AtomicU64::new(0),
        counts: Default::default(),
        broken: OnceLock::new(),
        script,
    });
    let script = &stage.script;
    let count = |what: Count| stage.counts[what as usize].load(Relaxed);
    let alone = script.threads == 1;
    let reached = || {
        let (counts, happened) = script.reach;
        let counted = counts.iter().all(|&what| count(what) > 0);
        alone || counted && happened.iter().all(|&event| events.get(event) > 0)
    };
    let (of_crew, level) = (Arc::clone(&stage), context.preemption);
    let body = move |worker: &mut Worker| {
        let mut random = worker.random.branch();
        let hold_up = |random: &mut Random| {
            pretend::hold_up(Injector::inside(of_crew.script.held_up, random.branch()));
        };
        hold_up(&mut random);
        while !of_crew.over.load(Relaxed) {
            let mut of_child = random.branch();
            let injector = Injector::new(level, random.branch());
            let short = of_crew.script.short_lived;
            let worker = &*worker;
            if short > 0 && random.one_in(short) {
                let live = || {
                    hold_up(&mut of_child);
                    of_crew.play(worker, of_child, injector);
                };
                std::thread::scope(|scope| drop(scope.spawn(live)));
            } else {
                of_crew.play(worker, of_child, injector);
            }
            if of_crew.barrier.wait().is_leader() {
                of_crew.judge();
                match worker.running() {
                    true => of_crew.begin(),
                    false => of_crew.over.store(true, Relaxed),
                }
            }
            of_crew.barrier.wait();
        }
    };
    let mut findings = crew::run(&orders, body, |crew| {
        let enough = stage.plays.load(Relaxed) >= script.enough;
        meanwhile(crew) && reached() && enough
    });
    if findings.left_threads {
        stage.judge_hang();
    }
    let counts = Count::ALL.map(|what| format!("{} {what:?}", count(what)).to_lowercase());
    let detail = format!(
        "{} plays, {}, {}",
        stage.plays.load(Relaxed),
        counts.join(", "),
        events.list(&[
            Event::Queued,
            Event::Barge,
            Event::Park,
            Event::Timeout,
            Event::HandoffRequest,
            Event::Pickup,
            Event::Notified,
            Event::Requeue,
            Event::Bias,
            Event::Revoke,
        ]),
    );
    for property in [Property::Exclusion, Property::Contract] {
        let verdict = match stage.broken.get() {
            Some((violated, what)) if *violated == property => Err(what.clone()),
            _ => Ok(format!("{} sections", count(Count::Section))),
        };
        findings.verdicts.push((property, verdict));
    }
    findings.with_reach(reached(), detail)
}

struct Stage {
    script: Script,
    current: Mutex<Arc<Game>>,
    barrier: Barrier,
    /// Whether the last play has ended.
    over: AtomicBool,
    plays: AtomicU64,
    /// The number of sections in plays that have ended.
    sections: AtomicU64,
    counts: [AtomicU64; Count::ALL.len()],
    /// The first violation.
    broken: OnceLock<(Property, String)>,
}

/// A play, its lock and the state that the lock protects.
struct Game {
    target: AnyTarget,
    play: Play,
    state: SharedState,
    /// The longest pause, in spins.
    pause: u64,
}

impl Game {
    /// The play with this number.
    fn new(script: &Script, number: u64) -> Self {
        Game {
            target: (script.new)(),
            play: Play::new(script.threads, true, script.sends, script.flood),
            state: SharedState::new(),
            pause: 1 << (number % u64::from(script.longest + 1)),
        }
    }
}

impl Stage {
    fn game(&self) -> Arc<Game> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self) {
        let game = Game::new(&self.script, self.plays.load(Relaxed));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(game);
    }

    fn play(&self, worker: &Worker, random: Random, injector: Injector) {
        let game = self.game();
        let player = Player {
            stage: self,
            game: &game,
            worker,
            random: RefCell::new(random),
            injector: RefCell::new(injector),
        };
        game.play.part(&*game.target, &player);
    }

    /// Judges the play that has ended.
    fn judge(&self) {
        self.plays.fetch_add(1, Relaxed);
        let game = self.game();
        let sections = self.counts[Count::Section as usize].load(Relaxed);
        let before = self.sections.swap(sections, Relaxed);
        if let Err(what) = game.state.verdict(sections - before) {
            let _ = self.broken.set((Property::Exclusion, what));
        }
        if game.target.is_at_rest() {
            // Debug builds remember which thread holds the lock at an address, and the lock of the
            // next play may have the same address.
            // SAFETY: taken by `is_at_rest`.
            unsafe { game.target.lock().unlock() };
        } else {
            let what = "all threads have ended, but the lock is not at rest".to_owned();
            let _ = self.broken.set((Property::Contract, what));
        }
    }

    /// Judges a play in which threads hang.
    fn judge_hang(&self) {
        if let Err(what) = self.game().state.no_violation() {
            let _ = self.broken.set((Property::Exclusion, what));
        }
    }
}

/// A thread's view of the real machine.
struct Player<'a> {
    stage: &'a Stage,
    game: &'a Game,
    worker: &'a Worker,
    random: RefCell<Random>,
    injector: RefCell<Injector>,
}

impl Player<'_> {
    fn point(&self) {
        self.injector.borrow_mut().point();
    }
}

impl World for Player<'_> {
    fn me(&self) -> usize {
        self.worker.index()
    }

    fn random(&self) -> u32 {
        self.random.borrow_mut().next() as u32
    }

    fn now(&self) -> u64 {
        Native::now()
    }

    fn goes_on(&self, round: u32) -> bool {
        let script = &self.stage.script;
        round < script.rounds && (script.complete || self.worker.running())
    }

    fn pause(&self) {
        self.point();
        injector::spin(self.random.borrow_mut().below(self.game.pause));
    }

    fn section(&self) {
        (self.game.state).section(self.worker.name(), || self.point());
    }

    fn look(&self) {
        (self.game.state).look(self.worker.name(), || self.point());
    }

    fn demand(&self, property: Property, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let _ = self.stage.broken.set((property, what()));
        }
    }

    fn operation(&self, act: impl FnOnce()) {
        if self.stage.script.believes {
            pretend::set_oversubscribed(self.random() % 2 == 0);
        }
        self.worker.operation(act);
    }

    fn count(&self, what: Count) {
        self.stage.counts[what as usize].fetch_add(1, Relaxed);
    }
}
