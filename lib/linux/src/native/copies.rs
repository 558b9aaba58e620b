//! Several copies of this library in one process, and what they share.
//!
//! `docs/guide/copies.md` says which copies meet in a lock, and what they share then: the table of
//! slots, the table of readers, the number of forks and the kind of queue.
//!
//! # How copies find each other
//!
//! They meet on a page of memory, the *meeting page*, at an address that all copies compute alike.
//! Each copy that needs a table tries to map it, with the flag that refuses to replace another
//! mapping. So exactly one copy succeeds, without a lock. A forked child inherits the page, and
//! `exec` removes it. It outlives the copy that mapped it. Nothing here allocates, waits for a lock
//! or calls the loader, so a thread may do all this in a signal handler, before constructors have
//! run, and while another thread holds the loader's lock.
//!
//! ```text
//!   meeting page                 card of the first copy        tables of the first copy
//!     magic                        kind                          slots, rows of readers
//!     first  ------------------>   tables  ------------------>   kind of queue
//!     forks                        name of the object            the copies that use them
//! ```
//!
//! The first copy that writes the address of its card to the page offers its own tables, which are
//! static. They stay, since an object with a copy is never unloaded; see [`start`](super::start).
//!
//! Copies of the same *kind* as the first use its tables. The kind is a hash of the version, of the
//! layout of the tables, and of [`MEANING`], a number that developers raise when they change what
//! the tables mean. A copy of another kind, or the 65th, is *apart*, and so is one that cannot map
//! the page or cannot be kept loaded. It has no tables: its threads wait without queueing, and its
//! readers do not announce themselves. If other copies have biased a lock, it can take that lock
//! for reading only.
//!
//! # Fork
//!
//! Each copy has fork handlers of its own. In the child, the first handler of a copy that knows the
//! page counts the fork. Of the copies that share tables, the first whose handler runs resets them.
//! It asks each of these copies which slot and row the forking thread has there.
//!
//! A plain `clone` and `_Fork` run no handlers. There, the first thread that uses the tables in the
//! child resets them, as far as it can. A page that the kernel clears in children ([`Here`]) tells
//! that thread that it is the first.
//!
//! # Compatibility
//!
//! [`Meeting`] and [`Card`] are for copies of all versions. They never change, except that fields
//! may be added at the end. Where the meaning of a lock word changes, [`MAGIC`] changes.
//!
//! # Invariants cited by `SAFETY` comments
//!
//! 1. `getauxval` has no preconditions. Memory that `mmap` has mapped without replacing anything is
//!    not in use. The other calls get numbers, or addresses which the kernel checks.
//! 2. The pointer points to the meeting page, which is never unmapped, or to a static of this copy
//!    or of one that wrote the address to the page. Such copies are never unloaded, so the pointer
//!    stays valid. All references are shared, and refer to atomics and constants.
//! 3. What is at the address is a meeting page: it begins with [`MAGIC`]; or it is all zeros and
//!    one page long, at an address that nothing else asks for, so that another thread has just
//!    mapped it.
//! 4. What a copy of the same kind has written has the same meaning in this copy.
//! 5. The name of an object ends with a zero byte, and exists as long as the object is loaded. The
//!    object is never unloaded.
//! 6. `fork` calls a part's `reset_in_child` in the child of a fork, on its only thread. Where no
//!    handler runs, one thread of the child does the same before any uses the tables.
//! 7. The key was created and is never deleted. Its values are numbers.

use super::{ROWS, TABLE, kept};
use crate::fork::{self, SignalsBlocked};
use crate::native::Native;
use crate::sys::{KeepErrno, Text, nap, system_call_error, write_stderr};
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::mem::{size_of, transmute};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use kinlock_core::slots::{MEANING, Node, Slot, Waiters};
use kinlock_core::visible_readers::{Row, VisibleReaders};

