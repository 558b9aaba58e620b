//! The table that locks use and `Topology` agree when they are made from the same files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use super::affinity::CpuSet;
use super::choice::{Facts, Spread};
use super::cpulist::CpuListError;
use super::map::Map;
use super::walk::{self, Files};
use super::{DomainKind, MAX_CPUS, Topology};

const PHYSICAL: Facts = Facts {
    spread: Spread::Together,
    pretended: false,
    is_virtual: false,
    remote_is_farther: false,
    instead_of_nodes: false,
};

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
        let (_, count) = map.fill_from(self, Some(kind), &CpuSet::empty(), &mut PHYSICAL.clone());
        (map, usize::from(count))
    }

    /// The kind that `auto` means for a process on `cpus`, by the table; checks that [`Topology`]
    /// names the same kind, and returns its reason, too.
    fn automatic_kind(&self, cpus: &[usize], is_virtual: bool) -> (DomainKind, &'static str) {
        let mut set = CpuSet::empty();
        cpus.iter().for_each(|&cpu| assert!(set.insert(cpu)));
        let mut facts = Facts {
            is_virtual,
            remote_is_farther: walk::remote_is_farther(self),
            ..PHYSICAL
        };
        let map = Box::new(Map::new());
        let (kind, count) = map.fill_from(self, None, &set, &mut facts);
        // Nothing is left of a kind that was tried before.
        let (alone, _) = self.map(kind);
        assert!((0..MAX_CPUS).all(|cpu| map.domain_of(cpu) == alone.domain_of(cpu)));
        let topology = Topology::read(self, |cpu| set.contains(cpu), &set, is_virtual);
        let (by_topology, reason) = topology.automatic_kind();
        assert_eq!(
            (kind, usize::from(count)),
            (by_topology, topology.domains(kind).len())
        );
        (kind, reason)
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
    let (mut several, mut by_cache) = (0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let tree = random_tree(&mut random);
        for kind in DomainKind::ALL {
            assert_agreement(&tree, kind);
            several += usize::from(tree.map(kind).1 > 1);
        }
        let cpus: Vec<usize> = tree
            .topology()
            .cpus()
            .iter()
            .map(|cpu| cpu.number)
            .collect();
        // Few CPUs, so that all of them may be in one node.
        let some = &cpus[..cpus.len().min(1 + random.below(6))];
        let (kind, _) = tree.automatic_kind(some, random.below(4) == 0);
        by_cache += usize::from(kind == DomainKind::LastLevelCache);
        assert_eq!(*tree.malformed.borrow(), [""; 0], "seed {seed}");
    }
    assert!(several > 0, "no random machine had more than one domain");
    assert!(by_cache > 0, "`auto` chose caches on no random machine");
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

/// A machine of `nodes` nodes with two caches of two CPUs each.
fn caches_in_nodes(nodes: usize) -> Tree {
    let mut tree = Tree::default();
    let cpus = |first: usize, count: usize| format!("{first}-{}", first + count - 1);
    tree.add("devices/system/cpu/online", cpus(0, 4 * nodes));
    tree.add("devices/system/node/online", cpus(0, nodes));
    for node in 0..nodes {
        let path = format!("devices/system/node/node{node}/cpulist");
        tree.add(path, cpus(4 * node, 4));
    }
    for cpu in 0..4 * nodes {
        let cache = format!("devices/system/cpu/cpu{cpu}/cache/index0");
        tree.add(format!("{cache}/level"), 3);
        tree.add(format!("{cache}/shared_cpu_list"), cpus(cpu / 2 * 2, 2));
    }
    tree
}

/// A row: the number of NUMA nodes, the CPUs of the process, whether the machine is virtual, the
/// kind of domain that `auto` means there, and a piece of the reason.
#[test]
fn auto_takes_caches_for_domains_where_nodes_tell_nothing_apart() {
    use DomainKind::{LastLevelCache, Node};
    let one = "one NUMA node only, which has several last-level caches";
    let (several, alike) = (
        "more than one NUMA node",
        "caches tell its CPUs no better apart",
    );
    let rows: [(usize, &[usize], _, _, _); 8] = [
        (1, &[0, 1, 2, 3], false, LastLevelCache, one),
        (2, &[4, 5, 6], false, LastLevelCache, one),
        (2, &[0, 1, 2, 3, 4, 5, 6, 7], false, Node, several),
        (2, &[3, 4], false, Node, several),
        (1, &[0, 1], false, Node, alike),
        (1, &[0, 2], false, Node, alike),
        (1, &[0, 1, 2, 3], true, Node, "virtual"),
        (1, &[0, 1], true, Node, alike),
    ];
    for (nodes, cpus, is_virtual, kind, piece) in rows {
        let (found, reason) = caches_in_nodes(nodes).automatic_kind(cpus, is_virtual);
        assert_eq!(found, kind, "{cpus:?} of {nodes} nodes");
        assert!(
            reason.contains(piece),
            "{cpus:?} of {nodes} nodes: {reason}"
        );
    }
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
