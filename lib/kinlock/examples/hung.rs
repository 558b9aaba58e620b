//! Hangs in the way that its argument names: `kinlock report PID` says who holds what and who waits
//! for whom, which `ci/rust-report.sh` checks.

use kinlock::{Condvar, Mutex, RwLock};
use std::sync::Barrier;
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::Duration;

static ACCOUNTS: Mutex<()> = Mutex::new(());
static JOURNAL: Mutex<()> = Mutex::new(());
static CATALOGUE: RwLock<()> = RwLock::new(());
static READY: Condvar = Condvar::new();
/// Where all three threads meet when they hold their first locks.
static BOTH: Barrier = Barrier::new(3);

fn teller(how: &str) {
    match how {
        "mutexes" => {
            let _accounts = ACCOUNTS.lock();
            BOTH.wait();
            drop(JOURNAL.lock());
        }
        _ => {
            let _catalogue = CATALOGUE.read();
            BOTH.wait();
            drop(JOURNAL.lock());
        }
    }
}

fn auditor(how: &str) {
    let _journal = JOURNAL.lock();
    BOTH.wait();
    match how {
        "mutexes" => drop(ACCOUNTS.lock()),
        // The auditor waits for the clerk alone, and not for the teller, who is a plain reader.
        "upgradable" => drop(CATALOGUE.upgradable_read()),
        _ => drop(CATALOGUE.write()),
    }
}

fn clerk(how: &str) {
    let _catalogue = (how == "upgradable").then(|| CATALOGUE.upgradable_read());
    BOTH.wait();
    match how {
        "mutexes" => drop(ACCOUNTS.lock()),
        "upgradable" => {
            READY.wait_for(&mut ACCOUNTS.lock(), Duration::from_secs(1000));
        }
        _ => READY.wait(&mut ACCOUNTS.lock()),
    }
}

fn main() {
    let how = &std::env::args().nth(1).unwrap_or_default();
    scope(|scope| {
        let named = |name: &str, run: fn(&str)| -> ScopedJoinHandle<'_, ()> {
            let builder = Builder::new().name(name.to_owned());
            builder
                .spawn_scoped(scope, move || run(how))
                .expect("there is room for a thread")
        };
        let threads = [
            named("teller", teller),
            named("auditor", auditor),
            named("clerk", clerk),
        ];
        for thread in threads {
            thread.join().expect("no thread panics");
        }
    });
}
