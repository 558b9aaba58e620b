//! Cache lines: which core has them, and the cost of getting them.
//!
//! The granule is the line of 64 bytes, found by the address of the simulated atomic, so there is
//! false sharing. Each line has at most one **owner** (a core that has modified it, or that is the
//! only one to have it and so may modify it without asking), a set of **sharers** (cores that can
//! read it without asking) and the set of last-level **caches** that hold it clean. Transfers that
//! change the owner of a line run one after another: the line is **busy** until they are done.
//!
//! | access | the line is | cost | afterwards |
//! | --- | --- | --- | --- |
//! | read | in the core's own caches | `own_cache` | |
//! | read | modified by another core | `modified[distance]` (1) | clean, shared by both |
//! | read | clean in the core's last-level cache | `last_level` | one more sharer |
//! | read | clean in another one | `shared[distance of the nearest]` | one more sharer |
//! | read | nowhere | `memory[is the home remote?]` | owned: no other core has it |
//! | write | owned by the core | `own_cache` | |
//! | write | owned by another core | as a read of a modified line | owned |
//! | write | clean somewhere | `invalidate[distance of the farthest]`, at least as a read | owned |
//! | write | nowhere | `memory[..]` | owned |
//! | either | transferred between sockets, home is a third one | + `third_party_home` | |
//!
//! (1) plus `modified_homed_at_reader`, if the home is the reader's socket and not the owner's.
//!
//! Capacity is not modelled: a line stays in a core's caches until another core writes to it.

#[cfg(test)]
mod tests;

use crate::machine::{Costs, DISTANCES, Distance, Shape};
use serde::Serialize;

/// Bytes in a line.
pub(crate) const LINE: usize = 64;

const NOBODY: u16 = u16::MAX;

/// The kind of access to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// The kinds of accesses, by how they use the store buffer and whether the thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A load: the thread waits for it.
    Load,
    /// A load that only a predicted branch depends on: the thread waits only if the line is
    /// elsewhere.
    Glance,
    /// A step of a walk: the thread goes on at once, but its later stores become visible only after
    /// the load is done.
    Ahead,
    /// A store: it enters the store buffer, and the request for its line is sent at once. The
    /// thread does not wait.
    Store,
    /// A request for the line ahead of a store: the thread goes on, and nothing waits for it.
    Prefetch,
    /// A locked read-modify-write: the buffer drains first, and the thread waits.
    Locked,
}

impl How {
    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self {
            How::Load | How::Glance | How::Ahead => Kind::Read,
            How::Store | How::Prefetch | How::Locked => Kind::Write,
        }
    }
}

/// Where an access was served from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    OwnCache,
    LastLevel,
    /// Read from another core with the same last-level cache, or written after only such cores had
    /// to drop the line.
    Nearby,
    /// As `Nearby`, but the farthest core involved is in another last-level cache of the socket.
    Local,
    /// As `Nearby`, but the farthest core involved is in another socket.
    Remote,
    Memory,
}

/// Accesses by where they were served from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Traffic {
    /// The core's own caches.
    pub own_cache: u64,
    /// The last-level cache.
    pub last_level: u64,
    /// Another core of the same socket.
    pub local: u64,
    /// Another socket.
    pub remote: u64,
    /// Memory.
    pub memory: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn count(&mut self, service: Service) {
        match service {
            Service::OwnCache => self.own_cache += 1,
            Service::LastLevel => self.last_level += 1,
            Service::Nearby | Service::Local => self.local += 1,
            Service::Remote => self.remote += 1,
            Service::Memory => self.memory += 1,
        }
    }

    pub(crate) fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            own_cache: self.own_cache - earlier.own_cache,
            last_level: self.last_level - earlier.last_level,
            local: self.local - earlier.local,
            remote: self.remote - earlier.remote,
            memory: self.memory - earlier.memory,
        }
    }
}