/// What copies of one kind share. Raise [`MEANING`] if this type or the type [`Kept`] changes.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Tables {
    /// The waiter slots.
    pub(super) waiters: Waiters<Native>,
    announced: VisibleReaders<Native>,
    /// See [`AsConfigured`](kinlock_core::config::AsConfigured): one lock must not mix two kinds of
    /// queue.
    pub(super) queue: AtomicU8,
    /// The number of forks when the tables were last reset.
    reset: AtomicU8,
    /// For each copy that uses these tables, the address of its function [`place_of_thread`]; 0: a
    /// free entry.
    copies: [AtomicUsize; COPIES],
    /// Whether the tables are in use, in this process or in one from which it was forked.
    is_used: AtomicBool,
    /// The page of the copy that owns these tables.
    here: &'static Here,
}

/// A page that the kernel clears in each child, unless the child shares the memory.
#[repr(C, align(4096))]
#[derive(Debug)]
struct Here {
    /// The tables that this copy uses; null: it has not found out yet, or not in this process.
    tables: AtomicPtr<Tables>,
    /// The state of the tables that belong to this copy: 0, then [`BEGINNING`], then [`BEGUN`].
    state: AtomicU32,
}

/// A thread resets the tables, if that is necessary. Other threads wait for it.
const BEGINNING: u32 = 1;
/// No thread of a parent process uses the tables.
const BEGUN: u32 = 2;

const _: () = assert!(size_of::<Here>() == PAGE);
const PAGE: usize = 4096;

static HERE: Here = Here {
    tables: AtomicPtr::new(ptr::null_mut()),
    state: AtomicU32::new(0),
};

/// The number of copies that can share tables.
const COPIES: usize = 64;

/// What the first copy offers to the others.
#[repr(C)]
struct Card {
    kind: AtomicU64,
    tables: &'static Tables,
    /// The name of the object with this copy, or null.
    object: AtomicPtr<c_char>,
}

/// What the meeting page contains. A copy without the page has a static of this type instead, for
/// the number of forks.
#[repr(C)]
struct Meeting {
    magic: AtomicU64,
    first: AtomicPtr<Card>,
    forks: AtomicU8,
    /// The key under which a thread has its number, plus 1; 0: none yet; [`NO_KEY`]: none.
    key: AtomicU32,
    /// The number of threads that have got a number.
    threads: AtomicUsize,
}

/// "kinlock" and the version of the meaning of lock words.
const MAGIC: u64 = u64::from_le_bytes(*b"kinlock\x01");

static ROWS_IN_USE: AtomicU32 = AtomicU32::new(0);

impl Tables {
    const fn new(waiters: Waiters<Native>) -> Self {
        Tables {
            waiters,
            announced: VisibleReaders::new(&ROWS, &ROWS_IN_USE),
            queue: AtomicU8::new(0),
            reset: AtomicU8::new(0),
            copies: [const { AtomicUsize::new(0) }; COPIES],
            is_used: AtomicBool::new(false),
            here: &HERE,
        }
    }
}

/// The tables of this copy. They are used only if it is the first copy.
static OWN: Tables = Tables::new(TABLE.waiters());

/// The tables of a copy that is apart: no thread gets a slot or a row.
static NONE: Tables = Tables::new(TABLE.no_waiters());

static CARD: Card = Card {
    kind: AtomicU64::new(KIND),
    tables: &OWN,
    object: AtomicPtr::new(ptr::null_mut()),
};

/// Used instead of the meeting page if this copy cannot map the page, or is apart.
static ALONE: Meeting = Meeting::NEW;

/// Whether this copy may be unloaded, so that no other copy must depend on it.
static APART: AtomicBool = AtomicBool::new(false);
/// The meeting page, or [`ALONE`]; null: this copy has not looked for the page yet.
static MEETING: AtomicPtr<Meeting> = AtomicPtr::new(ptr::null_mut());
/// The tables that this copy uses; null: it has not found out yet. A child inherits this.
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());

