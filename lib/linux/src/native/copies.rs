//! Several copies of this library in one process, and what they share.
//!
//! A plugin, a Python extension and a preloaded library each link a copy of their own. They may use
//! one lock: through an ABI, or in a C structure. A lock's word names waiters by number, and its
//! announced readers stand in a table outside of it. So all copies that use one lock have to use
//! one table of slots and one table of readers. They have to agree on the number of forks and on
//! the kind of queue, too.
//!
//! # How copies find each other
//!
//! Through a page of memory at an address that all copies compute alike: the *meeting page*. The
//! first copy that needs a table maps it, with the flag that refuses to replace another mapping. So
//! one copy succeeds, without a lock. A forked child inherits the page, and `exec` removes it. It
//! outlives the copy that mapped it. Nothing here allocates, waits for another thread or calls the
//! loader, so a thread may do all this in a signal handler, before constructors have run, and while
//! another thread holds the loader's lock.
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
//! # Who uses which tables
//!
//! | copy | tables | locks that it shares with other copies |
//! | --- | --- | --- |
//! | of the same *kind* as the first copy | those of the first copy | work |
//! | of another kind, or the 65th | none | see below |
//! | that cannot map the page, or cannot be kept loaded | none | see below |
//!
//! The kind is a hash of the version, of the layout of the tables, and of [`MEANING`], a number
//! that developers raise when they change what the tables mean. A copy without tables is *apart*.
//! Its threads wait without queueing, as those without a slot do, and its readers do not announce
//! themselves. That is slower and less fair, but a lock works whoever else uses it, as long as its
//! word means the same to both.
//!
//! There is one exception: in a read-biased lock readers are announced that this copy cannot find.
//! So it takes the lock for reading only. Attempts to write fail, and waits with a time limit last
//! until the bias is over, which others have to end. A wait without a limit ends the process with a
//! message. This copy never sets the bias itself, so all this happens only with locks that copies
//! share.
//!
//! # Fork
//!
//! Each copy has handlers of its own. In the child the first that runs counts the fork, and the
//! first of those that share tables resets them. It asks each copy which slot and row the forking
//! thread has there.
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
//! 2. The pointer is null, or to a static of this copy, or was read from a meeting page. Those are
//!    to the meeting page, which is never unmapped, or to statics of copies, which are never
//!    unloaded. So they are valid for ever. All are shared references, to atomics and constants.
//! 3. What is at the address is a meeting page: it begins with [`MAGIC`]; or it is all zeros and
//!    one page long, at an address that nothing else asks for, so that another thread has just
//!    mapped it.
//! 4. What a copy of the same kind has written means here what it means there.
//! 5. The name of an object ends with a zero byte, and lives as long as its object is loaded, which
//!    is for ever.
//! 6. `fork` calls a part's `reset_in_child` in the child of a fork, on its only thread.

use super::thread;
use super::{ROWS, TABLE};
use crate::native::Native;
use crate::sys::{KeepErrno, Text, system_call_error, write_stderr};
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::mem::{size_of, transmute};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use kinlock_core::slots::{MEANING, Node, Slot, Waiters};
use kinlock_core::visible_readers::{Row, VisibleReaders};

/// What copies of one kind share. Raise [`MEANING`] if it changes, or the type [`Kept`] does.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Tables {
    /// Where threads wait.
    pub(super) waiters: Waiters<Native>,
    announced: VisibleReaders<Native>,
    /// See [`configured`](kinlock_core::configured): one lock must not mix two kinds of queue.
    pub(super) queue: AtomicU8,
    /// The number of forks when the tables were last reset.
    reset: AtomicU8,
    /// For each copy the address of its function [`kept`]; 0: none yet.
    copies: [AtomicUsize; COPIES],
}

/// How many copies can share tables.
const COPIES: usize = 64;

/// What the first copy offers.
#[repr(C)]
struct Card {
    kind: AtomicU64,
    tables: &'static Tables,
    /// The name of the object with this copy, or null.
    object: AtomicPtr<c_char>,
}

/// The meeting page, or a place for the number of forks in a copy that has no page.
#[repr(C)]
struct Meeting {
    magic: AtomicU64,
    first: AtomicPtr<Card>,
    forks: AtomicU8,
    /// How many serials have been given out. See [`next_serial`].
    serials: AtomicU32,
}

/// "kinlock" and the version of the meaning of lock words.
const MAGIC: u64 = u64::from_le_bytes(*b"kinlock\x01");

static ROWS_IN_USE: AtomicU32 = AtomicU32::new(0);

/// The tables of this copy. In use if it is the first.
static OWN: Tables = Tables {
    waiters: TABLE.waiters(),
    announced: VisibleReaders::new(&ROWS, &ROWS_IN_USE),
    queue: AtomicU8::new(0),
    reset: AtomicU8::new(0),
    copies: [const { AtomicUsize::new(0) }; COPIES],
};

