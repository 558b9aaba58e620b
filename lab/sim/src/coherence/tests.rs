//! Every row of the table of costs, one test for each; then which access waits for which.
//!
//! The machine has four sockets with two last-level caches each, of two cores. Sockets 0 and 3, and
//! 1 and 2, are two hops apart, the others one. All costs differ, so that none can be mistaken for
//! another.

use super::{Fabric, Kind, Kind::Read, Kind::Write, Line, Place, Service};
use crate::machine::{self, Costs, Shape};

const OWN: u64 = 5;
const LAST: u64 = 40;
const MODIFIED: [u64; 4] = [61, 83, 211, 307];
const HOMED_AT_READER: u64 = 17;
const THIRD_PARTY: u64 = 29;
/// Index 0 is not used: that cost is `LAST`.
const SHARED: [u64; 4] = [0, 71, 151, 251];
const INVALIDATE: [u64; 4] = [53, 97, 223, 331];
const MEMORY: [u64; 2] = [101, 181];
const OCCUPANCY: u64 = 7;
/// By distance.
const SERVICES: [Service; 4] = [
    Service::Nearby,
    Service::Local,
    Service::Remote,
    Service::Remote,
];

/// Cores of a socket, the first two in one cache.
const CORES: usize = 4;

fn shape() -> Shape {
    Shape {
        sockets: 4,
        caches_per_socket: 2,
        cores_per_cache: 2,
        threads_per_core: 1,
        hops: vec![0, 1, 1, 2, 1, 0, 2, 1, 1, 2, 0, 1, 2, 1, 1, 0],
    }
}

fn costs() -> Costs {
    Costs {
        own_cache: OWN,
        last_level: LAST,
        modified: MODIFIED,
        modified_homed_at_reader: HOMED_AT_READER,
        third_party_home: THIRD_PARTY,
        shared: SHARED,
        invalidate: INVALIDATE,
        memory: MEMORY,
        read_occupancy: OCCUPANCY,
        ..machine::load("laptop").expect("it is built in").costs
    }
}

fn fabric() -> Fabric {
    Fabric::new(&shape(), &costs())
}

/// The core with this number in a socket.
fn at(socket: usize, core: usize) -> Place {
    let core = socket * CORES + core;
    Place {
        core: core as u16,
        cache: shape().cache(core) as u16,
    }
}

/// Cores at each distance from the first one of socket 0.
fn by_distance() -> [Place; 4] {
    [at(0, 1), at(0, 2), at(1, 0), at(3, 0)]
}

/// An untouched line of the memory of a socket.
fn line(home: usize) -> Line {
    let mut line = Line::new();
    line.home = home as u16;
    line
}

/// The cost of an access that starts long after all earlier ones.
fn cost(line: &mut Line, kind: Kind, from: Place) -> (u64, Service) {
    let start = line.busy + 1000;
    let (done, service) = fabric().access(line, kind, from, start);
    (done - start, service)
}

/// Makes a core a sharer of a line that is clean and has no owner.
fn share(line: &mut Line, reader: Place) {
    line.caches |= 1 << reader.cache;
    line.sharers.insert(reader.core as usize);
}

/// The cost of an access to a line with this home and these sharers.
fn cost_of_shared(home: usize, sharers: &[Place], kind: Kind, from: Place) -> u64 {
    let mut line = line(home);
    sharers.iter().for_each(|&sharer| share(&mut line, sharer));
    cost(&mut line, kind, from).0
}

fn reads(line: &Line, from: Place) -> bool {
    line.hits(Read, from.core)
}

fn writes(line: &Line, from: Place) -> bool {
    line.hits(Write, from.core)
}

#[test]
fn what_the_core_has_hits_its_own_caches() {
    let (reader, writer) = (at(0, 0), at(0, 1));
    let mut line = line(0);
    cost(&mut line, Read, reader);
    assert_eq!(cost(&mut line, Read, reader), (OWN, Service::OwnCache));
    cost(&mut line, Write, writer);
    for kind in [Read, Write] {
        assert_eq!(cost(&mut line, kind, writer), (OWN, Service::OwnCache));
    }
}