/// Copies with different numbers here do not use each other's tables.
const KIND: u64 = kind(MEANING);

const fn kind(meaning: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let mut at = 0;
    while at < version.len() {
        hash = mixed(hash, version[at] as u64);
        at += 1;
    }
    hash = mixed(hash, meaning);
    let sizes = [
        size_of::<Node<Native>>(),
        size_of::<Slot<Native>>(),
        size_of::<Row<Native>>(),
        size_of::<Waiters<Native>>(),
        size_of::<VisibleReaders<Native>>(),
        size_of::<Tables>(),
        super::SLOTS,
        ROWS.len(),
    ];
    let mut at = 0;
    while at < sizes.len() {
        hash = mixed(hash, sizes[at] as u64);
        at += 1;
    }
    hash
}

/// Fowler, Noll and Vo's hash, a number at a time.
const fn mixed(hash: u64, number: u64) -> u64 {
    (hash ^ number).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The tables that this copy uses.
#[inline]
pub(super) fn tables() -> &'static Tables {
    if cfg!(miri) {
        return &OWN;
    }
    let tables = HERE.tables.load(Acquire);
    if tables.is_null() {
        return join();
    }
    // SAFETY: invariant 2.
    unsafe { &*tables }
}

/// The table in which readers announce themselves; `None` if this copy is apart.
#[inline]
pub(super) fn visible_readers() -> Option<&'static VisibleReaders<Native>> {
    let tables = tables();
    (!ptr::eq(tables, &NONE)).then_some(&tables.announced)
}

/// An odd number for the calling thread, the same in all copies. No other thread of this process,
/// or of a process from which it was forked, has ever had this number. `None` if this copy has no
/// meeting page.
pub(super) fn number_of_thread() -> Option<usize> {
    let meeting = meeting();
    (!ptr::eq(meeting, &ALONE)).then(|| meeting.number_of_thread())
}

/// No key could be made, or only keys whose values need an allocation. Copies then have different
/// numbers for a thread.
const NO_KEY: u32 = u32::MAX;

/// The number of forks that led to this process; see
/// [`Platform::forks`](kinlock_core::platform::Platform::forks).
#[inline]
pub(super) fn forks() -> u8 {
    meeting().forks.load(Relaxed)
}

#[inline]
fn meeting() -> &'static Meeting {
    if cfg!(miri) {
        return &ALONE;
    }
    tables();
    // SAFETY: invariant 2. Not null: `join` sets it before it sets the tables, which are set now.
    unsafe { &*MEETING.load(Relaxed) }
}

// ---- meeting ----------------------------------------------------------------------------------

/// Finds out which tables this copy uses. If several threads do this at once, all find the same
/// tables.
#[cold]
#[inline(never)]
fn join() -> &'static Tables {
    let _errno = KeepErrno::hold();
    let mut tables: *const Tables = TABLES.load(Acquire);
    if tables.is_null() {
        clear_in_children();
        tables = choose();
        TABLES.store(tables.cast_mut(), Release);
    }
    // SAFETY: invariant 2.
    let tables = unsafe { &*tables };
    begin(tables);
    HERE.tables.store(ptr::from_ref(tables).cast_mut(), Release);
    tables
}

fn choose() -> &'static Tables {
    let mut meeting = MEETING.load(Acquire);
    if meeting.is_null() {
        let page = if APART.load(Relaxed) {
            None
        } else {
            meeting_page()
        };
        let found = ptr::from_ref(page.unwrap_or(&ALONE)).cast_mut();
        // Threads may differ on whether the page can be mapped. What the first one found counts.
        meeting = match MEETING.compare_exchange(ptr::null_mut(), found, AcqRel, Acquire) {
            Ok(_) => found,
            Err(other) => other,
        };
    }
    // SAFETY: invariant 2.
    let found = unsafe { &*meeting };
    KNOWN_FORKS.store(found.forks.load(Relaxed), Relaxed);
    let offered = found.first_card();
    let same = |card: &&Card| card.kind.load(Relaxed) == CARD.kind.load(Relaxed);
    let offered = offered.filter(same).map(|card| card.tables);
    offered
        .filter(|tables| tables.enlist(place_of_thread))
        .unwrap_or(&NONE)
}

