//! Requests in flight, the store buffer, and spinners.
//!
//! All tests run on `haswell-ex-4s`, one thread per core: the first eighteen are on socket 0, the
//! next on socket 1.

use crate::machine::{self, Costs};
use crate::platform::{Sim, SimU64, place};
use crate::world::{Setup, run, with};
use kinlock_core::platform::{Atomic, Ordering::Relaxed, Platform};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MACHINE: &str = "haswell-ex-4s";
/// The first thread of socket 1.
const NEXT_SOCKET: usize = 18;
/// Long after all threads have begun.
const LATER: u64 = 100_000;

/// Three lines, and what the threads report.
#[derive(Clone)]
struct Shared {
    a: &'static SimU64,
    b: &'static SimU64,
    c: &'static SimU64,
    said: Rc<RefCell<Vec<(usize, u64)>>>,
}

impl Shared {
    fn say(&self, thread: usize, what: u64) {
        self.said.borrow_mut().push((thread, what));
    }
}

fn costs() -> Costs {
    machine::load(MACHINE).expect("it is built in").costs
}

fn setup(threads: usize) -> Setup {
    Setup::new(machine::load(MACHINE).expect("it is built in"), threads)
}

/// Runs 20 threads, and returns what they reported, in order.
fn play(body: impl Fn(&Shared, usize) + Copy + 'static) -> Vec<(usize, u64)> {
    let line = || place(SimU64::new(0));
    let prepare = || Shared {
        a: line(),
        b: line(),
        c: line(),
        said: Rc::default(),
    };
    let (_, end, said) = run(&setup(NEXT_SOCKET + 2), prepare, body, |shared, _| {
        shared.said.take()
    });
    assert_eq!(end, Ok(()));
    said
}

fn now() -> u64 {
    with(|w| w.now())
}

/// Makes the current thread do nothing before that time.
fn wait_until(time: u64) {
    with(|w| {
        assert!(w.now() < time);
        w.current().now = time;
    });
}

/// How long something takes the current thread.
fn time(doing: impl FnOnce()) -> u64 {
    let start = now();
    doing();
    now() - start
}

#[test]
fn travelling_is_a_part_of_the_latency() {
    let said = play(|shared, thread| match thread {
        0 => {
            shared.a.store(1, Relaxed);
            shared.b.store(1, Relaxed);
        }
        NEXT_SOCKET => {
            wait_until(LATER);
            let loading = time(|| assert_eq!(shared.a.load(Relaxed), 1));
            shared.say(thread, loading);
            let swapping = time(|| assert_eq!(shared.b.swap(2, Relaxed), 1));
            shared.say(thread, swapping);
        }
        _ => {}
    });
    let costs = costs();
    let latency = costs.modified[2];
    let expected = [(NEXT_SOCKET, latency), (NEXT_SOCKET, latency + costs.rmw)];
    assert_eq!(said, expected);
}

#[test]
fn of_two_requests_at_a_time_the_one_from_nearby_comes_first() {
    for owner in [1, NEXT_SOCKET + 1] {
        let owns = move |thread| thread == owner;
        let said = play(move |shared, thread| {
            if owns(thread) {
                shared.a.store(7, Relaxed);
            } else if thread == 0 || thread == NEXT_SOCKET {
                wait_until(LATER);
                let before = shared.a.fetch_add(1, Relaxed);
                shared.say(thread, before);
            }
        });
        let nearby = if owner == 1 { 0 } else { NEXT_SOCKET };
        assert!(said.contains(&(nearby, 7)), "{said:?}");
        assert!(said.contains(&(NEXT_SOCKET - nearby, 8)), "{said:?}");
    }
}

#[test]
fn loads_that_follow_directly_come_with_the_same_transfer() {
    let costs = costs();
    let pause = costs.pause;
    let said = play(move |shared, thread| match thread {
        0 => shared.a.store(1, Relaxed),
        1 => {
            // This thread's request arrives while the line is in transfer, and waits for it.
            wait_until(LATER + 100);
            shared.a.swap(2, Relaxed);
        }
        NEXT_SOCKET => {
            wait_until(LATER);
            for later in [0, 0, pause] {
                with(|w| w.current().now += later);
                let loading = time(|| _ = shared.a.load(Relaxed));
                shared.say(thread, loading);
            }
        }
        _ => {}
    });
    assert_eq!(said[0].1, costs.modified[2]);
    assert_eq!(said[1].1, costs.own_cache);
    assert!(said[2].1 > costs.modified[2], "it waits for the swap first");
}

