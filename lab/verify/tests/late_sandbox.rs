//! Filters of system calls that are installed when locks have been used already, and a filter that
//! allows only `futex`.
//!
//! # Invariants
//!
//! 1. Zero is a valid `sigaction`. The handler only counts, and changes the result of the call that
//!    was refused, as the kernel allows.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(loom, miri))
))]

mod support;

use kinlock::{Condvar, FairMutex, Mutex, Once, RwLock, SpinLock};
use kinlock_verify::sandbox::filter::{NUMBER_AT, end, install, load, skip_unless, step};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::thread::{sleep, spawn};
use std::time::Duration;

// ---- filters ----------------------------------------------------------------------------------

const MOMENT: Duration = Duration::from_millis(1);

/// Installs a filter with this verdict on one operation of `futex`. It allows everything else.
fn on_operation(operation: i32, verdict: u32) {
    const SECOND_ARGUMENT_AT: u32 = 24;
    let installed = install(&mut [
        load(NUMBER_AT),
        skip_unless(libc::SYS_futex as u32, 4),
        load(SECOND_ARGUMENT_AT),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 127),
        skip_unless(operation as u32, 1),
        end(verdict),
        end(libc::SECCOMP_RET_ALLOW),
    ]);
    installed.expect("a filter");
}

/// From now on any other call than these kills the process.
fn allow_only(calls: &[libc::c_long]) {
    let mut program = vec![load(NUMBER_AT)];
    program.extend(
        calls
            .iter()
            .flat_map(|&call| [skip_unless(call as u32, 1), end(libc::SECCOMP_RET_ALLOW)]),
    );
    program.push(end(libc::SECCOMP_RET_KILL_PROCESS));
    install(&mut program).expect("a filter");
}

/// How many calls were refused.
static REFUSALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn refuse(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    REFUSALS.fetch_add(1, Relaxed);
    // SAFETY: invariant 1.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let result = -libc::c_longlong::from(libc::EPERM);
    #[cfg(target_arch = "x86_64")]
    {
        machine.gregs[libc::REG_RAX as usize] = result;
    }
    #[cfg(target_arch = "aarch64")]
    {
        machine.regs[0] = result as u64;
    }
}

fn count_refusals() {
    // SAFETY: invariant 1.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = refuse as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let refused = libc::sigaction(libc::SIGSYS, &action, core::ptr::null_mut());
        assert_eq!(refused, 0);
    }
}

static TOLD: AtomicBool = AtomicBool::new(false);
static DONE: AtomicU32 = AtomicU32::new(0);

/// Starts threads that begin their work when they are told to, and never end. To begin, end or join
/// a thread, std and the C library make calls that may be refused, and repeat them.
fn start<const N: usize>(work: [fn(); N]) {
    for work in work {
        spawn(move || {
            while !TOLD.load(Acquire) {
                sleep(MOMENT);
            }
            work();
            DONE.fetch_add(1, Release);
            loop {
                sleep(1000 * MOMENT);
            }
        });
    }
    wait_until_others_sleep();
}

fn wait_until_done(threads: u32) {
    while DONE.load(Acquire) < threads {
        sleep(MOMENT);
    }
}

/// Waits until all other threads sleep. A thread that has just started another one makes other
/// calls than `futex`, and the test runner waits by std, which repeats a call that is refused.
fn wait_until_others_sleep() {
    // SAFETY: it has no preconditions.
    let own = unsafe { libc::gettid() }.to_string();
    let sleeps = |task: &std::path::Path| {
        let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
        // The state follows the name in parentheses, which may contain anything.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" S"))
    };
    let all_sleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("there is /proc");
        let mut others = tasks.flatten().filter(|task| task.file_name() != *own);
        others.all(|task| sleeps(&task.path()))
    };
    while !all_sleep() {
        sleep(MOMENT);
    }
}

/// As [`support::on_its_own`], but the process ends right after `body`.
fn on_its_own(name: &str, body: impl FnOnce()) {
    support::on_its_own(name, || {
        body();
        // The test runner would join the test's thread with calls that may be refused.
        // SAFETY: it has no preconditions.
        unsafe { libc::_exit(0) };
    });
}

// ---- late filters -----------------------------------------------------------------------------

static MUTEX: Mutex<u32> = Mutex::new(0);
static RWLOCK: RwLock<u32> = RwLock::new(0);
static SPINLOCK: SpinLock<u32> = SpinLock::new(0);
static FAIR: FairMutex<u32> = FairMutex::new(0);
static CONDVAR: Condvar = Condvar::new();
static ONCE: Once = Once::new();

/// Makes a thread sleep, so that the library knows that the kernel allows it.
fn sleep_once() {
    let held = MUTEX.lock();
    let other = spawn(|| MUTEX.try_lock_for(5 * MOMENT).is_none());
    assert!(other.join().expect("no panic"));
    drop(held);
}

