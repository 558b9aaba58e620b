//! The table's memory, and finding entries in it.

use super::uses::use_of;
use super::{Object, merge, modules, tally};
use crate::environment;
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use kinlock_core::Native;
use kinlock_core::platform::Platform;
use kinlock_report::{ENDED, FREED, LOCKS, Lock, MAGIC, Table, Thread};

unsafe extern "C" {
    safe fn kinlock_forked();
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// The process whose table it is: a child of `vfork` has none.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether the machine has several locality domains.
static HAS_DOMAINS: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn has_domains() -> bool {
    HAS_DOMAINS.load(Relaxed)
}

#[inline]
pub(crate) fn table() -> Option<&'static Table> {
    // SAFETY: invariant 5: it is null or the table, which is never unmapped. Zeros are valid.
    unsafe { TABLE.load(Acquire).as_ref() }
}

// ---- numbers --------------------------------------------

/// Adds to a number that other threads add to.
pub(super) fn add(number: &AtomicU64, n: u64) {
    number.fetch_add(n, Relaxed);
}

/// Adds to a number that only this thread changes now.
#[inline]
pub(super) fn bump(number: &AtomicU64, n: u64) {
    number.store(number.load(Relaxed).wrapping_add(n), Relaxed);
}

pub(super) fn raise(number: &AtomicU64, n: u64) {
    if number.load(Relaxed) < n {
        number.store(n, Relaxed);
    }
}

// ---- finding entries ------------------------------------

/// How far from its place an entry may be.
const REACH: usize = 64;

pub(super) fn scattered(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[inline]
fn first_place(address: u64) -> usize {
    scattered(address) as usize % LOCKS
}

/// The entry of a lock: its index plus 1, and itself.
#[inline]
pub(super) fn lock_at(table: &Table, address: u64) -> Option<(u32, &Lock)> {
    let first = first_place(address);
    for step in 0..REACH {
        let at = (first + step) % LOCKS;
        let lock = &table.locks[at];
        match lock.address.load(Relaxed) {
            0 => return None,
            known if known == address => return Some((at as u32 + 1, lock)),
            _ => {}
        }
    }
    None
}

/// The same, for the lock's holder; it is added if it is missing.
#[inline]
pub(super) fn lock_of_holder<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    lock_at(table, object.address).or_else(|| new_lock(table, object))
}

/// Numbers of locks, from 1 on: those of a few locks that are used together have different places.
fn new_serial() -> u32 {
    static SERIALS: AtomicU32 = AtomicU32::new(0);
    loop {
        let serial = SERIALS.fetch_add(1, Relaxed).wrapping_add(1);
        if serial != 0 {
            return serial;
        }
    }
}

#[cold]
#[inline(never)]
fn new_lock<'a>(table: &'a Table, object: Object<'_>) -> Option<(u32, &'a Lock)> {
    let (at, _) = place(
        |at| &table.locks[at].address,
        object.address,
        first_place(object.address),
        LOCKS,
        |at| {
            table.locks[at].kind.store(object.kind, Relaxed);
            table.locks[at].serial.store(new_serial(), Relaxed);
        },
    )?;
    // So that one that lies in a shared object can be named.
    modules::note(table, object.address);
    Some((at as u32 + 1, &table.locks[at]))
}

/// Finds the entry with a key, or takes a free one for it. With its index, and whether it is new.
pub(super) fn place<'a>(
    key_at: impl Fn(usize) -> &'a AtomicU64,
    key: u64,
    first: usize,
    size: usize,
    fill: impl Fn(usize),
) -> Option<(usize, bool)> {
    // Another thread may take the same free one: then once more.
    for _ in 0..8 {
        let mut free = None;
        for step in 0..REACH {
            let at = (first + step) % size;
            match key_at(at).load(Relaxed) {
                known if known == key => return Some((at, false)),
                FREED => free = free.or(Some((at, FREED))),
                0 => {
                    free = free.or(Some((at, 0)));
                    break;
                }
                _ => {}
            }
        }
        let (at, seen) = free?;
        let taken = key_at(at).compare_exchange(seen, key, Relaxed, Relaxed);
        if taken.is_ok() {
            fill(at);
            return Some((at, true));
        }
    }
    None
}

#[cold]
#[inline(never)]
pub(super) fn new_thread<'a>(
    table: &'a Table,
    thread: &'a Thread,
    token: u32,
) -> Option<&'a Thread> {
    let taken = thread
        .token
        .compare_exchange(0, token, Relaxed, Relaxed)
        .is_ok();
    taken.then_some(())?;
    table.header.threads.fetch_add(1, Relaxed);
    thread.begin.store(Native::now(), Relaxed);
    let mut name = [0_u8; 16];
    let kept = Errno::keep();
    // SAFETY: invariant 4; a name has at most 16 bytes.
    unsafe {
        thread
            .id
            .store(libc::syscall(libc::SYS_gettid) as u32, Relaxed);
        libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr());
    }
    kept.restore();
    for (to, from) in thread.name.iter().zip(name) {
        to.store(from, Relaxed);
    }
    Some(thread)
}

