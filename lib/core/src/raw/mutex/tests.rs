//! Tests on words and waits prepared for them.

mod sleep;
mod word;

use super::wait::Waiting;
use super::word::{KEPT, WATCHED, generation};
use super::*;
use crate::Native;
use crate::raw::contend::{Front, Wait};
use crate::tuning::Quantum;

#[derive(Clone, Copy, Debug)]
struct Sound;

impl MutexConfig for Sound {
    const TRIALS: u32 = 0;
    fn tuning() -> Tuning {
        Tuning::DEFAULT
    }
}

macro_rules! trying {
    ($($name:ident: $trials:literal),*) => {$(
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const TRIALS: u32 = $trials;
            fn tuning() -> Tuning {
                Tuning::DEFAULT
            }
        }
    )*};
}

trying!(AlwaysTrying: 1, Usual: 1024);

macro_rules! broken {
    ($($name:ident)*) => {$(
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl MutexConfig for $name {
            const TRIALS: u32 = 0;
            const FAULT: MutexFault = MutexFault::$name;
            fn tuning() -> Tuning {
                Tuning::DEFAULT
            }
        }
    )*};
}

broken!(LeakyCancel DoubleHandOff SilentRequeue);

const FREE: bool = false;
const HELD: bool = true;

type Mutex<C = Sound, L = Split<Native>> = QueuedMutex<Native, C, L>;

fn with<C: MutexConfig, L: Layout<Native>>(held: bool, flags: u8) -> Mutex<C, L> {
    let mutex = Mutex::<C, L>::default();
    assert!(!held || mutex.try_lock());
    mutex.word.set(flags, Relaxed);
    mutex
}

/// What the word says, by way of the bytes that the kernel compares.
fn state<C: MutexConfig, L: Layout<Native>>(mutex: &Mutex<C, L>) -> (bool, u8) {
    let [locked, flags] = mutex.word.bytes();
    let state = (locked != 0, flags);
    assert_eq!(state, (mutex.is_locked(), mutex.word.flags(Relaxed)));
    state
}

/// A wait that has come to the front.
fn at_front() -> Wait {
    waiting(Tuning::DEFAULT, false)
}

fn waiting(tuning: Tuning, trial: bool) -> Wait {
    Wait {
        deadline: NEVER,
        tuning,
        oversubscribed: false,
        front: Front::new(tuning.quantum.nanos(), trial),
    }
}

/// Waits at the front, as one that has slept on the word if `slept`.
fn wait_as<C: MutexConfig, L: Layout<Native>>(
    mutex: &Mutex<C, L>,
    slept: bool,
    mut wait: Wait,
) -> bool {
    let mut waiter = Waiting::new(mutex);
    waiter.slept = slept;
    waiter.wait_at_front(&mut wait)
}

/// Hand-offs are requested at once.
fn fair() -> Tuning {
    Tuning {
        quantum: Quantum::FAIR,
        ..Tuning::DEFAULT
    }
}

fn unlock<C: MutexConfig, L: Layout<Native>>(mutex: &Mutex<C, L>) {
    // SAFETY: every caller has prepared a word that says that the lock is held. Nothing else uses
    // it.
    unsafe { mutex.unlock() }
}

/// A test for both layouts: each of them calls the function of the same name.
macro_rules! both_layouts {
    ($($(#[$doc:meta])* fn $name:ident<$layout:ident>() $body:block)*) => {
        $($(#[$doc])* fn $name<$layout: Layout<Native>>() $body)*
        mod split {
            $(#[test] fn $name() { super::$name::<super::Split<super::Native>>() })*
        }
        mod joined {
            $(#[test] fn $name() { super::$name::<super::Joined<super::Native>>() })*
        }
    };
}
use both_layouts;