/// For a copy that is apart: no thread gets a slot or a row.
static NONE: Tables = Tables {
    waiters: TABLE.no_waiters(),
    announced: VisibleReaders::new(&ROWS, &ROWS_IN_USE),
    queue: AtomicU8::new(0),
    reset: AtomicU8::new(0),
    copies: [const { AtomicUsize::new(0) }; COPIES],
};

static CARD: Card = Card {
    kind: AtomicU64::new(KIND),
    tables: &OWN,
    object: AtomicPtr::new(ptr::null_mut()),
};

/// In place of the page, where that cannot be mapped.
static ALONE: Meeting = Meeting {
    magic: AtomicU64::new(MAGIC),
    first: AtomicPtr::new(ptr::null_mut()),
    forks: AtomicU8::new(0),
    serials: AtomicU32::new(0),
};

/// This copy may be unloaded, so no other must depend on it.
static APART: AtomicBool = AtomicBool::new(false);
/// Where this copy meets others; null: it has not had to yet.
static MEETING: AtomicPtr<Meeting> = AtomicPtr::new(ptr::null_mut());
/// The tables that it uses; null as above.
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
    let tables = TABLES.load(Acquire);
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

/// A number for something that threads remember by it. Never 0, and never given out before, by this
/// copy or by one with a meeting page. `None`: all numbers are in use.
///
/// Copies with the page count in it, whichever tables they use. One without it counts for itself,
/// from the middle of the numbers on: see [`are_serials_shared`].
pub fn next_serial() -> Option<u32> {
    meeting().next_serial(are_serials_shared())
}

/// Whether this copy takes serials from where others do. If not, another copy without a page may
/// give out the same: what has a serial may be confused with a thing of that copy.
pub fn are_serials_shared() -> bool {
    !ptr::eq(meeting(), &ALONE)
}

/// Serials above this one are those of copies without a page.
const LAST_SHARED: u32 = u32::MAX >> 1;

/// How many forks led to this process; see
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
    // SAFETY: invariant 2. Whoever has the tables sees that this has been set before.
    unsafe { &*MEETING.load(Relaxed) }
}

// ---- meeting ----------------------------------------------------------------------------------

/// Finds out which tables this copy uses. Several threads may do so at once, and agree.
#[cold]
#[inline(never)]
fn join() -> &'static Tables {
    let _errno = KeepErrno::hold();
    let mut meeting = MEETING.load(Acquire);
    if meeting.is_null() {
        let page = if APART.load(Relaxed) {
            None
        } else {
            meeting_page()
        };
        let found = ptr::from_ref(page.unwrap_or(&ALONE)).cast_mut();
        // Only the first of several threads may find that the page cannot be mapped.
        meeting = match MEETING.compare_exchange(ptr::null_mut(), found, AcqRel, Acquire) {
            Ok(_) => found,
            Err(other) => other,
        };
    }
    // SAFETY: invariant 2.
    let offered = unsafe { &*meeting }.first_card();
    let same = |card: &&Card| card.kind.load(Relaxed) == CARD.kind.load(Relaxed);
    let offered = offered.filter(same).map(|card| card.tables);
    let tables = offered
        .filter(|tables| tables.enlist(kept))
        .unwrap_or(&NONE);
    TABLES.store(ptr::from_ref(tables).cast_mut(), Release);
    tables
}

