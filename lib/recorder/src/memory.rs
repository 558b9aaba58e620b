//! The table's memory: whether there is a table, and which of its pages may be touched.
//!
//! Memory is asked for by plain system calls, which are not cancellation points and which the
//! program cannot have replaced, and `errno` is restored. If there is none, that must not end in a
//! signal.

use super::mode::window;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use kinlock_report::{Header, PAGE, Table};

/// A system call: what it returns, or why it failed. A program may read `errno` after it has taken
/// a lock, so `errno` is restored. Each argument is widened to a register, since the upper half of
/// a shorter one would be arbitrary.
macro_rules! system_call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let _kept = kinlock_linux::sys::KeepErrno::hold();
        match libc::syscall($number $(, $argument as libc::c_long)*) {
            -1 => Err(kinlock_linux::sys::system_call_error()),
            result => Ok(result),
        }
    }};
}
pub(super) use system_call;

/// The mapping of the table. In the child of a fork, other memory is mapped in the same place.
pub(super) static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// Whether the machine of the table has several locality domains.
#[inline]
pub(super) fn has_domains() -> bool {
    FORK.has_domains.load(Relaxed)
}

/// A page that the kernel clears in the child of a fork.
#[repr(C, align(4096))]
pub(super) struct ForkPage {
    /// A number that tells the table from what it was in other windows, and from the tables of the
    /// processes that this one was forked from: below [`TAGS`]; 0: there is no table.
    pub(super) tag: AtomicU32,
    /// The window that the table is of, or for which it could not be made.
    pub(super) window: AtomicU32,
    /// [`NOT_MADE`], then [`MAKING`], then [`MADE`] or [`FAILED`]; in the child of a fork
    /// [`NOT_MADE`] again.
    pub(super) state: AtomicU32,
    /// Whether the machine has several locality domains. It is here, next to what each acquisition
    /// reads.
    pub(super) has_domains: AtomicBool,
    room: [u8; PAGE - 13],
}

pub(super) static FORK: ForkPage = ForkPage {
    tag: AtomicU32::new(0),
    window: AtomicU32::new(0),
    state: AtomicU32::new(NOT_MADE),
    has_domains: AtomicBool::new(false),
    room: [0; PAGE - 13],
};

const _: () = assert!(size_of::<ForkPage>() == PAGE);

/// No lock has been taken in this process.
pub(super) const NOT_MADE: u32 = 0;
/// A thread makes the table. Other threads wait for it.
pub(super) const MAKING: u32 = 1;
/// There is a table.
pub(super) const MADE: u32 = 2;
/// There will be no table in this process.
pub(super) const FAILED: u32 = 3;

/// Tells the table from those of parent processes and of earlier windows, of which a thread may
/// still have addresses; 0: there is no table of this window. It is below [`TAGS`].
#[inline]
pub(super) fn tag() -> usize {
    match is_of_window() {
        true => tag_of_table(),
        false => 0,
    }
}

/// The tag, whichever window the table is of.
#[inline]
pub(super) fn tag_of_table() -> usize {
    FORK.tag.load(Relaxed) as usize
}

/// Whether no new window has begun since the table was made or cleared.
#[inline]
pub(super) fn is_of_window() -> bool {
    FORK.window.load(Relaxed) == window()
}

/// The number of tags.
pub(super) const TAGS: usize = 1 << 15;

/// The table, if there is one of this window.
#[inline]
pub(super) fn table() -> Option<&'static Table> {
    // Acquire pairs with the release in `make.rs` that stores the tag, last of all.
    if FORK.tag.load(Acquire) == 0 || !is_of_window() {
        return None;
    }
    // SAFETY: invariant 3: it is null or the table, which is never unmapped. Zeros are valid.
    unsafe { TABLE.load(Acquire).as_ref() }
}

/// The table to which a part belongs, whichever window it is of.
#[inline]
pub(super) fn table_with<T>(_: &'static T) -> Option<&'static Table> {
    // SAFETY: invariant 3: as in `table`.
    unsafe { TABLE.load(Relaxed).as_ref() }
}

// ---- pages ----------------------------------------------

/// The number of the page that an address in the table lies on.
#[inline]
fn page_of(table: &Table, address: usize) -> usize {
    (address - ptr::from_ref(table).addr()) / PAGE
}

#[inline]
pub(super) fn is_page_present(header: &Header, page: usize) -> bool {
    header.present[page / 64].load(Relaxed) & 1 << (page % 64) != 0
}

/// Whether a part of the table may be touched. If not, the part counts as zeros.
///
/// Its pages may have been asked for one by one, and its first page may be there for the sake of
/// the part before it.
#[inline]
pub(super) fn is_present<T>(table: &Table, part: &T) -> bool {
    let begin = ptr::from_ref(part).addr();
    let first = page_of(table, begin);
    // What is no larger than its alignment lies on one page.
    let last = match size_of::<T>() <= align_of::<T>() {
        true => first,
        false => page_of(table, begin + size_of::<T>() - 1),
    };
    (first..=last).all(|page| is_page_present(&table.header, page))
}

/// The number of refusals after which the kernel is not asked for memory any more.
const REFUSALS: u32 = 64;

/// Asks for memory for a part of the table. If that succeeds, the part may be touched from now on.
pub(super) fn provide<T>(table: &Table, part: &T) -> bool {
    let begin = ptr::from_ref(part).addr();
    let pages = page_of(table, begin)..=page_of(table, begin + size_of::<T>() - 1);
    let header = &table.header;
    pages.into_iter().all(|page| {
        is_page_present(header, page)
            || header.no_memory.load(Relaxed) < REFUSALS && provide_page(table, page)
    })
}

#[cold]
#[inline(never)]
fn provide_page(table: &Table, page: usize) -> bool {
    let address = ptr::from_ref(table).addr() + page * PAGE;
    if !has_memory(address) {
        table.header.no_memory.fetch_add(1, Relaxed);
        return false;
    }
    table.header.present[page / 64].fetch_or(1 << (page % 64), Relaxed);
    true
}

/// Provides memory for a page, if there is any: the kernel is asked to change a word of it by a
/// bitwise or with 0. Touching a page for which there is no memory would end the program by a
/// signal; this call returns an error instead. Other threads may use the word.
pub(super) fn has_memory(address: usize) -> bool {
    /// A bitwise or with 0. The comparison with 1 that comes with it does not matter.
    const OR_ZERO: libc::c_int = 2 << 28 | 1;
    const WAKE_OP: libc::c_int = 5 | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: invariant 9: the kernel checks the address. No thread waits there, so none is woken.
    let provided = unsafe {
        system_call!(
            libc::SYS_futex,
            address,
            WAKE_OP,
            0,
            0_usize,
            address,
            OR_ZERO,
        )
    };
    provided.is_ok()
}
