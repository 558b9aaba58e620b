//! The table from CPU to locality domain that locks use.
//!
//! A thread fills it when a lock is first contended. That thread is on a lock's slow path, perhaps
//! in a signal handler, so filling the table neither allocates nor takes a lock. No other thread
//! waits for it. Until the table is complete they all act as if there were a single domain, which
//! costs them some speed. So does a signal handler that interrupts the filling thread, and for good
//! the child of a `fork` at that moment.
//!
//! # States
//!
//! | state | low 16 bits | means |
//! | --- | --- | --- |
//! | untouched | 0 | not needed yet; the domain kind may have been chosen |
//! | filling | 0, and the filling bit | one thread is filling the table |
//! | ready | number of domains, >= 1 | the table is complete, and never changes again |

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use super::affinity::CpuSet;
use super::choice::{Facts, Spread, choice, choose};
use super::cpulist::CpuListError;
use super::walk::{self, Files, Groups};
use super::{DomainKind, MAX_CPUS, hypervisor, pretended};
use crate::environment::{self, Variable};
use crate::rseq;
use crate::sys::{KeepErrno, RawFile};
use crate::tuning::Decision;

static MAP: Map = Map::new();

/// The locality domain of the CPU that the calling thread runs on; below [`domain_count`].
///
/// May be stale when it returns. Does not read the CPU's number where there is a single domain.
#[inline]
pub fn current_domain() -> u16 {
    match MAP.count() {
        0 => first_current_domain(),
        1 => 0,
        _ => rseq::current_cpu().map_or(0, |cpu| MAP.domain_of(cpu as usize)),
    }
}

/// The locality domain of `cpu`; below [`domain_count`].
///
/// An unknown CPU belongs to domain 0: one that was offline when the table was filled, or that
/// `KINLOCK_TOPOLOGY` does not name.
pub fn domain_of_cpu(cpu: usize) -> u16 {
    ready_map().map_or(0, |map| map.domain_of(cpu))
}

/// How many locality domains this machine has; at least 1.
///
/// Includes domains in which this process may not run.
pub fn domain_count() -> usize {
    ready_map().map_or(1, |map| usize::from(map.count()))
}

/// The kind of domain in use. `None` where `KINLOCK_TOPOLOGY` defines the domains, or while another
/// thread is filling the table.
pub fn domain_kind_in_use() -> Option<DomainKind> {
    kind_from_bits(ready_map()?.state.load(Ordering::Relaxed))
}

/// What `auto` means for this process; `None` while another thread is filling the table.
pub fn automatic_decision() -> Option<Decision> {
    let state = ready_map()?.state.load(Ordering::Relaxed);
    Some(choice((state >> CHOICE_SHIFT) as u8))
}

/// Chooses the kind of domain. Returns `false` if the table has been filled already.
pub(crate) fn choose_kind(kind: DomainKind) -> bool {
    MAP.state
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            let untouched = state & (COUNT_MASK | FILLING) == 0;
            untouched.then_some(bits_from_kind(Some(kind)))
        })
        .is_ok()
}

const COUNT_MASK: u32 = 0xFFFF;
const KIND_SHIFT: u32 = 16;
const KIND_MASK: u32 = 3 << KIND_SHIFT;
const FILLING: u32 = 1 << 18;
const CHOICE_SHIFT: u32 = 24;

#[cold]
fn first_current_domain() -> u16 {
    match ready_map() {
        Some(map) if map.count() > 1 => {
            rseq::current_cpu().map_or(0, |cpu| map.domain_of(cpu as usize))
        }
        _ => 0,
    }
}

/// The map, which is filled first if necessary; `None` while another thread is filling it.
fn ready_map() -> Option<&'static Map> {
    if MAP.count() == 0 {
        MAP.fill_once();
    }
    (MAP.count() != 0).then_some(&MAP)
}

pub(super) struct Map {
    state: AtomicU32,
    /// The domain of each CPU. While the map is being filled: 0, or a group with [`GROUP`] set.
    domains: [AtomicU16; MAX_CPUS],
}

/// Marks an entry that is still a group number of the walk, not a domain.
const GROUP: u16 = 1 << 15;

impl Map {
    pub(super) const fn new() -> Self {
        Map {
            state: AtomicU32::new(0),
            domains: [const { AtomicU16::new(0) }; MAX_CPUS],
        }
    }

    /// The number of domains; 0 if the map is not ready.
    #[inline]
    fn count(&self) -> u16 {
        // Acquire: pairs with the release in `fill_once`, so that the table is seen complete.
        (self.state.load(Ordering::Acquire) & COUNT_MASK) as u16
    }

