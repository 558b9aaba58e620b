//! Making the table: the first lock of a process makes a file and maps it.
//!
//! The program must not notice any of this:
//!
//! - It is all done by plain system calls, which are not cancellation points and which the program
//!   cannot have replaced.
//! - `errno` is restored.
//! - Lack of memory, or a limit on the size of files, must not end in a signal. A process that gets
//!   no table runs on without one. It tells the command why, in a page that all processes share.
//!
//! # Windows
//!
//! A process that [stands by](kinlock_report::Switch) makes its table in the first window, and
//! clears it in each later one. The table stays where it is: a thread that was interrupted in the
//! window before may still write to it, and spoil a number, but it finds memory there.
//!
//! # Forks
//!
//! The child of a fork has no table until it takes a lock. The word that says whether there is one
//! lies in a page that the kernel clears in children. So a child that was made by a plain `clone`,
//! for which no fork handler runs, gets a table of its own, too.

use super::environment::{REPORT_PATH, keep_path, variable};
use super::files::{Name, close, largest_file, map, open, process};
use super::memory::{
    FAILED, FORK, MADE, MAKING, NOT_MADE, TABLE, TAGS, has_memory, is_of_window, is_page_present,
    system_call, table,
};
use super::mode::window;
use super::threads::name_program;
use super::{modules, order, record, switch, tally, thread};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::*};
use kinlock_core::platform::{NEVER, Platform};
use kinlock_linux::Native;
use kinlock_linux::sys::KeepErrno;
use kinlock_report::{Header, MAGIC, PAGE, SHARED, Shared, Table};

/// The process whose table this is. A child of `vfork` shares the memory but has no table.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The page that all processes of the report share, or null.
static SHARED_PAGE: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// Which locks the program runs on ([`Header::locks`]), for the tables of children.
static LOCKS: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

/// The table. It is made now if this process is the child of one that had a table.
#[inline]
pub(super) fn own_table() -> Option<&'static Table> {
    table().or_else(own_table_of_child)
}

#[cold]
#[inline(never)]
fn own_table_of_child() -> Option<&'static Table> {
    let locks = LOCKS.load(Relaxed);
    let has_failed = FORK.state.load(Relaxed) == FAILED && is_of_window();
    // A process that stands by has no table before the first window.
    if !has_failed && locks != UNKNOWN && (window() != 0 || !switch::is_used()) {
        begin(locks);
    }
    table()
}

/// Notes that the process makes its table when it is told to, and not yet. `locks`: which locks the
/// program runs on.
pub fn stand_by(locks: u32) {
    switch::expect();
    LOCKS.store(locks, Relaxed);
}

/// Notes that the process makes its table at its first lock. `locks`: as for [`stand_by`].
pub fn expect(locks: u32) {
    LOCKS.store(locks, Relaxed);
}

/// To be called as early as possible: looks up what may need a lock of the loader, and maps the
/// page that all processes share, which a sandbox may forbid later.
pub fn look_up() {
    modules::begin();
    if variable(b"KINLOCK_REPORT").is_some_and(|path| keep_path(&REPORT_PATH, path)) {
        shared();
    }
}

/// Makes the table, once. Returns whether there is one. `locks`: which locks the program runs on.
///
/// Other threads that come in the meantime wait for the one that makes it, so that none of their
/// acquisitions is lost. The threads cannot wait for each other: the one that makes the table takes
/// no lock, and runs no signal handler.
pub fn begin(locks: u32) -> bool {
    let _kept = KeepErrno::hold();
    loop {
        match FORK.state.load(Acquire) {
            MADE if is_of_window() => return true,
            FAILED if is_of_window() => return false,
            MAKING => {
                let state = FORK.state.as_ptr();
                Native::park(state, MAKING, NEVER, || FORK.state.load(Relaxed));
            }
            before => {
                // Called before other threads wait for this one, since it may wait for a lock of
                // the loader.
                modules::begin();
                clear_in_children();
                let _blocked = SignalsBlocked::new();
                let state = FORK
                    .state
                    .compare_exchange(before, MAKING, Acquire, Relaxed);
                if state.is_ok() {
                    let state = match make(locks, before != NOT_MADE) {
                        true => MADE,
                        false => FAILED,
                    };
                    FORK.state.store(state, Release);
                    Native::unpark(FORK.state.as_ptr(), u32::MAX);
                }
            }
        }
    }
}

/// While this exists, no signal handler runs on the calling thread, and the thread is not
/// cancelled.
struct SignalsBlocked(u64);

