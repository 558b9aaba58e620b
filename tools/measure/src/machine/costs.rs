//! The costs of operations on a machine.

/// How far away something is from a core: an index into the tables of [`Costs`].
///
/// 0: the same last-level cache. 1: another one in the same socket. 2: one hop between sockets. 3:
/// two hops.
pub type Distance = usize;

pub const DISTANCES: usize = 4;

/// Costs, in cycles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Cycles per second, in MHz.
    pub clock_mhz: u64,
    /// A load or store that hits the core's own caches.
    pub own_cache: u64,
    /// A load that hits the last-level cache of the core, clean.
    pub last_level: u64,
    /// A load or store of a line that another core has modified.
    pub modified: [u64; DISTANCES],
    /// The extra cost of such an access if the line's home is the reader's socket and not the
    /// owner's: the home is asked first.
    pub modified_homed_at_reader: u64,
    /// The extra cost of any transfer between sockets if the line's home is a third socket, which
    /// is asked, too.
    pub third_party_home: u64,
    /// A load of a line that is clean in another last-level cache.
    pub shared: [u64; DISTANCES],
    /// Taking ownership of a line that others share, by the distance of the farthest one.
    pub invalidate: [u64; DISTANCES],
    /// A load from memory: of the own socket, and of another one.
    pub memory: [u64; 2],
    /// How long a read of a clean line keeps the next reader waiting.
    pub read_occupancy: u64,
    /// The time from one line to the next when a core reads several lines that another core has
    /// modified. 0: the workload says how many lines are fetched at a time.
    pub next_line: u64,
    /// The cost of a locked read-modify-write beyond the access.
    pub rmw: u64,
    pub clock: u64,
    /// One iteration of a spin loop.
    pub pause: u64,
    /// Leaving a spin loop: the mispredicted branch and the pause in flight.
    pub spin_exit: u64,
    /// Computing while the sibling hardware thread computes, in percent of computing alone.
    pub sibling_computes_pct: u64,
    /// Computing while the sibling hardware thread spins, in percent of computing alone.
    pub sibling_spins_pct: u64,
    /// How long a thread may run while others wait for its CPU.
    pub time_slice: u64,
    /// Putting another thread on a CPU.
    pub context_switch: u64,
    /// Going to sleep in the kernel.
    pub park: u64,
    /// The time that waking a thread takes the waker.
    pub unpark: u64,
    /// The time from the waker's call until the thread runs on an idle CPU.
    pub wake_latency: u64,
    /// The heavy fence.
    pub membarrier: u64,
    /// The time that one timer interrupt takes from a thread. 0: there are none.
    pub tick: u64,
    /// The time between two timer interrupts of a CPU.
    pub tick_period: u64,
}

impl Costs {
    /// The cycles in `nanos` nanoseconds, rounded to the nearest number.
    pub fn cycles(&self, nanos: f64) -> u64 {
        let exact = nanos * self.clock_mhz as f64 / 1000.0;
        // The same as `round`, without a call of the C library.
        let whole = exact as u64;
        whole.saturating_add((exact - whole as f64 >= 0.5) as u64)
    }

    /// The nanoseconds in `cycles` cycles.
    pub fn nanos(&self, cycles: u64) -> f64 {
        cycles as f64 * 1000.0 / self.clock_mhz as f64
    }

    /// How many lines a core fetches at a time from a core next to it, if the machine says so.
    pub fn lines_at_a_time(&self) -> Option<usize> {
        let lines = self.modified[0].checked_div(self.next_line)?;
        Some((lines as usize).max(1))
    }

    /// The cost that the number called `name` in a machine file sets.
    pub(super) fn named(&mut self, name: &str) -> Option<&mut u64> {
        let by_distance = |name: &str| match name.split_once('_') {
            None => Some(0),
            Some((_, "other_cache")) => Some(1),
            Some((_, "1_hop")) => Some(2),
            Some((_, "2_hops")) => Some(3),
            _ => None,
        };
        Some(match name {
            "own_cache" => &mut self.own_cache,
            "last_level" => &mut self.last_level,
            "modified_homed_at_reader" => &mut self.modified_homed_at_reader,
            "third_party_home" => &mut self.third_party_home,
            "memory" => &mut self.memory[0],
            "memory_remote" => &mut self.memory[1],
            "read_occupancy" => &mut self.read_occupancy,
            "next_line" => &mut self.next_line,
            "rmw" => &mut self.rmw,
            "clock" => &mut self.clock,
            "pause" => &mut self.pause,
            "spin_exit" => &mut self.spin_exit,
            "sibling_computes" => &mut self.sibling_computes_pct,
            "sibling_spins" => &mut self.sibling_spins_pct,
            "time_slice" => &mut self.time_slice,
            "context_switch" => &mut self.context_switch,
            "park" => &mut self.park,
            "unpark" => &mut self.unpark,
            "wake_latency" => &mut self.wake_latency,
            "membarrier" => &mut self.membarrier,
            "tick" => &mut self.tick,
            "tick_period" => &mut self.tick_period,
            _ if name.starts_with("modified") => &mut self.modified[by_distance(name)?],
            _ if name.starts_with("shared") => &mut self.shared[by_distance(name)?],
            _ if name.starts_with("invalidate") => &mut self.invalidate[by_distance(name)?],
            _ => return None,
        })
    }

    /// Whether the cost of that name is a percentage, and not a time.
    pub(super) fn is_percentage(name: &str) -> bool {
        name.starts_with("sibling_")
    }
}