impl Meeting {
    const NEW: Self = Meeting {
        magic: AtomicU64::new(MAGIC),
        first: AtomicPtr::new(ptr::null_mut()),
        forks: AtomicU8::new(0),
        key: AtomicU32::new(0),
        threads: AtomicUsize::new(0),
    };

    fn number_of_thread(&self) -> usize {
        let key = self.key();
        // SAFETY: invariant 7.
        let known = key.map_or(0, |key| unsafe { libc::pthread_getspecific(key) }.addr());
        if known != 0 {
            return known;
        }
        let number = self.threads.fetch_add(1, Relaxed) << 1 | 1;
        if let Some(key) = key {
            // SAFETY: invariant 7.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(number)) };
        }
        number
    }

    fn key(&self) -> Option<libc::pthread_key_t> {
        let mut key = self.key.load(Relaxed);
        if key == 0 {
            let mine = super::key::without_allocation(None);
            let made = mine.map_or(NO_KEY, |mine| mine + 1);
            match self.key.compare_exchange(0, made, Relaxed, Relaxed) {
                Ok(_) => key = made,
                Err(other) => {
                    key = other;
                    // SAFETY: it was just made, and no thread has a value for it.
                    mine.map(|mine| unsafe { libc::pthread_key_delete(mine) });
                }
            }
        }
        (key != NO_KEY).then(|| key - 1)
    }

    /// The card of the first copy, which may be this one. `None` without a page.
    fn first_card(&self) -> Option<&'static Card> {
        if ptr::eq(self, &ALONE) {
            return None;
        }
        let own = ptr::from_ref(&CARD).cast_mut();
        // Release: publishes this copy's statics, as far as they have changed.
        let first = match self
            .first
            .compare_exchange(ptr::null_mut(), own, AcqRel, Acquire)
        {
            Ok(_) => own,
            Err(other) => other,
        };
        // SAFETY: invariant 2.
        Some(unsafe { &*first })
    }
}

impl Tables {
    /// Adds a copy, unless it is there already. `false`: there is no room for another one.
    fn enlist(&self, copy: Kept) -> bool {
        let copy = copy as *const () as usize;
        // Entries are never removed. So two threads that add the same copy agree on its entry.
        self.copies.iter().any(|entry| {
            let found = entry.compare_exchange(0, copy, AcqRel, Acquire);
            found.is_ok() || found == Err(copy)
        })
    }
}

/// The addresses between which the page lies. Sanitizers use addresses above these. Programs that
/// are loaded at a fixed address lie below these, with at least 500 MB of their heap.
const ADDRESSES: core::ops::Range<u64> = 0x6000_0000..0x7fe0_0000;

/// The address of the page, and its size. Where the kernel places the stack at random, the address
/// differs from process to process, so that an attacker cannot know it.
fn place() -> (usize, usize) {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    // SAFETY: invariant 1.
    let (stack, size) = unsafe {
        let size = libc::getauxval(libc::AT_PAGESZ) as usize;
        (libc::getauxval(libc::AT_RANDOM) as usize, size)
    };
    let size = size.max(4096) as u64;
    let pages = (ADDRESSES.end - ADDRESSES.start) / size;
    // Computed from an address on the main thread's stack, and not from the random bytes that are
    // there, since a program may overwrite those.
    let number = ((stack as u64).wrapping_mul(ODD) >> 32) % pages;
    let address = ADDRESSES.start.next_multiple_of(size) + number * size;
    (address as usize, size as usize)
}

