//! The functions that the library exports in the C library's place, and the decisions that each
//! call begins with.
//!
//! Whose is the object: ours (`posix`), or delegated to the C library (`libc`)? The object's kind
//! or flags say that. Is the call counted or reported (`traced`)? The mode says that; the first
//! call [chooses](choice) it. In the usual mode, a call for an object of ours takes a fast path,
//! which decides both by one or two loads. All other calls take the cold path. Each file has these
//! functions for it:
//!
//! | function | what it does |
//! | --- | --- |
//! | `cold_lock`, `cold_unlock` | find out the mode: traced or not |
//! | `traced_lock`, `traced_unlock` | tell `traced` what happens, around `lock` and `unlock` |
//! | `lock`, `unlock` | call `posix_lock` or `libc_lock`, and likewise for the release |

use crate::mode::Mode;
use crate::traced::report;

/// Functions that are exported under their names.
macro_rules! exported {
    ($($visibility:vis $name:ident($($parameter:ident: $type:ty),*) = $result:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            $visibility unsafe extern "C-unwind" fn $name(
                $($parameter: $type),*
            ) -> core::ffi::c_int {
                // SAFETY: invariants 1 and 3; this function demands what the called one does.
                unsafe { $result }
            }
        )*
    };
}

/// Tells the report that the memory will hold another object, or none.
fn end_reported<T>(mode: Mode, object: *const T) {
    if mode.reports() {
        report::lock_ended(object as u64);
    }
}

mod c11;
pub(crate) mod choice;
mod condvar;
mod keys;
mod mutex;
mod rwlock;
mod spin;
mod waits;