#[test]
fn stores_do_not_stall_and_become_visible_in_order() {
    let costs = costs();
    let (visible, nearby) = (costs.modified[2], costs.modified[0]);
    // The first store's line is far away. The second store hits or gets its line from nearby, and
    // waits for the first.
    for owner in [0, 2] {
        let mut said = play(move |shared, thread| {
            if thread == owner {
                shared.b.store(1, Relaxed);
            }
            match thread {
                NEXT_SOCKET => shared.a.store(1, Relaxed),
                0 => {
                    shared.c.store(1, Relaxed);
                    wait_until(LATER);
                    let stores = || {
                        shared.a.store(2, Relaxed);
                        shared.b.store(2, Relaxed);
                    };
                    shared.say(thread, time(stores));
                    // A locked operation waits until both are done.
                    shared.c.fetch_add(1, Relaxed);
                    shared.say(thread, now() - LATER);
                }
                1 => {
                    // This thread's request comes when the first store's request has arrived, and
                    // long after the second one's.
                    wait_until(LATER + visible / 2);
                    assert_eq!(shared.b.load(Relaxed), 2);
                    shared.say(thread, now() - LATER);
                }
                _ => {}
            }
        });
        said.sort_unstable();
        let locked = visible + costs.own_cache + costs.rmw;
        let read = visible + nearby - nearby / 2;
        assert_eq!(said, [(0, 2), (0, locked), (1, read)], "{owner}");
    }
}

#[test]
fn a_step_of_a_walk_is_not_waited_for_but_later_stores_come_after_it() {
    let arrival = costs().modified[2] / 2;
    let said = play(move |shared, thread| match thread {
        NEXT_SOCKET => shared.a.store(1, Relaxed),
        0 => {
            shared.b.store(1, Relaxed);
            wait_until(LATER);
            let step = time(|| assert_eq!(shared.a.load_ahead(Relaxed), 1));
            shared.say(thread, step);
            // The store hits, and is visible when the load is done.
            shared.b.store(2, Relaxed);
        }
        1 => {
            wait_until(LATER + arrival + 2);
            let seen = shared.b.load(Relaxed);
            shared.say(thread, now() - LATER);
            assert_eq!(seen, 2);
        }
        _ => {}
    });
    let costs = costs();
    let nearby = costs.modified[0];
    let mut said = said;
    said.sort_unstable();
    let visible = costs.modified[2];
    assert_eq!(said, [(0, 0), (1, visible + nearby - nearby / 2)]);
}

#[test]
fn a_store_overtakes_no_request_that_was_sent_before() {
    // Both threads are equally far from the line; the load is sent a moment earlier or later.
    for (earlier, expected) in [(true, 1), (false, 2)] {
        let said = play(move |shared, thread| match thread {
            2 => shared.a.store(1, Relaxed),
            0 => {
                wait_until(LATER);
                shared.a.store(2, Relaxed);
            }
            1 => {
                wait_until(if earlier { LATER - 1 } else { LATER + 1 });
                shared.say(thread, shared.a.load(Relaxed));
            }
            _ => {}
        });
        assert_eq!(said, [(1, expected)]);
    }
}

#[test]
fn a_spinner_checks_again_after_each_write() {
    let said = play(|shared, thread| match thread {
        0 => {
            let checks = Cell::new(0);
            let seen = Sim::wait(shared.a, Relaxed, |value| {
                checks.set(checks.get() + 1);
                value == 3
            });
            shared.say(thread, seen);
            shared.say(thread, checks.get());
        }
        1 => {
            for i in 1..=4 {
                wait_until(i * LATER);
                shared.a.store(i, Relaxed);
            }
            shared.say(thread, with(|w| w.traffic.own_cache));
        }
        _ => {}
    });
    // There is one check at first, and one after each of three writes. Each reads the line once,
    // and no read hits.
    assert_eq!(said, [(0, 3), (0, 4), (1, 0)]);
}

#[test]
fn a_spinner_gives_up_after_its_time_limit() {
    let said = play(|shared, thread| match thread {
        0 => {
            let start = now();
            let nanos = with(|w| w.costs().nanos(3 * LATER)) as u64;
            let seen = Sim::wait_for(shared.a, Relaxed, nanos, |value| value == 7);
            shared.say(thread, seen.expect_err("nobody writes that"));
            assert!((3 * LATER - 10..4 * LATER).contains(&(now() - start)));
        }
        1 => {
            wait_until(LATER);
            shared.a.store(1, Relaxed);
        }
        _ => {}
    });
    assert_eq!(said, [(0, 1)]);
}

#[test]
fn reading_the_clock_takes_as_long_as_the_machine_says() {
    let took = |clock: u64| {
        let mut setup = setup(1);
        setup.machine.costs.clock = clock;
        let body = |said: &Rc<RefCell<Vec<u64>>>, _| {
            let (before, shown) = (now(), Sim::now());
            let cycles = with(|w| w.costs().cycles(shown as f64));
            said.borrow_mut().extend([now() - before, cycles - before]);
        };
        let (_, end, said) = run(
            &setup,
            || Rc::new(RefCell::new(vec![])),
            body,
            |said, _| said.take(),
        );
        assert_eq!(end, Ok(()));
        said
    };
    assert_eq!(took(0)[0], 0);
    let [took, shown] = took(60)[..] else {
        panic!()
    };
    // The clock shows the time at which it has been read.
    assert!(took == 60 && shown.abs_diff(60) <= 3, "{took} {shown}");
}
