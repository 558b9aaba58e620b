//! One of the threads that wait for a lock is stopped, as by a debugger, wherever it is, and the
//! others go on.
#![cfg(all(not(loom), not(miri)))]

use kinlock::{Mutex, RwLock};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than any test takes.
const LIMIT: Duration = Duration::from_secs(300);

static STOPPED: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);

/// Stops the thread on which it runs, wherever that is, until [`GO_ON`].
extern "C" fn stop(_: libc::c_int) {
    STOPPED.store(true, SeqCst);
    while !GO_ON.load(SeqCst) {
        // SAFETY: usleep takes a number.
        unsafe { libc::usleep(1000) };
    }
}

/// Of threads that wait for a lock in the order of their numbers, the first is stopped while it
/// waits. `hold` runs a function while it holds the lock, and `take` takes the lock and releases
/// it.
fn all_but_the_stopped_one_go_on(
    hold: impl FnOnce(&mut dyn FnMut()),
    take: impl Fn(usize) + Send + Copy + 'static,
) {
    const OTHERS: usize = 4;
    // SAFETY: the handler calls only what a handler may.
    let installed = unsafe { libc::signal(libc::SIGUSR1, stop as *const () as usize) };
    assert_ne!(installed, libc::SIG_ERR);
    GO_ON.store(false, SeqCst);
    STOPPED.store(false, SeqCst);
    let (done, ended) = mpsc::channel();
    let start = |number: usize| {
        let done = done.clone();
        thread::spawn(move || {
            take(number);
            done.send(number).expect("the test listens");
        })
    };
    let mut threads = Vec::new();
    hold(&mut || {
        let first = start(0);
        // The first waiter comes to the front, asks for the lock, and falls asleep. If it is
        // slower, it is stopped elsewhere, which must not matter either.
        thread::sleep(Duration::from_millis(20));
        let thread = first.as_pthread_t();
        // SAFETY: the thread has not been joined.
        let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        assert_eq!(sent, 0);
        while !STOPPED.load(SeqCst) {
            thread::yield_now();
        }
        threads.push(first);
        threads.extend((1..=OTHERS).map(start));
        thread::sleep(Duration::from_millis(5));
    });
    let mut others: Vec<_> = (0..OTHERS)
        .map(|_| {
            ended
                .recv_timeout(LIMIT)
                .expect("it need not wait for the stopped one")
        })
        .collect();
    others.sort_unstable();
    assert_eq!(others, [1, 2, 3, 4]);
    GO_ON.store(true, SeqCst);
    assert_eq!(ended.recv_timeout(LIMIT), Ok(0), "it goes on as well");
    for thread in threads {
        thread.join().expect("it has ended");
    }
}

/// One test, since the signal's handler belongs to the process.
#[test]
fn all_but_a_stopped_waiter_go_on() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    for _ in 0..3 {
        all_but_the_stopped_one_go_on(
            |while_held| {
                let mut held = MUTEX.lock();
                while_held();
                *held = 0;
            },
            |_| *MUTEX.lock() += 1,
        );
        assert_eq!(*MUTEX.lock(), 5);
    }
    static RWLOCK: RwLock<u32> = RwLock::new(0);
    for reads in [
        [false; 5],
        [false, true, true, true, true],
        [false, true, false, true, false],
    ] {
        all_but_the_stopped_one_go_on(
            |while_held| {
                let held = RWLOCK.read();
                while_held();
                drop(held);
            },
            move |number| match reads[number] {
                true => _ = *RWLOCK.read(),
                false => *RWLOCK.write() += 1,
            },
        );
    }
    assert_eq!(*RWLOCK.read(), 5 + 1 + 3);
}
