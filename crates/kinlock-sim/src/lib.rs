//! A deterministic, simulated cache-coherent NUMA machine that runs kinlock's own lock source.
//!
//! Few people own a machine with four sockets and 144 hardware threads, and most want to know before they deploy. This
//! crate implements [`kinlock::platform::Platform`] on a simulated machine ([`Sim`]), so that the locks of the library, not a model of
//! them, run on it: each virtual thread is a coroutine, each atomic access takes the time that the state of its cache line and the distance
//! ask for. The same seed gives the same result on every host.
//!
//! It says nothing about memory ordering: values are sequentially consistent. That is the model checker's job.
//! `docs/guide/simulator.md` of the repository describes the cost model, and how far to trust it.
//!
//! ```
//! use kinlock_sim::{Machine, Run, locks, workloads};
//!
//! let outcome = Run {
//!     seconds: 0.1,
//!     ..Run::new(Machine::load("haswell-ex-4s")?, workloads::by_name("lock2").unwrap(), locks::by_name("cna").unwrap(), 36)
//! }
//! .execute()?;
//! println!("{:.2} operations per microsecond", outcome.ops_per_us());
//! assert!(outcome.per_thread.iter().all(|&ops| ops > 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is where
//!
//! | module | what |
//! | --- | --- |
//! | [`machine`] | machines as text files: shape, costs, and where each number comes from |
//! | `coherence` | cache lines and the cost of an access |
//! | `world` | a run: its threads (`coroutine`), their order (`events`), what they do (`access` to memory, `doing`), CPUs (`schedule`), bad luck (`disturbance`) |
//! | [`platform`] | the machine as an algorithm sees it |
//! | [`locks`] | the locks that can run, one small file each |
//! | [`workloads`] | what they are put to, one file each |
//! | [`run`] | one simulation and its outcome |
//! | [`schedule`] | any bodies on it, disturbed wherever the contracts allow |
//! | [`published`] | measurements that others published, and how to simulate them |

mod coherence;
pub mod locks;
pub mod machine;
mod memory;
pub mod platform;
pub mod published;
pub mod run;
pub mod schedule;
pub mod workloads;
mod world;

pub use machine::Machine;
pub use platform::Sim;
pub use run::{Outcome, Run};
pub use schedule::{Played, Schedule};
pub use world::{Disruption, DisruptionKind, Disturbance, Note, Noted, Placement, Spot, Stuck};

/// The examples of the page about the simulator are compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/simulator.md")]
mod page {}

/// Places `value` in the memory of the simulation under way, on cache lines of its own, for as long as that lasts.
///
/// # Panics
///
/// Outside of a simulation, if its memory is full, or if `T` needs to be dropped.
pub fn place<T>(value: T) -> &'static T {
    let at = world::with(|w| w.arena.place(value));
    // SAFETY: `place` wrote the value, and invariant 2 of `world`: whoever uses it is gone before the arena is.
    unsafe { at.as_ref() }
}

/// Places `n` values side by side, the first at the start of a cache line.
///
/// # Panics
///
/// As [`place`].
pub fn place_slice<T>(n: usize, value: impl FnMut(usize) -> T) -> &'static [T] {
    let at = world::with(|w| w.arena.place_slice(n, value));
    // SAFETY: as in `place`.
    unsafe { at.as_ref() }
}

/// The thread of a simulation that calls computes for so many nanoseconds, longer while its sibling hardware thread is busy.
///
/// # Panics
///
/// Outside of a simulation.
pub fn compute(nanos: f64) {
    world::compute(world::with(|w| w.costs().cycles(nanos)));
}
