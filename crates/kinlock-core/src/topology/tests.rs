//! The table that locks use and `Topology` agree when they are made from the same files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use super::affinity::CpuSet;
use super::cpulist::CpuListError;
use super::map::Map;
use super::walk::{self, Files};
use super::{DomainKind, Topology};

/// A sysfs in memory.
#[derive(Default)]
struct Tree {
    files: BTreeMap<String, String>,
    malformed: RefCell<Vec<String>>,
}

impl Tree {
    fn add(&mut self, path: impl Into<String>, contents: impl fmt::Display) {
        self.files.insert(path.into(), format!("{contents}\n"));
    }

    fn map(&self, kind: DomainKind) -> (Box<Map>, usize) {
        let map = Box::new(Map::new());
        let count = map.fill_from(self, kind);
        (map, usize::from(count))
    }

    fn topology(&self) -> Topology {
        Topology::read(self, |_| true, &CpuSet::empty(), false)
    }
}

impl Files for Tree {
    type Bytes = std::vec::IntoIter<u8>;

    fn open(&self, path: fmt::Arguments<'_>) -> Option<Self::Bytes> {
        let contents = self.files.get(&path.to_string())?;
        Some(contents.clone().into_bytes().into_iter())
    }

    fn malformed(&self, path: fmt::Arguments<'_>, _error: CpuListError) {
        self.malformed.borrow_mut().push(path.to_string());
    }
}

/// Checks that both name the same domain for every CPU that is online.
fn assert_agreement(tree: &Tree, kind: DomainKind) {
    let domains = tree.topology().domains(kind);
    let (map, count) = tree.map(kind);
    assert_eq!(domains.len(), count, "{kind}: {domains:?}");
    for (number, cpus) in domains.iter().enumerate() {
        for &cpu in cpus {
            assert_eq!(
                usize::from(map.domain_of(cpu)),
                number,
                "{kind}, CPU {cpu}: {domains:?}"
            );
        }
    }
    let firsts: Vec<_> = domains.iter().filter_map(|cpus| cpus.first()).collect();
    assert!(firsts.is_sorted(), "{kind}: {domains:?}");
}

/// A small generator of random numbers: a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

/// CPUs with gaps in their numbers, grouped into nodes, caches and sockets at random. Some of the
/// files are missing.
fn random_tree(random: &mut Random) -> Tree {
    let mut tree = Tree::default();
    let online: Vec<usize> = (0..200).filter(|_| random.below(3) > 0).collect();
    tree.add("devices/system/cpu/online", list(&online));

    let groups = 1 + random.below(9);
    let mut by_node = vec![Vec::new(); groups];
    online
        .iter()
        .for_each(|&cpu| by_node[random.below(groups)].push(cpu));
    let number = |node: usize| node * node + 3;
    let numbers: Vec<usize> = (0..groups).map(number).collect();
    if random.below(8) > 0 {
        tree.add("devices/system/node/online", list(&numbers));
    }
    for (node, cpus) in by_node.iter().enumerate() {
        tree.add(
            format!("devices/system/node/node{}/cpulist", number(node)),
            list(cpus),
        );
    }

    for (file, known) in [
        ("cache/index3/shared_cpu_list", 6),
        ("topology/package_cpus_list", 4),
    ] {
        let mut groups = vec![Vec::new(); 1 + random.below(9)];
        let count = groups.len();
        online
            .iter()
            .for_each(|&cpu| groups[random.below(count)].push(cpu));
        for cpus in &groups {
            if random.below(known) > 0 {
                for cpu in cpus {
                    tree.add(format!("devices/system/cpu/cpu{cpu}/{file}"), list(cpus));
                }
            }
        }
    }
    for cpu in &online {
        for (index, level, kind) in [
            (0, 1, "Data"),
            (1, 1, "Instruction"),
            (2, 2, "Unified"),
            (3, 3, "Unified"),
        ] {
            let cache = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
            tree.add(format!("{cache}/level"), level);
            tree.add(format!("{cache}/type"), kind);
        }
        tree.add(
            format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
            17,
        );
    }
    tree
}

