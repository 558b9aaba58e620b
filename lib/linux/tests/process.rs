//! What concerns the whole process: its waiting threads, its quota, its `errno`.
#![cfg(all(not(loom), not(miri)))]

use kinlock_core::bare::Bare;
use kinlock_core::platform::Platform;
use kinlock_core::raw::LockConfig;
use kinlock_core::raw::mutex::QueuedMutex;
use kinlock_core::raw::qspinlock::QueuedSpinLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The tests share the count of waiting threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether `condition` holds within a time that is long enough on any machine.
fn soon(condition: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(300) {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn threads_that_waited_once_do_not_count() {
    let _alone = ALONE.lock();
    let threads = 2 + 2 * thread::available_parallelism().unwrap().get();
    let (mutex, spinlock) = (
        QueuedMutex::<Native, AsConfigured>::default(),
        QueuedSpinLock::<Native, AsConfigured>::new(),
    );
    let done = Barrier::new(threads + 1);
    mutex.lock();
    spinlock.lock();
    thread::scope(|scope| {
        for n in 0..threads {
            let (mutex, spinlock, done) = (&mutex, &spinlock, &done);
            scope.spawn(move || {
                if n % 2 == 0 {
                    mutex.lock();
                    // SAFETY: this thread has just taken it.
                    unsafe { mutex.unlock() };
                } else {
                    spinlock.lock();
                    // SAFETY: as above.
                    unsafe { spinlock.unlock() };
                }
                done.wait();
                // The threads live on, idle.
                done.wait();
            });
        }
        // All but the spinlock's first waiter keep a slot from now on.
        let slots = || Native::waiters().in_use() as usize;
        let noticed = soon(|| slots() >= threads - 1 && Native::oversubscribed());
        // SAFETY: this thread has taken both.
        unsafe {
            mutex.unlock();
            spinlock.unlock();
        }
        done.wait();
        let forgotten = soon(|| !Native::oversubscribed());
        done.wait();
        assert!(noticed, "a crowd is not noticed");
        assert!(forgotten, "{threads} idle threads count as waiting");
    });
}

/// Set in a process whose control group can be changed: the file with its quota.
const QUOTA: &str = "KINLOCK_TEST_QUOTA";

/// Two threads contend for one lock: the process is oversubscribed while it has a quota of one CPU,
/// and no longer afterwards.
#[test]
fn a_quota_that_changes_is_seen() {
    let name = "a_quota_that_changes_is_seen";
    if let Some(file) = std::env::var_os(QUOTA) {
        let spinlock = QueuedSpinLock::<Native, AsConfigured>::new();
        let done = AtomicBool::new(false);
        let contend = || {
            while !done.load(Relaxed) {
                spinlock.lock();
                // SAFETY: this thread has just taken it.
                unsafe { spinlock.unlock() };
            }
        };
        thread::scope(|scope| {
            scope.spawn(contend);
            scope.spawn(contend);
            // This thread counts as a third one now and then, whatever the quota.
            let long = || {
                (0..200).all(|_| {
                    thread::sleep(Duration::from_millis(1));
                    Native::oversubscribed()
                })
            };
            let crowd = soon(long);
            std::fs::write(file, "max 100000").unwrap();
            let none = soon(|| !Native::oversubscribed());
            done.store(true, Relaxed);
            assert!(crowd, "the quota is not seen");
            assert!(none, "the quota that has changed is not seen");
        });
        return;
    }
    if thread::available_parallelism().unwrap().get() < 2 {
        return eprintln!("not tested: there is one CPU, on which two threads are a crowd");
    }
    // In a namespace of mounts the process is in a group that the test makes.
    let script = "mount -t tmpfs none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/a/b &&
        echo 100000 100000 > /sys/fs/cgroup/a/cpu.max && echo 0::/a/b > /sys/fs/cgroup/own &&
        mount --bind /sys/fs/cgroup/own /proc/$$/cgroup || exit 77
        exec \"$@\"";
    let this = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(this);
    command.args(["--exact", name, "--nocapture"]);
    let output = command.env(QUOTA, "/sys/fs/cgroup/a/cpu.max").output();
    match output {
        Ok(output) if matches!(output.status.code(), Some(1 | 77)) && output.stdout.is_empty() => {
            eprintln!("not tested: a group needs root");
        }
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("not tested: {error}"),
    }
}

#[test]
fn a_real_time_thread_is_a_priority_waiter() {
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: zero is a valid parameter; the kernel reads it. musl has no function for it.
            let refused = unsafe {
                let mut least: libc::sched_param = std::mem::zeroed();
                least.sched_priority = 1;
                let policy = libc::SCHED_RR;
                libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const least) != 0
            };
            if refused {
                return eprintln!("not tested: {}", std::io::Error::last_os_error());
            }
            assert!(Native::is_priority());
        });
        scope.spawn(|| assert!(!Native::is_priority()));
    });
}

