//! Threads that are started once and then do one job after the other.
//!
//! All subjects of a cell are measured on the same threads, so that their placement favours none.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, bail};

use super::placement;

/// What every member of a team does: called with the member's index.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

pub struct Team {
    members: Vec<Member>,
    done: Receiver<()>,
    cpus: Vec<usize>,
}

struct Member {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Team {
    /// Starts `size` threads, each bound to its CPU in `cpus`, or unbound if `cpus` is empty.
    ///
    /// # Errors
    /// If the system refuses to start that many, or to bind one.
    pub fn start(size: usize, cpus: Vec<usize>) -> anyhow::Result<Self> {
        let (finished, done) = channel();
        let (entered, entries) = channel();
        let mut members = Vec::with_capacity(size);
        for index in 0..size {
            let (jobs, todo) = channel::<Job>();
            let (entered, finished) = (entered.clone(), finished.clone());
            let cpu = cpus.get(index).copied();
            let thread = std::thread::Builder::new()
                .name(format!("bench-{index}"))
                .spawn(move || {
                    let refused = cpu.filter(|&cpu| !placement::bind(cpu));
                    let _ = entered.send(refused);
                    drop(entered);
                    work(index, &todo, &finished);
                })
                .with_context(|| format!("cannot start {size} threads"))?;
            members.push(Member { jobs, thread });
        }
        drop(entered);
        if let Some(cpu) = entries.into_iter().flatten().next() {
            bail!("cannot bind a thread to CPU {cpu}; try --pin none");
        }
        Ok(Self {
            members,
            done,
            cpus,
        })
    }

    /// The CPU that a member is bound to, if it is.
    pub fn cpu_of(&self, index: usize) -> Option<usize> {
        self.cpus.get(index).copied()
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Hands `job` to every member and returns; [`wait`](Self::wait) must follow.
    pub fn begin(&self, job: &Job) {
        for member in &self.members {
            member
                .jobs
                .send(job.clone())
                .expect("members live as long as the team");
        }
    }

    /// Returns when every member has finished its job and let go of it.
    pub fn wait(&self) {
        for _ in &self.members {
            self.done.recv().expect("members live as long as the team");
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for Member { jobs, thread } in self.members.drain(..) {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

fn work(index: usize, todo: &Receiver<Job>, finished: &Sender<()>) {
    for job in todo {
        // A member that died in a critical section would leave the others waiting for ever.
        let abort = AbortOnPanic;
        job(index);
        drop(job);
        std::mem::forget(abort);
        if finished.send(()).is_err() {
            return;
        }
    }
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(Team::start(1, vec![1_000_000]).is_err());
    }

    #[test]
    fn every_member_does_every_job_once_and_lets_go_of_it() {
        let team = Team::start(5, Vec::new()).unwrap();
        for _ in 0..3 {
            let sum = Arc::new(AtomicUsize::new(0));
            let counter = sum.clone();
            let job: Job = Arc::new(move |index| {
                counter.fetch_add(1 << (4 * index), Relaxed);
            });
            team.begin(&job);
            team.wait();
            drop(job);
            assert_eq!(Arc::into_inner(sum).unwrap().into_inner(), 0x11111);
        }
    }
}