#[test]
fn table_and_topology_agree_on_random_machines() {
    let mut several = 0;
    for seed in 0..500 {
        let tree = random_tree(&mut Random(seed));
        for kind in DomainKind::ALL {
            assert_agreement(&tree, kind);
            several += usize::from(tree.map(kind).1 > 1);
        }
        assert_eq!(*tree.malformed.borrow(), [""; 0], "seed {seed}");
    }
    assert!(several > 0, "no random machine had more than one domain");
}

#[test]
fn cpus_beyond_the_table_are_in_domain_0() {
    let mut tree = Tree::default();
    tree.add("devices/system/cpu/online", "0-9000");
    tree.add("devices/system/node/online", "0-1");
    tree.add("devices/system/node/node0/cpulist", "0-3999");
    tree.add("devices/system/node/node1/cpulist", "4000-9000");
    let (map, count) = tree.map(DomainKind::Node);
    assert_eq!(count, 2);
    assert_eq!(
        [0, 3999, 4000, 8191, 8192, 9000, usize::MAX].map(|cpu| map.domain_of(cpu)),
        [0, 0, 1, 1, 0, 0, 0]
    );
}

#[test]
fn malformed_lists_are_reported_and_used_up_to_the_error() {
    let mut tree = Tree::default();
    tree.add("devices/system/cpu/online", "0-7");
    tree.add("devices/system/node/online", "0-1");
    tree.add("devices/system/node/node0/cpulist", "0-1,oops,2");
    tree.add("devices/system/node/node1/cpulist", "4-7");
    let (map, count) = tree.map(DomainKind::Node);
    assert_eq!(count, 2);
    assert_eq!(
        [0, 1, 2, 3, 4, 7].map(|cpu| map.domain_of(cpu)),
        [0, 0, 0, 0, 1, 1]
    );
    assert_eq!(
        *tree.malformed.borrow(),
        ["devices/system/node/node0/cpulist"]
    );
}

#[test]
fn distances_are_compared_with_the_own_node() {
    let mut tree = Tree::default();
    assert!(!walk::remote_is_farther(&tree));
    tree.add("devices/system/node/online", "0,2");
    assert!(!walk::remote_is_farther(&tree));
    // Another node may be nearer than the node itself; that does not count as farther.
    tree.add("devices/system/node/node0/distance", "10 10");
    tree.add("devices/system/node/node2/distance", "8 10");
    assert!(!walk::remote_is_farther(&tree));
    assert!(!tree.topology().remote_is_farther());
    tree.add("devices/system/node/node2/distance", "21 10");
    assert!(walk::remote_is_farther(&tree));
    assert!(tree.topology().remote_is_farther());
}

#[test]
fn the_last_level_is_the_highest_that_holds_data() {
    let mut tree = Tree::default();
    tree.add("devices/system/cpu/online", "0-3");
    for cpu in 0..4 {
        let (pair, all) = (if cpu < 2 { "0-1" } else { "2-3" }, "0-3");
        // The order of the indices has no meaning. The highest level holds instructions only.
        for (index, level, kind, shared) in [
            (0, 2, "Unified", pair),
            (1, 1, "Data", all),
            (2, 3, "Instruction", all),
        ] {
            let cache = format!("devices/system/cpu/cpu{cpu}/cache/index{index}");
            tree.add(format!("{cache}/level"), level);
            tree.add(format!("{cache}/type"), kind);
            tree.add(format!("{cache}/shared_cpu_list"), shared);
        }
    }
    assert_eq!(
        tree.topology().domains(DomainKind::LastLevelCache),
        [[0, 1], [2, 3]]
    );
    assert_agreement(&tree, DomainKind::LastLevelCache);
}

#[test]
fn sockets_without_a_number_are_unknown() {
    let mut tree = Tree::default();
    tree.add("devices/system/cpu/online", "0-3");
    for cpu in 0..4 {
        tree.add(
            format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
            -1,
        );
        tree.add(
            format!("devices/system/cpu/cpu{cpu}/topology/package_cpus_list"),
            cpu,
        );
    }
    assert_eq!(tree.topology().domains(DomainKind::Socket), [[0, 1, 2, 3]]);
    assert_agreement(&tree, DomainKind::Socket);
    for cpu in 0..4 {
        tree.add(
            format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
            36,
        );
    }
    assert_eq!(tree.map(DomainKind::Socket).1, 4);
    assert_agreement(&tree, DomainKind::Socket);
}