// ---- errno ------------------------------------------------------------------------------------

fn set_errno(value: i32) {
    // SAFETY: it points to the errno of this thread.
    unsafe { *libc::__errno_location() = value };
}

fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Makes the kernel refuse these calls to the calling thread, with EPERM.
fn refuse(calls: &[libc::c_long]) {
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (load, equal, answer) = (0x20, 0x15, 0x06);
    let mut program = vec![statement(load, 0, 0, 0)];
    for &call in calls {
        program.push(statement(equal, 0, 1, call as u32));
        program.push(statement(answer, 0, 0, 0x0005_0000 | libc::EPERM as u32));
    }
    program.push(statement(answer, 0, 0, 0x7fff_0000));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` points to a program of that length, which the kernel copies.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter, 0, 0) != 0
    };
    assert!(!refused, "no filter: {}", std::io::Error::last_os_error());
}

#[test]
fn locking_leaves_errno_alone() {
    let _alone = ALONE.lock();
    let refused = [
        libc::SYS_sched_yield,
        libc::SYS_membarrier,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_getscheduler,
        libc::SYS_futex,
    ];
    for refused in [&refused[..0], &refused[..4], &refused] {
        let (mutex, spinlock) = (
            QueuedMutex::<Native, AsConfigured>::default(),
            QueuedSpinLock::<Native, AsConfigured>::new(),
        );
        mutex.lock();
        spinlock.lock();
        let gave_up = AtomicBool::new(false);
        thread::scope(|scope| {
            let (mutex, spinlock, gave_up) = (&mutex, &spinlock, &gave_up);
            let waiter = scope.spawn(move || {
                refuse(refused);
                set_errno(libc::EXDEV);
                let in_time = Native::now() + 3_000_000;
                let in_vain = !mutex.lock_until(in_time) && !spinlock.lock_until(in_time);
                gave_up.store(true, Relaxed);
                assert!(in_vain);
                Native::yield_now();
                Native::is_priority();
                mutex.lock();
                spinlock.lock();
                // SAFETY: this thread has taken both.
                unsafe {
                    mutex.unlock();
                    spinlock.unlock();
                }
                errno()
            });
            while !gave_up.load(Relaxed) && !waiter.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            // By now the waiter usually sleeps. The test does not depend on it.
            thread::sleep(Duration::from_millis(20));
            set_errno(libc::EXDEV);
            // SAFETY: this thread has taken both.
            unsafe {
                mutex.unlock();
                spinlock.unlock();
            }
            assert_eq!(errno(), libc::EXDEV);
            assert_eq!(
                waiter.join().unwrap(),
                libc::EXDEV,
                "{} calls",
                refused.len()
            );
        });
    }
}

// ---- a platform without a clock ---------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
struct Defaults;

impl LockConfig for Defaults {}

#[test]
fn without_a_clock_timed_waits_end() {
    let limit = || Bare::now() + 1_000_000;
    let spinlock = QueuedSpinLock::<Bare, Defaults>::new();
    spinlock.lock();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(!spinlock.lock_until(limit())));
        }
    });
    let word = AtomicU32::new(0);
    let waited = Bare::wait_for(&word, std::sync::atomic::Ordering::Relaxed, 1000, |seen| {
        seen != 0
    });
    assert_eq!(waited, Err(0));
}
