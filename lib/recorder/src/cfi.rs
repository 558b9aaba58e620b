//! Finding the caller of a frame: by the rule that a shared object gives for its address.
//!
//! Reading that takes about a microsecond, so the rule for a return address is cached.

use super::stack::Readable;
use super::{entries, modules};
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::*};
use kinlock_report::unwind::{Registers, Rule};

/// The registers in the caller; `None` if it cannot be found.
pub(super) fn caller(at: &Registers, stack: &mut Readable) -> Option<Registers> {
    rule_of(at.pc).caller(at, |address| stack.read(address))
}

// ---- the cache ------------------------------------------

/// How many rules the cache holds.
const CACHED: usize = 1 << 14;
/// How many entries of the cache to search, from the one that the hash chooses.
const REACH: usize = 16;

struct Cached {
    pc: AtomicU64,
    /// 0 while it is being stored.
    rule: AtomicU64,
}

/// All zeros at first: the system provides memory only for the pages that are used.
static RULES: [Cached; CACHED] = [const {
    Cached {
        pc: AtomicU64::new(0),
        rule: AtomicU64::new(0),
    }
}; CACHED];

/// The rule for a return address, from the cache if it is there.
fn rule_of(pc: u64) -> Rule {
    let first = entries::scattered(pc) as usize;
    for step in 0..REACH {
        let cached = &RULES[(first + step) % CACHED];
        match cached.pc.load(Relaxed) {
            known if known == pc => match cached.rule.load(Relaxed) {
                0 => break,
                word => return Rule::of_word(word),
            },
            0 => {
                let rule = look_up(pc);
                if cached.pc.compare_exchange(0, pc, Relaxed, Relaxed).is_ok() {
                    cached.rule.store(rule.to_word(), Relaxed);
                }
                return rule;
            }
            _ => {}
        }
    }
    look_up(pc)
}

// ---- what a shared object says --------------------------

/// The rule for a return address, from the shared object that it lies in.
#[cold]
#[inline(never)]
fn look_up(pc: u64) -> Rule {
    // The address of the call itself: a call may be the last instruction of a function, and then
    // returns to the next one.
    let pc = pc - 1;
    let Some(module) = modules::find(pc) else {
        return Rule::End;
    };
    if module.unwinding.is_null() {
        return Rule::FRAME_POINTER;
    }
    let to_end = |from: u64| {
        let length = module.end.checked_sub(from)? as usize;
        // SAFETY: invariant 5.
        Some(unsafe { slice::from_raw_parts(from as *const u8, length) })
    };
    let described = Rule::described(pc, module.unwinding as u64, to_end);
    described.unwrap_or(Rule::FRAME_POINTER)
}
