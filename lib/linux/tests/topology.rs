//! Locality domains of machines in made-up sysfs trees, and of this one under made-up environments.

#![cfg(all(not(loom), not(miri)))]

#[path = "topology/child.rs"]
mod child;
#[path = "topology/fake_sysfs.rs"]
mod fake_sysfs;

use std::io::ErrorKind;
use std::path::Path;

use fake_sysfs::FakeSysfs;
use kinlock_linux::topology::{self, Cpu, DomainKind, Topology};

fn cpu(topology: &Topology, number: usize) -> &Cpu {
    let found = topology.cpus().iter().find(|cpu| cpu.number == number);
    found.expect("the CPU is there")
}

#[test]
fn four_nodes_with_gaps_in_all_numbers() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3,8-11,16-19,100-103", "0-3,8-11,16-19,100-103");
    // Node numbers that are neither dense nor in the order of their CPUs.
    sysfs.nodes("0,2,5,9");
    sysfs.node(0, "100-103", "10 21 21 21");
    sysfs.node(2, "8-11", "21 10 21 21");
    sysfs.node(5, "0-3", "21 21 10 21");
    sysfs.node(9, "16-19", "21 21 21 10");
    let topology = sysfs.topology();
    assert_eq!(
        topology.domains(DomainKind::Node),
        [
            [0, 1, 2, 3],
            [8, 9, 10, 11],
            [16, 17, 18, 19],
            [100, 101, 102, 103]
        ]
    );
    assert_eq!(cpu(&topology, 3).node, Some(5));
    assert_eq!(cpu(&topology, 103).node, Some(0));
    let numbers: Vec<_> = topology.nodes().iter().map(|node| node.number).collect();
    assert_eq!(numbers, [0, 2, 5, 9]);
    assert_eq!(topology.nodes()[1].distances, [21, 10, 21, 21]);
    assert!(topology.remote_is_farther());
    let decision = topology.automatic_decision(DomainKind::Node);
    assert!(decision.reorder, "{}", decision.reason);
}

#[test]
fn nodes_without_memory_and_nodes_without_cpus() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-5", "0-5");
    sysfs.nodes("0-3");
    sysfs.node(0, "0-2", "10 20 20 30");
    sysfs.node(1, "", "20 10 20 30");
    sysfs.node(2, "3-5", "20 20 10 30");
    sysfs.node(3, "", "30 30 30 10");
    sysfs.write("devices/system/node/has_memory", "0-1,3");
    let topology = sysfs.topology();
    assert_eq!(topology.domains(DomainKind::Node), [[0, 1, 2], [3, 4, 5]]);
    let memory: Vec<_> = topology
        .nodes()
        .iter()
        .map(|node| node.has_memory)
        .collect();
    assert_eq!(memory, [Some(true), Some(true), Some(false), Some(true)]);
    assert!(topology.nodes()[1].cpus.is_empty());
}

#[test]
fn cpus_that_are_offline_are_in_no_domain() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-7", "0-1,4,6-7");
    sysfs.nodes("0-1");
    sysfs.node(0, "0-1", "10 20");
    sysfs.node(1, "4,6-7", "20 10");
    let topology = sysfs.topology();
    assert_eq!(
        topology.domains(DomainKind::Node),
        [vec![0, 1], vec![4, 6, 7]]
    );
    assert_eq!(topology.cpus().len(), 8);
    let offline = cpu(&topology, 5);
    assert!(!offline.online && !offline.allowed);
    assert_eq!(
        (offline.node, offline.core, offline.socket),
        (None, None, None)
    );
}

#[test]
fn two_thousand_cpus_per_node_in_lists_that_do_not_compress() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-4095", "0-4095");
    sysfs.nodes("0-1");
    let every_second = |first: usize| (first..4096).step_by(2);
    for node in 0..2 {
        let list: Vec<_> = every_second(node).map(|cpu| cpu.to_string()).collect();
        sysfs.node(node, &list.join(","), ["10 40", "40 10"][node]);
    }
    let domains = sysfs.topology().domains(DomainKind::Node);
    assert_eq!(domains.len(), 2);
    assert!(domains[0].iter().copied().eq(every_second(0)));
    assert!(domains[1].iter().copied().eq(every_second(1)));
}

#[test]
fn an_epyc_has_twelve_caches_per_socket() {
    let sysfs = FakeSysfs::new();
    sysfs.epyc_9654();
    let topology = sysfs.topology();
    assert_eq!(topology.cpus().len(), 384);
    let sizes = |kind| {
        topology
            .domains(kind)
            .iter()
            .map(Vec::len)
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(DomainKind::Node), [192, 192]);
    assert_eq!(sizes(DomainKind::Socket), [192, 192]);
    assert_eq!(sizes(DomainKind::LastLevelCache), [16; 24]);
    let second_cache = &topology.domains(DomainKind::LastLevelCache)[1];
    assert_eq!(
        second_cache[..],
        [
            8, 9, 10, 11, 12, 13, 14, 15, 200, 201, 202, 203, 204, 205, 206, 207
        ]
    );
    let sibling = cpu(&topology, 200);
    assert_eq!((sibling.core, sibling.thread), (Some(8), Some(1)));
    assert_eq!(
        (sibling.socket, sibling.last_level_cache),
        (Some(0), Some(8))
    );
    assert_eq!(cpu(&topology, 100).socket, Some(1));
    assert_eq!(cpu(&topology, 100).thread, Some(0));
    assert_eq!(topology.automatic_kind().0, DomainKind::Node);
    sysfs.cpus("0-383", "0-95");
    let one_socket = sysfs.topology();
    assert_eq!(one_socket.automatic_kind().0, DomainKind::LastLevelCache);
    assert_eq!(one_socket.domains(DomainKind::LastLevelCache).len(), 12);
}