/// A cache line. The fields that most accesses read come first, so that they lie in one line of the
/// host.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    owner: u16,
    /// The socket in whose memory the line lies: the one that touched it first.
    home: u16,
    caches: u64,
    busy: u64,
    /// Threads that spin on the line, with the epoch of their wait.
    pub(crate) spinners: Vec<(u32, u32)>,
    sharers: CoreSet,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line {
            owner: NOBODY,
            home: NOBODY,
            caches: 0,
            busy: 0,
            spinners: Vec::new(),
            sharers: CoreSet::default(),
        }
    }

    /// Whether an access by `core` hits its own caches.
    #[inline]
    pub(crate) fn hits(&self, kind: Kind, core: u16) -> bool {
        self.owner == core || kind == Kind::Read && self.sharers.contains(core as usize)
    }

    /// The time from which the line can be transferred again.
    #[inline]
    pub(crate) fn busy(&self) -> u64 {
        self.busy
    }

    /// Delays transfers to other cores until `time`.
    #[inline]
    pub(crate) fn delay_until(&mut self, time: u64) {
        self.busy = self.busy.max(time);
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
    fn become_only(&mut self, core: usize) {
        // The set is changed in place, which is faster on the host. A set that is built elsewhere
        // and then copied would be read right after its last store, and the read would wait for it.
        self.0 = Default::default();
        self.insert(core);
    }
}

/// The costs of a machine and its distances, as tables.
#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) costs: Costs,
    distances: Vec<u8>,
    /// For each last-level cache, the caches at each distance, a bit for each.
    caches_at: Vec<[u64; DISTANCES]>,
    caches_of_socket: Vec<u64>,
    socket_of_cache: Vec<u16>,
    cache_of_core: Vec<u16>,
    caches: usize,
}

/// The core that makes an access, and its last-level cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) core: u16,
    pub(crate) cache: u16,
}

impl Fabric {
    pub(crate) fn new(shape: &Shape, costs: &Costs) -> Self {
        let caches = shape.caches();
        let those = |wanted: &dyn Fn(usize) -> bool| {
            let bits = (0..caches).filter(|&c| wanted(c)).map(|c| 1 << c);
            bits.fold(0, |all, bit: u64| all | bit)
        };
        Fabric {
            costs: costs.clone(),
            caches_at: (0..caches)
                .map(|from| std::array::from_fn(|d| those(&|c| shape.distance(c, from) == d)))
                .collect(),
            caches_of_socket: (0..shape.sockets)
                .map(|socket| those(&|c| shape.socket(c) == socket))
                .collect(),
            distances: (0..caches * caches)
                .map(|i| shape.distance(i / caches, i % caches) as u8)
                .collect(),
            socket_of_cache: (0..caches).map(|c| shape.socket(c) as u16).collect(),
            cache_of_core: (0..shape.cores()).map(|c| shape.cache(c) as u16).collect(),
            caches,
        }
    }

    /// The socket of a last-level cache.
    #[inline]
    pub(crate) fn socket(&self, cache: u16) -> u16 {
        self.socket_of_cache[cache as usize]
    }

    #[inline]
    fn distance(&self, a: u16, b: u16) -> Distance {
        self.distances[a as usize * self.caches + b as usize] as Distance
    }

    /// How long a request for `line` from `at` travels until it is queued behind earlier ones: half
    /// of the latency, and nothing if no cache has the line. So the nearer of two simultaneous
    /// requests is served first.
    #[inline(always)]
    pub(crate) fn travel(&self, line: &Line, kind: Kind, at: Place) -> u64 {
        if line.hits(kind, at.core) {
            return 0;
        }
        if line.owner != NOBODY {
            let owner = self.cache_of_core[line.owner as usize];
            return self.costs.modified[self.distance(owner, at.cache)] / 2;
        }
        if line.caches == 0 {
            return 0;
        }
        let span = self.span(line.caches, at.cache, line.home);
        match kind {
            Kind::Read => self.costs.shared[span.nearest] / 2,
            Kind::Write => self.costs.invalidate[span.farthest] / 2,
        }
    }

    /// Accesses `line` from `at`, starting at time `from`. Returns when it is done, and where it
    /// was served from.
    #[inline(always)]
    pub(crate) fn access(
        &self,
        line: &mut Line,
        kind: Kind,
        at: Place,
        from: u64,
    ) -> (u64, Service) {
        if line.hits(kind, at.core) {
            return (from + self.costs.own_cache, Service::OwnCache);
        }
        self.transfer(line, kind, at, from)
    }