// ---- locks that end -------------------------------------

/// How many ended locks keep their entries: of those first taken by the same callers, and in all.
const KEPT: u32 = 64;
const KEPT_IN_ALL: u32 = LOCKS as u32 / 4;

/// A lock has ended. It keeps its entry, or joins others that were first taken by the same callers,
/// so that a program may use any number of locks, one after the other.
#[cold]
pub(super) fn end(table: &Table, index: u32, lock: &Lock) {
    let first = lock.first.load(Relaxed) as usize;
    let stack = first.checked_sub(1).and_then(|at| table.stacks.get(at));
    let in_all = table.header.ended.fetch_add(1, Relaxed);
    let others = stack.and_then(|stack| {
        let count = stack.ended_count.fetch_add(1, Relaxed);
        if count < KEPT && in_all < KEPT_IN_ALL {
            return None;
        }
        let joined = stack.ended.compare_exchange(0, index, AcqRel, Acquire);
        let index = joined.err()?;
        Some((index, table.locks.get(index as usize - 1)?))
    });
    match others {
        Some((index, others)) => {
            add(&others.ended, 1);
            join(table, lock, others, index);
            lock.address.store(FREED, Release);
        }
        None => {
            add(&lock.ended, 1);
            let address = lock.address.load(Relaxed);
            lock.address.store(address | ENDED, Relaxed);
        }
    }
}

/// Moves all numbers of a lock that ended, and clears it.
fn join(table: &Table, lock: &Lock, others: &Lock, index: u32) {
    let mut at = lock.uses.swap(0, Acquire);
    while let Some(from) = at.checked_sub(1).and_then(|at| table.uses.get(at as usize)) {
        let stack = from.key.load(Relaxed) as u32;
        if let (_, Some(to)) = use_of(table, index, others, stack) {
            to.wait_max.fetch_max(from.wait_max.load(Relaxed), Relaxed);
            merge(&[
                (&from.contended, &to.contended),
                (&from.wait_ns, &to.wait_ns),
                (&from.held, &to.held),
                (&from.hold_ns, &to.hold_ns),
            ]);
        }
        at = from.before.swap(0, Relaxed);
        for number in [
            &from.contended,
            &from.wait_ns,
            &from.wait_max,
            &from.held,
            &from.hold_ns,
        ] {
            number.store(0, Relaxed);
        }
        from.key.store(FREED, Release);
    }
    for (from, to) in [
        (&lock.wait_max, &others.wait_max),
        (&lock.hold_max, &others.hold_max),
    ] {
        to.fetch_max(from.swap(0, Relaxed), Relaxed);
    }
    merge(&[
        (&lock.locked, &others.locked),
        (&lock.changed, &others.changed),
        (&lock.remote, &others.remote),
        (&lock.held, &others.held),
        (&lock.hold_ns, &others.hold_ns),
        (&lock.samples, &others.samples),
        (&lock.nested, &others.nested),
        (&lock.contended, &others.contended),
        (&lock.wait_ns, &others.wait_ns),
        (&lock.timeouts, &others.timeouts),
        (&lock.tries, &others.tries),
        (&lock.failed, &others.failed),
    ]);
    for (from, to) in lock.threads.iter().zip(&others.threads) {
        to.fetch_or(from.swap(0, Relaxed), Relaxed);
    }
    let classes = lock.waits.iter().zip(&others.waits);
    for (from, to) in classes.chain(lock.holds.iter().zip(&others.holds)) {
        let n = from.swap(0, Relaxed);
        if n != 0 {
            to.fetch_add(n, Relaxed);
        }
    }
    for number in [
        &lock.record,
        &lock.serial,
        &lock.last,
        &lock.domain,
        &lock.gap,
        &lock.first,
    ] {
        number.store(0, Relaxed);
    }
}

// ---- the memory -----------------------------------------

/// How making the table went.
pub(crate) enum Begun {
    Done,
    Failed,
    NotYet,
}

const MAKING: u32 = 1;
const MADE: u32 = 2;
const FAILED: u32 = 3;

/// Makes the table, once; `locks` says which ones there are.
pub(crate) fn begin(path: &[u8], locks: u32) -> Begun {
    static STATE: AtomicU32 = AtomicU32::new(0);
    let state = STATE.compare_exchange(0, MAKING, Relaxed, Relaxed);
    match state.unwrap_or_else(|state| state) {
        MADE => return Begun::Done,
        FAILED => return Begun::Failed,
        MAKING => return Begun::NotYet,
        _ => {}
    }
    let kept = Errno::keep();
    modules::begin();
    tally::begin();
    let made = make(path, ptr::null_mut(), locks);
    TABLE.store(made.unwrap_or(ptr::null_mut()), Release);
    kept.restore();
    STATE.store(if made.is_some() { MADE } else { FAILED }, Relaxed);
    match made {
        Some(_) => Begun::Done,
        None => Begun::Failed,
    }
}