    #[inline]
    pub(super) fn domain_of(&self, cpu: usize) -> u16 {
        self.domains
            .get(cpu)
            .map_or(0, |domain| domain.load(Ordering::Relaxed))
    }

    #[cold]
    fn fill_once(&self) {
        let claimed = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                (state & (COUNT_MASK | FILLING) == 0).then_some(state | FILLING)
            });
        let Ok(chosen) = claimed else { return };
        let _errno = KeepErrno::hold();
        let ready = self.fill(kind_from_bits(chosen));
        // Release: pairs with the acquire in `count`.
        self.state.store(ready, Ordering::Release);
    }

    /// Fills the table and returns the state in which it is ready.
    fn fill(&self, chosen: Option<DomainKind>) -> u32 {
        let pretended = environment::read(Variable::Topology, |text| {
            pretended::read(text, |cpu, domain| self.set(cpu, domain))
        });
        let (kind, count) = match pretended {
            Some(count) => (None, count),
            None => {
                let kind = chosen
                    .or_else(|| environment::read_from_str(Variable::Domain))
                    .unwrap_or_default();
                (Some(kind), self.fill_from(&Sysfs, kind))
            }
        };
        let spread = match kind {
            // All domains, even where the process may not run: they were asked for explicitly.
            None => Spread::of(0..usize::from(count)),
            Some(_) => {
                let cpus = CpuSet::of_process();
                Spread::of(cpus.iter().map(|cpu| usize::from(self.domain_of(cpu))))
            }
        };
        let choice = choose(Facts {
            spread,
            pretended: kind.is_none(),
            is_virtual: hypervisor::this_machine_is_virtual(&Sysfs),
            remote_is_farther: walk::remote_is_farther(&Sysfs),
        });
        u32::from(count) | bits_from_kind(kind) | u32::from(choice) << CHOICE_SHIFT
    }

    /// Fills the table as `files` say and returns the number of domains.
    pub(super) fn fill_from(&self, files: &impl Files, kind: DomainKind) -> u16 {
        kind.walk(files, &mut &*self);
        self.number_densely()
    }

    /// Turns groups into domains 0, 1, .. in the order of their first CPUs. Returns their number.
    fn number_densely(&self) -> u16 {
        let mut count = 0;
        for (cpu, first) in self.domains.iter().enumerate() {
            let group = first.load(Ordering::Relaxed);
            if group & GROUP == 0 {
                continue;
            }
            let members = self
                .domains
                .iter()
                .skip(cpu)
                .filter(|member| member.load(Ordering::Relaxed) == group);
            members.for_each(|member| member.store(count, Ordering::Relaxed));
            count += 1;
        }
        count.max(1)
    }

    fn set(&self, cpu: usize, value: u16) {
        if let Some(domain) = self.domains.get(cpu) {
            domain.store(value, Ordering::Relaxed);
        }
    }
}

impl Groups for &Map {
    fn has(&self, cpu: usize) -> bool {
        self.domain_of(cpu) & GROUP != 0
    }

    fn put(&mut self, cpu: usize, group: usize) {
        if let Some(group) = u16::try_from(group).ok().filter(|group| group & GROUP == 0) {
            self.set(cpu, group | GROUP);
        }
    }
}

/// The running kernel's sysfs, read with plain system calls.
struct Sysfs;

impl Files for Sysfs {
    type Bytes = RawFile;

    fn open(&self, path: fmt::Arguments<'_>) -> Option<RawFile> {
        if cfg!(miri) {
            return None;
        }
        RawFile::open(format_args!("/sys/{path}"))
    }

    /// The content of the list counts as unknown. There is no way to report the error.
    fn malformed(&self, _path: fmt::Arguments<'_>, _error: CpuListError) {}
}

const fn bits_from_kind(kind: Option<DomainKind>) -> u32 {
    let bits = match kind {
        None => 0,
        Some(DomainKind::Node) => 1,
        Some(DomainKind::LastLevelCache) => 2,
        Some(DomainKind::Socket) => 3,
    };
    bits << KIND_SHIFT
}

const fn kind_from_bits(state: u32) -> Option<DomainKind> {
    match (state & KIND_MASK) >> KIND_SHIFT {
        1 => Some(DomainKind::Node),
        2 => Some(DomainKind::LastLevelCache),
        3 => Some(DomainKind::Socket),
        _ => None,
    }
}