impl SignalsBlocked {
    fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        // SAFETY: invariant 2. The C library's own call would not block the signals that it uses
        // itself, such as the one that cancels threads.
        _ = unsafe {
            system_call!(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const all,
                &raw mut before,
                size_of::<u64>(),
            )
        };
        SignalsBlocked(before)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: invariant 2.
        _ = unsafe {
            system_call!(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const self.0,
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            )
        };
    }
}

/// Has the kernel clear [`FORK`] in children. Kernels before 4.14 cannot, and a page above 4 KiB
/// would hold other variables, too. In both cases only the fork handler clears it.
fn clear_in_children() {
    // SAFETY: invariant 9. The page has nothing else on it.
    unsafe {
        if libc::getauxval(libc::AT_PAGESZ) == PAGE as u64 {
            let page = ptr::from_ref(&FORK);
            _ = system_call!(libc::SYS_madvise, page, PAGE, libc::MADV_WIPEONFORK);
        }
    }
}

/// In the child of a fork: forgets the parent's table, and maps private memory in its place.
///
/// A signal handler may have forked while the thread was changing the table. In the child the
/// thread goes on with that change, which must not reach the parent's table.
pub extern "C" fn forget_in_child() {
    thread::forget_parent();
    FORK.tag.store(0, Relaxed);
    FORK.window.store(0, Relaxed);
    FORK.state.store(NOT_MADE, Relaxed);
    let place = TABLE.load(Relaxed);
    if !place.is_null() {
        // If that fails, the parent's table stays mapped, and such a change still reaches it.
        let _ = map(-1, SIZE, place.addr());
    }
}

/// Called when the process ends by itself: notes that, and the last name of the program.
pub fn finish() {
    // SAFETY: invariant 3 holds for the page as for the table.
    let shared = unsafe { SHARED_PAGE.load(Acquire).as_ref() };
    if let Some(shared) = shared.filter(|_| FORK.state.load(Relaxed) == NOT_MADE) {
        shared.idle.fetch_add(1, Relaxed);
    }
    if let Some(table) = table().filter(|_| process() == PROCESS.load(Relaxed)) {
        // The program may have given itself another title since the table was made.
        name_program(&table.header);
        table.header.end.store(Native::now(), Relaxed);
    }
    // The file stays if the process is measured now, since the command is going to read it.
    if switch::is_used() && !switch::is_on() && process() == PROCESS.load(Relaxed) {
        TABLE_NAME.unlink();
    }
}

const SIZE: usize = size_of::<Table>();

/// Makes a table, or clears it for a new window if the process has one. If that fails, tells the
/// command why. `is_again`: this was called before, in this process.
fn make(locks: u32, is_again: bool) -> bool {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    LOCKS.store(locks, Relaxed);
    let window = window();
    FORK.tag.store(0, Relaxed);
    let shared = match switch::is_used() {
        true => None,
        false => shared(),
    };
    if shared.is_some_and(|shared| shared.is_over.load(Relaxed) != 0) {
        return false;
    }
    let made = match is_again && PROCESS.load(Relaxed) == process() {
        true => cleared(),
        false => {
            thread::forget_parent();
            tally::begin();
            mapped()
        }
    };
    let table = match made {
        Ok(table) => table,
        Err(error) => {
            if let Some(shared) = shared {
                shared.errno.store(error as u32, Relaxed);
                shared.without_table.fetch_add(1, Relaxed);
            }
            switch::has_failed(error);
            FORK.window.store(window, Relaxed);
            return false;
        }
    };
    PROCESS.store(process(), Relaxed);
    fill_header(table, locks, window);
    let number = TABLES.fetch_add(1, Relaxed);
    let tag = number % (TAGS as u32 - 2) + 1;
    FORK.window.store(window, Relaxed);
    FORK.tag.store(tag, Release);
    true
}