/// The meeting page, mapped by this copy or another. `None` if that is impossible.
fn meeting_page() -> Option<&'static Meeting> {
    let (address, size) = place();
    let page: *const Meeting = ptr::with_exposed_provenance(address);
    if !map(address, size)? && !is_meeting(address, size) {
        return None;
    }
    // SAFETY: invariants 1 and 3.
    let page = unsafe { &*page };
    let begun = page.magic.compare_exchange(0, MAGIC, AcqRel, Acquire);
    (begun.is_ok() || begun == Err(MAGIC)).then_some(page)
}

/// Maps the page (`true`), or finds that something is there (`false`).
fn map(address: usize, size: usize) -> Option<bool> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // The C library's function is avoided, as a program may have replaced it by its own. It is used
    // on other architectures only because they pass the arguments of the system call in other ways.
    // SAFETY: invariant 1.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let mapped = unsafe {
        let offset: libc::off_t = 0;
        libc::syscall(libc::SYS_mmap, address, size, access, flags, -1, offset) as usize
    };
    // SAFETY: invariant 1.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let mapped = unsafe {
        let wanted = ptr::without_provenance_mut(address);
        libc::mmap(wanted, size, access, flags, -1, 0).addr()
    };
    if mapped == address {
        Some(true)
    } else if mapped == usize::MAX {
        (system_call_error() == libc::EEXIST).then_some(false)
    } else {
        // A kernel that does not know the flag has mapped another page.
        // SAFETY: invariant 1: it was mapped just now.
        unsafe { libc::syscall(libc::SYS_munmap, mapped, size) };
        Some(false)
    }
}

/// How often a thread looks whether the page has been written to, before it begins to nap.
const LOOKS: u32 = 1000;
/// How often it then naps between looks.
const NAPS: u32 = 50;
/// How many nanoseconds a nap lasts.
const NAP: libc::c_long = 200_000;

/// Whether what is mapped at `address` is the meeting page.
fn is_meeting(address: usize, size: usize) -> bool {
    if stays_zero(address, 0).is_none() {
        return false;
    }
    // SAFETY: the page can be read, as the kernel has just read it. Nothing yet relies on what the
    // number means.
    let magic = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(address) };
    let written = |_| {
        core::hint::spin_loop();
        magic.load(Acquire) == MAGIC
    };
    // The thread that maps the page writes the number at once, unless it is held up. A thread that
    // finds the page still empty may write the number in its place, but only if the page is not
    // part of a larger mapping: that would be memory of something else.
    let alone = || !is_mapped(address - size, size) && !is_mapped(address + size, size);
    if (0..LOOKS).any(written) || magic.load(Acquire) == 0 && alone() {
        return true;
    }
    let nap = |_| stays_zero(address, NAP);
    let changed = (0..NAPS).map(nap).find(|zero| *zero != Some(true));
    changed == Some(Some(false)) && magic.load(Acquire) == MAGIC
}

/// Whether the word at `address` stays zero for `nanos` nanoseconds, or until a signal comes.
/// `None`: it cannot be read.
fn stays_zero(address: usize, nanos: libc::c_long) -> Option<bool> {
    // The kernel reads the word and, if it is zero, waits.
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanos,
    };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: invariant 1; the time is a live local.
    let woken = unsafe { libc::syscall(libc::SYS_futex, address, wait, 0, &raw const time) };
    match (woken, system_call_error()) {
        (0, _) | (_, libc::ETIMEDOUT | libc::EINTR) => Some(true),
        (_, libc::EAGAIN) => Some(false),
        (_, libc::EFAULT | libc::EINVAL) => None,
        // A filter of system calls refuses to wait.
        _ if !is_readable(address) => None,
        _ => {
            nap(nanos as u32);
            // SAFETY: invariant 1; the kernel has just read it.
            let word = unsafe { &*ptr::with_exposed_provenance::<AtomicU32>(address) };
            Some(word.load(Acquire) == 0)
        }
    }
}