#[test]
fn waits_that_are_refused_late_are_no_busy_loops() {
    on_its_own("waits_that_are_refused_late_are_no_busy_loops", || {
        sleep_once();
        start([
            || {
                ONCE.call_once(|| {
                    while REFUSALS.load(Relaxed) == 0 {
                        sleep(MOMENT);
                    }
                    sleep(100 * MOMENT);
                });
            },
            || *MUTEX.lock() += 1,
            || *RWLOCK.write() += 1,
            || drop(RWLOCK.read()),
            || *SPINLOCK.lock() += 1,
            || *FAIR.lock() += 1,
            || ONCE.call_once(|| ()),
        ]);
        count_refusals();
        on_operation(libc::FUTEX_WAIT_BITSET, libc::SECCOMP_RET_TRAP);
        // Threads wait for locks of all kinds.
        let held = (MUTEX.lock(), RWLOCK.write(), SPINLOCK.lock(), FAIR.lock());
        TOLD.store(true, Release);
        while REFUSALS.load(Relaxed) == 0 {
            sleep(MOMENT);
        }
        // In this time a busy loop would make thousands of calls.
        sleep(100 * MOMENT);
        drop(held);
        wait_until_done(7);
        let mut n = MUTEX.lock();
        assert!(CONDVAR.wait_for(&mut n, 5 * MOMENT).timed_out());
        assert_eq!(
            (*n, *RWLOCK.read(), *SPINLOCK.lock(), *FAIR.lock()),
            (1, 1, 1, 1)
        );
        let refusals = REFUSALS.load(Relaxed);
        assert!(refusals <= 7, "{refusals} calls were refused");
    });
}

#[test]
fn sleepers_are_woken_where_one_way_to_wake_is_refused_late() {
    let name = "sleepers_are_woken_where_one_way_to_wake_is_refused_late";
    on_its_own(name, || {
        sleep_once();
        let held = MUTEX.lock();
        start([|| *MUTEX.lock() += 1; 3]);
        TOLD.store(true, Release);
        // Time for the threads to fall asleep. The test is right even if they do not.
        sleep(50 * MOMENT);
        on_operation(
            libc::FUTEX_WAKE_BITSET,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        );
        drop(held);
        wait_until_done(3);
        assert_eq!(*MUTEX.lock(), 3);
    });
}

// ---- futex alone ------------------------------------------------------------------------------

const THREADS: u32 = 4;
const ROUNDS: u32 = 300;

static GO: Mutex<bool> = Mutex::new(false);
static ENDED: Mutex<u32> = Mutex::new(0);
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static CHANGED: Condvar = Condvar::new();

/// A critical section, now and then long enough for others to fall asleep.
fn work(n: &mut u32, round: u32) {
    *n += 1;
    let pauses = if round % 16 == 0 { 20_000 } else { 10 };
    (0..pauses).for_each(|_| core::hint::spin_loop());
}

fn use_all_locks() {
    ARRIVED.fetch_add(1, Relaxed);
    CHANGED.wait_while(&mut GO.lock(), |go| !*go);
    for round in 0..ROUNDS {
        work(&mut MUTEX.lock(), round);
        work(&mut FAIR.lock(), round);
        work(&mut RWLOCK.write(), round);
        work(&mut RWLOCK.read().clone(), round);
        work(&mut SPINLOCK.lock(), round);
        ONCE.call_once(|| work(&mut 0, 0));
        if let Some(mut n) = MUTEX.try_lock_for(MOMENT / 100) {
            CONDVAR.wait_for(&mut n, MOMENT / 10);
        }
        CONDVAR.notify_all();
    }
    let mut done = ENDED.lock();
    *done += 1;
    CHANGED.notify_all();
    // This thread must not end, because ending makes other calls than `futex`.
    loop {
        CHANGED.wait(&mut done);
    }
}

/// Uses locks in a process that is killed if it calls `membarrier`, even before `main`, or anything
/// but `futex` once its threads run.
fn with_futex_alone(name: &str) {
    if std::env::var_os(INNER).is_some() {
        support::end_in_time();
        for _ in 0..THREADS {
            spawn(use_all_locks);
        }
        while ARRIVED.load(Relaxed) < THREADS {
            sleep(MOMENT);
        }
        wait_until_others_sleep();
        let mut go = GO.lock();
        allow_only(&[
            libc::SYS_futex,
            // Needed with some clock sources.
            libc::SYS_clock_gettime,
            libc::SYS_rt_sigreturn,
            libc::SYS_exit_group,
        ]);
        *go = true;
        drop(go);
        CHANGED.notify_all();
        CHANGED.wait_while(&mut ENDED.lock(), |done| *done < THREADS);
        let right = *RWLOCK.read() == THREADS * ROUNDS && *FAIR.lock() == THREADS * ROUNDS;
        // SAFETY: it has no preconditions.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let run = |calls: &str| {
        let mut command = Command::new(std::env::current_exe().expect("it knows its program"));
        command.args(["--exact", name, "--nocapture", "--test-threads", "1"]);
        command.env(INNER, "1").env("KINLOCK_SYSTEM_CALLS", calls);
        let membarrier = || {
            let forbidden = libc::SYS_membarrier as u32;
            install(&mut [
                load(NUMBER_AT),
                skip_unless(forbidden, 1),
                end(libc::SECCOMP_RET_KILL_PROCESS),
                end(libc::SECCOMP_RET_ALLOW),
            ])
        };
        // SAFETY: the child only makes these calls; the process has one thread that allocates.
        unsafe { command.pre_exec(membarrier) };
        command.output().expect("it can be started")
    };
    let output = run("futex");
    assert!(
        output.status.success(),
        "{:?} {}",
        output.status,
        support::text(&output)
    );
    // A process that makes other calls is killed: the filters are in force.
    assert_eq!(run("all").status.signal(), Some(libc::SIGSYS));
}

const INNER: &str = "KINLOCK_TEST_FUTEX_ALONE";

#[test]
fn locks_need_nothing_but_futex_if_they_are_told_so() {
    with_futex_alone("locks_need_nothing_but_futex_if_they_are_told_so");
}
