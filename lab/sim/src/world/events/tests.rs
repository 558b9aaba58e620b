//! Events come in order, however they were planned.

use super::{Events, NEAR, What};
use kinlock_measure::random::Random;

#[test]
fn events_come_by_time_then_as_planned() {
    let mut random = Random::new(1);
    // With 2 at most per step there are a few at a time, with more there are too many for the list
    // of those that are near.
    for (steps, at_most) in [(3, 2), (40, 2), (2000, 2), (300, 8)] {
        let mut events = Events::new();
        let mut planned: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..steps {
            for _ in 0..random.below(at_most + 1) {
                // Steps soon, some later; time limits later: some nearly in order, some far out of
                // it.
                let (what, after) = match random.below(8) {
                    0 | 1 => (What::TimeLimit, 1000 + random.below(8)),
                    2 | 3 => (What::TimeLimit, random.below(3000)),
                    4 => (What::SliceEnd, random.below(1000)),
                    _ => (What::Step, random.below(8)),
                };
                let name = events.planned + 1;
                events.plan(now + after, name as usize, !name as u32, what);
                planned.push((now + after, name));
            }
            now = check_next(&mut events, &mut planned).unwrap_or(now);
        }
        while check_next(&mut events, &mut planned).is_some() {}
        assert!(planned.is_empty());
        assert_eq!(events.earliest, u64::MAX);
    }
}

/// Takes the next event, which is to be the least of those planned. Returns its time.
fn check_next(events: &mut Events, planned: &mut Vec<(u64, u64)>) -> Option<u64> {
    let expected = planned.iter().copied().min();
    let next = events.pop().map(|(time, whose)| {
        assert_eq!(whose.epoch(), !whose.thread() as u32);
        (time, whose.thread() as u64)
    });
    assert_eq!(next, expected);
    planned.retain(|&p| Some(p) != expected);
    let earliest = planned.iter().map(|&(time, _)| time).min();
    assert_eq!(events.earliest, earliest.unwrap_or(u64::MAX));
    expected.map(|(time, _)| time)
}

#[test]
fn an_event_says_what_happens() {
    let mut events = Events::new();
    let all = [What::Step, What::TimeLimit, What::SliceEnd];
    for (thread, what) in all.into_iter().enumerate() {
        events.plan(thread as u64, 70_000 + thread, u32::MAX, what);
    }
    for (thread, what) in all.into_iter().enumerate() {
        let (_, whose) = events.pop().expect("it was planned");
        assert_eq!((whose.thread(), whose.what()), (70_000 + thread, what));
        assert_eq!(whose.epoch(), u32::MAX);
    }
}

#[test]
fn an_event_that_finds_the_list_full_comes_in_order() {
    for late in [0, 75, 155, 165, 235, 315, 1000] {
        let mut events = Events::new();
        let mut times: Vec<u64> = (0..NEAR as u64).map(|i| i * 10).collect();
        times.push(late);
        for &time in &times {
            events.plan(time, 0, 0, What::Step);
        }
        times.sort_unstable();
        let come: Vec<u64> = std::iter::from_fn(|| events.pop().map(|(time, _)| time)).collect();
        assert_eq!(come, times);
    }
}