    /// An access that does not hit the core's own caches.
    #[inline(always)]
    fn transfer(&self, line: &mut Line, kind: Kind, at: Place, from: u64) -> (u64, Service) {
        let here = self.socket_of_cache[at.cache as usize];
        if line.home == NOBODY {
            line.home = here;
        }
        let (latency, service, exclusive);
        if line.owner != NOBODY {
            (latency, service) = self.take_from_owner(line, at.cache, here);
            exclusive = true;
        } else if line.caches == 0 {
            latency = self.costs.memory[(line.home != here) as usize];
            service = Service::Memory;
            exclusive = true;
        } else {
            (latency, service) = self.ask_sharers(line, kind, at, here);
            exclusive = kind == Kind::Write;
        }
        let start = from.max(line.busy);
        let done = start + latency;
        line.busy = match exclusive {
            true => done,
            false => start + self.costs.read_occupancy,
        };
        match kind {
            Kind::Read if service != Service::Memory => {
                line.caches |= 1 << at.cache;
                line.sharers.insert(at.core as usize);
            }
            // No other core has the line now, so this core may write it without asking.
            Kind::Read | Kind::Write => {
                line.caches = 1 << at.cache;
                line.sharers.become_only(at.core as usize);
                line.owner = at.core;
            }
        }
        (done, service)
    }

    /// Latency and service of a line that another core has modified. The line becomes clean.
    #[inline(always)]
    fn take_from_owner(&self, line: &mut Line, cache: u16, here: u16) -> (u64, Service) {
        let owner = self.cache_of_core[line.owner as usize];
        let distance = self.distance(owner, cache);
        let more = match distance {
            0 | 1 => 0,
            _ if line.home == here => self.costs.modified_homed_at_reader,
            _ if line.home == self.socket_of_cache[owner as usize] => 0,
            _ => self.costs.third_party_home,
        };
        line.caches = 1 << owner;
        line.sharers.become_only(line.owner as usize);
        line.owner = NOBODY;
        (self.costs.modified[distance] + more, reach(distance))
    }

    /// Latency and service of a line that is clean in some cache.
    #[inline(always)]
    fn ask_sharers(&self, line: &Line, kind: Kind, at: Place, here: u16) -> (u64, Service) {
        let costs = &self.costs;
        let span = self.span(line.caches, at.cache, line.home);
        let third_party = |there: bool| match line.home == here || there {
            true => 0,
            false => costs.third_party_home,
        };
        let in_own_cache = line.caches & 1 << at.cache != 0;
        let read = if line.sharers.contains(at.core as usize) {
            costs.own_cache
        } else if in_own_cache {
            costs.last_level
        } else if span.nearest < 2 {
            costs.shared[span.nearest]
        } else {
            // The home knows which caches have the line, and answers if one of its own does.
            costs.shared[span.nearest] + third_party(span.at_home)
        };
        match kind {
            Kind::Read if in_own_cache => (read, Service::LastLevel),
            Kind::Read => (read, reach(span.nearest)),
            Kind::Write => {
                let distant = match span.farthest {
                    0 | 1 => 0,
                    _ => third_party(span.only_at_home),
                };
                let write = costs.invalidate[span.farthest] + distant;
                (write.max(read), reach(span.farthest))
            }
        }
    }

    /// How far `caches`, which has at least one, are spread, as seen from the cache `from` and from
    /// the line's home.
    #[inline]
    fn span(&self, caches: u64, from: u16, home: u16) -> Span {
        let at = &self.caches_at[from as usize];
        let nearby = at[0] | at[1];
        let at_home = self.caches_of_socket[home as usize];
        let in_reach = |d: &Distance| caches & at[*d] != 0;
        Span {
            nearest: (0..DISTANCES - 1).find(in_reach).unwrap_or(DISTANCES - 1),
            farthest: (1..DISTANCES).rev().find(in_reach).unwrap_or(0),
            at_home: caches & at_home != 0,
            only_at_home: caches & !(at_home | nearby) == 0,
        }
    }
}

struct Span {
    nearest: Distance,
    farthest: Distance,
    /// Whether at least one of the caches is in the home socket.
    at_home: bool,
    /// Whether every cache outside the asking socket is in the home socket.
    only_at_home: bool,
}

fn reach(distance: Distance) -> Service {
    match distance {
        0 => Service::Nearby,
        1 => Service::Local,
        _ => Service::Remote,
    }
}