/// A child of a fork has a table of its own, in the same place.
pub(crate) extern "C" fn begin_in_child() {
    kinlock_forked();
    let place = TABLE.load(Relaxed);
    if place.is_null() {
        return;
    }
    let path = environment::REPORT_PATH.get();
    let length = path.iter().position(|&byte| byte == 0).unwrap_or(0);
    // SAFETY: invariant 5.
    let locks = unsafe { (*place).header.locks.load(Relaxed) };
    if make(&path[..length], place, locks).is_none() {
        // Nobody reads that one, but the parent's must not be written.
        map(-1, place);
    }
}

/// The process has ended by itself.
pub(crate) fn finish() {
    // SAFETY: `getpid` has no preconditions.
    if let Some(table) = table().filter(|_| unsafe { libc::getpid() } == PROCESS.load(Relaxed)) {
        table.header.end.store(Native::now(), Relaxed);
    }
}

/// A file `PATH.PROCESS`, or `PATH.PROCESS.N` if this process was another program before, mapped.
fn make(path: &[u8], place: *mut Table, locks: u32) -> Option<*mut Table> {
    // SAFETY: `getpid` has no preconditions.
    let process = unsafe { libc::getpid() };
    let mut name = Name {
        bytes: [0; environment::ROOM + 32],
        length: 0,
    };
    let mut file = -1;
    for number in 0..100 {
        name.length = 0;
        name.bytes = [0; environment::ROOM + 32];
        let base = core::str::from_utf8(path).ok()?;
        let suffix = |name: &mut Name| match number {
            0 => write!(name, "{base}.{process}"),
            n => write!(name, "{base}.{process}.{n}"),
        };
        suffix(&mut name).ok()?;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: invariant 4; the name ends with a zero byte.
        file = unsafe { libc::open(name.bytes.as_ptr().cast(), flags, 0o600) };
        // SAFETY: it has no preconditions.
        if file >= 0 || unsafe { *libc::__errno_location() } != libc::EEXIST {
            break;
        }
    }
    // All of it now: a page that the file has no room for would end the program.
    // SAFETY: invariant 4.
    let has_room = file >= 0 && unsafe { libc::fallocate(file, 0, 0, SIZE as libc::off_t) } == 0;
    let made = has_room.then(|| map(file, place)).flatten();
    if file >= 0 {
        // SAFETY: the file is ours.
        unsafe { libc::close(file) };
    }
    match made {
        Some(made) => begin_table(made, process, locks),
        None => {
            environment::write_stderr(b"kinlock: no report: cannot write ");
            name.bytes[name.length] = b'\n';
            environment::write_stderr(&name.bytes[..=name.length]);
        }
    }
    made
}

const SIZE: usize = size_of::<Table>();

fn map(file: libc::c_int, place: *mut Table) -> Option<*mut Table> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let mut flags = if file < 0 {
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
    } else {
        libc::MAP_SHARED
    };
    if !place.is_null() {
        flags |= libc::MAP_FIXED;
    }
    // SAFETY: a new mapping, or one in place of the table, which no thread uses: there is only one
    // after a fork.
    let at = unsafe { libc::mmap(place.cast(), SIZE, protection, flags, file, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

fn begin_table(made: *mut Table, process: libc::pid_t, locks: u32) {
    PROCESS.store(process, Relaxed);
    // SAFETY: invariant 5.
    let header = unsafe { &(*made).header };
    header.begin.store(Native::now(), Relaxed);
    header.process.store(process as u32, Relaxed);
    // SAFETY: invariant 5.
    super::record::begin(unsafe { &*made });
    header.locks.store(locks, Relaxed);
    let domains = kinlock_core::topology::domain_count();
    header.domains.store(domains as u32, Relaxed);
    HAS_DOMAINS.store(domains > 1, Relaxed);
    let program = environment::program();
    for (to, from) in header.program.iter().zip(program.iter().take(63)) {
        to.store(*from, Relaxed);
    }
    header.magic.store(MAGIC, Release);
}

/// A path in a fixed buffer, which ends with a zero byte.
struct Name {
    bytes: [u8; environment::ROOM + 32],
    length: usize,
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        if end + 1 >= self.bytes.len() {
            return Err(fmt::Error);
        }
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The calling thread's `errno`: a program may look at it after it has taken a lock.
struct Errno(libc::c_int);

impl Errno {
    fn keep() -> Self {
        // SAFETY: it is the calling thread's.
        Errno(unsafe { *libc::__errno_location() })
    }

    fn restore(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