#[test]
fn a_modified_line_costs_by_the_distance_of_the_owner_and_by_the_home() {
    for (distance, owner) in by_distance().into_iter().enumerate() {
        let is_far = distance >= 2;
        // The home is the owner's socket, the one that asks, or a third one.
        let homes = [
            (None, 0),
            (Some(0), HOMED_AT_READER),
            (Some(2), THIRD_PARTY),
        ];
        for (home, more) in homes {
            let expected = MODIFIED[distance] + if is_far { more } else { 0 };
            for kind in [Read, Write] {
                let mut line = home.map_or_else(Line::new, line);
                cost(&mut line, Write, owner);
                let asker = at(0, 0);
                let done = cost(&mut line, kind, asker);
                assert_eq!(done, (expected, SERVICES[distance]), "{distance} {home:?}");
                // After a read the line is clean, shared by both and without an owner; after a
                // write it belongs to the asking core.
                let is_read = kind == Read;
                assert!(reads(&line, asker) && reads(&line, owner) == is_read);
                assert!(writes(&line, asker) != is_read && !writes(&line, owner));
                assert!(!reads(&line, at(2, 0)));
            }
        }
    }
}

#[test]
fn the_home_is_the_socket_that_touched_a_line_first() {
    let mut line = Line::new();
    cost(&mut line, Read, at(2, 0));
    cost(&mut line, Write, at(0, 0));
    let homed = MODIFIED[2] + HOMED_AT_READER;
    assert_eq!(cost(&mut line, Read, at(2, 1)).0, homed);
}

#[test]
fn a_read_of_what_the_last_level_cache_has_clean_adds_a_sharer() {
    let (first, second) = (at(0, 0), at(0, 1));
    let mut line = line(0);
    share(&mut line, first);
    let expected = (LAST, Service::LastLevel);
    assert_eq!(cost(&mut line, Read, second), expected);
    assert!(reads(&line, first) && reads(&line, second));
}

#[test]
fn a_read_of_what_is_clean_elsewhere_costs_by_the_nearest() {
    // The farthest sharer comes first, and each later one is nearer.
    let sharers: Vec<Place> = by_distance().into_iter().skip(1).rev().collect();
    for (n, distance) in [(1, 3), (2, 2), (3, 1)] {
        let mut line = line(0);
        for &sharer in &sharers[..n] {
            share(&mut line, sharer);
        }
        let (cycles, service) = cost(&mut line, Read, at(0, 0));
        // The home is the reader's own socket and does not have the line: no third socket is asked.
        assert_eq!(cycles, SHARED[distance], "at distance {distance}");
        assert_eq!(service, SERVICES[distance]);
        assert!(reads(&line, at(0, 0)) && reads(&line, sharers[0]));
    }
}

#[test]
fn an_access_to_what_is_nowhere_costs_by_the_home() {
    for kind in [Read, Write] {
        for (home, expected) in [(0, MEMORY[0]), (1, MEMORY[1]), (3, MEMORY[1])] {
            let mut line = line(home);
            let done = cost(&mut line, kind, at(0, 0));
            assert_eq!(done, (expected, Service::Memory));
            assert!(reads(&line, at(0, 0)) && !reads(&line, at(0, 1)));
            assert!(writes(&line, at(0, 0)));
        }
    }
}

#[test]
fn a_write_of_what_is_clean_costs_by_the_farthest() {
    let sharers = by_distance();
    for n in 1..=4 {
        let mut line = line(0);
        for &sharer in &sharers[..n] {
            share(&mut line, sharer);
        }
        let (cycles, service) = cost(&mut line, Write, at(0, 0));
        assert_eq!(cycles, INVALIDATE[n - 1], "{n} sharers");
        assert_eq!(service, SERVICES[n - 1]);
        assert!(writes(&line, at(0, 0)));
        assert!(sharers.iter().all(|&sharer| !reads(&line, sharer)));
    }
}

#[test]
fn a_write_costs_what_a_read_would_at_least() {
    let cheap = Costs {
        invalidate: [1; 4],
        ..costs()
    };
    let fabric = Fabric::new(&shape(), &cheap);
    let sharers = [(at(0, 0), OWN), (at(0, 1), LAST), (at(0, 2), SHARED[1])];
    for (sharer, expected) in sharers {
        let mut line = line(0);
        share(&mut line, sharer);
        let (done, _) = fabric.access(&mut line, Write, at(0, 0), 0);
        assert_eq!(done, expected);
    }
}

#[test]
fn a_read_from_another_socket_asks_a_third_one_unless_that_has_the_line() {
    let read = |sharers: &[Place]| cost_of_shared(2, sharers, Read, at(0, 0));
    assert_eq!(read(&[at(1, 0)]), SHARED[2] + THIRD_PARTY);
    assert_eq!(read(&[at(2, 0), at(1, 0)]), SHARED[2]);
    // Within a socket, the home is not asked.
    assert_eq!(read(&[at(0, 2)]), SHARED[1]);
}