#[test]
fn without_numa_and_caches_there_is_one_domain() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3", "0-3");
    let topology = sysfs.topology();
    for kind in DomainKind::ALL {
        assert_eq!(topology.domains(kind), [[0, 1, 2, 3]]);
        let decision = topology.automatic_decision(kind);
        assert!(!decision.reorder);
        assert_eq!(
            decision.reason,
            "the process may run in one locality domain only"
        );
    }
    assert!(topology.nodes().is_empty() && !topology.is_virtual());
}

#[test]
fn cpus_of_which_nothing_is_known_are_in_domain_0() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-5", "0-5");
    sysfs.nodes("0-1");
    sysfs.node(0, "1-2", "10 20");
    sysfs.node(1, "3-4", "20 10");
    assert_eq!(
        sysfs.topology().domains(DomainKind::Node),
        [vec![0, 1, 2, 5], vec![3, 4]]
    );
}

#[test]
fn caches_that_no_cpus_share_make_no_groups() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3", "0-3");
    for cpu in 0..4 {
        sysfs.cache(cpu, 0, 2, "Unified", &cpu.to_string());
    }
    let topology = sysfs.topology();
    assert_eq!(topology.domains(DomainKind::LastLevelCache).len(), 4);
    let decision = topology.automatic_decision(DomainKind::LastLevelCache);
    assert!(!decision.reorder);
    assert_eq!(
        decision.reason,
        "no two CPUs that the process may run on share a locality domain"
    );
}

#[test]
fn a_virtual_machine_is_credible_if_it_reports_distances() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3", "0-3");
    sysfs.nodes("0-1");
    sysfs.node(0, "0-1", "10 10");
    sysfs.node(1, "2-3", "10 10");
    assert!(
        sysfs
            .topology()
            .automatic_decision(DomainKind::Node)
            .reorder
    );
    sysfs.write("class/dmi/id/sys_vendor", "QEMU");
    let topology = sysfs.topology();
    assert!(topology.is_virtual() && !topology.automatic_decision(DomainKind::Node).reorder);
    sysfs.node(1, "2-3", "20 10");
    assert!(
        sysfs
            .topology()
            .automatic_decision(DomainKind::Node)
            .reorder
    );
}

#[test]
fn distances_are_compared_with_the_own_node() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-1", "0-1");
    sysfs.nodes("0,2");
    // Another node may be nearer than the node itself; that does not count as farther.
    for (second, is_farther) in [("8 10", false), ("21 10", true)] {
        sysfs.node(0, "0", "10 10");
        sysfs.node(2, "1", second);
        assert_eq!(sysfs.topology().remote_is_farther(), is_farther, "{second}");
    }
}

#[test]
fn cpus_beyond_the_table_are_in_domain_0() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-9000", "0-9000");
    sysfs.nodes("0-1");
    sysfs.node(0, "0-3999", "10 10");
    sysfs.node(1, "4000-9000", "10 10");
    let domains = sysfs.topology().domains(DomainKind::Node);
    assert!(domains[0].iter().copied().eq((0..4000).chain(8192..9001)));
    assert!(domains[1].iter().copied().eq(4000..8192));
}

#[test]
fn the_last_level_is_the_highest_that_holds_data() {
    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3", "0-3");
    for cpu in 0..4 {
        // The order of the indices has no meaning. The highest level holds instructions only.
        sysfs.cache(cpu, 0, 2, "Unified", ["0-1", "2-3"][cpu / 2]);
        sysfs.cache(cpu, 1, 1, "Data", "0-3");
        sysfs.cache(cpu, 2, 3, "Instruction", "0-3");
    }
    let domains = sysfs.topology().domains(DomainKind::LastLevelCache);
    assert_eq!(domains, [[0, 1], [2, 3]]);
}

#[test]
fn sockets_without_a_number_are_unknown() {
    for (number, domains) in [("-1", 1), ("36", 4)] {
        let sysfs = FakeSysfs::new();
        sysfs.cpus("0-3", "0-3");
        for cpu in 0..4 {
            let topology = format!("devices/system/cpu/cpu{cpu}/topology");
            sysfs.write(&format!("{topology}/physical_package_id"), number);
            sysfs.write(&format!("{topology}/package_cpus_list"), &cpu.to_string());
        }
        assert_eq!(
            sysfs.topology().domains(DomainKind::Socket).len(),
            domains,
            "{number}"
        );
    }
}

