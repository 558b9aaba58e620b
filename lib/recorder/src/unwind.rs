//! Finding the callers: the return addresses on the calling thread's stack.

use super::stack::{Readable, here};
use super::{cfi, modules};
use kinlock_report::FRAMES;

/// Return addresses, innermost first. Calls within this library are left out.
pub(super) struct Frames {
    list: [u64; FRAMES],
    count: usize,
}

/// How many frames to look at, including those of this library.
const MOST: usize = FRAMES + 24;

/// Notes that the recorder was entered by the function that calls this one, which is never inlined:
/// the report shows the callers of that function. For a program that contains the recorder.
#[inline(always)]
pub fn enter() {
    super::thread::enter(here().stack);
}

/// Collects the callers of this function.
#[inline(never)]
pub(super) fn capture() -> Frames {
    let mut frames = Frames {
        list: [0; FRAMES],
        count: 0,
    };
    let mut at = here();
    let mut stack = Readable::new(at.stack);
    let entered = super::thread::entered();
    for _ in 0..MOST {
        // A program that contains the recorder has told where its own frames end.
        if !modules::is_own(at.pc) && at.stack > entered {
            frames.list[frames.count] = at.pc;
            frames.count += 1;
        }
        let Some(caller) = cfi::caller(&at, &mut stack) else {
            break;
        };
        if frames.count == FRAMES || caller.pc == 0 || caller.stack <= at.stack {
            break;
        }
        at = caller;
    }
    frames
}

impl Frames {
    pub(super) fn list(&self) -> &[u64] {
        &self.list[..self.count]
    }

    /// A key for the table's index: never 0, which marks a free entry, nor
    /// [`FREED`](kinlock_report::FREED).
    pub(super) fn hash(&self) -> u64 {
        let hash = self.list().iter().fold(0, |hash: u64, frame| {
            (hash.rotate_left(23) ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (hash ^ hash >> 32) | 4
    }
}
