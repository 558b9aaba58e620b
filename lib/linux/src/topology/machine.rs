//! A machine's CPUs in full, for people and tools. Locks use the domain map instead.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::affinity::CpuSet;
use super::choice::{Facts, Spread, choice, choose, choose_kind};
use super::cpulist::CpuListError;
use super::map::Sysfs;
use super::table::Table;
use super::walk::{self, Files};
use super::{DomainKind, hypervisor};
use kinlock_core::tuning::Decision;

/// The CPUs of a machine and how they are grouped.
///
/// ```
/// use kinlock_linux::topology::{DomainKind, Topology};
///
/// let topology = Topology::current();
/// for (number, cpus) in topology.domains(DomainKind::Node).iter().enumerate() {
///     println!("domain {number}: {cpus:?}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    nodes: Vec<Node>,
    is_virtual: bool,
}

/// One hardware thread. A fact that the kernel does not provide is `None`; for an offline CPU it
/// provides hardly any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cpu {
    /// The kernel's number. Numbers may have gaps.
    pub number: usize,
    /// Whether it is in use.
    pub online: bool,
    /// Whether this process may run on it.
    pub allowed: bool,
    /// The kernel's number of the NUMA node.
    pub node: Option<usize>,
    /// The kernel's number of the socket.
    pub socket: Option<usize>,
    /// The lowest CPU among those that share the last-level cache.
    pub last_level_cache: Option<usize>,
    /// The lowest CPU among the hardware threads of the core.
    pub core: Option<usize>,
    /// Which hardware thread of its core this is, from 0.
    pub thread: Option<usize>,
    /// Its locality domain, for each of [`DomainKind::ALL`].
    domains: [u16; DomainKind::ALL.len()],
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number. Numbers may have gaps.
    pub number: usize,
    /// Its CPUs that are online; none if it consists of memory only.
    pub cpus: Vec<usize>,
    /// Whether it has memory; `None` if unknown.
    pub has_memory: Option<bool>,
    /// Its distance from every node, in the order of [`Topology::nodes`]. By convention the
    /// distance from itself is 10.
    pub distances: Vec<usize>,
}

impl Topology {
    /// This machine, as this process may use it.
    ///
    /// Reads sysfs. Where sysfs is missing, the result has the CPUs on which the process may run,
    /// and nothing more about them.
    pub fn current() -> Self {
        let allowed = CpuSet::of_process();
        let is_virtual = hypervisor::this_machine_is_virtual(&Sysfs);
        Topology::read(&Sysfs, Some(&allowed), is_virtual)
    }

