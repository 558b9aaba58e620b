//! The threads that run a slice: each with a CPU of its own if there are enough, and perhaps one
//! more in the background.
//!
//! Each slice has new threads. A thread in the background cannot raise its priority again, and
//! would take seconds to begin another slice.

use std::thread::{Builder, Scope};

use anyhow::{Context, bail};
use kinlock_measure::cpus::pin_to;

use super::background::Background;

/// The number of threads, and their CPUs.
pub struct Team {
    /// How many are measured: all but the last one, if that is in the background.
    pub measured: usize,
    cpus: Vec<usize>,
    /// How the last thread lowers its priority, if it does.
    pub background: Option<Background>,
}

impl Team {
    /// A team of `measured` threads, each bound to its CPU in `cpus`, or unbound if `cpus` is
    /// empty. One more thread takes part if `background` is a thread; it is not bound.
    ///
    /// # Errors
    /// If the kernel refuses to give a thread a low priority.
    pub fn new(
        measured: usize,
        cpus: Vec<usize>,
        background: Option<Background>,
    ) -> anyhow::Result<Self> {
        let background = background.filter(|background| background.is_thread());
        if let Some(background) = background {
            // Tried in a separate thread, since the thread keeps the low priority.
            let lowered = Builder::new().spawn(move || background.lower());
            let lowered = lowered.context("cannot start a thread")?.join();
            if !lowered.unwrap_or(false) {
                bail!(
                    "--background {}: the kernel does not let a thread lower its priority; leave \
                     the option out",
                    background.name()
                );
            }
        }
        Ok(Self {
            measured,
            cpus,
            background,
        })
    }

    pub fn cpu_of(&self, index: usize) -> Option<usize> {
        self.cpus.get(index).copied()
    }

    pub fn size(&self) -> usize {
        self.measured + usize::from(self.background.is_some())
    }

    /// Starts the member with this index, which does `work`.
    ///
    /// # Errors
    /// If the system refuses to start it.
    pub fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        index: usize,
        work: impl FnOnce() + Send + 'scope,
    ) -> anyhow::Result<()> {
        let cpu = self.cpu_of(index);
        let member = move || {
            cpu.map(pin_to);
            let _abort = AbortOnPanic;
            work();
        };
        let thread = Builder::new().name(format!("bench-{index}"));
        let size = self.size();
        let started = thread.spawn_scoped(scope, member);
        started.with_context(|| format!("cannot start {size} threads"))?;
        Ok(())
    }
}

/// Aborts the process on a panic: a thread that ends with a lock would leave the others waiting
/// forever.
pub struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_in_the_background_is_one_more() {
        for (background, size) in [
            (None, 4),
            (Some(Background::Busy), 4),
            (Some(Background::Idle), 5),
        ] {
            let team = Team::new(4, Vec::new(), background).unwrap();
            assert_eq!((team.measured, team.size()), (4, size));
        }
    }
}
