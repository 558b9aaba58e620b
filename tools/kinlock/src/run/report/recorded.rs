//! Reads the distributions that the preloaded library records for a simulation. They are in the
//! same table.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use kinlock_measure::workloads::recorded::{Distribution, RecordedLock, Recording};
use kinlock_report::{CLASSES, Lock as Entry, RECORDED_THREADS, Table, class_range};

use super::calls::place;
use super::{Folder, Lock, Process, processes};

/// The distributions that a table has of a lock; `None` if it has no record.
pub fn distributions(table: &Table, lock: &Entry) -> Option<RecordedLock> {
    let number = lock.record.load(Relaxed) as usize;
    let record = table.records.get(number.checked_sub(1)?)?;
    let places =
        (0..RECORDED_THREADS).flat_map(|from| (0..RECORDED_THREADS).map(move |to| (from, to)));
    let counts = places.map(|(from, to)| {
        let count = record.follows[from][to].load(Relaxed);
        [from as u64, to as u64, count.into()]
    });
    Some(RecordedLock {
        hold: distribution(&record.holds),
        think: distribution(&record.thinks),
        follows: counts.filter(|count| count[2] > 0).collect(),
        ..RecordedLock::default()
    })
}

fn distribution(classes: &[AtomicU32; CLASSES]) -> Distribution {
    let all = classes.iter().enumerate().map(|(class, count)| {
        let (from, to) = class_range(class);
        (from, to, count.load(Relaxed).into())
    });
    Distribution(all.filter(|class| class.2 > 0).collect())
}

/// The recording of the process that took locks most often, among those with a table in the folder;
/// `None` if none took any.
pub fn recording(folder: &Folder, of: &Recording) -> anyhow::Result<Option<Recording>> {
    let locked = |process: &Process| process.locks.iter().map(|lock| lock.locked).sum::<u64>();
    let most = processes(folder)?.into_iter().max_by_key(locked);
    Ok(most.map(|mut process| {
        process
            .locks
            .sort_by_key(|lock| std::cmp::Reverse((lock.kept_off(), lock.locked)));
        let all: u64 = locked(&process);
        let seconds = process.seconds;
        let lives = process.threads.iter().map(|thread| {
            let number = u64::from(thread.number) % RECORDED_THREADS as u64;
            (number, thread.life[0], thread.life[1])
        });
        let lives: Vec<_> = lives.collect();
        let mut locks: Vec<RecordedLock> = Vec::new();
        for lock in &process.locks {
            locks.extend(recorded(lock, &lives, &locks));
        }
        Recording {
            seconds,
            lock: process.lock.to_owned(),
            threads: process.thread_count,
            lives,
            left_out: process.locks.len() - locks.len(),
            left_out_locked: all - locks.iter().map(|lock| lock.locked).sum::<u64>(),
            locks,
            ..of.clone()
        }
    }))
}

/// A lock that has distributions, with a name that differs from those in `before`. `lives` has each
/// thread with its begin and its end.
fn recorded(
    lock: &Lock,
    lives: &[(u64, f64, f64)],
    before: &[RecordedLock],
) -> Option<RecordedLock> {
    let own = lock.recorded.as_ref()?;
    if own.hold.0.is_empty() || own.think.0.is_empty() {
        return None;
    }
    // No addresses in names: they differ from run to run.
    let base = match lock.line() {
        Some(line) => line.to_owned(),
        None if lock.name.starts_with("0x") && !lock.first.is_empty() => {
            format!("of {}", place(&lock.first))
        }
        None => lock.name.clone(),
    };
    let mut names = (1..).map(|n| match n {
        1 => base.clone(),
        n => format!("{base} #{n}"),
    });
    let name = names.find(|name| before.iter().all(|other| other.name != *name))?;
    // How often each thread took the lock is an estimate; how often it was taken in all is known.
    let all: u64 = own.follows.iter().map(|follow| follow[2]).sum();
    let rates = (0..RECORDED_THREADS as u64).map(|thread| {
        let lives = lives.iter().filter(|life| life.0 == thread);
        let life: f64 = lives.map(|life| life.2 - life.1).sum();
        let held = own.follows.iter().filter(|follow| follow[1] == thread);
        let part = held.map(|follow| follow[2]).sum::<u64>() as f64 / (all as f64).max(1.0);
        (thread, part * lock.locked as f64 / life.max(1e-9))
    });
    Some(RecordedLock {
        name,
        locked: lock.locked,
        contended: lock.contended,
        wait_ns: lock.wait.total_ns,
        rates: rates.filter(|rate| rate.1 > 0.0).collect(),
        ..own.clone()
    })
}
