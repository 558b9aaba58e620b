//! The page with the mode, which [standing by](super::switch) turns into a file.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use kinlock_report::{PAGE, Switch};

/// The mode, on a page of its own, in whose place a file can be mapped.
#[repr(C, align(4096))]
pub struct SwitchPage {
    /// The mode, and which window it is.
    pub switch: Switch,
    room: [u8; PAGE - size_of::<Switch>()],
}

const _: () = assert!(size_of::<SwitchPage>() == PAGE);

impl SwitchPage {
    /// A page with this mode for all kinds of locks.
    pub const fn new(mode: u32) -> Self {
        SwitchPage {
            switch: Switch {
                magic: AtomicU64::new(0),
                mode: AtomicU32::new(mode),
                rwlock_mode: AtomicU32::new(mode),
                window: AtomicU32::new(0),
                errno: AtomicU32::new(0),
            },
            room: [0; PAGE - size_of::<Switch>()],
        }
    }
}

/// The page of a program that contains the recorder. Its mode has the bits
/// [`REPORTS`](kinlock_report::REPORTS) and [`HOLDS`](kinlock_report::now::HOLDS).
pub static OWN: SwitchPage = SwitchPage::new(0);

static PAGE_OF_MODES: AtomicPtr<SwitchPage> = AtomicPtr::new((&raw const OWN).cast_mut());

/// Makes this the page with the mode from now on. Called before there is a table.
pub fn use_page(page: &'static SwitchPage) {
    PAGE_OF_MODES.store(core::ptr::from_ref(page).cast_mut(), Release);
}

#[inline]
pub(super) fn page() -> &'static SwitchPage {
    // SAFETY: invariant 3: it is a static.
    unsafe { &*PAGE_OF_MODES.load(Acquire) }
}

/// The number of the window that is measured, or was last; 0: there has been none.
#[inline]
pub(super) fn window() -> u32 {
    page().switch.window.load(Relaxed)
}
