//! Events come in order, however they were planned.

use super::{Events, What};
use kinlock_measure::random::Random;

#[test]
fn events_come_by_time_then_as_planned() {
    let mut random = Random::new(1);
    for (steps, at_most) in [(3, 2), (2000, 2), (300, 8)] {
        let mut events = Events::new();
        let mut planned: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..steps {
            for _ in 0..random.below(at_most + 1) {
                // Most steps come soon, some later. Time limits come later, some nearly in order,
                // some far out of order.
                let (what, after) = match random.below(8) {
                    0 | 1 => (What::TimeLimit, 1000 + random.below(8)),
                    2 | 3 => (What::TimeLimit, random.below(3000)),
                    4 => (What::SliceEnd, random.below(1000)),
                    _ => (What::Step, random.below(8)),
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

/// Takes the next event, which must be the earliest of the planned ones. Returns its time.
fn check_next(events: &mut Events, planned: &mut Vec<(u64, u64)>) -> Option<u64> {
    let expected = planned.iter().copied().min();
    let next = events.pop().map(|event| (event.time, event.number));
    assert_eq!(next, expected);
    planned.retain(|&p| Some(p) != expected);
    let earliest = planned.iter().map(|&(time, _)| time).min();
    assert_eq!(events.earliest, earliest.unwrap_or(u64::MAX));
    expected.map(|(time, _)| time)
}
