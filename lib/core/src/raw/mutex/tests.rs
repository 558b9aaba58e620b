//! Tests on words and waits prepared for them.

mod sleep;
mod slice;
mod word;

use super::wait::{Sleeper, Waiting};
use super::word::{KEPT, REQUESTER_SLEEPS, WATCHED, generation};
use super::*;
use crate::Native;
use crate::raw::contend::constants::SPIN_NS;
use crate::raw::contend::{Headship, Next, Wait};
use crate::tuning::{Quantum, Tuning};

#[derive(Clone, Copy, Debug)]
struct Sound;

impl LockConfig for Sound {
    const TRIALS: u32 = 0;
}

/// Holders ask for a longer time slice.
#[derive(Clone, Copy, Debug)]
struct Extending;

impl LockConfig for Extending {
    const TRIALS: u32 = 0;
    fn tuning() -> Tuning {
        Tuning {
            slice_extension: true,
            ..Tuning::DEFAULT
        }
    }
}

macro_rules! trying {
    ($($name:ident: $trials:literal),*) => {$(
        #[derive(Clone, Copy, Debug)]
        struct $name;

        impl LockConfig for $name {
            const TRIALS: u32 = $trials;
        }
    )*};
}

trying!(AlwaysTrying: 1, Usual: 1024);

/// A configuration, and the platform of its mutexes.
trait Model: LockConfig {
    type On: Platform;
}

impl Model for Sound {
    type On = Native;
}

impl Model for Extending {
    type On = Native;
}

impl Model for AlwaysTrying {
    type On = Native;
}

impl Model for Usual {
    type On = Native;
}

/// A layout of the word on any platform.
trait AnyLayout {
    type On<P: Platform>: Layout<P>;
}

struct AnySplit;
struct AnyJoined;

impl AnyLayout for AnySplit {
    type On<P: Platform> = Split<P>;
}

impl AnyLayout for AnyJoined {
    type On<P: Platform> = Joined<P>;
}

/// Whether a holder sees each flag that is set before it unlocks.
fn is_one<L: AnyLayout>() -> bool {
    <L::On<Native> as Layout<Native>>::IS_ONE
}

const FREE: bool = false;
const HELD: bool = true;

type On<C> = <C as Model>::On;
type Mutex<C = Sound, L = AnySplit> = QueuedMutex<On<C>, C, <L as AnyLayout>::On<On<C>>>;

fn with<C: Model, L: AnyLayout>(held: bool, flags: u8) -> Mutex<C, L> {
    let mutex = Mutex::<C, L>::default();
    assert!(!held || mutex.try_lock());
    mutex.word.set(flags, Relaxed);
    mutex
}

/// The lock and the flags, read from the bytes that the kernel compares.
fn state<P: Platform, C: LockConfig, L: Layout<P>>(mutex: &QueuedMutex<P, C, L>) -> (bool, u8) {
    let [locked, flags] = mutex.word.bytes();
    let state = (locked != 0, flags);
    assert_eq!(state, (mutex.is_locked(), mutex.word.flags()));
    state
}

/// A wait at the front without a time limit.
fn at_front() -> Wait {
    waiting(Tuning::DEFAULT, false)
}

/// Like [`at_front`], but the time is up.
fn late() -> Wait {
    Wait {
        deadline: 0,
        ..at_front()
    }
}

fn waiting(tuning: Tuning, trial: bool) -> Wait {
    Wait {
        deadline: NEVER,
        tuning,
        trial,
        spin: SPIN_NS,
    }
}

/// Waits at the front. `owes`: the waiter has slept on the word.
fn wait_as<P: Platform, C: LockConfig, L: Layout<P>>(
    mutex: &QueuedMutex<P, C, L>,
    owes: bool,
    wait: Wait,
) -> bool {
    let mut waiter = Waiting::new(mutex);
    waiter.owes = owes;
    waiter.wait_at_front(&wait, &Headship::beside())
}

/// Waiters request hand-offs at once.
fn fair() -> Tuning {
    Tuning {
        quantum: Quantum::FAIR,
        ..Tuning::DEFAULT
    }
}

fn unlock<P: Platform, C: LockConfig, L: Layout<P>>(mutex: &QueuedMutex<P, C, L>) {
    // SAFETY: every caller has made the lock held, and no other code has the right to release it.
    unsafe { mutex.unlock() }
}

/// Defines a test for each of the two layouts, which calls the function of the same name.
macro_rules! both_layouts {
    ($($(#[$doc:meta])* fn $name:ident<$layout:ident>() $body:block)*) => {
        $($(#[$doc])* fn $name<$layout: AnyLayout>() $body)*
        mod split {
            $(#[test] fn $name() { super::$name::<super::AnySplit>() })*
        }
        mod joined {
            $(#[test] fn $name() { super::$name::<super::AnyJoined>() })*
        }
    };
}
use both_layouts;
