//! Threads that are started once and then do one job after the other.
//!
//! All subjects of a cell are measured on the same threads, so that their placement favours none.
//! A thread in the background is an exception. A thread cannot leave its low priority, at which it
//! could take seconds to begin with the next job. So each job has a new one, which lowers itself
//! when all have begun.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use kinlock_measure::cpus;

use super::background::Background;

/// What every member of a team does: called with the member's index.
pub type Job = Arc<dyn Fn(usize) + Send + Sync>;

pub struct Team {
    members: Vec<Member>,
    done: Receiver<()>,
    cpus: Vec<usize>,
    /// One more thread does each job, with this priority.
    background: Option<Background>,
    /// That of the job under way.
    extra: RefCell<Option<JoinHandle<()>>>,
}

struct Member {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Team {
    /// Starts `size` threads, each bound to its CPU in `cpus`, or unbound if `cpus` is empty. One
    /// more thread takes part in each job if `background` is a thread; it is not bound.
    ///
    /// # Errors
    /// If the system refuses to start that many, to bind one, or to give one a low priority.
    pub fn start(
        size: usize,
        cpus: Vec<usize>,
        background: Option<Background>,
    ) -> anyhow::Result<Self> {
        let background = background.filter(|background| background.is_thread());
        if let Some(background) = background {
            let lowered = std::thread::spawn(move || background.lower()).join();
            if !lowered.unwrap_or(false) {
                bail!(
                    "--background {}: the kernel does not let a thread lower its priority; leave \
                     the option out",
                    background.name()
                );
            }
        }
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
                    let refused = cpu.filter(|&cpu| !cpus::pin_to(cpu));
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
            background,
            extra: RefCell::default(),
        })
    }

    /// The CPU that a member is bound to, if it is.
    pub fn cpu_of(&self, index: usize) -> Option<usize> {
        self.cpus.get(index).copied()
    }

    /// How many threads do each job.
    pub fn size(&self) -> usize {
        self.measured() + usize::from(self.background.is_some())
    }

    /// How many of them are measured: all but the last one, if that is in the background.
    pub fn measured(&self) -> usize {
        self.members.len()
    }

    /// What the last thread is to make of itself.
    pub fn background(&self) -> Option<Background> {
        self.background
    }

    /// Hands `job` to every member and returns; [`wait`](Self::wait) must follow.
    pub fn begin(&self, job: &Job) {
        // First, since this can fail: the members would wait for a thread that does not come.
        if self.background.is_some() {
            let (job, index) = (job.clone(), self.measured());
            let extra = std::thread::Builder::new().name(format!("bench-{index}"));
            let extra = extra.spawn(move || do_job(job, index));
            *self.extra.borrow_mut() = Some(extra.expect("the system starts one more thread"));
        }
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
        if let Some(extra) = self.extra.take() {
            let _ = extra.join();
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
        do_job(job, index);
        if finished.send(()).is_err() {
            return;
        }
    }
}

fn do_job(job: Job, index: usize) {
    // A member that died in a critical section would leave the others waiting forever.
    let abort = AbortOnPanic;
    job(index);
    drop(job);
    std::mem::forget(abort);
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
        assert!(Team::start(1, vec![1_000_000], None).is_err());
    }

    #[test]
    fn every_member_does_every_job_once_and_lets_go_of_it() {
        for background in [None, Some(Background::Busy)] {
            let team = Team::start(5, Vec::new(), background).unwrap();
            assert_eq!((team.measured(), team.size()), (5, 5));
            every_member_does_every_job(&team);
        }
        let team = Team::start(4, Vec::new(), Some(Background::Idle)).unwrap();
        assert_eq!((team.measured(), team.size()), (4, 5));
        every_member_does_every_job(&team);
    }

    fn every_member_does_every_job(team: &Team) {
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