#[test]
fn a_write_across_sockets_asks_a_third_one_unless_all_others_are_there() {
    let third = INVALIDATE[2] + THIRD_PARTY;
    let sharers: [(&[Place], usize, u64); 5] = [
        (&[at(1, 0)], 2, third),
        (&[at(1, 0), at(2, 0)], 2, third),
        (&[at(2, 0)], 2, INVALIDATE[2]),
        // The writer's own socket does not count.
        (&[at(0, 1), at(0, 2), at(2, 0)], 2, INVALIDATE[2]),
        (&[at(1, 0)], 0, INVALIDATE[2]),
    ];
    for (sharers, home, expected) in sharers {
        let cycles = cost_of_shared(home, sharers, Write, at(0, 0));
        assert_eq!(cycles, expected, "{sharers:?}, home {home}");
    }
    let nearby = cost_of_shared(2, &[at(0, 2)], Write, at(0, 0));
    assert_eq!(nearby, INVALIDATE[1]);
}

#[test]
fn a_request_travels_for_half_of_its_latency() {
    let fabric = fabric();
    let me = at(0, 0);
    for (distance, other) in by_distance().into_iter().enumerate() {
        let mut modified = line(0);
        cost(&mut modified, Write, other);
        for kind in [Read, Write] {
            let travelled = fabric.travel(&modified, kind, me);
            assert_eq!(travelled, MODIFIED[distance] / 2);
        }
        let mut clean = line(0);
        share(&mut clean, other);
        assert_eq!(fabric.travel(&clean, Read, me), SHARED[distance] / 2);
        let written = fabric.travel(&clean, Write, me);
        assert_eq!(written, INVALIDATE[distance] / 2);
        // The request of a hit does not travel.
        assert_eq!(fabric.travel(&clean, Read, other), 0);
        assert_eq!(fabric.travel(&modified, Write, other), 0);
    }
    assert_eq!(fabric.travel(&line(0), Read, me), 0);
}

#[test]
fn a_read_travels_to_the_nearest_and_a_write_to_the_farthest() {
    let fabric = fabric();
    let mut line = line(0);
    for sharer in by_distance().into_iter().skip(1) {
        share(&mut line, sharer);
    }
    assert_eq!(fabric.travel(&line, Read, at(0, 0)), SHARED[1] / 2);
    assert_eq!(fabric.travel(&line, Write, at(0, 0)), INVALIDATE[3] / 2);
}

#[test]
fn transfers_that_take_a_line_wait_for_each_other() {
    let fabric = fabric();
    for kind in [Read, Write] {
        let mut line = line(0);
        let (owned, _) = fabric.access(&mut line, Write, at(0, 0), 0);
        let (first, _) = fabric.access(&mut line, kind, at(0, 1), owned);
        // The request arrives while the line is being transferred: it is served when the line is
        // clean, or has a new owner.
        let (second, _) = fabric.access(&mut line, Write, at(0, 2), owned + 1);
        let distance = 1;
        let latency = match kind {
            Read => INVALIDATE[distance],
            Write => MODIFIED[distance],
        };
        assert_eq!(second, first + latency);
    }
}

#[test]
fn reads_of_a_clean_line_wait_for_each_other_a_little() {
    let fabric = fabric();
    let mut line = line(0);
    share(&mut line, at(0, 0));
    let now = 1000;
    let (first, _) = fabric.access(&mut line, Read, at(0, 1), now);
    let (second, _) = fabric.access(&mut line, Read, at(0, 2), now);
    assert_eq!(first, now + LAST);
    assert_eq!(second, now + OCCUPANCY + SHARED[1]);
}

#[test]
fn no_other_core_gets_a_line_before_it_is_visible() {
    let fabric = fabric();
    let mut line = line(0);
    let (owned, _) = fabric.access(&mut line, Write, at(0, 0), 0);
    line.delay_until(owned + 5000);
    // An earlier time changes nothing.
    line.delay_until(owned + 10);
    let (mine, _) = fabric.access(&mut line, Read, at(0, 0), owned);
    assert_eq!(mine, owned + OWN);
    let (theirs, _) = fabric.access(&mut line, Read, at(0, 1), owned);
    assert_eq!(theirs, owned + 5000 + MODIFIED[0]);
}