/// Clears the table of an earlier window, and returns it. It keeps its memory.
///
/// The kernel writes the zeros. Stores of words here would not be of the sizes of the table's
/// fields, which a thread that was interrupted in the earlier window may still change.
fn cleared() -> Result<&'static Table, libc::c_int> {
    // SAFETY: invariant 3: it is the table, which is never unmapped.
    let table = unsafe { TABLE.load(Relaxed).as_ref() }.ok_or(libc::ENOENT)?;
    // SAFETY: invariant 2; the name ends with a zero byte.
    let zeros = unsafe { system_call!(libc::SYS_memfd_create, c"".as_ptr(), libc::MFD_CLOEXEC) }?;
    let zeros = zeros as libc::c_int;
    let clear = |from: usize, to: usize| {
        // SAFETY: invariant 3: memory of the table, which the kernel checks.
        let read = unsafe {
            let address = ptr::from_ref(table).addr() + from;
            system_call!(libc::SYS_pread64, zeros, address, to - from, 0)
        };
        read == Ok((to - from) as libc::c_long)
    };
    // SAFETY: invariant 9; the file is ours.
    let is_made = unsafe { system_call!(libc::SYS_ftruncate, zeros, PAGE) }.is_ok();
    // Everything except the note of which pages have memory.
    let kept = offset_of!(Header, present);
    let kept = kept..kept + size_of_val(&table.header.present);
    let first = size_of::<Header>().div_ceil(PAGE) * PAGE;
    let header = clear(0, kept.start) && clear(kept.end, first);
    let pages = (first..SIZE).step_by(PAGE).all(|from| {
        !is_page_present(&table.header, from / PAGE) || clear(from, (from + PAGE).min(SIZE))
    });
    close(zeros);
    match is_made && header && pages {
        true => Ok(table),
        false => Err(libc::EIO),
    }
}

/// The page that all processes share, if there is one.
fn shared() -> Option<&'static Shared> {
    let known = SHARED_PAGE.load(Acquire);
    // SAFETY: invariant 3 holds for the page as for the table.
    if let Some(known) = unsafe { known.as_ref() } {
        return Some(known);
    }
    static NAME: Name = Name::new();
    NAME.set(format_args!("{SHARED}"))?;
    let file = open(&NAME, libc::O_RDWR).ok()?;
    // SAFETY: invariant 9.
    let length = unsafe { system_call!(libc::SYS_lseek, file, 0, libc::SEEK_END) };
    let has_page = length.is_ok_and(|length| length >= PAGE as libc::c_long);
    let mapped = has_page.then(|| map(file, PAGE, 0).ok()).flatten();
    close(file);
    let mapped = mapped.filter(|&address| has_memory(address))? as *mut Shared;
    // SAFETY: as above.
    let shared = unsafe { mapped.as_ref() }?;
    if shared.magic.load(Relaxed) != MAGIC {
        return None;
    }
    SHARED_PAGE.store(mapped, Release);
    Some(shared)
}

/// Makes and maps the table's file: `PATH.PROCESS`, or `PATH.PROCESS.N` if this process had a
/// table as another program, before an `exec`. It replaces the mapping in the place of the
/// parent's table, if there is one. The error is an `errno`.
fn mapped() -> Result<&'static Table, libc::c_int> {
    if largest_file() < SIZE as u64 {
        return Err(libc::EFBIG);
    }
    let process = process();
    let file = TABLE_NAME.new_file(format_args!(".{process}"))?;
    let place = TABLE.load(Relaxed).addr();
    // SAFETY: invariant 9.
    let sized = unsafe { system_call!(libc::SYS_ftruncate, file, SIZE as libc::off_t) };
    let mapped = sized.and_then(|_| map(file, SIZE, place));
    close(file);
    let filled = mapped.and_then(|address| {
        let table = address as *mut Table;
        TABLE.store(table, Release);
        let last = size_of::<Header>().div_ceil(PAGE);
        match (0..last).all(|page| has_memory(address + page * PAGE)) {
            // SAFETY: invariant 3.
            true => Ok(unsafe { &*table }),
            false => Err(libc::ENOSPC),
        }
    });
    if filled.is_err() {
        TABLE_NAME.unlink();
    }
    filled
}

fn fill_header(table: &Table, locks: u32, window: u32) {
    let header = &table.header;
    for page in 0..size_of::<Header>().div_ceil(PAGE) {
        header.present[page / 64].fetch_or(1 << (page % 64), Relaxed);
    }
    header.begin.store(Native::now(), Relaxed);
    header.process.store(process() as u32, Relaxed);
    // SAFETY: invariant 9.
    let parent = unsafe { system_call!(libc::SYS_getppid) };
    header.parent.store(parent.unwrap_or(0) as u32, Relaxed);
    record::begin(table);
    order::begin(table);
    header.locks.store(locks, Relaxed);
    header.window.store(window, Relaxed);
    let domains = kinlock_linux::topology::domain_count();
    header.domains.store(domains as u32, Relaxed);
    FORK.has_domains.store(domains > 1, Relaxed);
    name_program(header);
    header.magic.store(MAGIC, Release);
}

/// The name of the table's file.
static TABLE_NAME: Name = Name::new();