impl Meeting {
    /// See [`next_serial`](next_serial()).
    fn next_serial(&self, shared: bool) -> Option<u32> {
        let given = (self.serials)
            .fetch_update(Relaxed, Relaxed, |given| {
                (given < LAST_SHARED).then_some(given + 1)
            })
            .ok()?;
        Some(given + 1 + if shared { 0 } else { LAST_SHARED })
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
    /// Adds a copy, unless it is there already. `false`: there are too many.
    fn enlist(&self, copy: Kept) -> bool {
        let copy = copy as *const () as usize;
        // Entries are never removed. So two threads that add the same copy agree on its entry.
        self.copies.iter().any(|entry| {
            let found = entry.compare_exchange(0, copy, AcqRel, Acquire);
            found.is_ok() || found == Err(copy)
        })
    }
}

/// The addresses between which the page lies: below those that sanitizers use, and above those of
/// programs that are loaded at a fixed address, with 500 MB of their heap at least.
const ADDRESSES: core::ops::Range<u64> = 0x6000_0000..0x7fe0_0000;

/// The address of the page, and its size. It differs from process to process where the kernel
/// places the stack at random, so that it is of no use to an attacker.
fn place() -> (usize, usize) {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    // SAFETY: invariant 1.
    let (stack, size) = unsafe {
        let size = libc::getauxval(libc::AT_PAGESZ) as usize;
        (libc::getauxval(libc::AT_RANDOM) as usize, size)
    };
    let size = size.max(4096) as u64;
    let pages = (ADDRESSES.end - ADDRESSES.start) / size;
    // An address on the first stack, not the random bytes there, which a program may overwrite.
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
    // Not through the C library's function, which a program may have replaced by its own. Other
    // architectures pass the arguments in other ways.
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

/// How often a thread looks whether the page has been written to, and how often it naps then, for
/// so many nanoseconds.
const LOOKS: u32 = 1000;
const NAPS: u32 = 50;
const NAP: libc::c_long = 200_000;

/// Whether what is mapped at `address` is the meeting page.
fn is_meeting(address: usize, size: usize) -> bool {
    if stays_zero(address, 0).is_none() {
        return false;
    }
    // SAFETY: the page can be read, as the kernel has just done. The number means nothing yet.
    let magic = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(address) };
    let written = |_| {
        core::hint::spin_loop();
        magic.load(Acquire) == MAGIC
    };
    // The thread that has mapped it writes to it at once, unless it is held up. Who finds it before
    // may do so in its place, if it cannot be a part of something larger.
    let alone = || !is_mapped(address - size, size) && !is_mapped(address + size, size);
    if (0..LOOKS).any(written) || magic.load(Acquire) == 0 && alone() {
        return true;
    }
    let nap = |_| stays_zero(address, NAP);
    let changed = (0..NAPS).map(nap).find(|zero| *zero != Some(true));
    changed == Some(Some(false)) && magic.load(Acquire) == MAGIC
}

/// Whether the word at `address` is zero for so many nanoseconds. `None`: it cannot be read.
fn stays_zero(address: usize, nanos: libc::c_long) -> Option<bool> {
    // The kernel reads the word, and waits while it is zero. Of the calls that read memory this is
    // one that waits for locks need anyway, so that no sandbox forbids it.
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
        _ => None,
    }
}

fn is_mapped(address: usize, size: usize) -> bool {
    let mut resident = 0_u8;
    // SAFETY: invariant 1; `resident` has a byte for the one page.
    let result = unsafe { libc::syscall(libc::SYS_mincore, address, size, &raw mut resident) };
    result == 0 || system_call_error() != libc::ENOMEM
}

// ---- fork -------------------------------------------------------------------------------------

/// The number of forks before the one under way. Written and read by the thread that forks, while
/// it has shut the gate of [`fork`](crate::fork).
static FORKS_BEFORE: AtomicU8 = AtomicU8::new(0);

/// Before a fork. From then on this copy and its children have one meeting page.
pub(super) fn before_fork() {
    FORKS_BEFORE.store(forks(), Relaxed);
}

/// Frees the slots of threads that do not exist in the child, and forgets such readers, unless
/// another copy has done so. Signals are blocked meanwhile: a handler could claim a slot that is
/// then declared free.
pub(super) fn reset_in_child() {
    let (meeting, tables) = (meeting(), tables());
    let before = FORKS_BEFORE.load(Relaxed);
    if meeting.forks.load(Relaxed) == before {
        // Never 0 again, and modulo 4 as if it had not wrapped.
        let forks = before.checked_add(1).unwrap_or(252);
        meeting.forks.store(forks, Relaxed);
    }
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
        tables.waiters.reset_in_child_but(is_kept);
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

/// The type of [`kept`].
type Kept = extern "C" fn(&mut Place);

/// What the calling thread has in this copy.
extern "C" fn kept(place: &mut Place) {
    place.slot = thread::kept_slot();
    place.row = thread::kept_row().map_or(ptr::null(), ptr::from_ref);
}

// ---- a copy that is apart ---------------------------------------------------------------------

/// The object with this copy cannot be kept loaded.
#[cfg(not(any(miri, target_feature = "crt-static")))]
pub(super) fn keep_apart() {
    APART.store(true, Relaxed);
}

/// Remembers the name of the object with this copy, for messages of this and other copies.
#[cfg(not(any(miri, target_feature = "crt-static")))]
pub(super) fn set_object(name: *const c_char) {
    CARD.object.store(name.cast_mut(), Release);
}

/// Ends the process: readers are announced at the lock in the tables of another copy, and this copy
/// is apart.
#[cold]
pub(super) fn meet_stranger(lock: *const u32) -> ! {
    let mut line = Text::<1024>::empty();
    let _ = write!(
        line,
        "kinlock: fatal: two copies of this library share the reader-writer lock at {lock:p}, and \
         cannot share their tables of readers: "
    );
    line.push_object(&CARD);
    // SAFETY: invariant 2. A copy that waits for a lock has joined.
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

/// Makes this copy one of another version, for tests. Has no effect once a thread has waited.
pub fn pretend_other_version() {
    CARD.kind.store(!KIND, Relaxed);
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests;