/// A row: the number of NUMA nodes of four CPUs, in which two share a cache; the CPUs of the
/// process; whether the machine is virtual; the kind of domain that `auto` means there, and a piece
/// of the reason.
#[test]
fn auto_takes_caches_for_domains_where_nodes_tell_nothing_apart() {
    use DomainKind::{LastLevelCache, Node};
    let one = "one NUMA node only, which has several last-level caches";
    let several = "more than one NUMA node";
    let alike = "caches tell its CPUs no better apart";
    for (nodes, cpus, is_virtual, kind, piece) in [
        (1, "0-3", false, LastLevelCache, one),
        (2, "4-6", false, LastLevelCache, one),
        (2, "0-7", false, Node, several),
        (2, "3-4", false, Node, several),
        (1, "0-1", false, Node, alike),
        (1, "0,2", false, Node, alike),
        (1, "0-3", true, Node, "virtual"),
        (1, "0-1", true, Node, alike),
    ] {
        let sysfs = FakeSysfs::new();
        sysfs.cpus("0-7", cpus);
        sysfs.nodes(["0", "0-1"][nodes - 1]);
        for node in 0..nodes {
            sysfs.node(node, ["0-3", "4-7"][node], "10 10");
        }
        for cpu in 0..8 {
            let pair = cpu / 2 * 2;
            sysfs.cache(cpu, 0, 3, "Unified", &format!("{pair}-{}", pair + 1));
        }
        if is_virtual {
            sysfs.write("class/dmi/id/sys_vendor", "QEMU");
        }
        let (found, reason) = sysfs.topology().automatic_kind();
        assert_eq!(found, kind, "{cpus} of {nodes} nodes");
        assert!(reason.contains(piece), "{cpus} of {nodes} nodes: {reason}");
    }
}

#[test]
fn virtual_machines_are_detected_by_their_firmware() {
    let machine = |files: &[(&str, &str)]| {
        let sysfs = FakeSysfs::new();
        sysfs.cpus("0", "0");
        files
            .iter()
            .for_each(|(path, contents)| sysfs.write(path, contents));
        sysfs.topology().is_virtual()
    };
    let vendor = "class/dmi/id/sys_vendor";
    let product = "class/dmi/id/product_name";
    assert!(machine(&[("hypervisor/type", "xen")]));
    assert!(machine(&[(
        "firmware/devicetree/base/hypervisor/compatible",
        "linux,kvm"
    )]));
    assert!(machine(&[
        (vendor, "Microsoft Corporation"),
        (product, "Virtual Machine")
    ]));
    assert!(machine(&[
        (vendor, "Amazon EC2"),
        (product, "m7g.16xlarge")
    ]));
    assert!(!machine(&[(vendor, "Amazon EC2"), (product, "m7g.metal")]));
    assert!(!machine(&[
        (vendor, "Amazon EC2"),
        (product, "c7i.metal-48xl")
    ]));
    assert!(!machine(&[
        (vendor, "Microsoft Corporation"),
        (product, "Surface")
    ]));
    assert!(!machine(&[
        (vendor, "Dell Inc."),
        (product, "PowerEdge R7625")
    ]));
}

#[test]
fn a_malformed_tree_is_an_error_that_names_the_file() {
    let missing = Topology::from_sysfs(Path::new("/nonexistent/sys")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(
        missing.to_string().contains("/nonexistent/sys"),
        "{missing}"
    );

    let sysfs = FakeSysfs::new();
    sysfs.cpus("0-3", "0-3");
    sysfs.nodes("0");
    sysfs.node(0, "0-3,x", "10");
    let malformed = Topology::from_sysfs(sysfs.root()).unwrap_err();
    assert_eq!(malformed.kind(), ErrorKind::InvalidData);
    let text = malformed.to_string();
    assert!(
        text.ends_with("node/node0/cpulist: expected a CPU number at position 5"),
        "{text}"
    );
}

#[test]
fn topology_reports_the_domains_that_locks_use() {
    if std::env::var_os("KINLOCK_TOPOLOGY").is_some() {
        return;
    }
    let kind = topology::domain_kind_in_use().expect("nothing is pretended");
    let domains = Topology::current().domains(kind);
    assert_eq!(domains.len(), topology::domain_count());
    for (number, cpus) in domains.iter().enumerate() {
        for &cpu in cpus {
            assert_eq!(usize::from(topology::domain_of_cpu(cpu)), number);
        }
    }
    assert!(Topology::current().cpus().iter().any(|cpu| cpu.allowed));
}

#[test]
fn kinds_are_spelt_as_documented() {
    for (kind, text) in DomainKind::ALL.into_iter().zip(["node", "llc", "socket"]) {
        assert_eq!(kind.to_string(), text);
        assert_eq!(text.parse(), Ok(kind));
    }
    let error = "core".parse::<DomainKind>().unwrap_err();
    assert_eq!(error.to_string(), "expected node, llc or socket");
}
