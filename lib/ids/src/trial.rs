//! Whether the kernel keeps its word: a sequence is tried before sequences are trusted.
//!
//! [Why](super::sequence#a-trial-before-the-first-use).
//!
//! ```text
//! this thread, on CPU c                     the helper, pinned to c
//! begin; leave unless the CPU is c          sleep for 50 us
//!   wait until `turn` changes          ---> turn += 1; sleep again
//! end
//! ```
//!
//! The helper can run on c only while this thread does not. So if the sequence sees `turn` change,
//! it was preempted or moved and went on: it proves a defect. If it is aborted and `turn` has
//! changed, the kernel has done what it should. Only the helper is pinned: the affinity of the
//! calling thread is left alone, and a trial on a CPU that it has left proves nothing.
//!
//! Without a helper nothing is shown, and sequences are used as the kernel offers them: a verdict
//! must not depend on the load. The verdict stands for the process and its children, which have the
//! same kernel. If two threads come first at the same time, both try: no thread waits for another
//! one, which may not exist in the child of a fork.
//!
//! | `VERDICT` | means |
//! | --- | --- |
//! | 0 | not tried yet |
//! | 1 | `Restarted` |
//! | 2 | `Nothing` |
//! | 3 | `WentOn` |
//!
//! # Invariants
//!
//! 1. Pointers given to the C library are to locals that outlive the call, of the sizes given.
//! 2. An area is what [`area::current`] has returned to the calling thread.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::area::{self, Area, Unavailable};
use super::probe::{Probe, Sound};
use super::sequence::{self, Trace};
use kinlock_linux::fork::without_signals;

/// What a trial has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Verdict {
    /// A sequence whose thread was preempted started again.
    Restarted = 1,
    /// No sequence was preempted.
    Nothing,
    /// A sequence whose thread was preempted went on.
    WentOn,
}

static VERDICT: AtomicU8 = AtomicU8::new(0);

/// A trial ends after this time.
const LONGEST: Duration = Duration::from_millis(100);
/// How long the helper sleeps, so that it preempts when it wakes.
const NAP: Duration = Duration::from_micros(50);
/// Turns of the loop in a sequence: less than a slice, and more than a nap.
const TURNS: u32 = 1 << 14;

/// Whether the calling thread can use restartable sequences, and they can be trusted.
pub(super) fn available() -> Result<(), Unavailable> {
    area::available()?;
    match verdict() {
        Verdict::WentOn if known(cfg!(target_arch = "aarch64"), &release()) => {
            Err(Unavailable::KnownKernel)
        }
        Verdict::WentOn => Err(Unavailable::NotRestarted),
        Verdict::Restarted | Verdict::Nothing => Ok(()),
    }
}

/// Whether a trial has shown that sequences are restarted.
pub(super) fn has_shown() -> bool {
    verdict() == Verdict::Restarted
}

fn verdict() -> Verdict {
    match VERDICT.load(Relaxed) {
        1 => Verdict::Restarted,
        2 => Verdict::Nothing,
        3 => Verdict::WentOn,
        _ => {
            let verdict = match known(cfg!(target_arch = "aarch64"), &release()) {
                true => Verdict::WentOn,
                false => without_signals(try_once::<Sound>),
            };
            VERDICT.store(verdict as u8, Relaxed);
            verdict
        }
    }
}

/// Whether kernels of this release are known to let preempted sequences go on.
fn known(aarch64: bool, release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    aarch64 && matches!(version, (Some(6), Some(19)) | (Some(7), Some(0)))
}

/// What `uname -r` prints; empty if that is unknown.
fn release() -> String {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: invariant 1. Zeroes are valid names.
    let (status, names) = unsafe { (libc::uname(names.as_mut_ptr()), names.assume_init()) };
    let bytes = names.release.iter().take_while(|&&byte| byte != 0);
    match status {
        0 => bytes.map(|&byte| char::from(byte as u8)).collect(),
        _ => String::new(),
    }
}

/// What this thread and the helper share.
#[derive(Default)]
struct Shared {
    /// The CPU on which the helper is to run.
    cpu: AtomicU32,
    /// 1 + the CPU on which the helper sleeps now; 0: it is awake.
    asleep: AtomicU32,
    /// Increased whenever the helper has run after a sleep.
    turn: AtomicU32,
    over: AtomicBool,
}

/// Must be called with signals blocked: a signal would restart the sequence, too, and the helper
/// must not run handlers.
fn try_once<P: Probe>() -> Verdict {
    let Some(area) = area::current().filter(|area| area.cpu().is_some()) else {
        return Verdict::Nothing;
    };
    let shared = Arc::new(Shared::default());
    let helper = thread::Builder::new().stack_size(64 * 1024).spawn({
        let shared = Arc::clone(&shared);
        move || help(&shared)
    });
    let Ok(helper) = helper else {
        return Verdict::Nothing;
    };
    let start = Instant::now();
    let verdict = loop {
        let verdict = wait_inside::<P>(area, &shared);
        if verdict != Verdict::Nothing || helper.is_finished() || start.elapsed() > LONGEST {
            break verdict;
        }
    };
    shared.over.store(true, Relaxed);
    // The helper cannot panic.
    let _ = helper.join();
    verdict
}

