//! Cache lines: who has them, and what it costs to get them.
//!
//! The granule is the line of 64 bytes, found by the address of the simulated atomic, so false sharing is real. Each line
//! has at most one **owner** (a core that has modified it), a set of **sharers** (cores that can read it without asking) and the set of last-level
//! **caches** that hold it clean. Transfers that change who owns a line exclude each other: the line is **busy** until done.
//!
//! | access | the line is | cost | afterwards |
//! | --- | --- | --- | --- |
//! | read | in the core's own caches | `own_cache` | |
//! | read | modified by another core | `modified[distance]`, + `modified_homed_at_reader` | clean, shared by both |
//! | read | clean in the core's last-level cache | `last_level` | one more sharer |
//! | read | clean in another one | `shared[distance of the nearest]` | one more sharer |
//! | read | nowhere | `memory[is the home remote?]` | one sharer |
//! | write | owned by the core | `own_cache` | |
//! | write | owned by another core | as a read of a modified line | owned |
//! | write | clean somewhere | `invalidate[distance of the farthest]`, at least what a read would cost | owned |
//! | write | nowhere | `memory[..]` | owned |
//!
//! Capacity is not modelled: what a core has read stays until somebody writes to it.

use crate::machine::{Costs, Distance, Shape};

/// Bytes in a line.
pub(crate) const LINE: usize = 64;

const NOBODY: u16 = u16::MAX;

/// What is done to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// Where an access was served from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    OwnCache,
    LastLevel,
    /// From another core, or by invalidating others, within the socket.
    Local,
    /// The same across sockets.
    Remote,
    Memory,
}

/// A cache line.
#[derive(Debug)]
pub(crate) struct Line {
    sharers: CoreSet,
    caches: u64,
    owner: u16,
    /// The socket whose memory it is; the one that touched it first.
    home: u16,
    busy: u64,
    /// Threads that spin on it, with the epoch of their wait.
    pub(crate) spinners: Vec<(u32, u32)>,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line {
            sharers: CoreSet::default(),
            caches: 0,
            owner: NOBODY,
            home: NOBODY,
            busy: 0,
            spinners: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CoreSet([u64; Shape::MAX_CORES / 64]);

impl CoreSet {
    #[inline]
    fn contains(&self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 != 0
    }

    #[inline]
    fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    #[inline]
    fn only(core: usize) -> Self {
        let mut set = CoreSet::default();
        set.insert(core);
        set
    }
}

/// The distances of a machine, looked up rather than computed, and its costs.
#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) costs: Costs,
    distances: Vec<u8>,
    socket_of_cache: Vec<u16>,
    caches: usize,
}

/// The core that accesses, and its last-level cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) core: u16,
    pub(crate) cache: u16,
}

impl Fabric {
    pub(crate) fn new(shape: &Shape, costs: &Costs) -> Self {
        let caches = shape.caches();
        Fabric {
            costs: costs.clone(),
            distances: (0..caches * caches)
                .map(|i| shape.distance(i / caches, i % caches) as u8)
                .collect(),
            socket_of_cache: (0..caches).map(|c| shape.socket(c) as u16).collect(),
            caches,
        }
    }

    #[inline]
    fn distance(&self, a: u16, b: u16) -> Distance {
        self.distances[a as usize * self.caches + b as usize] as Distance
    }

    /// Accesses `line` from `at`, starting at time `from`. Returns when it is done, and by whom it was served.
    #[inline]
    pub(crate) fn access(
        &self,
        line: &mut Line,
        kind: Kind,
        at: Place,
        owner_place: impl Fn(u16) -> Place,
        from: u64,
    ) -> (u64, Service) {
        let mine = match kind {
            Kind::Read => line.owner == at.core || line.sharers.contains(at.core as usize),
            Kind::Write => line.owner == at.core,
        };
        if mine {
            return (from + self.costs.own_cache, Service::OwnCache);
        }
        self.transfer(line, kind, at, owner_place, from)
    }

    fn transfer(
        &self,
        line: &mut Line,
        kind: Kind,
        at: Place,
        owner_place: impl Fn(u16) -> Place,
        from: u64,
    ) -> (u64, Service) {
        let costs = &self.costs;
        if line.home == NOBODY {
            line.home = self.socket_of_cache[at.cache as usize];
        }
        let own_bit = 1u64 << at.cache;
        let (latency, service, exclusive);
        if line.owner != NOBODY {
            let owner = owner_place(line.owner);
            let distance = self.distance(owner.cache, at.cache);
            let homed_here = distance > 1 && line.home == self.socket_of_cache[at.cache as usize];
            latency = costs.modified[distance]
                + if homed_here {
                    costs.modified_homed_at_reader
                } else {
                    0
                };
            service = reach(distance);
            exclusive = true;
            line.caches = 1 << owner.cache;
            line.sharers = CoreSet::only(line.owner as usize);
            line.owner = NOBODY;
        } else if line.caches == 0 {
            let remote = line.home != self.socket_of_cache[at.cache as usize];
            latency = costs.memory[remote as usize];
            service = Service::Memory;
            exclusive = true;
        } else {
            let (nearest, farthest) = self.span(line.caches, at.cache);
            let has_it = line.sharers.contains(at.core as usize);
            let read = match (has_it, line.caches & own_bit != 0) {
                (true, _) => costs.own_cache,
                (_, true) => costs.last_level,
                _ => costs.shared[nearest],
            };
            match kind {
                Kind::Read => {
                    latency = read;
                    service = if line.caches & own_bit != 0 {
                        Service::LastLevel
                    } else {
                        reach(nearest)
                    };
                    exclusive = false;
                }
                Kind::Write => {
                    latency = costs.invalidate[farthest].max(read);
                    service = reach(farthest);
                    exclusive = true;
                }
            }
        }
        let start = from.max(line.busy);
        let done = start + latency;
        line.busy = if exclusive {
            done
        } else {
            start + costs.read_occupancy
        };
        match kind {
            Kind::Read => {
                line.caches |= own_bit;
                line.sharers.insert(at.core as usize);
            }
            Kind::Write => {
                line.caches = own_bit;
                line.sharers = CoreSet::only(at.core as usize);
                line.owner = at.core;
            }
        }
        (done, service)
    }

    /// The distances of the nearest and the farthest of `caches`.
    fn span(&self, caches: u64, from: u16) -> (Distance, Distance) {
        let (mut nearest, mut farthest, mut rest) = (usize::MAX, 0, caches);
        while rest != 0 {
            let d = self.distance(rest.trailing_zeros() as u16, from);
            nearest = nearest.min(d);
            farthest = farthest.max(d);
            rest &= rest - 1;
        }
        (nearest, farthest)
    }
}

fn reach(distance: Distance) -> Service {
    if distance > 1 {
        Service::Remote
    } else {
        Service::Local
    }
}
