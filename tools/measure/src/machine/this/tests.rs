//! Shapes and latencies of made-up hosts. `kinlock topology --measure` is tested on the real one.

use super::*;

fn host(sockets: usize, caches: usize, cores: usize, threads: usize) -> Vec<HostCpu> {
    let mut cpus = Vec::new();
    for socket in 0..sockets {
        for cache in 0..caches {
            for core in 0..cores {
                for _ in 0..threads {
                    let cpu = cpus.len();
                    let cache = socket * caches + cache;
                    cpus.push(HostCpu {
                        cpu,
                        node: socket,
                        socket,
                        cache,
                        core: cache * cores + core,
                    });
                }
            }
        }
    }
    cpus
}

fn read(cpus: &[HostCpu]) -> (Shape, String) {
    shape(cpus, &BTreeMap::new()).unwrap()
}

#[test]
fn a_regular_host_is_taken_as_it_is() {
    let (shape, note) = read(&host(2, 3, 4, 2));
    assert_eq!((shape.sockets, shape.caches_per_socket), (2, 3));
    assert_eq!((shape.cores_per_cache, shape.threads_per_core), (4, 2));
    assert_eq!(shape.hops, [0, 1, 1, 0]);
    assert!(!note.contains("assumed"), "{note}");
}

#[test]
fn an_irregular_host_says_what_was_assumed() {
    let mut cpus = host(2, 2, 4, 2);
    cpus.truncate(cpus.len() - 3);
    let (shape, note) = read(&cpus);
    assert_eq!((shape.cores_per_cache, shape.threads_per_core), (4, 2));
    assert!(
        note.contains("3 to 4 cores per cache") || note.contains("2 to 4 cores per cache"),
        "{note}"
    );
    assert!(
        note.contains("1 to 2 threads per core") && note.contains("assumed"),
        "{note}"
    );
}

#[test]
fn a_host_that_is_too_large_is_refused() {
    let error = shape(&host(2, 4, 64, 1), &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("512 cores"), "{error}");
}

#[test]
fn distances_that_differ_widely_are_hops() {
    let cpus = host(4, 1, 1, 1);
    let distance = |a: usize, b: usize| match (a + 4 - b) % 4 {
        0 => 10,
        2 => 31,
        _ => 21,
    };
    let all = (0..16).map(|i| ((i / 4, i % 4), distance(i / 4, i % 4)));
    let (shape, _) = shape(&cpus, &all.collect()).unwrap();
    assert_eq!(shape.hops, [0, 1, 2, 1, 1, 0, 1, 2, 2, 1, 0, 1, 1, 2, 1, 0]);
    let pairs = pairs_by_distance(&cpus, &shape);
    assert_eq!(pairs.each_ref().map(Vec::len), [0, 0, 4, 2]);
}

#[test]
fn pairs_are_on_different_cores() {
    let cpus = host(2, 2, 2, 2);
    let (shape, _) = read(&cpus);
    let pairs = pairs_by_distance(&cpus, &shape);
    // Each pair of cores has 2 x 2 pairs of threads.
    assert_eq!(
        pairs.each_ref().map(Vec::len),
        [4 * 4, 2 * 4 * 4, 16 * 4, 0]
    );
    assert_eq!(sample(&pairs[2], 50).len(), 50);
    assert_eq!(sample(&pairs[0], 50), pairs[0]);
    assert!(sample(&pairs[3], 50).is_empty());
}

#[test]
fn any_measurement_makes_a_machine() {
    for shape_of in [host(1, 1, 2, 1), host(1, 1, 1, 2), host(2, 3, 4, 2)] {
        let (shape, about) = read(&shape_of);
        // The worst possible measurement.
        let latencies = Latencies {
            own_cache: LEAST,
            last_level: None,
            one_way: [None, Some(0.0), Some(1e6), None],
            locked: 0.0,
            pause: LEAST,
            clock: LEAST,
            next_line: LEAST,
            wake: (LEAST, LEAST),
            pairs: [0, 1, 1, 0],
        };
        let text = file::text("this", &about, 2500, &shape, |name| {
            parameters::get(name, &latencies, &shape)
        });
        let machine = file::parse("this", &text).unwrap();
        assert_eq!(machine.shape, shape);
        assert!(
            machine.costs.own_cache > 0 && machine.costs.rmw > 0,
            "{:?}",
            machine.costs
        );
    }
}