/// Runs one sequence, if the helper sleeps on the same CPU.
fn wait_inside<P: Probe>(area: Area, shared: &Shared) -> Verdict {
    let Some(cpu) = area.cpu() else {
        return Verdict::Nothing;
    };
    shared.cpu.store(cpu, Relaxed);
    if shared.asleep.load(Relaxed) != cpu + 1 {
        thread::yield_now();
        return Verdict::Nothing;
    }
    let mut trace = Trace::default();
    // SAFETY: invariant 2.
    let ran = unsafe { sequence::wait::<P>(area, cpu, &shared.turn, TURNS, &mut trace) };
    let changed = shared.turn.load(Relaxed) != trace.seen;
    match trace {
        _ if !ran => Verdict::Nothing,
        Trace { commits: 1, .. } => Verdict::WentOn,
        Trace { starts: 2.., .. } if changed => Verdict::Restarted,
        _ => Verdict::Nothing,
    }
}

/// The helper. It ends early if it cannot be pinned.
fn help(shared: &Shared) {
    let mut pinned = None;
    while !shared.over.load(Relaxed) {
        let cpu = shared.cpu.load(Relaxed);
        if pinned != Some(cpu) && !pin(cpu) {
            return;
        }
        pinned = Some(cpu);
        shared.asleep.store(cpu + 1, Relaxed);
        thread::sleep(NAP);
        shared.asleep.store(0, Relaxed);
        shared.turn.fetch_add(1, Relaxed);
    }
}

/// Lets the calling thread run on this CPU only. False if it may not.
fn pin(cpu: u32) -> bool {
    let mut mask = [0u64; 128];
    let Some(word) = mask.get_mut(cpu as usize / 64) else {
        return false;
    };
    *word = 1 << (cpu % 64);
    // SAFETY: invariant 1.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

#[cfg(all(test, not(any(miri, loom))))]
mod tests {
    use super::*;
    use core::ptr;

    /// The kernel is not told of its sequences, as if it did not restart them.
    #[derive(Clone, Copy, Debug)]
    struct Unrestarted;

    // SAFETY: used for trials only, which touch no structure.
    unsafe impl Probe for Unrestarted {
        const RESTARTS: bool = false;
    }

    /// Tries until something is shown: a trial shows nothing while other threads have the CPU.
    fn shown<P: Probe>() -> Option<Verdict> {
        crate::ending::prepare();
        if let Err(why) = area::available() {
            eprintln!("NOT tried: {why}");
            return None;
        }
        let start = Instant::now();
        loop {
            match without_signals(try_once::<P>) {
                Verdict::Nothing => assert!(start.elapsed().as_secs() < 300, "nothing is shown"),
                verdict => return Some(verdict),
            }
        }
    }

    #[test]
    fn a_kernel_that_restarts_sequences_is_trusted() {
        let start = Instant::now();
        let verdict = shown::<Sound>();
        // `--nocapture` shows it: a kernel of a version that is known for the defect may have been
        // fixed.
        println!(
            "{verdict:?} after {:?} under Linux {}",
            start.elapsed(),
            release()
        );
        assert!(
            verdict.is_none_or(|verdict| verdict == Verdict::Restarted
                || known(cfg!(target_arch = "aarch64"), &release())),
            "{verdict:?}"
        );
    }

    #[test]
    fn sequences_that_go_on_after_a_preemption_are_found() {
        for _ in 0..10 {
            let verdict = shown::<Unrestarted>();
            assert!(
                verdict.is_none_or(|verdict| verdict == Verdict::WentOn),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn kernels_are_known_by_their_number() {
        assert!(!release().is_empty());
        for release in ["6.19.10+deb13-cloud-arm64", "7.0.4", "7.0-rc1", "6.19"] {
            assert!(known(true, release), "{release}");
            assert!(!known(false, release), "{release}");
        }
        for release in [
            "6.18.12",
            "6.1.0-50-arm64",
            "7.1.3+deb13",
            "7.10.0",
            "16.19.1",
            "",
            "7",
        ] {
            assert!(!known(true, release), "{release}");
        }
    }

    #[test]
    fn a_trial_leaves_signals_and_affinity_as_they_were() {
        let state = || {
            let mut signals = MaybeUninit::<libc::sigset_t>::zeroed();
            let mut cpus = [0u64; 128];
            // SAFETY: invariant 1.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), signals.as_mut_ptr());
                libc::sched_getaffinity(0, size_of_val(&cpus), cpus.as_mut_ptr().cast());
                let signals = signals.assume_init();
                let blocked = (1..=64).map(|signal| libc::sigismember(&signals, signal));
                (blocked.collect::<Vec<_>>(), cpus)
            }
        };
        let before = state();
        shown::<Sound>();
        assert_eq!(state(), before);
    }
}
