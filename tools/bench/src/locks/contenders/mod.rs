//! Every lock the command knows, ours and the peers, behind one closure-style interface.
//!
//! A measured loop is generic over the lock: [`with_lock`] turns a name into a type once per round,
//! and nothing inside the loop is called through a pointer.

pub mod foreign;
pub mod installed;
mod monitors;
pub mod name;
pub mod peers;
pub mod posix;
mod readers;

pub use monitors::Monitor;
pub use name::LockName;
pub(in crate::locks) use name::{with_condvar, with_lock, with_read_write};
pub use readers::ReadWrite;

/// A lock around a value.
pub trait Lock<T>: Send + Sync + Sized + 'static {
    /// An unlocked lock around `value`. It may be moved until it is first taken, not afterwards.
    fn new(value: T) -> Self;
    /// Takes the lock, runs `section` on the value, frees the lock.
    fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R;
    /// The value, once no thread uses the lock any more.
    fn into_inner(self) -> T;
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::{scope, yield_now};

    use kinlock_cli::args::{Available, Named};

    use super::*;

    const THREADS: u64 = 3;
    const ROUNDS: u64 = 400;
    /// The number of rounds if each hand-off waits until the next thread in line gets a CPU.
    const FEW_ROUNDS: u64 = 40;

    fn there() -> impl Iterator<Item = LockName> {
        let all = LockName::all().into_iter();
        all.filter(|lock| lock.unavailable().is_none())
    }

    /// Two words that must agree: one is changed before the holder yields its CPU to threads that
    /// want the lock, the other one afterwards.
    fn change(pair: &mut [u64; 2], round: u64) {
        assert_eq!(pair[0], pair[1]);
        pair[0] += 1;
        if round % 8 == 7 {
            yield_now();
        }
        pair[1] += 1;
    }

    /// Runs all threads at once, each for this number of rounds.
    fn in_threads(rounds: u64, run: impl Fn(u64) + Sync) {
        let start = Barrier::new(THREADS as usize);
        scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    start.wait();
                    (0..rounds).for_each(&run);
                });
            }
        });
    }

    #[test]
    fn every_lock_excludes() {
        fn excludes<L: Lock<[u64; 2]>>(name: LockName) {
            let lock = L::new([0; 2]);
            let rounds = match name.is_strict_fifo() {
                true => FEW_ROUNDS,
                false => ROUNDS,
            };
            in_threads(rounds, |round| lock.with(|pair| change(pair, round)));
            assert_eq!(lock.into_inner(), [THREADS * rounds; 2], "{name:?}");
        }
        for name in there() {
            with_lock!(name, Of => excludes::<Of<[u64; 2]>>(name));
        }
    }

    #[test]
    fn every_reader_writer_lock_excludes_writers_and_lets_readers_in_together() {
        fn excludes<L: ReadWrite<[u64; 2]>>(name: LockName) {
            let lock = L::new([0; 2]);
            in_threads(ROUNDS, |round| match round % 2 {
                0 => lock.write(|pair| change(pair, round / 2)),
                _ => lock.read(|pair| assert_eq!(pair[0], pair[1])),
            });
            // This would hang if one reader kept another out.
            let pair = lock.read(|_| scope(|s| s.spawn(|| lock.read(|pair| *pair)).join()));
            assert_eq!(pair.unwrap(), [THREADS * ROUNDS / 2; 2], "{name:?}");
        }
        for name in there() {
            with_read_write!(name, Of => excludes::<Of<[u64; 2]>>(name));
        }
    }

    #[test]
    fn every_condition_variable_wakes_one_and_all() {
        fn meets<M: Monitor<u64>>(name: LockName) {
            let turns = M::new(0);
            // The first thread has the turns 0, 2, 4, .., for which it waits on condition variable
            // 0.
            let take = |own: u64| {
                for _ in 0..ROUNDS {
                    let mine = |turn: &mut u64| *turn % 2 == own;
                    turns.when(own as usize, mine, |turn| *turn += 1);
                    match own {
                        0 => turns.notify_one(1),
                        _ => turns.notify_all(0),
                    }
                }
            };
            scope(|s| {
                s.spawn(|| take(0));
                take(1);
            });
            let done = turns.when(0, |_| true, |turn| *turn);
            assert_eq!(done, 2 * ROUNDS, "{name:?}");
        }
        for name in there() {
            with_condvar!(name, Of => meets::<Of<u64>>(name));
        }
    }
}
