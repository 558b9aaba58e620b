//! Entries of threads.

use super::entries::{add, merge};
use super::environment;
use super::memory::{is_present, provide, system_call};
use super::thread::{number, token};
use core::sync::atomic::Ordering::*;
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
use kinlock_linux::native::Key;
use kinlock_report::{Header, THREADS, Table, Thread};

/// The entry of the calling thread. It is added if it is missing; `None`: there is no room.
pub(super) fn thread(table: &Table) -> Option<&Thread> {
    let token = token();
    thread_of(table, token).or_else(|| new_thread(table, token))
}

/// Stores what the program is called now. Servers give each of their processes a title, often after
/// its first lock, and may be killed: so the name is stored again with each new thread and lock.
pub(super) fn name_program(header: &Header) {
    let room = header.program.len() - 1;
    let name = environment::program().iter().copied().chain([0; 64]);
    for (to, from) in header.program.iter().zip(name.take(room)) {
        to.store(from, Relaxed);
    }
}

/// How many entries to search for a thread's, from the one that its token chooses.
const THREAD_REACH: usize = 8;

fn places_of_thread(table: &Table, token: u32) -> impl Iterator<Item = &Thread> {
    (0..THREAD_REACH).map(move |step| &table.threads[(token as usize + step) % THREADS])
}

/// The entry of a thread, if it has one.
pub(super) fn thread_of(table: &Table, token: u32) -> Option<&Thread> {
    // An entry that got no memory is passed over: then the thread has taken the next one.
    let mut places = places_of_thread(table, token).filter(|thread| is_present(table, *thread));
    places.find(|thread| thread.token.load(Relaxed) == token)
}

/// Gives the calling thread an entry: a free one, or one of a thread that has ended.
#[cold]
#[inline(never)]
fn new_thread(table: &Table, token: u32) -> Option<&Thread> {
    let takes = |thread: &&Thread, before: u32| {
        let taken = &thread.token;
        taken
            .compare_exchange(before, token, Relaxed, Relaxed)
            .is_ok()
    };
    let mut places = places_of_thread(table, token);
    let free = places.find(|thread| provide(table, *thread) && takes(thread, 0));
    let thread = free.or_else(|| {
        let mut places = places_of_thread(table, token).filter(|thread| is_present(table, *thread));
        places.find(|thread| {
            let before = thread.token.load(Relaxed);
            thread.end.load(Relaxed) != 0 && takes(thread, before)
        })
    })?;
    let end = thread.end.swap(0, Relaxed);
    if end != 0 {
        forget_ended(table, thread, end);
    }
    await_end();
    name_program(&table.header);
    table.header.threads.fetch_add(1, Relaxed);
    thread.begin.store(Native::now(), Relaxed);
    let mut name = [0_u8; 16];
    thread.id.store(number(), Relaxed);
    // SAFETY: invariant 2; a name has at most 16 bytes.
    _ = unsafe { system_call!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    for (to, from) in thread.name.iter().zip(name) {
        to.store(from, Relaxed);
    }
    Some(thread)
}

/// Moves the numbers of a thread that has ended at that time to the sums over such threads.
fn forget_ended(table: &Table, thread: &Thread, end: u64) {
    let ended = &table.header.ended_threads;
    add(&ended.count, 1);
    add(
        &ended.life_ns,
        end.saturating_sub(thread.begin.load(Relaxed)),
    );
    merge(
        [
            &thread.locked,
            &thread.contended,
            &thread.wait_ns,
            &thread.others,
        ],
        [
            &ended.locked,
            &ended.contended,
            &ended.wait_ns,
            &ended.others,
        ],
    );
    merge(&thread.other_ns, &ended.other_ns);
    let longest = thread.wait_max.swap(0, Relaxed);
    ended.wait_max.fetch_max(longest, Relaxed);
    thread.waits_for.store(0, Relaxed);
}

// ---- their ends -----------------------------------------

/// The key whose destructor notes the end of a thread. `tally.rs` makes it.
pub(super) static KEY: Key = Key::NONE;

/// Gives that key [up](Key::give_up). From now on entries of threads stay theirs after the threads
/// have ended.
pub fn give_up_key() -> bool {
    KEY.give_up()
}

/// Arranges that the destructor of [`KEY`] is called when the calling thread ends.
pub(super) fn await_end() {
    // The destructor is called for any value but null. Without a key nothing is to be done.
    let _ = KEY.set(1);
}
