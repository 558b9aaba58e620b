//! The table from CPU to locality domain that locks use: one for the process.
//!
//! The thread that first needs it fills it. That thread may be on a lock's slow path, even in a
//! signal handler, so filling the table neither allocates nor takes a lock. No other thread waits
//! for it. Until the table is complete all other threads act as if there were a single domain,
//! which costs them some speed. So does a signal handler that interrupts the filling thread. In the
//! child of a `fork` at that moment the filling thread does not exist: the first thread there that
//! needs the table fills it.
//!
//! # States
//!
//! | state | low 16 bits | means |
//! | --- | --- | --- |
//! | untouched | 0 | not needed yet; the domain kind may have been chosen |
//! | filling | 0, and the filling bit | one thread is filling the table |
//! | ready | number of domains, >= 1 | the table is complete, and never changes again |

use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(all(test, not(any(loom, miri))))]
use super::MAX_CPUS;
use super::affinity::CpuSet;
use super::choice::{Facts, MUTEXES_ONLY, Spread, choice, choose, choose_kind};
use super::cpulist::CpuListError;
use super::table::Table;
use super::walk::{self, Files};
use super::{DomainKind, hypervisor, pretended};
use crate::environment::{self, Variable};
use crate::rseq;
use crate::sys::{KeepErrno, RawFile};
use kinlock_core::tuning::{Decision, ParseError};

static MAP: Map = Map {
    state: AtomicU32::new(0),
    table: Table::new(),
};

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
    Some(choice(choice_number()?))
}

/// Like [`automatic_decision`]; `None` also if the table has not been filled yet.
pub fn automatic_decision_if_known() -> Option<Decision> {
    // Acquire: pairs with the release in `fill_once`.
    let state = MAP.state.load(Ordering::Acquire);
    (state & COUNT_MASK != 0).then(|| choice((state >> CHOICE_SHIFT) as u8))
}

/// Whether `auto` means that mutexes reorder their queues and spinlocks do not.
pub(crate) fn mutexes_only() -> bool {
    choice_number() == Some(MUTEXES_ONLY)
}

fn choice_number() -> Option<u8> {
    let state = ready_map()?.state.load(Ordering::Relaxed);
    Some((state >> CHOICE_SHIFT) as u8)
}

/// Sets the kind of domain. Returns `false` if the table has been filled already.
pub(crate) fn set_kind(kind: DomainKind) -> bool {
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

/// In the child of a fork: if a thread of the parent was filling the table, it does not exist here,
/// and filling starts anew.
pub(crate) fn reset_in_child() {
    let state = MAP.state.load(Ordering::Relaxed);
    if state & FILLING != 0 {
        // Groups that the unfinished walk has left would pass for groups of the next one.
        MAP.table.forget();
        MAP.state.store(state & !FILLING, Ordering::Relaxed);
    }
}

/// Puts the map into the state of a table that another thread of this process is filling.
#[cfg(all(test, not(any(loom, miri))))]
pub(crate) fn begin_filling() {
    MAP.state.fetch_or(FILLING, Ordering::Relaxed);
    MAP.table.put(MAX_CPUS - 1, 7);
}

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

struct Map {
    state: AtomicU32,
    table: Table,
}

impl Map {
    /// The number of domains; 0 if the map is not ready.
    #[inline]
    fn count(&self) -> u16 {
        // Acquire: pairs with the release in `fill_once`, so that the table is seen complete.
        (self.state.load(Ordering::Acquire) & COUNT_MASK) as u16
    }

    #[inline]
    fn domain_of(&self, cpu: usize) -> u16 {
        self.table.domain_of(cpu)
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
            pretended::read(text, |cpu, domain| self.table.set(cpu, domain))
        });
        let mut facts = Facts {
            // All domains, even where the process may not run: they were asked for explicitly.
            spread: Spread::of(0..usize::from(pretended.unwrap_or(0))),
            pretended: pretended.is_some(),
            is_virtual: hypervisor::this_machine_is_virtual(&Sysfs),
            remote_is_farther: walk::remote_is_farther(&Sysfs),
            instead_of_nodes: false,
        };
        let mut count = pretended.unwrap_or(0);
        let kind = pretended.is_none().then(|| {
            let environment = || environment::read_from_str::<Asked>(Variable::Domain)?.0;
            let cpus = CpuSet::of_process();
            let mut fill = |kind: DomainKind| {
                kind.walk(&Sysfs, &self.table);
                count = self.table.number_densely();
                Spread::of(cpus.iter().map(|cpu| usize::from(self.domain_of(cpu))))
            };
            match chosen.or_else(environment) {
                Some(kind) => {
                    facts.spread = fill(kind);
                    kind
                }
                None => choose_kind(&mut facts, fill).0,
            }
        });
        u32::from(count) | bits_from_kind(kind) | u32::from(choose(facts)) << CHOICE_SHIFT
    }
}

/// The value of `KINLOCK_DOMAIN`; `None` is `auto`.
struct Asked(Option<DomainKind>);

impl FromStr for Asked {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.parse() {
            Ok(kind) => Ok(Asked(Some(kind))),
            Err(_) if text == "auto" => Ok(Asked(None)),
            Err(_) => Err(ParseError::new("auto, node, llc or socket")),
        }
    }
}

/// The running kernel's sysfs, read with plain system calls.
pub(super) struct Sysfs;

impl Files for Sysfs {
    type Bytes = RawFile;

    fn open(&self, path: fmt::Arguments<'_>) -> Option<RawFile> {
        if cfg!(miri) || environment::futex_alone() {
            return None;
        }
        RawFile::open(format_args!("/sys/{path}"))
    }

    /// The list counts as unknown from the error on. There is no way to report the error.
    fn malformed(&self, _path: fmt::Arguments<'_>, _error: CpuListError) {}
}

/// The place of the kind in [`DomainKind::ALL`] plus 1; 0: none.
fn bits_from_kind(kind: Option<DomainKind>) -> u32 {
    kind.map_or(0, |kind| kind as u32 + 1) << KIND_SHIFT
}

fn kind_from_bits(state: u32) -> Option<DomainKind> {
    let place = ((state & KIND_MASK) >> KIND_SHIFT).checked_sub(1)?;
    DomainKind::ALL.get(place as usize).copied()
}
