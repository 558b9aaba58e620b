//! Finding the caller of a frame by call frame information (`.eh_frame`).
//!
//! Shared objects carry this description for debuggers and exceptions. It says for each
//! instruction where the caller's frame begins, relative to a register, and where the return
//! address is. Reading it takes about a microsecond, so the rule that it gives for a return address
//! is cached. Code without a description is taken to have frame pointers.

use super::stack::{Readable, Registers};
use super::{entries, modules};
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering::*};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};

#[cfg(target_arch = "aarch64")]
const FRAME: Register = gimli::AArch64::X29;
#[cfg(target_arch = "aarch64")]
const STACK: Register = gimli::AArch64::SP;
#[cfg(not(target_arch = "aarch64"))]
const FRAME: Register = gimli::X86_64::RBP;
#[cfg(not(target_arch = "aarch64"))]
const STACK: Register = gimli::X86_64::RSP;

/// How to find the caller from one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// There is no caller, or it cannot be found.
    End,
    /// The caller's frame begins `begin` bytes above the stack or the frame register. At `back`
    /// bytes from that beginning lies the return address, and at `frame` bytes the caller's frame
    /// register, if it was saved.
    Known {
        is_by_frame: bool,
        begin: i32,
        back: i16,
        frame: Option<i16>,
    },
}

/// The rule for code without a description.
const FRAME_POINTER: Rule = Rule::Known {
    is_by_frame: true,
    begin: 16,
    back: -8,
    frame: Some(-16),
};

impl Rule {
    /// The rule in a word that is never 0.
    fn to_word(self) -> u64 {
        match self {
            Rule::End => 1,
            Rule::Known {
                is_by_frame,
                begin,
                back,
                frame,
            } => {
                // All offsets are multiples of 8, so their lowest bits are free.
                let flags = 2 | u64::from(is_by_frame);
                let frame = frame.map_or(1, |at| at as u16);
                u64::from(begin as u32) << 32
                    | u64::from(back as u16 & !7 | flags as u16) << 16
                    | u64::from(frame)
            }
        }
    }

    fn of_word(word: u64) -> Self {
        if word == 1 {
            return Rule::End;
        }
        let (back, frame) = ((word >> 16) as u16, word as u16);
        Rule::Known {
            is_by_frame: back & 1 != 0,
            begin: (word >> 32) as i32,
            back: (back & !7) as i16,
            frame: (frame != 1).then_some(frame as i16),
        }
    }
}

/// The registers in the caller; `None` if it cannot be found.
pub(super) fn caller(at: &Registers, stack: &mut Readable) -> Option<Registers> {
    let Rule::Known {
        is_by_frame,
        begin,
        back,
        frame,
    } = rule_of(at.pc)
    else {
        return None;
    };
    let base = if is_by_frame { at.frame } else { at.stack };
    let begin = base.wrapping_add_signed(begin.into());
    let mut read = |offset: i16| stack.read(begin.wrapping_add_signed(offset.into()));
    let pc = without_signature(read(back)?);
    let frame = match frame {
        Some(offset) => read(offset)?,
        None => at.frame,
    };
    Some(Registers {
        pc,
        stack: begin,
        frame,
    })
}

/// On aarch64, return addresses may carry a signature in bits that no address uses.
fn without_signature(pc: u64) -> u64 {
    match cfg!(target_arch = "aarch64") {
        true => pc & ((1 << 48) - 1),
        false => pc,
    }
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

/// Memory for reading one description: room for the registers that a function saves, and for the
/// rows that it remembers.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 2];
}

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
        return FRAME_POINTER;
    }
    described(pc, &module).unwrap_or(FRAME_POINTER)
}

/// What a shared object's description says. `None`: it has none for this address.
fn described(pc: u64, module: &modules::Found) -> Option<Rule> {
    let to_end = |from: u64| {
        let length = module.end.checked_sub(from)? as usize;
        // SAFETY: invariant 5.
        let bytes = unsafe { slice::from_raw_parts(from as *const u8, length) };
        Some(EndianSlice::new(bytes, NativeEndian))
    };
    let index = module.unwinding as u64;
    let bases = BaseAddresses::default().set_eh_frame_hdr(index);
    let header = EhFrameHdr::new(to_end(index)?.slice(), NativeEndian);
    let header = header.parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(begin) = header.eh_frame_ptr() else {
        return None;
    };
    let bases = bases.set_eh_frame(begin);
    let section = EhFrame::new(to_end(begin)?.slice(), NativeEndian);
    let table = header.table()?;
    let entry = table.fde_for_address(&section, &bases, pc, EhFrame::cie_from_offset);
    let entry = entry.ok()?;
    let mut context = UnwindContext::<usize, Storage>::new_in();
    let row = entry.unwind_info_for_address(&section, &bases, &mut context, pc);
    let back = entry.cie().return_address_register();
    Some(row.map_or(Rule::End, |row| of_row(row, back).unwrap_or(Rule::End)))
}

/// The rule that a row of the description gives. `None`: it uses expressions or other registers,
/// which are not followed here.
fn of_row(row: &UnwindTableRow<usize, Storage>, back: Register) -> Option<Rule> {
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let is_by_frame = register == FRAME;
    if !is_by_frame && register != STACK {
        return None;
    }
    let short = |offset: i64| i16::try_from(offset).ok().filter(|at| at % 8 == 0);
    let RegisterRule::Offset(back) = row.register(back) else {
        return None;
    };
    let frame = match row.register(FRAME) {
        RegisterRule::Offset(offset) => Some(short(offset)?),
        RegisterRule::Undefined | RegisterRule::SameValue => None,
        _ => return None,
    };
    Some(Rule::Known {
        is_by_frame,
        begin: i32::try_from(offset).ok()?,
        back: short(back)?,
        frame,
    })
}
