//! Background load: CPU-bound processes, as all servers have them.
//!
//! A busy process is the program itself with the arguments `hog PID`, for which it has to call
//! [`be_busy`]. It ends when the process that started it ends, in whatever way, and ignores Ctrl-C:
//! that signal reaches the whole process group, while the round under way is still completed.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `prctl` with PR_SET_PDEATHSIG takes a number; `signal` with SIG_IGN takes no pointer.

use std::hint::black_box;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use crate::interrupt::Signal;

/// Keeps a CPU busy until the process `parent`, which has started this one, ends.
pub fn be_busy(parent: u32) -> anyhow::Result<()> {
    for signal in Signal::ALL {
        // SAFETY: invariant 1.
        unsafe { libc::signal(signal.number(), libc::SIG_IGN) };
    }
    // SAFETY: invariant 1.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        bail!("cannot ask for a signal at the end of the parent");
    }
    // A parent that ended before that call sends nothing.
    while parent_id() == parent {
        // No `spin_loop`: it leaves a part of the core to the sibling hardware thread.
        (0..10_000_000).for_each(|n| {
            black_box(n);
        });
    }
    Ok(())
}

/// Running busy processes.
pub struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts `number` busy processes. The calling thread must live as long as this process: they
    /// end with the thread that has started them.
    pub fn start(number: usize) -> anyhow::Result<Self> {
        let mut hogs = Self(Vec::with_capacity(number));
        for _ in 0..number {
            let mut command = Command::new("/proc/self/exe");
            command
                .arg0("kinlock")
                .args(["hog", &std::process::id().to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.stderr(Stdio::null()).spawn();
            hogs.0.push(child.context("cannot start a busy process")?);
        }
        Ok(hogs)
    }

    /// Ends the processes. Returns a warning if some had ended already.
    pub fn end(mut self) -> Option<String> {
        let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        let ended = self.0.iter_mut().map(ended).filter(|&ended| ended).count();
        (ended > 0).then(|| format!("{ended} of the busy processes of --hogs ended during the run"))
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