/// Whether eight bytes at `address` can be read. The kernel reads a set of signals there before it
/// finds that it is not told what to do with them. No filter can refuse that call to a program that
/// has threads.
fn is_readable(address: usize) -> bool {
    const NOTHING: libc::c_int = -1;
    const SIZE: usize = 8;
    let old = ptr::null_mut::<u64>();
    // SAFETY: invariant 1.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NOTHING, address, old, SIZE) };
    system_call_error() == libc::EINVAL
}

fn is_mapped(address: usize, size: usize) -> bool {
    let mut resident = 0_u8;
    // SAFETY: invariant 1; `resident` has a byte for the one page.
    let result = unsafe { libc::syscall(libc::SYS_mincore, address, size, &raw mut resident) };
    result == 0 || system_call_error() != libc::ENOMEM
}

// ---- fork -------------------------------------------------------------------------------------

/// Has the kernel clear [`HERE`] in children. Kernels before 4.14 cannot, and a page above 4 KiB
/// would hold other variables, too. Then only the fork handler resets the tables.
fn clear_in_children() {
    // SAFETY: invariant 1.
    unsafe {
        if libc::getauxval(libc::AT_PAGESZ) == PAGE as u64 {
            let page = ptr::from_ref(&HERE);
            libc::syscall(libc::SYS_madvise, page, PAGE, libc::MADV_WIPEONFORK);
        }
    }
}

/// Called by the first threads that use the tables in this process by way of this copy. In a child
/// that no fork handler has announced, the first thread of all resets the tables, and others wait
/// for it. No thread has used the tables in this process before.
fn begin(tables: &'static Tables) {
    let state = &tables.here.state;
    if state.load(Acquire) == BEGUN {
        return;
    }
    // A signal handler must not wait for its own thread.
    let _blocked = SignalsBlocked::new();
    // Acquire pairs with the release of the thread that has reset the tables.
    while let Err(found) = state.compare_exchange(0, BEGINNING, Acquire, Acquire) {
        if found == BEGUN {
            return;
        }
        nap(NAP as u32);
    }
    if tables.is_used.swap(true, Relaxed) && !fork::is_announced() {
        reset_unannounced(tables);
    }
    state.store(BEGUN, Release);
}

/// In the child of a plain `clone`: counts the fork, and marks the nodes of the parent's waiters.
///
/// This thread may not be the one that cloned, so nobody knows which slot and which row that one
/// has: all stay in use. So what the parent's other threads hold for reading stays held.
fn reset_unannounced(tables: &'static Tables) {
    // SAFETY: invariant 2. Not null: this copy has chosen tables.
    let meeting = unsafe { &*MEETING.load(Acquire) };
    let forks = next_generation(meeting.forks.load(Relaxed));
    meeting.forks.store(forks, Relaxed);
    KNOWN_FORKS.store(forks, Relaxed);
    tables.reset.store(forks, Relaxed);
    // SAFETY: invariant 6: the other threads do not use the tables yet. No slot is freed.
    unsafe { tables.waiters.reset_in_child(|_| true) };
    super::load::reset_in_child();
    crate::topology::reset_in_child();
}

/// After 255 comes 252: the number is never 0 again, and modulo 4 it is what 256 would be.
fn next_generation(forks: u8) -> u8 {
    forks.checked_add(1).unwrap_or(252)
}

/// The number of forks that this copy knows of. It differs from the number on the meeting page only
/// in the child of a fork, from when the first copy has counted the fork until this copy is reset.
static KNOWN_FORKS: AtomicU8 = AtomicU8::new(0);

