//! Events come in order, whichever way they were planned.

use super::{Events, What};
use crate::world::next_random;

#[test]
fn events_come_by_time_then_as_planned() {
    let mut random = 1;
    for steps in [3, 40, 2000] {
        let mut events = Events::new();
        let mut planned: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..steps {
            for _ in 0..next_random(&mut random) % 3 {
                // Steps soon, time limits later: some nearly in order, some far out of it.
                let (what, after) = match next_random(&mut random) % 4 {
                    0 => (What::TimeLimit, 1000 + next_random(&mut random) % 8),
                    1 => (What::TimeLimit, next_random(&mut random) % 3000),
                    _ => (What::Step, next_random(&mut random) % 8),
                };
                events.plan(now + after, 0, 0, what);
                planned.push((now + after, events.planned));
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
    let next = events.pop().map(|(time, whose)| (time, whose.thread() as u64));
    assert_eq!(next, expected);
    planned.retain(|&p| Some(p) != expected);
    let earliest = planned.iter().map(|&(time, _)| time).min();
    assert_eq!(events.earliest, earliest.unwrap_or(u64::MAX));
    expected.map(|(time, _)| time)
}
