//! The probes of a program with the feature `probes`: this test's own file has their notes.
#![cfg(all(
    feature = "probes",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]

use kinlock::{Condvar, Mutex, RwLock};

#[test]
fn notes_have_the_names_of_the_c_librarys() {
    let (mutex, condvar, rwlock) = (Mutex::new(0), Condvar::new(), RwLock::new(0));
    *mutex.lock() += *rwlock.read();
    *rwlock.write() += 1;
    condvar.wait_for(&mut mutex.lock(), std::time::Duration::from_millis(1));
    assert!(!condvar.notify_one() && condvar.notify_all() == 0);
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for name in [
        "mutex_entry",
        "mutex_acquired",
        "mutex_release",
        "rdlock_entry",
        "rdlock_acquire_read",
        "wrlock_entry",
        "wrlock_acquire_write",
        "rwlock_unlock",
        "cond_wait",
        "cond_signal",
        "cond_broadcast",
    ] {
        // In two parts, so that the text itself is not found.
        let note = [["libpthread", name].join("\0").as_bytes(), b"\08@"].concat();
        let is_there = file.windows(note.len()).any(|part| part == note);
        assert!(is_there, "{name}");
    }
}
