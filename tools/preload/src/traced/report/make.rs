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
//! # Forks
//!
//! The child of a fork has no table until it takes a lock. The word that says whether there is one
//! lies in a page that the kernel clears in children. So a child that was made by a plain `clone`,
//! for which no fork handler runs, gets a table of its own, too (decision 0100).

use super::memory::{
    Errno, FAILED, FORK, HAS_DOMAINS, MADE, MAKING, NOT_MADE, TABLE, TAGS, errno, has_memory,
    system_call, table,
};
use super::threads::name_program;
use super::{modules, order, record, tally};
use crate::{environment, thread};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, Ordering::*};
use kinlock_core::platform::Platform;
use kinlock_linux::Native;
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
    if FORK.state.load(Relaxed) != FAILED && locks != UNKNOWN {
        begin(locks);
    }
    table()
}

/// As early as possible: looks up what may need a lock of the loader.
pub(crate) fn look_up() {
    modules::begin();
}

/// How making the table went.
pub(crate) enum Begun {
    Done,
    Failed,
}

/// Makes the table, once. `locks`: which locks the program runs on.
///
/// Other threads that come in the meantime wait for the one that makes it, so that none of their
/// acquisitions is lost. They cannot wait for each other: that thread takes no lock, and no signal
/// handler runs on it.
pub(crate) fn begin(locks: u32) -> Begun {
    let kept = Errno::keep();
    let begun = loop {
        match FORK.state.load(Acquire) {
            MADE => break Begun::Done,
            FAILED => break Begun::Failed,
            MAKING => wait_for_maker(),
            _ => {
                // Before other threads wait for this one, since this may wait for a lock of the
                // loader.
                modules::begin();
                clear_in_children();
                let _blocked = SignalsBlocked::new();
                let state = FORK
                    .state
                    .compare_exchange(NOT_MADE, MAKING, Acquire, Relaxed);
                if state.is_ok() {
                    let state = if make(locks) { MADE } else { FAILED };
                    FORK.state.store(state, Release);
                    wake_waiting();
                }
            }
        }
    };
    kept.restore();
    begun
}

fn wait_for_maker() {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: invariant 4.
    unsafe {
        system_call!(
            libc::SYS_futex,
            FORK.state.as_ptr(),
            operation,
            MAKING,
            forever,
        )
    };
}

fn wake_waiting() {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: invariant 4.
    unsafe { system_call!(libc::SYS_futex, FORK.state.as_ptr(), operation, i32::MAX) };
}

/// While this exists, no signal handler runs on the calling thread, and the thread is not
/// cancelled.
struct SignalsBlocked(u64);

impl SignalsBlocked {
    fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        // SAFETY: invariant 4. The C library's own call would not block the signals that it uses
        // itself, such as the one that cancels threads.
        unsafe {
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
        // SAFETY: invariant 4.
        unsafe {
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
    // SAFETY: invariant 11. The page has nothing else on it.
    unsafe {
        if libc::getauxval(libc::AT_PAGESZ) == PAGE as u64 {
            let page = ptr::from_ref(&FORK);
            system_call!(libc::SYS_madvise, page, PAGE, libc::MADV_WIPEONFORK);
        }
    }
}

/// In the child of a fork: forgets the parent's table, and maps private memory in its place.
///
/// A signal handler may have forked while the thread was changing the table. In the child the
/// thread goes on with that change, which must not reach the parent's table.
pub(crate) extern "C" fn forget_in_child() {
    thread::forget_parent();
    FORK.tag.store(0, Relaxed);
    FORK.state.store(NOT_MADE, Relaxed);
    let place = TABLE.load(Relaxed);
    if !place.is_null() {
        let kept = Errno::keep();
        // If that fails, the parent's table stays mapped, and such a change still reaches it.
        let _ = map(-1, SIZE, place.addr());
        kept.restore();
    }
}

/// The process ends by itself: notes that, and its last name.
pub(crate) fn finish() {
    if let Some(table) = table().filter(|_| process() == PROCESS.load(Relaxed)) {
        // The program may have given itself another title since the table was made.
        name_program(&table.header);
        table.header.end.store(Native::now(), Relaxed);
    }
}

const SIZE: usize = size_of::<Table>();

fn process() -> libc::pid_t {
    // SAFETY: invariant 11.
    unsafe { system_call!(libc::SYS_getpid) as libc::pid_t }
}

/// Makes a table. If that fails, tells the command why.
fn make(locks: u32) -> bool {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    LOCKS.store(locks, Relaxed);
    thread::forget_parent();
    tally::begin();
    let shared = shared();
    if shared.is_some_and(|shared| shared.is_over.load(Relaxed) != 0) {
        return false;
    }
    let table = match mapped() {
        Ok(table) => table,
        Err(error) => {
            if let Some(shared) = shared {
                shared.errno.store(error as u32, Relaxed);
                shared.without_table.fetch_add(1, Relaxed);
            }
            return false;
        }
    };
    PROCESS.store(process(), Relaxed);
    fill_header(table, locks);
    let number = TABLES.fetch_add(1, Relaxed);
    let tag = number % (TAGS as u32 - 2) + 1;
    FORK.tag.store(tag, Release);
    true
}

/// The page that all processes share, if there is one.
fn shared() -> Option<&'static Shared> {
    let known = SHARED_PAGE.load(Acquire);
    // SAFETY: invariant 5 holds for the page as for the table.
    if let Some(known) = unsafe { known.as_ref() } {
        return Some(known);
    }
    let name = Name::new(format_args!("{SHARED}"))?;
    let file = open(&name, libc::O_RDWR).ok()?;
    // SAFETY: invariant 11.
    let length = unsafe { system_call!(libc::SYS_lseek, file, 0, libc::SEEK_END) };
    let has_page = length >= PAGE as libc::c_long;
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
    let mut number = 0;
    let (name, file) = loop {
        let name = match number {
            0 => Name::new(format_args!(".{process}")),
            n => Name::new(format_args!(".{process}.{n}")),
        };
        let name = name.ok_or(libc::ENAMETOOLONG)?;
        match open(&name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL) {
            Ok(file) => break (name, file),
            Err(libc::EEXIST) if number < 1000 => number += 1,
            Err(error) => return Err(error),
        }
    };
    let place = TABLE.load(Relaxed).addr();
    // SAFETY: invariant 11.
    let result = unsafe { system_call!(libc::SYS_ftruncate, file, SIZE as libc::off_t) };
    let mapped = match result {
        0 => map(file, SIZE, place),
        _ => Err(errno()),
    };
    close(file);
    let filled = mapped.and_then(|address| {
        let table = address as *mut Table;
        TABLE.store(table, Release);
        let last = size_of::<Header>().div_ceil(PAGE);
        match (0..last).all(|page| has_memory(address + page * PAGE)) {
            // SAFETY: invariant 5.
            true => Ok(unsafe { &*table }),
            false => Err(libc::ENOSPC),
        }
    });
    if filled.is_err() {
        // SAFETY: invariant 4; the name ends with a zero byte.
        unsafe { system_call!(libc::SYS_unlinkat, libc::AT_FDCWD, name.0, 0) };
    }
    filled
}

/// The limit on the size of a file: to make one larger ends in a signal.
fn largest_file() -> u64 {
    let mut limit = [u64::MAX; 2];
    let none = ptr::null::<[u64; 2]>();
    // SAFETY: invariant 4.
    unsafe {
        system_call!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            none,
            &raw mut limit,
        )
    };
    limit[0]
}

