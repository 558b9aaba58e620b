//! What delayed invalidation promises, asked of every backend.
#![cfg(all(feature = "std", not(loom)))]

use kinlock::SpinLock;
use kinlock::invalidation::{Backend, BeginError, Domain, Tag, Unsupported, WaitError};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a thread to have fallen asleep.
const MOMENT: Duration = Duration::from_millis(if cfg!(miri) { 1 } else { 30 });

fn domain(backend: Backend) -> Option<Domain> {
    match Domain::builder().backend(backend).build() {
        Ok(domain) => {
            assert_eq!(domain.backend(), backend);
            Some(domain)
        }
        Err(Unsupported(refused)) => {
            assert_eq!((refused, backend.is_supported()), (Backend::Wide, false));
            eprintln!("!!!! this CPU cannot do {backend}: NOT tested");
            None
        }
    }
}

/// Each function of this file as a test for each backend.
macro_rules! contract {
    ($($(#[$attribute:meta])* $name:ident),* $(,)?) => {
        contract!(@packed Packed $($(#[$attribute])* $name),*);
        contract!(@wide Wide $($(#[$attribute])* $name),*);
        contract!(@locked Locked $($(#[$attribute])* $name),*);
        contract!(@slots Slots $($(#[$attribute])* $name),*);
    };
    (@$module:ident $backend:ident $($(#[$attribute:meta])* $name:ident),*) => {
        mod $module {
            $(
                #[test]
                $(#[$attribute])*
                fn $name() {
                    if let Some(domain) = super::domain(super::Backend::$backend) {
                        super::$name(domain);
                    }
                }
            )*
        }
    };
}

contract!(
    generations_increase,
    a_new_tag_has_passed,
    a_tag_passes_with_its_section,
    the_oldest_section_holds_all_newer_tags_back,
    a_younger_section_holds_nobody_back,
    the_middle_may_end_first,
    nested_sections_end_with_the_outermost,
    waiting_within_a_section_is_an_error,
    domains_have_nothing_to_do_with_each_other,
    a_wait_can_time_out,
    a_sleeper_is_woken,
    many_sleepers_are_woken,
    a_snapshot_covers_what_is_open_and_no_more,
    everything_open_can_be_waited_for,
    what_is_open_can_be_seen,
    waits_are_counted,
    a_tag_keeps_the_newest_stamp,
    places_are_used_again,
    reusers_never_meet_a_stale_copy,
    sections_publish_what_they_did,
    #[cfg_attr(miri, ignore = "takes long")]
    sections_of_many_threads_all_pass,
    #[cfg_attr(miri, ignore = "takes long")]
    five_thousand_threads_have_sections,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_child_has_its_own_sections_only,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_child_without_sections_has_none,
    #[cfg_attr(miri, ignore = "there are no processes")]
    a_thread_must_not_end_within_a_section,
);

fn stamped(section: &kinlock::invalidation::Section<'_>) -> Tag {
    let tag = Tag::new();
    section.tag(&tag);
    tag
}

/// A thread that keeps a section open until told otherwise.
struct Holder<'scope> {
    tag: &'static Tag,
    let_go: std::sync::mpsc::Sender<()>,
    thread: thread::ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Holder<'scope> {
    fn start<'env: 'scope>(
        scope: &'scope thread::Scope<'scope, 'env>,
        domain: &'env Domain,
    ) -> Self {
        let (let_go, told) = std::sync::mpsc::channel();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let tag: &'static Tag = Box::leak(Box::new(Tag::new()));
        let thread = scope.spawn(move || {
            let section = domain.begin();
            section.tag(tag);
            begun.send(()).unwrap();
            told.recv().unwrap();
        });
        has_begun.recv().unwrap();
        Holder {
            tag,
            let_go,
            thread,
        }
    }

    fn end(self) {
        self.let_go.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn generations_increase(domain: Domain) {
    for expected in 1..100 {
        assert_eq!(domain.begin().generation(), expected);
    }
}

fn a_new_tag_has_passed(domain: Domain) {
    let tag = Tag::new();
    assert!(domain.passed(&tag));
    assert_eq!(domain.wait(&tag), Ok(()));
    let section = domain.begin();
    assert!(domain.passed(&tag));
    drop(section);
    // SAFETY: zeroed memory is a tag, as documented.
    let zeroed: Tag = unsafe { std::mem::zeroed() };
    assert!(domain.passed(&zeroed));
}

fn a_tag_passes_with_its_section(domain: Domain) {
    let section = domain.begin();
    let tag = stamped(&section);
    assert!(!domain.passed(&tag));
    drop(section);
    assert!(domain.passed(&tag));
    assert_eq!(domain.wait(&tag), Ok(()));
}

fn the_oldest_section_holds_all_newer_tags_back(domain: Domain) {
    thread::scope(|s| {
        let oldest = Holder::start(s, &domain);
        let section = domain.begin();
        let tag = stamped(&section);
        drop(section);
        // What the newer section donated is not lost.
        assert!(!domain.passed(&tag));
        let first = oldest.tag;
        oldest.end();
        assert!(domain.passed(first) && domain.passed(&tag));
    });
    assert!(domain.dump().is_empty());
}

fn a_younger_section_holds_nobody_back(domain: Domain) {
    thread::scope(|s| {
        let section = domain.begin();
        let tag = stamped(&section);
        let younger = Holder::start(s, &domain);
        drop(section);
        assert!(domain.passed(&tag));
        assert_eq!(domain.wait(&tag), Ok(()));
        assert!(!domain.passed(younger.tag));
        younger.end();
    });
}

fn the_middle_may_end_first(domain: Domain) {
    thread::scope(|s| {
        let mut holders: Vec<_> = (0..5).map(|_| Holder::start(s, &domain)).collect();
        let tags: Vec<_> = holders.iter().map(|holder| holder.tag).collect();
        let passed = || -> Vec<bool> { tags.iter().map(|tag| domain.passed(tag)).collect() };
        // 0 1 2 3 4: ends 2, 1, 4, 0, 3.
        holders.remove(2).end();
        holders.remove(1).end();
        holders.pop().unwrap().end();
        assert_eq!(passed(), [false; 5]);
        holders.remove(0).end();
        assert_eq!(passed(), [true, true, true, false, false]);
        holders.remove(0).end();
        assert_eq!(passed(), [true; 5]);
    });
}

fn nested_sections_end_with_the_outermost(domain: Domain) {
    let outer = domain.begin();
    let tag = stamped(&outer);
    let inner = domain.begin();
    assert_eq!(inner.generation(), outer.generation());
    drop(inner);
    assert!(!domain.passed(&tag));
    let inner = domain.begin();
    // In whatever order.
    drop(outer);
    assert!(!domain.passed(&tag));
    drop(inner);
    assert!(domain.passed(&tag));
    assert_eq!(domain.begin().generation(), 2);
}

fn waiting_within_a_section_is_an_error(domain: Domain) {
    let section = domain.begin();
    let tag = stamped(&section);
    assert_eq!(domain.wait(&tag), Err(WaitError::InsideSection));
    assert_eq!(domain.wait(&Tag::new()), Err(WaitError::InsideSection));
    assert_eq!(domain.wait_all(), Err(WaitError::InsideSection));
    assert_eq!(
        domain.wait_timeout(&tag, Duration::from_secs(60)),
        Err(WaitError::InsideSection)
    );
    drop(section);
    assert_eq!(domain.wait(&tag), Ok(()));
}

fn domains_have_nothing_to_do_with_each_other(domain: Domain) {
    let other = self::domain(domain.backend()).unwrap();
    let section = other.begin();
    let own = domain.begin();
    let tag = stamped(&own);
    drop(own);
    // Within a section of the other domain.
    assert_eq!(domain.wait(&tag), Ok(()));
    assert_eq!((other.dump().len(), domain.dump().len()), (1, 0));
    drop(section);
}

fn a_wait_can_time_out(domain: Domain) {
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let start = Instant::now();
        assert_eq!(
            domain.wait_timeout(holder.tag, MOMENT),
            Err(WaitError::TimedOut)
        );
        assert!(start.elapsed() >= MOMENT);
        assert_eq!(
            domain.wait_timeout(holder.tag, Duration::ZERO),
            Err(WaitError::TimedOut)
        );
        let tag = holder.tag;
        holder.end();
        assert_eq!(domain.wait_timeout(tag, Duration::ZERO), Ok(()));
    });
}

fn a_sleeper_is_woken(domain: Domain) {
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let tag = holder.tag;
        let waiter = s.spawn(|| domain.wait(tag));
        while domain.stats().slow_waits == 0 {
            thread::yield_now();
        }
        thread::sleep(MOMENT);
        assert!(!waiter.is_finished());
        holder.end();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

fn many_sleepers_are_woken(domain: Domain) {
    thread::scope(|s| {
        let first = Holder::start(s, &domain);
        let second = Holder::start(s, &domain);
        let (early, late) = (first.tag, second.tag);
        let waiters: Vec<_> = (0..8)
            .map(|i| {
                let (domain, tag) = (&domain, if i % 2 == 0 { early } else { late });
                s.spawn(move || domain.wait(tag))
            })
            .collect();
        while domain.stats().slow_waits < 8 {
            thread::yield_now();
        }
        thread::sleep(MOMENT);
        first.end();
        for waiter in waiters.into_iter().step_by(2) {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        assert!(!domain.passed(late));
        second.end();
    });
}

fn a_snapshot_covers_what_is_open_and_no_more(domain: Domain) {
    assert!(domain.passed(&domain.snapshot()));
    thread::scope(|s| {
        let older = Holder::start(s, &domain);
        let snapshot = domain.snapshot();
        let younger = Holder::start(s, &domain);
        assert!(!domain.passed(&snapshot));
        older.end();
        assert!(domain.passed(&snapshot));
        assert!(!domain.passed(&domain.snapshot()));
        younger.end();
        assert!(domain.passed(&domain.snapshot()));
    });
}

fn everything_open_can_be_waited_for(domain: Domain) {
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let (a, b) = (Holder::start(s, &domain), Holder::start(s, &domain));
        let waiter = s.spawn(|| {
            domain.wait_all().unwrap();
            assert!(done.load(Acquire));
        });
        thread::sleep(MOMENT);
        b.end();
        done.store(true, Release);
        a.end();
        waiter.join().unwrap();
    });
}

fn what_is_open_can_be_seen(domain: Domain) {
    assert!(domain.dump().is_empty());
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let section = domain.begin();
        thread::sleep(MOMENT);
        let open = domain.dump();
        assert_eq!(open.len(), 2);
        assert_eq!(
            (open[0].generation, open[1].generation),
            (1, section.generation())
        );
        assert!(cfg!(miri) || open[0].thread != open[1].thread);
        // The clock is coarse.
        let age = open[0].age;
        assert!(age + Duration::from_millis(12) >= MOMENT && age < Duration::from_secs(60));
        assert!(open[0].to_string().contains("generation 1, open for "));
        drop(section);
        assert_eq!(domain.dump().len(), 1);
        holder.end();
    });
    assert!(domain.dump().is_empty());
}

fn waits_are_counted(domain: Domain) {
    let before = domain.stats();
    assert_eq!((before.waits, before.slow_waits), (0, 0));
    assert_eq!(before.backend, domain.backend());
    domain.wait(&Tag::new()).unwrap();
    assert_eq!(domain.stats().waits, 0);
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let _ = domain.wait_timeout(holder.tag, MOMENT);
        let _section = domain.begin();
        holder.end();
    });
    let stats = domain.stats();
    assert_eq!((stats.waits, stats.slow_waits), (1, 1));
    let longest = if domain.backend() == Backend::Slots {
        1
    } else {
        2
    };
    assert_eq!(stats.longest_queue, longest);
    assert_eq!((stats.begin_restarts, stats.end_restarts), (0, 0));
}

fn a_tag_keeps_the_newest_stamp(domain: Domain) {
    let (tag, other) = (Tag::new(), Tag::new());
    thread::scope(|s| {
        let older = domain.begin();
        let younger = Holder::start(s, &domain);
        let newest = younger.tag.generation();
        let section = domain.begin();
        section.tag(&tag);
        assert_eq!(tag.generation(), older.generation());
        drop(section);
        s.spawn(|| domain.begin().tag(&other)).join().unwrap();
        assert!(other.generation() > newest);
        older.tag(&other);
        assert!(other.generation() > newest);
        drop(older);
        younger.end();
    });
    assert!(domain.passed(&tag));
}

fn places_are_used_again(domain: Domain) {
    // More threads than there are places, one after the other.
    let threads = if cfg!(miri) { 40 } else { 300 };
    for _ in 0..threads {
        thread::scope(|s| {
            s.spawn(|| drop(domain.begin()));
        });
    }
    let tag = domain.snapshot();
    assert_eq!(tag.generation(), threads);
    assert!(domain.passed(&tag));
}

/// A thing that is removed under its lock, and of which a stale copy exists until the batch is through.
struct Thing {
    state: SpinLock<State>,
    tag: Tag,
    stale: AtomicU32,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Used,
    Free,
    /// Somebody is about to use it, and waits without holding the lock: sections take it.
    Reserved,
}

/// The exact oracle: if a wait is left out or ends early, a reuser finds a stale copy.
fn reusers_never_meet_a_stale_copy(domain: Domain) {
    let rounds = if cfg!(miri) { 8 } else { 3000 };
    let met = churn(&domain, rounds, true);
    assert_eq!(met, 0);
    assert!(domain.dump().is_empty());
}

/// Removes, invalidates and reuses things in several threads; how many stale copies were met.
fn churn(domain: &Domain, rounds: usize, waits: bool) -> usize {
    const THINGS: usize = 8;
    let things: Vec<Thing> = (0..THINGS)
        .map(|_| Thing {
            state: SpinLock::new(State::Used),
            tag: Tag::new(),
            stale: AtomicU32::new(0),
        })
        .collect();
    let met = AtomicUsize::new(0);
    thread::scope(|s| {
        for me in 0..4usize {
            let (things, met) = (&things, &met);
            s.spawn(move || {
                for round in 0..rounds {
                    let section = domain.begin();
                    let mut batch = Vec::new();
                    for i in 0..3 {
                        let thing = &things[(me + round * 5 + i) % THINGS];
                        let mut state = thing.state.lock();
                        if *state == State::Used {
                            thing.stale.fetch_add(1, Relaxed);
                            *state = State::Free;
                            section.tag(&thing.tag);
                            batch.push(thing);
                        }
                    }
                    if round % 16 == me {
                        thread::yield_now();
                    }
                    for thing in batch {
                        thing.stale.fetch_sub(1, Relaxed);
                    }
                    drop(section);
                    for i in 0..3 {
                        let thing = &things[(me * 3 + round * 7 + i) % THINGS];
                        let mut state = thing.state.lock();
                        if *state != State::Free {
                            continue;
                        }
                        *state = State::Reserved;
                        drop(state);
                        if waits {
                            domain.wait(&thing.tag).unwrap();
                        }
                        // Relaxed: what orders it is the wait.
                        met.fetch_add((thing.stale.load(Relaxed) != 0) as usize, Relaxed);
                        *thing.state.lock() = State::Used;
                    }
                }
            });
        }
    });
    met.into_inner()
}

#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn the_oracle_notices_a_missing_wait() {
    let domain = Domain::new();
    let mut met = 0;
    for _ in 0..100 {
        met += churn(&domain, 3000, false);
        if met > 0 {
            return;
        }
    }
    panic!("without waiting, nobody met a stale copy");
}

/// Plain data written within a section is read after the wait: Miri and ThreadSanitizer object if nothing orders them.
fn sections_publish_what_they_did(domain: Domain) {
    struct Plain(std::cell::UnsafeCell<u64>);
    // SAFETY: that is what is tested.
    unsafe impl Sync for Plain {}
    for round in 0..if cfg!(miri) { 3 } else { 200 } {
        let (cells, tag) = ([Plain(0.into()), Plain(0.into())], Tag::new());
        let (cells, tag, both) = (&cells, &tag, &Barrier::new(3));
        let domain = &domain;
        thread::scope(|s| {
            for cell in cells {
                s.spawn(move || {
                    let section = domain.begin();
                    section.tag(tag);
                    both.wait();
                    // SAFETY: nobody reads before the section has ended.
                    unsafe { *cell.0.get() = round + 1 };
                });
            }
            both.wait();
            domain.wait(tag).unwrap();
            for cell in cells {
                // SAFETY: both sections have ended, and are not newer than the tag.
                assert_eq!(unsafe { *cell.0.get() }, round + 1);
            }
        });
    }
}

fn sections_of_many_threads_all_pass(domain: Domain) {
    let sections = AtomicUsize::new(0);
    thread::scope(|s| {
        for me in 0..16 {
            let (domain, sections) = (&domain, &sections);
            s.spawn(move || {
                for round in 0..2000 {
                    let section = domain.begin();
                    let tag = stamped(&section);
                    assert!(!domain.passed(&tag));
                    drop(section);
                    sections.fetch_add(1, Relaxed);
                    if round % 64 == me {
                        domain.wait(&tag).unwrap();
                        assert!(domain.passed(&tag));
                    }
                }
            });
        }
    });
    let newest = domain.snapshot();
    assert_eq!(newest.generation(), sections.into_inner() as u64);
    // Whatever was donated has arrived at the head.
    assert!(domain.passed(&newest));
    assert_eq!(domain.wait(&newest), Ok(()));
}

fn five_thousand_threads_have_sections(domain: Domain) {
    const THREADS: usize = 5000;
    // Not all backends at a time: there are places for 8191.
    static ONE_AT_A_TIME: kinlock::Mutex<()> = kinlock::Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let (begun, refused, stop) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicBool::new(false),
    );
    thread::scope(|s| {
        let mut started = 0;
        for _ in 0..THREADS {
            let thread = thread::Builder::new().stack_size(64 << 10);
            let spawned = thread.spawn_scoped(s, || {
                match domain.try_begin() {
                    Ok(_section) => {
                        begun.fetch_add(1, Relaxed);
                        while !stop.load(Relaxed) {
                            thread::park_timeout(Duration::from_millis(50));
                        }
                    }
                    // Other tests of this process have threads too.
                    Err(error) => {
                        assert_eq!(error, BeginError::TooManyThreads);
                        refused.fetch_add(1, Relaxed);
                    }
                };
            });
            // The system may have fewer to give.
            if spawned.is_err() {
                break;
            }
            started += 1;
        }
        while begun.load(Relaxed) + refused.load(Relaxed) < started {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(domain.dump().len(), begun.load(Relaxed));
        stop.store(true, Relaxed);
    });
    assert!(domain.dump().is_empty());
    assert!(domain.passed(&domain.snapshot()));
}

#[test]
fn generations_run_out_with_an_error() {
    for backend in Backend::ALL.into_iter().filter(|b| b.is_supported()) {
        let last = match backend {
            Backend::Packed => (1 << 50) - 1,
            Backend::Slots => u64::MAX - (1 << 32),
            _ => u64::MAX,
        };
        let builder = Domain::builder().backend(backend).generation(last - 1);
        let domain = builder.build().unwrap();
        let section = domain.begin();
        assert_eq!(section.generation(), last);
        let tag = stamped(&section);
        let refused = thread::scope(|s| s.spawn(|| domain.try_begin().map(drop)).join().unwrap());
        assert_eq!(refused, Err(BeginError::NearWrap), "{backend}");
        // Nested is not new.
        drop(domain.begin());
        drop(section);
        assert_eq!(domain.wait(&tag), Ok(()));
        assert_eq!(domain.try_begin().map(drop), Err(BeginError::NearWrap));
        assert!(domain.dump().is_empty());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(domain.begin())));
        assert!(panic.is_err());
    }
}

#[test]
fn backends_have_names() {
    for backend in Backend::ALL {
        assert_eq!(backend.name().parse(), Ok(backend));
        assert_eq!(backend.to_string(), backend.name());
    }
    let error = "mutex".parse::<Backend>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "known backends: packed, wide, locked, slots"
    );
    assert_eq!(Domain::new().backend(), Backend::Packed);
}

// ---- other processes ---------------------------------------------------------------------------------------

/// Runs `child` in a forked child; its exit status. The child must not panic: other threads of the test harness do not exist there.
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls nothing that needs other threads, and leaves by `_exit`.
    unsafe {
        match libc::fork() {
            -1 => panic!("cannot fork"),
            0 => libc::_exit(if child() { 0 } else { 1 }),
            pid => {
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            }
        }
    }
}

fn a_child_has_its_own_sections_only(domain: Domain) {
    thread::scope(|s| {
        let older = Holder::start(s, &domain);
        let section = domain.begin();
        let own = stamped(&section);
        let younger = Holder::start(s, &domain);
        let (before, after) = (older.tag, younger.tag);
        let status = in_child(|| {
            let mut right = domain.dump().len() == 1;
            right &= domain.passed(before) && !domain.passed(&own) && !domain.passed(after);
            drop(section);
            right &= domain.passed(&own) && domain.passed(after) && domain.dump().is_empty();
            let next = domain.begin();
            right &= next.generation() > after.generation();
            drop(next);
            right && domain.wait_all().is_ok()
        });
        assert_eq!(status, 0);
        // Nothing has changed for the parent.
        assert!(!domain.passed(before));
        older.end();
        assert!(domain.passed(before) && !domain.passed(after));
        younger.end();
        // The section went to the child's closure, and was dropped here with it or there; the tag passes either way.
        assert!(domain.passed(after));
    });
}

fn a_child_without_sections_has_none(domain: Domain) {
    thread::scope(|s| {
        let holder = Holder::start(s, &domain);
        let tag = holder.tag;
        let status = in_child(|| {
            let mut right = domain.dump().is_empty() && domain.passed(tag);
            let section = domain.begin();
            let own = stamped(&section);
            right &= !domain.passed(&own) && own.generation() > tag.generation();
            drop(section);
            right && domain.passed(&own)
        });
        assert_eq!(status, 0);
        holder.end();
    });
}

/// In a process of its own, since it ends it.
fn a_thread_must_not_end_within_a_section(domain: Domain) {
    const CHILD: &str = "KINLOCK_TEST_ENDS_WITHIN";
    let name = format!(
        "{}::a_thread_must_not_end_within_a_section",
        domain.backend()
    );
    if std::env::var_os(CHILD).is_some() {
        thread::scope(|s| {
            let thread = s.spawn(|| std::mem::forget(domain.begin()));
            // The scope's own waiting does not extend to destructors of thread-locals.
            let _ = thread.join();
        });
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        stderr.contains("ended within a section") && stderr.contains(domain.backend().name()),
        "{stderr}"
    );
}