/// Counts the fork, and frees the slots and the announced readers of threads that do not exist in
/// the child, unless another copy has already done so. Signals are blocked during this: a handler
/// could otherwise claim a slot that is then declared free.
pub(super) fn reset_in_child() {
    if TABLES.load(Acquire).is_null() {
        // No lock that this copy has used names a waiter or a fork.
        return;
    }
    let (meeting, tables) = (meeting(), tables());
    let known = KNOWN_FORKS.load(Relaxed);
    if meeting.forks.load(Relaxed) == known {
        meeting.forks.store(next_generation(known), Relaxed);
    }
    KNOWN_FORKS.store(meeting.forks.load(Relaxed), Relaxed);
    let forks = meeting.forks.load(Relaxed);
    if ptr::eq(tables, &NONE) || tables.reset.swap(forks, Relaxed) == forks {
        return;
    }
    let mut places = [Place::NONE; COPIES];
    for (place, copy) in places.iter_mut().zip(&tables.copies) {
        let copy = copy.load(Acquire);
        if copy != 0 {
            // SAFETY: invariants 2 and 4: it is a function of this type.
            let kept = unsafe { transmute::<*const (), Kept>(ptr::with_exposed_provenance(copy)) };
            kept(place);
        }
    }
    let is_kept = |slot| places.iter().any(|place| place.slot == slot);
    let is_own = |row: &Row<Native>| places.iter().any(|place| ptr::eq(place.row, row));
    // SAFETY: invariant 6.
    unsafe {
        tables.waiters.reset_in_child(is_kept);
        tables.announced.reset_in_child(is_own);
    }
}

/// What the calling thread has in one copy: its slot, or 0, and its row, or null.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    slot: u16,
    row: *const Row<Native>,
}

impl Place {
    const NONE: Self = Place {
        slot: 0,
        row: ptr::null(),
    };
}

/// The type of [`place_of_thread`].
type Kept = extern "C" fn(&mut Place);

/// Writes what the calling thread has in this copy to `place`.
extern "C" fn place_of_thread(place: &mut Place) {
    place.slot = kept::slot();
    place.row = kept::row().map_or(ptr::null(), ptr::from_ref);
}

// ---- a copy that is apart ---------------------------------------------------------------------

/// Keeps this copy apart from all others, because the object that contains it may be unloaded.
#[cfg(not(any(miri, target_feature = "crt-static")))]
pub(super) fn keep_apart() {
    APART.store(true, Relaxed);
}

/// Remembers the name of the object with this copy, for messages of this and other copies.
#[cfg(not(any(miri, target_feature = "crt-static")))]
pub(super) fn set_object(name: *const c_char) {
    CARD.object.store(name.cast_mut(), Release);
}

/// Ends the process: another copy has announced readers of this lock in its tables, and this copy
/// is apart, so that it cannot wait for them.
#[cold]
pub(super) fn abort_on_foreign_readers(lock: *const u32) -> ! {
    let mut line = Text::<1024>::empty();
    let _ = write!(
        line,
        "kinlock: fatal: two copies of this library share the reader-writer lock at {lock:p}, and \
         cannot share their tables of readers: "
    );
    line.push_object(&CARD);
    // SAFETY: invariant 2. Not null: a copy that waits for a lock has called `join`.
    match unsafe { &*MEETING.load(Acquire) }.first_card() {
        Some(first) if !ptr::eq(first, &CARD) => {
            let _ = line.write_str(" and ");
            line.push_object(first);
            let _ = line.write_str(
                ". Build all with the same version of kinlock, or let them share no lock\n",
            );
        }
        _ => {
            let _ = line.write_str(" could not map the page by which copies find each other\n");
        }
    }
    write_stderr(line.as_bytes());
    // SAFETY: invariant 1.
    unsafe { libc::abort() }
}

impl<const N: usize> Text<N> {
    /// The name of the object with a copy.
    fn push_object(&mut self, card: &Card) {
        let name = card.object.load(Acquire);
        // SAFETY: invariant 5.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
        let name = name.filter(|name| !name.is_empty());
        let known = name.unwrap_or(b"an object without a name");
        known.iter().take(300).for_each(|&byte| self.push(byte));
    }
}

/// For tests: from now on other copies take this one for a copy of another version. This has no
/// effect once a thread has waited.
pub fn pretend_other_version() {
    CARD.kind.store(!KIND, Relaxed);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
