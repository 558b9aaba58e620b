//! Standing by: the page with the mode becomes a file, in which the command switches measuring on.
//!
//! Each program makes such a file when it starts (`PATH.switch.PROCESS`), as a rule before it has
//! threads. The children of a fork share it. A process that ends by itself removes the file if no
//! other process has it mapped; the command removes the file of a process that was killed.
//!
//! A process that cannot make the file runs on, and cannot be measured.

use super::files::{Name, close, largest_file, map, open, process};
use super::memory::{has_memory, system_call};
use super::mode;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use kinlock_report::{MAGIC, PAGE, REPORTS, SWITCH, Switch};

/// The process that has the file mapped as its own, or as the child of a fork. 0: none has. A child
/// of `vfork` shares the memory, but has another number.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static NAME: Name = Name::new();
/// Whether the environment asks for standing by, even if there is no file.
static STANDS_BY: AtomicBool = AtomicBool::new(false);

/// Whether the process stands by.
#[inline]
pub(super) fn is_used() -> bool {
    STANDS_BY.load(Relaxed)
}

/// Notes that the process is to stand by. Its page is not a file yet.
pub(super) fn expect() {
    STANDS_BY.store(true, Relaxed);
}

/// Whether the process is measured now.
pub(super) fn is_on() -> bool {
    mode::page().switch.mode.load(Relaxed) & REPORTS != 0
}

/// Tells the command that the process has no table in this window.
pub(super) fn has_failed(error: libc::c_int) {
    if is_used() {
        mode::page().switch.errno.store(error as u32, Relaxed);
    }
}

/// Makes the file, after the mode has been chosen.
pub fn begin() {
    // SAFETY: invariant 9.
    let is_usual = unsafe { libc::getauxval(libc::AT_PAGESZ) } == PAGE as u64;
    // A larger page would hold other variables, too.
    if is_usual && largest_file() >= PAGE as u64 {
        if let Ok(file) = NAME.new_file(format_args!("{SWITCH}.{}", process())) {
            match replace_page(file) {
                true => PROCESS.store(process(), Relaxed),
                false => NAME.unlink(),
            }
            close(file);
        }
    }
}

/// Maps the file in the place of the page with the mode.
fn replace_page(file: libc::c_int) -> bool {
    // SAFETY: invariant 9.
    let sized = unsafe { system_call!(libc::SYS_ftruncate, file, PAGE) };
    let Ok(copy) = sized.and_then(|_| map(file, PAGE, 0)) else {
        return false;
    };
    let has_memory = has_memory(copy);
    if has_memory {
        fill(copy);
    }
    // SAFETY: invariant 9: nothing refers to this mapping any more.
    _ = unsafe { system_call!(libc::SYS_munmap, copy, PAGE) };
    has_memory && map(file, PAGE, page()).is_ok()
}

fn page() -> usize {
    ptr::from_ref(mode::page()).expose_provenance()
}

/// Copies the page with the mode to another page, of zeros.
fn fill(copy: usize) {
    let from = &mode::page().switch;
    // SAFETY: invariant 3 holds for this page as for the table.
    let to: &Switch = unsafe { &*ptr::with_exposed_provenance(copy) };
    to.mode.store(from.mode.load(Relaxed) & !REPORTS, Relaxed);
    to.rwlock_mode
        .store(from.rwlock_mode.load(Relaxed) & !REPORTS, Relaxed);
    to.window.store(from.window.load(Relaxed), Relaxed);
    to.magic.store(MAGIC, Release);
}

/// In the child of a fork: notes that this process has the file mapped.
pub extern "C" fn begin_in_child() {
    if PROCESS.load(Relaxed) != 0 {
        PROCESS.store(process(), Relaxed);
    }
}

/// Called when the process ends by itself: removes the file if no other process has it mapped.
pub fn finish() {
    let has_file = PROCESS.load(Relaxed) != 0;
    if !has_file || process() != PROCESS.load(Relaxed) {
        return;
    }
    if give_page_back() {
        PROCESS.store(0, Relaxed);
        if let Ok(file) = open(&NAME, libc::O_RDONLY) {
            // The kernel refuses a lease to readers while the file is mapped to be written.
            // SAFETY: invariant 9; the file is ours.
            let lease =
                unsafe { system_call!(libc::SYS_fcntl, file, libc::F_SETLEASE, libc::F_RDLCK) };
            if lease.is_ok() {
                NAME.unlink();
            }
            close(file);
        }
    }
}

/// Replaces the file by other memory of the same contents, in one step for all threads.
fn give_page_back() -> bool {
    let Ok(copy) = map(-1, PAGE, 0) else {
        return false;
    };
    fill(copy);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: invariant 3: the page has the same contents as before.
    let moved = unsafe { system_call!(libc::SYS_mremap, copy, PAGE, PAGE, flags, page()) };
    moved.is_ok()
}