fn open(name: &Name, flags: libc::c_int) -> Result<libc::c_int, libc::c_int> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: invariant 4; the name ends with a zero byte.
    let file = unsafe { system_call!(libc::SYS_openat, libc::AT_FDCWD, name.0, flags, 0o600,) };
    match file {
        0.. => Ok(file as libc::c_int),
        _ => Err(errno()),
    }
}

fn close(file: libc::c_int) {
    // SAFETY: invariant 11; the file is ours.
    unsafe { system_call!(libc::SYS_close, file) };
}

/// Maps a file, or private memory if `file` is -1, at the address `place`, or anywhere if that is
/// 0. The error is an `errno`.
fn map(file: libc::c_int, size: usize, place: usize) -> Result<usize, libc::c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let mut flags = match file {
        -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        _ => libc::MAP_SHARED,
    };
    if place != 0 {
        flags |= libc::MAP_FIXED;
    }
    // SAFETY: invariant 5: a new mapping, or one in the place of a table that no thread uses, since
    // this is the child of a fork and has no table.
    let at = unsafe { system_call!(libc::SYS_mmap, place, size, protection, flags, file, 0) };
    match at {
        -1 => Err(errno()),
        at => Ok(at as usize),
    }
}

fn fill_header(table: &Table, locks: u32) {
    let header = &table.header;
    for page in 0..size_of::<Header>().div_ceil(PAGE) {
        header.present[page / 64].fetch_or(1 << (page % 64), Relaxed);
    }
    header.begin.store(Native::now(), Relaxed);
    header.process.store(process() as u32, Relaxed);
    // SAFETY: invariant 11.
    let parent = unsafe { system_call!(libc::SYS_getppid) };
    header.parent.store(parent as u32, Relaxed);
    record::begin(table);
    order::begin(table);
    header.locks.store(locks, Relaxed);
    let domains = kinlock_linux::topology::domain_count();
    header.domains.store(domains as u32, Relaxed);
    HAS_DOMAINS.store(domains > 1, Relaxed);
    name_program(header);
    header.magic.store(MAGIC, Release);
}

/// The name of a file. It is in a static buffer, since the stack may be as small as the C library
/// permits. Only the thread that makes the table uses the buffer.
struct Name(*const u8);

static NAME: [AtomicU8; environment::ROOM + 32] =
    [const { AtomicU8::new(0) }; environment::ROOM + 32];

impl Name {
    /// The path of the report with something appended. `None` if it is too long.
    fn new(suffix: fmt::Arguments<'_>) -> Option<Self> {
        let mut end = End(0);
        for byte in environment::REPORT_PATH.bytes() {
            end.push(byte).ok()?;
        }
        end.write_fmt(suffix).ok()?;
        end.push(0).ok()?;
        Some(Name(NAME.as_ptr().cast()))
    }
}

/// The end of the name in the buffer so far.
struct End(usize);

impl End {
    fn push(&mut self, byte: u8) -> fmt::Result {
        NAME.get(self.0).ok_or(fmt::Error)?.store(byte, Relaxed);
        self.0 += 1;
        Ok(())
    }
}

impl Write for End {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().try_for_each(|byte| self.push(byte))
    }
}
