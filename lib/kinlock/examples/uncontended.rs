//! Locks and unlocks an uncontended lock: `uncontended LOCK PAIRS`.
//!
//! `ci/instructions.sh` counts the instructions of this program.

use kinlock::lock_api::RawMutex as Raw;
use kinlock::{RawMutex, RawSpinLock, RwLock};
use kinlock_core::raw::mutex::{Joined, QueuedMutex};
use kinlock_core::raw::rwlock::QueuedRwLock;
use kinlock_linux::Native;
use kinlock_linux::config::AsConfigured;
use std::hint::black_box;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let pairs = arguments.get(2).and_then(|pairs| pairs.parse().ok());
    let (Some(lock), Some(pairs)) = (arguments.get(1), pairs) else {
        return usage();
    };
    match lock.as_str() {
        "none" => repeat(pairs, || ()),
        "kinlock-spin" => raw::<RawSpinLock>(pairs),
        "kinlock-mutex" => raw::<RawMutex>(pairs),
        "kinlock-mutex-joined" => {
            let mutex = QueuedMutex::<Native, AsConfigured, Joined<Native>>::new();
            repeat(pairs, || {
                black_box(&mutex).lock();
                // SAFETY: this thread has just taken the lock.
                unsafe { black_box(&mutex).unlock() };
            });
        }
        "kinlock-rwlock-read" => {
            let lock = RwLock::new(());
            repeat(pairs, || drop(black_box(&lock).read()));
        }
        "kinlock-rwlock-write" => {
            let lock = RwLock::new(());
            repeat(pairs, || drop(black_box(&lock).write()));
        }
        "kinlock-rwlock-biased" => {
            let lock = QueuedRwLock::<Native, AsConfigured>::new();
            lock.set_biased();
            repeat(pairs, || {
                let _ = black_box(&lock).read();
                // SAFETY: this thread has just taken the lock.
                unsafe { black_box(&lock).unlock_read() };
            });
        }
        "std-mutex" => {
            let mutex = std::sync::Mutex::new(());
            repeat(pairs, || drop(black_box(&mutex).lock()));
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: uncontended none|kinlock-spin|kinlock-mutex|kinlock-mutex-joined|\
         kinlock-rwlock-read|kinlock-rwlock-write|kinlock-rwlock-biased|std-mutex PAIRS"
    );
    ExitCode::from(2)
}

fn raw<R: Raw>(pairs: u64) {
    let mutex = kinlock::lock_api::Mutex::<R, ()>::new(());
    repeat(pairs, || drop(black_box(&mutex).lock()));
}

#[inline(always)]
fn repeat(pairs: u64, mut pair: impl FnMut()) {
    for _ in 0..pairs {
        pair();
        // Keeps the compiler from unrolling or removing the loop.
        black_box(());
    }
}