    /// The machine whose sysfs, or a copy of it, is the folder `root`.
    ///
    /// All CPUs that are online count as allowed.
    ///
    /// # Errors
    ///
    /// `NotFound` if `root` has no list of CPUs that are online, `InvalidData` if a file is
    /// malformed, and any error of reading a file.
    pub fn from_sysfs(root: &Path) -> io::Result<Self> {
        let files = Folder::new(root);
        let is_virtual = hypervisor::firmware_is_virtual(&files);
        let topology = Topology::read(&files, None, is_virtual);
        if let Some(error) = files.error.into_inner() {
            return Err(error);
        }
        if topology.cpus.is_empty() {
            let problem = format!("{}: no list of CPUs that are online", root.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        }
        Ok(topology)
    }

    /// All CPUs that are plugged in, in ascending order.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// All NUMA nodes, in ascending order; none if the kernel has no NUMA support.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The CPUs that are online, grouped by locality domain. There is at least one domain.
    ///
    /// Domains are in the order of their first CPUs. Locks use these domains, unless
    /// `KINLOCK_TOPOLOGY` defines others. A CPU whose group is unknown belongs to domain 0.
    pub fn domains(&self, kind: DomainKind) -> Vec<Vec<usize>> {
        let mut domains = vec![Vec::new()];
        for cpu in self.cpus.iter().filter(|cpu| cpu.online) {
            let number = cpu.domain(kind);
            if number >= domains.len() {
                domains.resize(number + 1, Vec::new());
            }
            domains[number].push(cpu.number);
        }
        domains
    }

    /// Whether the machine is virtual, as far as that can be detected.
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Whether some node is farther from another node than from itself.
    pub fn remote_is_farther(&self) -> bool {
        self.nodes.iter().zip(0..).any(|(node, own_column)| {
            walk::row_says_farther(node.distances.iter().copied(), own_column)
        })
    }

    /// What `KINLOCK_NUMA=auto` means on this machine with domains of this kind.
    pub fn automatic_decision(&self, kind: DomainKind) -> Decision {
        choice(choose(Facts {
            spread: self.spread(kind),
            ..self.facts()
        }))
    }

    /// What `KINLOCK_DOMAIN=auto` means on this machine, and why.
    pub fn automatic_kind(&self) -> (DomainKind, &'static str) {
        choose_kind(&mut self.facts(), |kind| self.spread(kind))
    }

    fn facts(&self) -> Facts {
        Facts {
            spread: Spread::Together,
            pretended: false,
            is_virtual: self.is_virtual,
            remote_is_farther: self.remote_is_farther(),
            instead_of_nodes: false,
        }
    }

    /// How the CPUs that this process may run on are spread over domains of this kind.
    fn spread(&self, kind: DomainKind) -> Spread {
        let allowed = self.cpus.iter().filter(|cpu| cpu.allowed);
        Spread::of(allowed.map(|cpu| cpu.domain(kind)))
    }

    /// Reads all files. The process may run on the CPUs in `allowed`; `None`: on all. If the files
    /// name no CPU that is online, the CPUs in `allowed` count as online.
    fn read(files: &impl Files, allowed: Option<&CpuSet>, is_virtual: bool) -> Self {
        let mut online = BTreeMap::new();
        walk::for_each_present_cpu(files, |cpu| {
            online.insert(cpu, false);
        });
        let mut none_online = true;
        walk::for_each_online_cpu(files, |cpu| {
            online.insert(cpu, true);
            none_online = false;
        });
        if none_online {
            let allowed = allowed.into_iter().flat_map(CpuSet::iter);
            online = allowed.map(|cpu| (cpu, true)).collect();
        }
        let table = Box::new(Table::new());
        walk::cores(files, &table);
        let cores = Walked::of(&table, online.keys()).groups;
        let [nodes, caches, sockets] = DomainKind::ALL.map(|kind| {
            kind.walk(files, &table);
            Walked::of(&table, online.keys())
        });
        let thread_of = |cpu: usize| {
            let core = cores.get(&cpu)?;
            let before = cores.range(..cpu);
            Some(before.filter(|(_, other)| *other == core).count())
        };
        let cpus = online.iter().map(|(&number, &online)| Cpu {
            number,
            online,
            allowed: online && allowed.is_none_or(|set| set.contains(number)),
            node: nodes.groups.get(&number).copied(),
            socket: walk::socket_of(files, number),
            last_level_cache: caches.groups.get(&number).copied(),
            core: cores.get(&number).copied(),
            thread: thread_of(number),
            domains: [&nodes, &caches, &sockets].map(|walked| walked.domains[&number]),
        });
        let cpus = cpus.collect();
        Topology {
            cpus,
            nodes: read_nodes(files, &nodes.groups),
            is_virtual,
        }
    }
}

impl Cpu {
    fn domain(&self, kind: DomainKind) -> usize {
        usize::from(self.domains[kind as usize])
    }
}

/// What one walk found about each CPU.
struct Walked {
    groups: BTreeMap<usize, usize>,
    domains: BTreeMap<usize, u16>,
}

impl Walked {
    /// Takes the groups of these CPUs from the table, and then replaces them there by domains.
    fn of<'a>(table: &Table, cpus: impl Iterator<Item = &'a usize> + Clone) -> Self {
        let group = |&cpu: &usize| Some((cpu, table.group_of(cpu)?));
        let groups = cpus.clone().filter_map(group).collect();
        table.number_densely();
        let domains = cpus.map(|&cpu| (cpu, table.domain_of(cpu))).collect();
        Walked { groups, domains }
    }
}

fn read_nodes(files: &impl Files, node_of_cpu: &BTreeMap<usize, usize>) -> Vec<Node> {
    let mut with_memory = Vec::new();
    walk::for_each_node_with_memory(files, |node| with_memory.push(node));
    let mut nodes = Vec::new();
    walk::for_each_node(files, |number| {
        let cpus = node_of_cpu
            .iter()
            .filter(|(_, node)| **node == number)
            .map(|(cpu, _)| *cpu);
        nodes.push(Node {
            number,
            cpus: cpus.collect(),
            has_memory: (!with_memory.is_empty()).then(|| with_memory.contains(&number)),
            distances: walk::distances(files, number).collect(),
        });
    });
    nodes
}

/// A copy of a sysfs in any folder. Unlike the running kernel's, it may be wrong, so errors are
/// kept.
struct Folder<'a> {
    root: &'a Path,
    /// The first error.
    error: RefCell<Option<io::Error>>,
}

impl<'a> Folder<'a> {
    fn new(root: &'a Path) -> Self {
        Folder {
            root,
            error: RefCell::new(None),
        }
    }

    fn path(&self, path: fmt::Arguments<'_>) -> PathBuf {
        self.root.join(path.to_string())
    }

    fn record(&self, path: &Path, kind: io::ErrorKind, problem: &dyn fmt::Display) {
        let error = io::Error::new(kind, format!("{}: {problem}", path.display()));
        self.error.borrow_mut().get_or_insert(error);
    }
}

impl Files for Folder<'_> {
    type Bytes = std::vec::IntoIter<u8>;

    fn open(&self, path: fmt::Arguments<'_>) -> Option<Self::Bytes> {
        let path = self.path(path);
        match std::fs::read(&path) {
            Ok(bytes) => Some(bytes.into_iter()),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    self.record(&path, error.kind(), &error);
                }
                None
            }
        }
    }

    fn malformed(&self, path: fmt::Arguments<'_>, error: CpuListError) {
        self.record(&self.path(path), io::ErrorKind::InvalidData, &error);
    }
}
